//! Pieces of `spotmux bench train`: the jobs to measure, what is found, and the bare products
//! that any trainer must make. And those of `spotmux bench pipeline`.

pub(crate) mod figures;
pub(crate) mod levels;
pub(crate) mod load;
pub(crate) mod peak;
pub(crate) mod pipeline;
pub(crate) mod products;
