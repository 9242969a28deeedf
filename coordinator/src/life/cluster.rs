//! The whole coordinator as one pure machine: what came in, what is to be written, what is to be done.
//!
//! A step returns records and effects. **The records must be in the journal before any effect is performed**: what
//! others are told is then never lost. A shell may take several inputs, append all their records in one transaction,
//! and then perform all their effects in order.
//!
//! Every order bears the term; every notice of an epoch that its replica does not stand under is counted and changes
//! nothing. After a restart, nodes say what they hold. Where that is what the journal says, they are only told how
//! many of their notices it has, and training was never interrupted; where it is not, a move is made.
//!
//! | id | invariant |
//! | --- | --- |
//! | CL-1 | no effect depends on a record that is not returned by the same or an earlier step |
//! | CL-2 | a numbered notice is acknowledged only when its change is in the records |
//! | CL-3 | at most one move is under way |
//! | CL-4 | jobs are given only to replicas at work |
//! | CL-5 | an unlucky cluster is laid out anew at most once in `bounds.retry`, and replicas end for a short notice at most once in it |
//! | CL-6 | where there is another plan, a replica is not seated for ever on nodes that never hold their seats |
//! | CL-7 | nodes are told to stop when all replicas at work or coming back are durable, or cannot be within `bounds.drain`; they are waited for no longer than that again |
//! | CL-8 | a node that leaves gets no seat, is let go once it has none, and its jobs are durable before, if time suffices, whatever else moves |
//! | CL-9 | a device that does not come back from its work costs its node the seat, however well the node is heard |
//! | CL-10 | a job that a replica cannot take fails only when the reason lasts longer than `bounds.outage` |
//! | CL-11 | a drain that no first stage heeds is tried `bounds.drain_tries` times, and then its replica is broken |
//! | CL-12 | nothing is remembered of a job that has ended but what the book has |
//! | CL-13 | no node is drained without force where fewer replicas would have a place than have one |
//! | CL-14 | nodes that leave as they were told to are not lost, and none is said to have left before it said so or was away for `bounds.reconnect` |
//! | CL-15 | in a step few jobs are found to fit no replica; what was found is kept while seats and their nodes stay |
//! | CL-16 | a job that fits no replica as they stand waits, with its reason, while a node may be had that could take it: drained, hanging, ending or away |
//! | CL-17 | a risk moves nothing: while it lasts, states of jobs on that machine are stored more often |

mod arranging;
mod begin;
mod blame;
mod closing;
mod device;
mod draining;
mod gate;
mod history;
mod hope;
mod jobs;
mod kept;
mod leaving;
mod market;
mod moves;
mod nodes;
mod notes;
mod outcome;
mod planning;
mod question;
mod readiness;
mod relay;
mod reprieve;
mod requests;
mod risk;
mod sharing;
mod shortage;
mod tempo;
mod terms;
mod unfit;
mod views;

#[cfg(test)]
mod tests;

pub use outcome::{Effect, Handle, Input, Now, Outcome};
pub use question::{Answer, Question};

use std::collections::{BTreeMap, BTreeSet};

use shared::ids::{NodeName, PlanEpoch, Term};
use shared::units::Micros;
use shared::wire::order::{Order, Ordered};

use self::arranging::Arranging;
use self::closing::Closing;
use self::history::History;
use self::notes::Notes;
use self::relay::Relay;
use super::membership::{LinkId, Membership};
use super::placement::NoPlace;
use super::transition::{Move, Settling};
use crate::book::Book;
use crate::record::{Change, Record};
use crate::settings::Settings;

/// The coordinator.
#[derive(Clone, Debug)]
pub struct Coordinator {
    settings: Settings,
    book: Book,
    members: Membership,
    /// What each node is known to hold: process and epoch.
    holding: BTreeMap<NodeName, (u64, PlanEpoch)>,
    /// Replicas whose seats do not all hold yet; those that are neither here nor broken are at work.
    settling: BTreeMap<u32, Settling>,
    /// How often in a row a node was among those that kept a replica from settling.
    strikes: BTreeMap<NodeName, u32>,
    /// Nodes that obeyed a newer leadership, as it was told.
    ahead: BTreeSet<NodeName>,
    moving: Option<Move>,
    lack: Option<NoPlace>,
    retry_at: Micros,
    /// No replica ends for a short notice before.
    hurry_at: Micros,
    /// Since when there was no replica.
    empty_since: Micros,
    history: History,
    relay: Relay,
    risks: risk::Risks,
    market: market::Market,
    closing: Option<Closing>,
    memory: gate::Memory,
    notes: Notes,
    arranging: Arranging,
    /// How often in a row a first stage did not end its steps in time.
    undrained: BTreeMap<NodeName, u32>,
    /// How often in a row a move was called off as states could not be stored.
    unstored: u32,
    ignored: u64,
    now: Now,
    out: Outcome,
}

