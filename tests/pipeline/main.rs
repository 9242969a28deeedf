//! Any number of stages: the same bits as one.
//!
//! | file | what |
//! | --- | --- |
//! | `tiny`, `run` | models of several layers, and how jobs are run on one stage or more |
//! | `methods` | every method alone and all together, on one to five stages |
//! | `recompute` | layers that run forward again on any stage |
//! | `chunks` | long sequences that pass in chunks |
//! | `mixes` | random jobs, passes, budgets and credits |
//! | `arranged` | jobs that share passes and take turns in any way |
//! | `spread` | long steps that are spread over turns |
//! | `broken` | a job whose numbers break is set aside on all stages, in its last good state |
//! | `plans` | whatever the planner makes of random nodes: shared passes, uneven cuts, copies, waiting |
//! | `recovery` | killed, rebuilt on other stages, halted: the same final bits |
//! | `drain` | steps that are planned and not begun are taken back |
//! | `hurry` | steps that are not waited for: orders and ends in the middle of one |
//! | `hastened` | states that are stored more often while a machine may be taken |
//! | `partial` | stages that open their own layers |
//! | `texts` | sampled over stages |
//! | `sharing` | steps that several replicas share |
//! | `helping` | what a lead says to another, word by word: due ones, late ones and such as do not fit |
//! | `stalls` | what cannot go on says why |
//! | `watch` | what an observer is told |

#![allow(clippy::unwrap_used, reason = "tests")]

mod arranged;
mod broken;
mod chunks;
mod drain;
mod hastened;
mod helping;
mod hurry;
mod methods;
mod mixes;
mod partial;
mod plans;
mod recompute;
mod recovery;
mod run;
mod sharing;
mod spread;
mod stalls;
mod texts;
mod tiny;
mod watch;
