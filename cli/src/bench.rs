//! Pieces of `spotmux bench train`: the jobs to measure, and the bare products that any trainer must make.

pub(crate) mod load;
pub(crate) mod products;
