//! Decides for a cluster: which jobs train where, and what happens when a node is lost.
//!
//! Pure machines in [`life`], a journal in [`store`]; sockets, clocks and threads are of the shell around them.
//!
//! ```text
//! clients, nodes, clock --> Coordinator::step(now, Input) --> Outcome { records, effects }
//!                                                               |          |
//!                               Journal::append (first) <-------+          +--> sockets, answers (then)
//! ```
//!
//! A shell, in order:
//!
//! 1. [`store::Journal::take_lease`]: the term. While another leads it waits, and takes over by what [`store::watch`] says.
//! 2. [`store::Journal::load`] and [`store::Loaded::book`]: what the journal says.
//! 3. [`Coordinator::begin`](life::cluster::Coordinator::begin): the first outcome.
//! 4. For every input: [`Coordinator::step`](life::cluster::Coordinator::step). For every outcome: append its records,
//!    *then* perform its effects in order. Several outcomes may share one append. A failed append ends the shell: the
//!    machine is ahead of the journal then, and must be built again from it.
//! 5. A tick several times a second; [`store::Journal::renew`] in a third of the lease's time; a snapshot of
//!    [`Coordinator::book`](life::cluster::Coordinator::book) every some thousand records.
//!
//! | room | pure | one line |
//! | --- | --- | --- |
//! | [`settings`] | yes | what decisions go by |
//! | [`record`] | yes | what the journal holds; each record is an event |
//! | [`book`] | yes | all records taken together |
//! | [`life::ledger`] | yes | jobs |
//! | [`life::membership`] | yes | nodes |
//! | [`life::placement`] | yes | layers to nodes |
//! | [`life::transition`] | yes | from one plan to the next |
//! | [`life::cluster`] | yes | all of it: the machine that a shell drives |
//! | [`actor`] | no | the shell |
//! | [`store`] | memory only | the journal, its lease and fence |

#![forbid(unsafe_code)]

pub mod actor;
pub mod book;
pub mod life;
pub mod plan;
pub mod record;
pub mod settings;
pub mod store;
