//! What a stage computes: blocks, adapters at their sites, loss, gradients and steps. Pure.

pub mod adapter;
pub mod agreement;
mod attend;
mod block;
mod bottleneck;
pub mod buffers;
pub mod cache;
mod carried;
mod chunks;
mod dropout;
mod embed;
pub mod footprint;
mod gradient;
mod in_flight;
mod linear;
mod linear_reverse;
mod loss;
pub mod optim;
pub mod outcome;
pub mod partial;
mod pass;
pub mod relay;
pub(crate) mod reparam;
pub mod step;
mod sums;
pub mod tape;
pub mod timing;
