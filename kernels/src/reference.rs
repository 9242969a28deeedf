//! The slow, obvious version of each operation in `f64`: the oracle of the tests. [`split`] is exact: its bits are
//! those of the fast versions.

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
pub mod split;
pub mod swiglu;
pub mod thin;
