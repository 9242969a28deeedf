//! What travels between processes, as types; how it travels is in `net`.
//!
//! | room | from | to |
//! | --- | --- | --- |
//! | [`request`] | command line, load harness | coordinator |
//! | [`order`] | coordinator | gpu-actor |
//! | [`notice`] | gpu-actor | coordinator |
//! | [`market`] | market actor | coordinator: what is offered, what jobs owe |
//! | [`view`] | coordinator | people: what replies show |
//! | [`chunk`] | a stage | its neighbours: activations and gradients |
//! | [`opening`] | who opens a stream | who is asked |
//!
//! [`codec`] turns messages into bytes and back, [`version`] names the protocol.
//!
//! Specifications travel as their JSON text: what a peer of another version does not know is then refused by name.

pub mod chunk;
pub mod codec;
pub mod market;
pub mod notice;
pub mod opening;
pub mod order;
pub mod request;
pub mod version;
pub mod view;
