//! A job cannot tell that it had company: the contract of the engine, as properties on tiny models.
//!
//! | file | what |
//! | --- | --- |
//! | `tiny`, `run` | models, and how random jobs are run |
//! | `company` | any neighbours, arrivals, passes and threads: the same bits as alone |
//! | `machine` | any instruction set and any number of threads: the same bits |
//! | `quarantine` | a job whose numbers break stops alone |
//! | `recompute` | layers that run forward again: the same bits, and memory known before |
//! | `chunks` | long sequences that pass in chunks: the same bits, in bounded memory |
//! | `head` | blocks without labels keep their place in the sums of the head |
//! | `splits` | any split of a batch and any cut of passes: the same update |
//! | `spread` | long steps that are spread over turns, and what happens in the middle of one |
//! | `packing` | a sample's loss is its own, whatever lies beside it |
//! | `skew` | any split of a pass between jobs ends |
//! | `sampling` | a text is its own, however it is cut, whoever came and went |
//! | `churn` | slots that are freed and taken again change nobody's text |
//! | `resume` | a job that goes on from a checkpoint ends with the same bits |
//! | `unlabelled` | a row that trains nothing never reaches a step |
//! | `movement` | every target that was asked for is trained, and nothing else is touched |
//! | `parity` | losses, gradients and updates agree with the judge, on every family and storage format |

#![allow(clippy::unwrap_used, reason = "tests")]

mod broken;
mod chunks;
mod churn;
mod company;
mod head;
mod machine;
mod movement;
mod packing;
mod parity;
mod quarantine;
mod recompute;
mod resume;
mod run;
mod sampling;
mod skew;
mod splits;
mod spread;
mod tiny;
mod unlabelled;

use proptest::test_runner::Config;
use system_tests::{method, plan};

/// So many random cases; `PROPTEST_CASES` (256 when it is not set) makes them more.
fn cases(count: u32) -> Config {
    let usual = Config::default();
    Config {
        cases: (count * usual.cases / 256).max(1),
        failure_persistence: None,
        ..usual
    }
}
