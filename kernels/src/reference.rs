//! The slow, obvious version of each operation in `f64`: the oracle of the tests.

pub mod block_sum;
pub mod linear;
pub mod thin;
