//! Pieces of `spotmux profile`: what is timed, a few layers to time it on, and predictions beside measured steps.

pub(crate) mod bed;
pub(crate) mod gather;
pub(crate) mod pace;
pub(crate) mod products;
pub(crate) mod rungs;
pub(crate) mod trial;
pub(crate) mod way;
pub(crate) mod workload;
