//! The market actor's decisions: from what the provider, the coordinator and the clock say to machines asked for and given up.
//!
//! One plan for the cluster: all live jobs share the machines, so their work is one number ([`work`]). At the begin of each slot, and
//! whenever a machine is lost, taken or refused, the policy says how many of which kind to hold; [`Broker::step`] turns the
//! difference to what stands into effects. Machines themselves are kept by [`crate::custody`].
//!
//! | file | |
//! | --- | --- |
//! | [`work`] | how much there is to do, how fast, and whose deadline presses |
//! | `under_way` | what is reckoned of steps that have not ended |
//! | [`progress`] | what jobs have done |
//! | [`stretch`] | from the first job to the last: deadline, policy, what is learned of it |
//! | [`history`] | what the pools offered, slot by slot |
//! | `offers` | what can be had now, pool by pool |
//! | `places` | where all jobs at work may be |
//! | `decide` | how many machines |
//! | `pressing` | for whose deadline |
//! | [`thought`] | what takes long to say, to be answered elsewhere |
//! | `reconcile` | machines asked for and given up so that as many stand |
//! | `machines`, `emptying` | what becomes of single machines; taking work off them first |
//! | [`purse`], `halts` | money, and what happens when there is none left |
//! | `report` | what the coordinator is told of risks, offers and money |
//! | `word` | what happens, and what is to be done |
//! | [`kept`] | what survives a restart |
//!
//! - BR-1: a machine that is given up is emptied first (the coordinator is asked to drain it) and released when it holds nothing,
//!   or after [`Terms::grace`].
//! - BR-2: nothing is given up before as many others serve as are wanted, but when there is no work or no money.
//! - BR-3: a risk changes no machine: it only lowers what is expected of the pool, and the coordinator is told until it knows; when
//!   it is over it is told that too.
//! - BR-4: what would pass the budget pauses all jobs, which saves them, and gives up all machines; a job's own budget pauses that
//!   job. A pause is asked again for as long as the job is seen at work. While the coordinator is not heard nothing can be saved
//!   first: machines beyond the budget, or beyond their grace, are released after [`UNHEARD`] times the grace.
//! - BR-5: spot takes the place of on-demand only after it was cheaper for [`Terms::hysteresis`] slots in a row.
//! - BR-6: what a restart must know is kept before what follows from it is done.
//! - BR-7: of a pool that took a machine away nothing is asked for [`Terms::rest`] while another has room, at no more than the least
//!   price on demand; what a policy is offered, and what is held against budgets, is what would be asked for.
//! - BR-8: while the coordinator is not heard nothing is decided: what jobs want is not known.
//! - BR-9: machines are where all jobs at work may be (`places`).
//! - BR-10: a job with a deadline whose steps are not known yet finds the fewest machines: it is admitted, and its steps are told, only
//!   where some serve. BR-11: spot of a pool that took too many machines is left alone for a while (`places`).

mod choosing;
mod decide;
mod emptying;
mod halts;
pub mod history;
pub mod kept;
mod machines;
mod offers;
mod places;
mod pressing;
pub mod progress;
pub mod purse;
mod reconcile;
mod report;
pub mod stretch;
pub mod thought;
pub mod told;
mod under_way;
mod word;
pub mod work;

use std::collections::{BTreeMap, BTreeSet};

use shared::ids::{JobId, NodeName};
use shared::units::{MicroUsd, Micros};

use crate::custody::record::Entry;
use crate::custody::{self, Custody, Stage};
use crate::market::Pool;
use crate::now::Now;
use crate::provider::{Kind, Sighting};
use crate::select::Selection;
use crate::terms::Terms;
use choosing::Lesson;
use emptying::Emptying;
use history::History;
use kept::{EVERY, Halts, Kept, Price};
use places::Places;
use purse::Purse;
use report::Report;
use stretch::Stretch;
use thought::Waiting;
use told::{JobTold, NodeTold};
pub use word::{Effect, Event};
use work::Meter;

/// Times [`Terms::grace`] that the coordinator may not be heard before machines beyond the budget or their grace are released.
pub const UNHEARD: u64 = 5;

/// How a broker begins.
#[derive(Clone, Debug)]
pub struct Start<'a> {
    /// What the operator set.
    pub terms: Terms,
    /// The record of machines.
    pub entries: &'a [Entry],
    /// What a broker before it kept.
    pub kept: Option<Kept>,
    /// How long machines may take.
    pub bounds: custody::Bounds,
    /// The provider's notice.
    pub notice: Micros,
    /// Differs from start to start: tokens of two starts are never the same.
    pub run: &'a str,
}

