//! Plans: which jobs share a pass, in which order passes run, how data is cut, where layers lie.
//!
//! Pure functions over integers: nanoseconds, bytes, tokens. `plan/README.md` has the properties and their proofs.
//!
//! | room | one line |
//! | --- | --- |
//! | [`snapshot`] | the problem |
//! | [`bounds`] | the largest numbers that it may have |
//! | [`profile`] | what one kind of device takes for each operation: the file |
//! | [`curve`] | a quantity by size: monotone, piecewise linear |
//! | [`adapter`] | what a job's adapter adds to a pass |
//! | [`device`] | one kind of device, computing one model |
//! | [`mix`] | the time of jobs that share a pass |
//! | [`memory`] | the bytes of a stage |
//! | [`pipeline`] | a replica: stages, links, and what passes take there |
//! | [`place`] | layers to stages to nodes |
//! | [`estimate`] | a quick prediction of a step |
//! | [`fuse`] | task level: which jobs share a pass |
//! | [`order`] | operator level: in which order passes run |
//! | [`align`] | data level: chunks without padding |
//! | [`arrange`] | all three for the jobs of one replica |
//! | [`fair`] | whose job goes first |
//! | [`admit`] | who trains, who waits, who never can |
//! | [`solve`] | from a snapshot and the plan before to the plan |
//! | [`answer`] | the plan |
//! | [`check`] | what every plan must hold |
//! | [`explain`] | why a plan is so |
//! | [`long_sequence`] | the sequence that steps of other jobs wait for |
//! | [`quote`] | what a job will take and cost |

pub mod adapter;
pub mod admit;
pub mod align;
pub mod answer;
pub mod arrange;
pub mod bounds;
pub mod check;
pub mod curve;
pub mod device;
pub mod estimate;
pub mod explain;
pub mod fair;
pub mod fuse;
pub mod long_sequence;
pub mod memory;
pub mod mix;
pub mod order;
pub mod pipeline;
pub mod place;
pub mod profile;
pub mod quote;
pub mod snapshot;
pub mod solve;
#[cfg(test)]
pub(crate) mod testing;
