//! Public entries of the operations: one file per operation, with its formula and shapes in the head.

pub mod block_sum;
pub mod linear;
pub mod thin;
