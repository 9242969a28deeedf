//! Training a file of jobs: read, prepared, predicted, run, kept. `train` and `demo` share it.
//!
//! | file | one line |
//! | --- | --- |
//! | `job_file` | the file of jobs and what the command line changes in it |
//! | `prepare` | each job with its data, values and earlier state, or everything that is wrong |
//! | `memory` | what the run will need, against what there is |
//! | `run` | the loop: rounds, events, saves |
//! | `place` | the folder of a job's results, and the metrics in it |
//! | `keep` | checkpoints and adapters |
//! | `record` | which job wrote an adapter, and what its files must be |
//! | `lock` | one run a folder |
//! | `board` | progress of all jobs |
//! | `report` | what came of it |

pub(crate) mod board;
pub(crate) mod job_file;
pub(crate) mod keep;
pub(crate) mod lock;
pub(crate) mod memory;
pub(crate) mod place;
pub(crate) mod prepare;
pub(crate) mod record;
pub(crate) mod report;
pub(crate) mod run;
