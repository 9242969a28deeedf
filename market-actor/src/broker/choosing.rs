//! Who decides in a stretch of work, and what is learned of one: when it is over, all members of a selection are replayed on
//! it, and the next is chosen by what they would have earned.

use shared::units::MicroUsd;

use super::stretch::{Stretch, market, problem};
use super::thought::{Matter, Replay};
use super::told::JobTold;
use super::{Broker, Effect, say};
use crate::market::Pool;
use crate::policy::Memory;
use crate::problem::offer::{Held, slot_price};
use crate::select::pool::Member;
use crate::select::{Regime, Selection, Supply};
use crate::terms::Choice;

/// A stretch is replayed when it was at least so many slots long, and its last slots when it was longer than the second.
const REPLAYED: (usize, usize) = (2, 96);
/// What a stretch is worth to a selection after one more.
const KEEP: f64 = 0.97;
/// Slots of a week of half hours: by these it is told whether supply was scarce.
const WEEK: usize = 336;
/// Stretches that are being replayed; of more the oldest is forgotten.
const MOST_LESSONS: usize = 16;

/// What is to be learned of a stretch that is being replayed.
#[derive(Clone, Debug)]
pub(super) struct Lesson {
    members: Vec<Member>,
    regime: Regime,
    /// Between these all utilities lie.
    bounds: (f64, f64),
}

impl Broker {
    /// Slots until the deadline of a stretch.
    pub(super) fn whole(&self) -> u32 {
        let slots = self.terms.deadline.0 / self.terms.slot.0.max(1);
        u32::try_from(slots).unwrap_or(u32::MAX)
    }

    /// Begins a stretch where there is work and an offer, whichever of them was heard of first; ends one without work, and one that
    /// is over and of which no work is left. What the budget paused is still under way: who resumes it is told of that.
    pub(super) fn stretch_along(&mut self, effects: &mut Vec<Effect>) {
        let open = self.jobs.iter().any(|job| !job.ended);
        if !self.heard || self.history.is_empty() {
            return;
        }
        let (number, whole, halted) = (self.history.number(), self.whole(), self.halts.all);
        let live = || {
            self.jobs
                .iter()
                .filter(|job| job.is_live())
                .map(|job| job.id)
        };
        let over = |own: &mut Stretch| !open || !halted && own.is_outlived(number, whole, live());
        if let Some(over) = self.stretch.take_if(over) {
            self.learn(&over, effects);
            self.lift();
            self.changed();
        }
        if self.resumed {
            self.resumed = false;
            self.choose_again(effects);
        }
        if self.stretch.is_some() || !self.jobs.iter().any(JobTold::is_live) {
            return;
        }
        let (member, chosen) = self.choose();
        self.stretch = Some(Stretch {
            first: self.history.number(),
            newest: self.jobs.iter().map(|job| job.id).max(),
            before: self.meter.done(),
            member,
            chosen,
            memory: Memory::since(self.history.number()),
            losses: vec![0],
            taken: Vec::new(),
            waited: 0,
            target: Held::default(),
            work: 0.0,
        });
        self.changed();
    }

    /// After a restart with other terms the policy that decided until then may be none of them.
    fn choose_again(&mut self, effects: &mut Vec<Effect>) {
        let Some(before) = self.stretch.as_ref().map(|own| own.member) else {
            return;
        };
        let stands = match &self.terms.choice {
            Choice::Fixed(member) => *member == before,
            Choice::Learned(members) => members.contains(&before),
        };
        if stands {
            return;
        }
        let (member, chosen) = self.choose();
        let what = format!(
            "{} decides from now on, no more {}: market.policy or market.forecast was changed",
            member.name(),
            before.name()
        );
        say(effects, false, what);
        if let Some(stretch) = &mut self.stretch {
            (stretch.member, stretch.chosen) = (member, chosen);
            stretch.memory = Memory::since(stretch.first);
        }
        self.changed();
    }

