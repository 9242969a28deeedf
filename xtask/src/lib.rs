//! The gate of the repository. It reads files and runs tools; it imports no other crate of the workspace.
//!
//! | room | one line |
//! | --- | --- |
//! | [`finding`] | one thing wrong, where, and what to do |
//! | [`source`] | the workspace as tokens: what each file names, which modules there are |
//! | [`layers`] | floors, purity, rings, unsafe code and file names; the table of rules is `layers/table.rs` |
//! | [`sizes`] | files that outgrow the house style |
//! | [`gate`] | `cargo xtask validate`: every check, timed, one list of failures |
//! | [`peer`] | `cargo xtask bench-peer`: our training against separate PEFT processes, in turns |
#![forbid(unsafe_code)]

pub mod finding;
pub mod gate;
pub mod layers;
pub mod peer;
pub mod sizes;
pub mod source;
