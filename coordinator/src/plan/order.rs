//! Operator level: in which order passes and their parts run.
//!
//! | room | one line |
//! | --- | --- |
//! | [`buckets`] | hybrid tasks that run inside one clock of the pipeline |
//! | [`template`] | which stage takes which pass when |
//! | [`replay`] | the same by a discrete-event simulation: the judge |
//! | [`subgraph`] | the order of subgraphs of several hybrid tasks inside a clock |
//! | [`adapters`] | whose adapters may share a kernel |

pub mod adapters;
pub mod buckets;
pub mod replay;
pub mod subgraph;
pub mod template;
#[cfg(test)]
mod tests;