/// The whole of it.
#[derive(Debug)]
pub struct Broker {
    terms: Terms,
    custody: Custody,
    run: String,
    made: u32,
    history: History,
    sightings: Vec<Sighting>,
    stretch: Option<Stretch>,
    selection: Option<Selection>,
    /// Questions that were ever handed out.
    questions: u64,
    /// The wish that is waited for.
    waiting: Option<Waiting>,
    /// Stretches that are being replayed, by question.
    lessons: BTreeMap<u64, Lesson>,
    meter: Meter,
    /// Live jobs that are late.
    late: BTreeSet<JobId>,
    /// Live jobs of which it was told that they are, once.
    told_late: BTreeSet<JobId>,
    purse: Purse,
    halts: Halts,
    jobs: Vec<JobTold>,
    places: Places,
    nodes: BTreeMap<NodeName, NodeTold>,
    emptying: Emptying,
    /// What machines of pools that are shown or held cost when that was seen last.
    prices: Vec<Price>,
    /// Kinds that a pool refused, and until when they are not asked of it.
    refused: BTreeMap<(Kind, Pool), Micros>,
    /// Kinds of which a pool took a machine away, and until when other pools are asked first.
    avoided: BTreeMap<(Kind, Pool), Micros>,
    /// Machines that may be taken, and why.
    at_risk: BTreeMap<NodeName, String>,
    report: Report,
    /// Whether no pool is where the tenants at work may be.
    nowhere: bool,
    /// Slots in a row in which spot was cheaper.
    cheaper: u32,
    /// Until when money is counted.
    counted: Micros,
    /// Whether something changed that the policy must hear of.
    due: bool,
    /// Whether the coordinator is heard: while not, nothing is asked for.
    heard: bool,
    /// Since when it is not.
    unheard: Micros,
    /// Whether it goes on from another process, whose terms may have been others.
    resumed: bool,
    /// Whether something changed that a restart must know.
    changed: bool,
    kept_at: Micros,
    kept_spent: MicroUsd,
}

impl Broker {
    /// Goes on from what is on record and what was kept; what has passed since then by the wall is paid (PU-2).
    #[must_use]
    pub fn resumed(start: Start<'_>, now: Now) -> Self {
        let Start {
            terms,
            entries,
            kept,
            bounds,
            notice,
            run,
        } = start;
        let mut own = Self {
            custody: Custody::resumed(entries, bounds, notice, now),
            history: History::new(terms.slot, now),
            terms,
            run: run.to_owned(),
            made: 0,
            sightings: Vec::new(),
            stretch: None,
            selection: None,
            questions: 0,
            waiting: None,
            lessons: BTreeMap::new(),
            meter: Meter::default(),
            late: BTreeSet::new(),
            told_late: BTreeSet::new(),
            purse: Purse::default(),
            halts: Halts::default(),
            jobs: Vec::new(),
            places: Places::default(),
            nodes: BTreeMap::new(),
            emptying: Emptying::default(),
            prices: Vec::new(),
            refused: BTreeMap::new(),
            avoided: BTreeMap::new(),
            at_risk: BTreeMap::new(),
            report: Report::default(),
            nowhere: false,
            cheaper: 0,
            counted: now.steady,
            due: false,
            heard: false,
            unheard: now.steady,
            resumed: false,
            changed: false,
            kept_at: now.steady,
            kept_spent: MicroUsd(0),
        };
        if let Some(kept) = kept {
            let before = kept.history.number;
            own.prices = kept.prices;
            own.stretch = kept.stretch;
            own.meter = Meter::resumed(kept.progress);
            own.resumed = true;
            let length = own.terms.slot;
            if kept.history.length == length {
                own.history = History::resumed(length, kept.history, kept.at, now);
                if let Some(stretch) = &mut own.stretch {
                    stretch.pass(own.history.number().saturating_sub(before));
                }
            } else {
                let since = kept.history.passed.plus(now.wall.since(kept.at));
                let number = own.stretch.as_mut().map_or(before, |stretch| {
                    let whole = u64::from(stretch.slot(before));
                    let gone = Micros(kept.history.length.0.saturating_mul(whole)).plus(since);
                    stretch.renumber(gone, before, length)
                });
                own.history = History::numbered(length, number, now);
            }
            own.selection = kept.selection;
            own.purse = kept.purse;
            own.halts = kept.halts;
            own.emptying = Emptying::resumed(kept.emptied, kept.given_up, now);
            own.pay_unwatched(now.wall.since(kept.at));
            own.kept_spent = own.purse.spent();
            own.halt_anew();
            own.changed = true;
        }
        own.forget_told();
        own
    }

    /// The machines.
    #[must_use]
    pub const fn custody(&self) -> &Custody {
        &self.custody
    }

    /// What was paid since the first start, by the prices that were seen.
    #[must_use]
    pub const fn spent(&self) -> MicroUsd {
        self.purse.spent()
    }