    /// Who decides over the next stretch.
    fn choose(&mut self) -> (Member, Option<usize>) {
        let members = match &self.terms.choice {
            Choice::Fixed(member) => return (*member, None),
            Choice::Learned(members) => members,
        };
        let known = self.selection.take();
        let known = known.and_then(|known| match known.members() == members.as_slice() {
            true => Some(known),
            false => known.adopt(members.clone()).ok(),
        });
        let selection = match known {
            Some(known) => Some(known),
            None => Selection::new(members.clone(), KEEP, 1).ok(),
        };
        let Some(selection) = selection else {
            // No member: terms are never of that kind.
            return (Member::plain(crate::policy::Policy::OnDemand), None);
        };
        let at = selection.choose(&self.regime(), self.history.number());
        let member = selection.members()[at];
        self.selection = Some(selection);
        (member, Some(at))
    }

    fn regime(&self) -> Regime {
        let slots = self.history.slots();
        let week = &slots[slots.len().saturating_sub(WEEK)..];
        Regime {
            pool: self.pool(),
            supply: Some(Supply::of(week)),
        }
    }

    /// The pool that was seen first; of no name where none was.
    pub(super) fn pool(&self) -> Pool {
        let none = || Pool {
            provider: String::new(),
            region: String::new(),
            zone: String::new(),
            machine: String::new(),
        };
        self.sightings
            .first()
            .map_or_else(none, |one| one.pool.clone())
    }

    /// A stretch is over: every member is replayed on what was its market, elsewhere. A process that ends meanwhile learns nothing of
    /// it.
    fn learn(&mut self, over: &Stretch, effects: &mut Vec<Effect>) {
        let length = over.slot(self.history.number()) as usize + 1;
        let played = length.min(REPLAYED.1);
        let slots = self.history.slots();
        if over.chosen.is_none() || length < REPLAYED.0 || over.work <= 0.0 || played > slots.len()
        {
            return;
        }
        let price = slots.last().map_or(MicroUsd(0), |slot| {
            slot_price(slot.on_demand_price, self.terms.slot)
        });
        // What was done in it, as if all had been done in the slots that are replayed.
        let work = over.work * played as f64 / length as f64;
        let slots_of_deadline = (self.terms.deadline.0 / self.terms.slot.0.max(1)) as usize;
        let soft = slots_of_deadline.clamp(1, played) as u32;
        let problem = problem(&self.terms, work, soft, price);
        if problem.check().is_err() {
            return;
        }
        let market = market(slots, self.terms.slot, self.pool());
        let regime = self.regime();
        let Some(selection) = &self.selection else {
            return;
        };
        let members = selection.members().to_vec();
        let value = problem.value.0 as f64;
        let flat_out = problem.slots_flat_out(work, 0, None);
        let machines = f64::from(problem.fastest(None));
        let dearest = flat_out.map_or(value, |slots| f64::from(slots) * machines * price.0 as f64);
        let lesson = Lesson {
            members: members.clone(),
            regime,
            bounds: (value - dearest, value),
        };
        let replay = Replay {
            members,
            problem,
            market,
            played,
            begun: over.first,
            safety: self.terms.safety,
        };
        let number = self.think(Matter::Replay(Box::new(replay)), effects);
        self.lessons.insert(number, lesson);
        while self.lessons.len() > MOST_LESSONS {
            self.lessons.pop_first();
        }
    }

    /// What each member would have earned in a stretch that is over.
    pub(super) fn replayed(&mut self, number: u64, utilities: &[f64]) {
        let Some(lesson) = self.lessons.remove(&number) else {
            return;
        };
        let own = self.selection.as_mut();
        // TH-2: the members may be others since.
        if let Some(selection) = own.filter(|own| own.members() == lesson.members.as_slice()) {
            let (least, most) = lesson.bounds;
            selection.learn(&lesson.regime, utilities, least, most);
            self.changed = true;
        }
    }
}
