//! Sampling text with any adapter, or none, on the shared backbone.

pub mod choice;
pub mod generator;