    /// Takes an event in.
    pub fn step(&mut self, event: Event, now: Now) -> Vec<Effect> {
        let mut effects = Vec::new();
        let shown = matches!(event, Event::Cluster { .. });
        self.pay(now.steady.since(self.counted));
        self.counted = self.counted.max(now.steady);
        match event {
            Event::Sighted(sightings) => self.sighted(sightings, now),
            Event::Cluster { nodes, jobs } => self.cluster(nodes, jobs, now, &mut effects),
            Event::Unheard => self.unheard(now),
            Event::Untold => self.forget_told(),
            Event::Thought(answer) => self.thought(*answer, now, &mut effects),
            Event::Machine(event) => self.machine(event, now, &mut effects),
            Event::Tick => {
                self.machine(custody::Event::Tick, now, &mut effects);
                self.refused.retain(|_, until| now.steady < *until);
                self.avoided.retain(|_, until| now.steady < *until);
                self.slots_pass(now);
                self.give_up_unheard(now, &mut effects);
            }
        }
        self.stretch_along(&mut effects);
        self.due |= self.is_over_budget();
        // BR-8
        if self.heard {
            if self.due && !self.history.is_empty() {
                self.due = false;
                self.decide(now, &mut effects);
            }
            self.afford_meanwhile(now, &mut effects);
        }
        if shown {
            self.halt_again(now, &mut effects);
        }
        self.reconcile(now, &mut effects);
        for effect in &effects {
            if let Effect::Drain { node, .. } = effect {
                self.changed |= self.emptying.drained(node);
            }
        }
        self.keep(now, &mut effects);
        effects
    }

    /// A restart must know what is different now.
    fn changed(&mut self) {
        self.changed = true;
        self.due = true;
    }

    /// BR-6: first of all effects.
    fn keep(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let late = now.steady.since(self.kept_at) >= EVERY;
        let paid = late && self.purse.spent() != self.kept_spent;
        if !self.changed && !paid {
            return;
        }
        self.changed = false;
        self.kept_at = now.steady;
        self.kept_spent = self.purse.spent();
        effects.insert(0, Effect::Keep(Box::new(self.to_keep(now))));
    }

    /// Begins new slots as their time comes.
    fn slots_pass(&mut self, now: Now) {
        let begun = self.history.pass(now);
        if begun == 0 {
            return;
        }
        if let Some(stretch) = &mut self.stretch {
            stretch.pass(begun);
        }
        let cheap = self
            .history
            .before()
            .is_some_and(|slot| slot.spot_price < slot.on_demand_price && slot.spot_available > 0);
        self.cheaper = match cheap {
            true => self.cheaper.saturating_add(1),
            false => 0,
        };
        self.changed();
    }

    fn cluster(
        &mut self,
        nodes: Vec<NodeTold>,
        jobs: Vec<JobTold>,
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        let alive: BTreeSet<NodeName> = nodes
            .iter()
            .filter(|node| node.alive)
            .map(|node| node.name.clone())
            .collect();
        self.nodes = nodes
            .into_iter()
            .map(|node| (node.name.clone(), node))
            .collect();
        self.heard = true;
        let had = self.jobs.iter().any(JobTold::is_live);
        let has = jobs.iter().any(JobTold::is_live);
        let before = |id: JobId| self.jobs.iter().find(|job| job.id == id);
        let told = |job: &JobTold, old: &JobTold| old.total_steps == 0 && job.total_steps > 0;
        let is_news = |job: &JobTold| before(job.id).is_none_or(|old| told(job, old));
        let news = jobs.iter().any(|job| job.is_live() && is_news(job));
        self.jobs = jobs;
        self.place();
        // Also those that leave or are being emptied: what they do meanwhile is done.
        let held = self.custody.held().values();
        let serving = held.filter(|held| self.works(held)).count();
        let useful = self
            .terms
            .useful(u32::try_from(serving).unwrap_or(u32::MAX));
        self.meter.see(&self.jobs, useful, now.steady);
        self.purse.charge(&self.jobs);
        self.due |= had != has || news;
        self.machine(custody::Event::Joined(alive), now, effects);
        self.leave_by_themselves(now, effects);
        self.empty_again(now, effects);
        self.take_back(now, effects);
        self.tell_risks(effects);
        self.tell_market(now, effects);
    }
}

impl Broker {
    /// Whether a machine does work: its node holds a stage, as far as that is known. One that has its notice works to its end.
    fn works(&self, held: &custody::Held) -> bool {
        let holds = self.nodes.get(&held.node).map(|node| node.holds);
        let leaves = matches!(held.stage, Stage::Leaving { .. });
        (leaves || held.serves()) && holds.unwrap_or(!leaves)
    }
}

fn say(effects: &mut Vec<Effect>, alarm: bool, what: String) {
    effects.push(Effect::Say { alarm, what });
}

#[cfg(test)]
pub(crate) mod tests;
