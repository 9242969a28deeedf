//! Golden references on disk, and the comparison of anything that can train against them.
//!
//! A set is a folder: `data.json` with token rows; `models/NAME` with a model in the Hugging Face layout, its
//! expected logits and losses; `cases/NAME` with an adapter before and after training, the gradient of the first
//! step, and `case.json` with method, optimizer, batches and losses. Nothing here knows which models, methods or
//! numbers a set holds.

pub mod case;
pub mod comparison;
pub mod contestant;
pub mod judge;
pub mod method;
pub mod safetensors_file;
pub mod set;
