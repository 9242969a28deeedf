//! Training a file of jobs: read, prepared, predicted, run, kept. `train` and `demo` share it.
//!
//! | file | one line |
//! | --- | --- |
//! | `job_file` | the file of jobs and what the command line changes in it |
//! | `prepare` | each job with its data, values and earlier state, or everything that is wrong |
//! | `accounting` | what became of the samples, and warnings of those not used |
//! | `memory` | what the run will need, against what there is |
//! | `run` | the loop: rounds, events, saves |
//! | `metrics` | the metrics of an earlier run, as far as a later one can go on with them |
//! | `place` | the folder of a job's results, and the metrics in it |
//! | `keep` | checkpoints and adapters |
//! | `record` | which job wrote an adapter, and what its files must be |
//! | `proof` | whether the files of an adapter are those of its record |
//! | `lock` | one run a folder |
//! | `board` | progress of all jobs |
//! | `report` | what came of it |

pub(crate) mod accounting;
pub(crate) mod board;
pub(crate) mod job_file;
pub(crate) mod keep;
pub(crate) mod lock;
pub(crate) mod memory;
mod metrics;
pub(crate) mod place;
pub(crate) mod prepare;
pub(crate) mod proof;
pub(crate) mod record;
pub(crate) mod report;
pub(crate) mod run;
