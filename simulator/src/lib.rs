//! A whole cluster in virtual time, from one seed.
//!
//! The coordinator is the real machine, its journal the real one in memory, and so is the pipeline of every stage.
//! Around them, nodes are small honest models: they obey orders as a gpu-actor does, but a step of a job is one link
//! of a hash chain, and its state is that hash. Everything else is against them: connections break, processes die and
//! come back, halt for a while, machines are said to be taken soon, the network is cut, messages come twice, the wall clock jumps, the coordinator dies
//! between any two effects, and two coordinators want to lead.
//!
//! | id | invariant |
//! | --- | --- |
//! | SIM-1 | an accepted job is in the journal once, however often it was submitted |
//! | SIM-2 | in the history that survives, each step of a job follows the one before |
//! | SIM-3 | no job is taken up at a step before its durable one |
//! | SIM-4 | epochs of plans only grow, in the journal and on every process |
//! | SIM-5 | one process leads a replica under an epoch, and no process obeys an older term |
//! | SIM-6 | when faults end, every job ends (a virtual watchdog waits) |
//! | SIM-7 | what is exported is what an undisturbed run exports |
//! | SIM-8 | the journal, replayed, is the state it was written from |
//! | SIM-9 | the pipelines are never told what does not fit their state |
//! | SIM-10 | a move with notice takes no step back |
//! | SIM-11 | no job is said to run on a broken replica |
//! | SIM-12 | replicas that are linked were seated by one plan, by the same cut, and each says so of the other |
//! | SIM-13 | a node that leaves is let go only when it has no seat |
//! | SIM-14 | what a first stage is told of how its jobs train together is sound |
//!
//! Two clusters in three have a planner, which is slow, or does not answer. There AS-1 to AS-3 of
//! `coordinator::life::cluster` are looked at too: what is asked, who is told what when it comes back, and, by SIM-6, that
//! nothing waits for an answer. First stages form their passes as they were told.
//!
//! One seed is one history: [`run`] twice gives the same [`Report`], whose `log` is a hash of all that happened.
//!
//! [`fleet`] is another simulation: what the planner's choices are worth over a week of many GPUs.

#![forbid(unsafe_code)]

pub mod fleet;

mod artifacts;
mod dice;
mod model;
mod queue;
mod world;

pub use world::{Arranged, Report, Violation, run, trace};
