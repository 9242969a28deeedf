//! What travels between processes, as types; how it travels is in `net`.
//!
//! | room | from | to |
//! | --- | --- | --- |
//! | [`request`] | command line, load harness | coordinator |
//! | [`order`] | coordinator | gpu-actor |
//! | [`notice`] | gpu-actor | coordinator |
//! | [`view`] | coordinator | people: what replies show |
//!
//! Specifications travel as their JSON text: what a peer of another version does not know is then refused by name.

pub mod notice;
pub mod order;
pub mod request;
pub mod view;
