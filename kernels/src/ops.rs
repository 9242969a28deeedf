//! Public entries of the operations: one file per operation, with its formula and shapes in the head.

pub mod attention;
pub mod block_sum;
pub mod dora;
pub mod elementwise;
pub mod head;
pub mod linear;
pub mod optimizer;
pub mod rms_norm;
pub mod rope;
pub mod sparse;
pub mod swiglu;
pub mod thin;
