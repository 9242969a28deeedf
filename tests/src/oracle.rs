//! The judge: a slow, obvious model in f64 with every gradient written by hand.
//!
//! One sequence at a time, no padding, no fusion, no cleverness: each file is one formula and its reverse, checked by
//! finite differences. What the engine computes in f32 over packed batches must agree with this, and this must agree
//! with the golden files of other libraries. Parameters are keyed by the PEFT library's names.

pub mod activation;
pub mod adapter;
pub mod attention;
pub mod backbone;
pub mod block;
pub mod bottleneck;
pub mod cross_entropy;
#[cfg(test)]
pub(crate) mod differences;
pub mod dropout;
pub mod linear;
pub mod matrix;
pub mod optimizer;
pub mod prefix;
pub mod rms_norm;
pub mod rotary;
pub mod sequence;
pub mod step;
pub mod tensor;
