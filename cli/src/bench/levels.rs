//! Pieces of `spotmux bench plan`: a workload planned with each level off, and how long the engine takes for it.

pub(crate) mod carried;
pub(crate) mod figures;
pub(crate) mod question;
