//! Attention by tiles of queries and keys on the micro-kernel.
//!
//! A task is one key and value head of one sequence, with the query heads that share it, and a run of tiles. It takes one
//! key tile after another, transposes it once, and meets it with all of its query tiles; what a query tile needs of
//! earlier key tiles (running maximum, sum, output) waits meanwhile. So scratch is bounded whatever the length, and no
//! task needs another's.
//!
//! Pairs of tiles that cannot see each other are left out, and within a pair those strips of rows and columns that
//! are hidden. Of numbers, that is the same as adding them with weight 0, but for the sign of a zero: results get `+ 0.0`,
//! which makes all zeros positive.

mod backward;
mod forward;
mod group;
mod products;
mod sight;
mod softmax;
mod tasks;
mod tiles;

pub(crate) use backward::{Saved, Targets, run as backward};
pub(crate) use forward::run as forward;
pub(crate) use group::Group;
pub(crate) use tasks::{Task, run};

/// Rows of a query or key tile.
pub(crate) const TILE: usize = 64;

/// Rows of a strip within a pair of tiles that see each other in part.
const STRIP: usize = 16;