impl Coordinator {
    /// Takes an input.
    pub fn step(&mut self, now: Now, input: Input) -> Outcome {
        self.now = now;
        match input {
            Input::Asked {
                handle,
                trace,
                request,
            } => self.asked(handle, &trace, request),
            Input::Sample { handle, job, order } => self.sample(handle, job.as_ref(), order),
            Input::Dropped(handle) => self.client_left(handle),
            Input::Recalled {
                handle,
                job,
                after,
                follow,
            } => self.recalled(handle, job, after, follow),
            Input::Prepared { job, outcome } => self.prepared(job, outcome),
            Input::Told { link, notice } => self.told(link, notice),
            Input::Closed(link) => self.closed(link),
            Input::Ended(link) => self.ended(link),
            Input::Arranged(answer) => self.arranged(answer),
            Input::Tick => {
                self.tick();
                self.let_go_of_old();
                self.tend_samples();
                self.arrange();
            }
        }
        self.finish()
    }

    /// What follows from whatever happened.
    fn finish(&mut self) -> Outcome {
        self.lay_out();
        self.let_go();
        self.assign();
        self.hasten();
        debug_assert!(self.notes.is_sound(&self.book.ledger), "CL-12");
        let told = self.history.follow();
        self.out.effects.extend(told);
        if self.out.effects.contains(&Effect::Finished) {
            // HI-2
            self.out
                .effects
                .retain(|effect| *effect != Effect::Finished);
            self.out.effects.extend(self.history.end());
            self.out.effects.push(Effect::Finished);
        }
        std::mem::take(&mut self.out)
    }

    /// All that outlives the coordinator; what a snapshot of the journal holds.
    #[must_use]
    pub fn book(&self) -> &Book {
        &self.book
    }

    /// Notices that were of another epoch, process or replica, and changed nothing.
    #[must_use]
    pub fn ignored(&self) -> u64 {
        self.ignored
    }

    /// How many clients wait for events to come.
    #[cfg(test)]
    pub(crate) fn followers(&self) -> usize {
        self.history.followers()
    }

    /// The leadership.
    #[must_use]
    pub fn term(&self) -> Term {
        self.book.term
    }

    /// Why the cluster has fewer replicas than wanted, if it has.
    #[must_use]
    pub fn lack(&self) -> Option<&NoPlace> {
        self.lack.as_ref()
    }

    /// Writes a change down and takes it.
    fn record(&mut self, change: Change) {
        let record = Record {
            number: self.book.last.next(),
            at: self.now.wall,
            change,
        };
        self.book.apply(&record).expect("the number is the next");
        self.history.push(record.view());
        match record.change.job() {
            Some(job) => {
                let state = self.book.ledger.get(job).map(|job| job.state);
                self.notes.follow(job, state);
            }
            None if record.change.displaces() => self.notes.follow_all(&self.book.ledger),
            None => {}
        }
        self.out.records.push(record);
    }

    fn effect(&mut self, effect: Effect) {
        self.out.effects.push(effect);
    }

    /// Sends an order to a node, if it has a link; what must arrive is sent again when it comes back.
    fn send(&mut self, node: &NodeName, order: Order) {
        if let Some(link) = self.members.link(node) {
            let term = self.book.term;
            self.effect(Effect::Send {
                link,
                node: node.clone(),
                ordered: Ordered { term, order },
            });
        }
    }

    fn close(&mut self, link: LinkId, reason: String) {
        self.effect(Effect::Close { link, reason });
    }

    /// The epoch that a replica stands under, and its first stage.
    fn lead(&self, replica: u32) -> Option<(NodeName, PlanEpoch)> {
        let standing = self.book.layout.replicas.get(&replica)?;
        Some((standing.seats.first()?.node.clone(), standing.since))
    }

    /// Whether a replica takes jobs.
    fn is_at_work(&self, replica: u32) -> bool {
        let there = self.book.layout.replicas.contains_key(&replica);
        there && !self.book.broken.contains(&replica) && !self.settling.contains_key(&replica)
    }

    /// Whether this leadership found a replica in the journal and has not heard yet that all its seats hold.
    fn is_attaching(&self, replica: u32) -> bool {
        let settling = self.settling.get(&replica);
        settling.is_some_and(Settling::is_attaching)
    }

    /// Whether the first stage of a replica can make durable what it knows: the replica is at work, or it is coming back
    /// and that stage is here with what it held.
    fn can_save(&self, replica: u32) -> bool {
        let back = || {
            let (lead, since) = self.lead(replica)?;
            let node = self.members.get(&lead).filter(|node| node.link.is_some())?;
            let held = self.holding.get(&lead)?;
            Some(*held == (node.hello.incarnation, since))
        };
        self.is_at_work(replica) || (self.is_attaching(replica) && back() == Some(true))
    }
}
