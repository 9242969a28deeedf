//! A stretch of work: from the first job that wants machines until none is left; its deadline, its policy, what it remembers.
//!
//! A pause is no end: the deadline of work that is paused and resumed before it is that of its begin. A cluster that is never idle
//! would be in its first stretch for ever, behind its deadline: once that is over, and none of the jobs of its begin is at work any
//! more, what is left is work that came later, and begins a stretch of its own. While one of them is at work it is late work, which
//! goes on as cheaply as it can: a new deadline would buy machines for it that its own did not pay.

use serde::{Deserialize, Serialize};
use shared::ids::JobId;
use shared::units::{MicroUsd, Micros};

use crate::market::{Market, Pool, Slot};
use crate::policy::Memory;
use crate::problem::offer::Held;
use crate::problem::{Problem, Reconfigure};
use crate::select::pool::Member;
use crate::terms::Terms;

/// Slots of losses that are remembered: rules look back that far.
const MOST_LOSSES: usize = 4096;
/// Pools whose losses are told apart; of more that which lost longest ago is forgotten.
const MOST_POOLS: usize = 64;

/// Spot machines of a pool that were taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Taken {
    /// Which pool.
    pub pool: Pool,
    /// How many, by the number of the market's slot; the latest last.
    pub slots: Vec<(u64, u32)>,
}

/// The work under way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stretch {
    /// Number of the market's slot in which it began.
    pub first: u64,
    /// The newest job of its begin; not kept by earlier versions.
    #[serde(default)]
    pub newest: Option<JobId>,
    /// Tokens done before it began.
    pub before: f64,
    /// Who decides.
    pub member: Member,
    /// Which of the selection's members that is.
    pub chosen: Option<usize>,
    /// What that remembers.
    pub memory: Memory,
    /// Spot machines lost, by slot; the last is the one under way.
    pub losses: Vec<u32>,
    /// The same by pool, who lost last at the end; not kept by earlier versions.
    #[serde(default)]
    pub taken: Vec<Taken>,
    /// Slots in a row without spot.
    pub waited: u32,
    /// What is wanted.
    pub target: Held,
    /// Work done in it, in slots of a machine; counted at each decision.
    pub work: f64,
}

impl Stretch {
    /// Slots pass.
    pub(super) fn pass(&mut self, slots: u64) {
        let shown = slots.min(MOST_LOSSES as u64) as usize;
        self.losses.resize(self.losses.len() + shown, 0);
        if self.losses.len() > MOST_LOSSES + MOST_LOSSES / 2 {
            self.losses.drain(..self.losses.len() - MOST_LOSSES);
        }
        self.waited = match self.target.spot {
            0 => self.waited.saturating_add(shown as u32),
            _ => 0,
        };
    }

    /// Slots have another length from now on: as much time has passed, and what was remembered slot by slot is forgotten. Says the
    /// number of the slot under way: at least `number`.
    pub(super) fn renumber(&mut self, gone: Micros, number: u64, length: Micros) -> u64 {
        let slots = gone.0 / length.0.max(1);
        let number = number.max(slots);
        self.first = number - slots;
        self.losses = vec![0];
        self.taken.clear();
        self.waited = 0;
        self.memory = Memory::since(self.first);
        number
    }

    /// A spot machine of a pool was taken in the slot of this number.
    pub(super) fn taken(&mut self, pool: &Pool, number: u64) {
        if let Some(last) = self.losses.last_mut() {
            *last += 1;
        }
        let known = self.taken.iter().position(|own| own.pool == *pool);
        let mut own = match known {
            Some(at) => self.taken.remove(at),
            None => Taken {
                pool: pool.clone(),
                slots: Vec::new(),
            },
        };
        match own.slots.last_mut() {
            Some((slot, count)) if *slot == number => *count += 1,
            _ => own.slots.push((number, 1)),
        }
        let oldest = number.saturating_sub(MOST_LOSSES as u64);
        own.slots.retain(|(slot, _)| *slot >= oldest);
        if self.taken.len() >= MOST_POOLS {
            self.taken.remove(0);
        }
        self.taken.push(own);
    }

    /// Pools that lost machines, with how many of each slot, the one of this number last.
    pub(super) fn losses_by_pool(&self, number: u64) -> impl Iterator<Item = (&Pool, Vec<u32>)> {
        self.taken.iter().map(move |own| {
            let mut losses = vec![0; self.losses.len()];
            for (slot, count) in &own.slots {
                let back = number.saturating_sub(*slot);
                let at = usize::try_from(back).unwrap_or(usize::MAX);
                let at = losses.len().checked_sub(at.saturating_add(1));
                if let Some(lost) = at.and_then(|at| losses.get_mut(at)) {
                    *lost += count;
                }
            }
            (&own.pool, losses)
        })
    }

    /// Whether its deadline, after so many slots, is over, and all live jobs, given by their ids, came after it began.
    #[must_use]
    pub fn is_outlived(
        &self,
        number: u64,
        whole: u32,
        mut live: impl Iterator<Item = JobId>,
    ) -> bool {
        let newest = self.newest;
        self.slot(number) > whole && live.all(|job| newest.is_some_and(|newest| job > newest))
    }

    /// Slots since it began.
    #[must_use]
    pub fn slot(&self, number: u64) -> u32 {
        u32::try_from(number.saturating_sub(self.first)).unwrap_or(u32::MAX)
    }
}

/// A problem of so much work, in slots of a machine, with deadlines in slots.
pub(super) fn problem(terms: &Terms, work: f64, soft: u32, price: MicroUsd) -> Problem {
    let length = terms.slot.0.max(1) as f64;
    let share = 1.0 - (terms.change.0 as f64 / length).min(0.9);
    Problem {
        work,
        soft_deadline: soft,
        hard_deadline: soft.saturating_add(soft / 2).saturating_add(1),
        fewest: terms.fewest,
        most: terms.most,
        throughput: terms.throughput(),
        reconfigure: Reconfigure {
            grow: share,
            shrink: share,
            replace: share,
            lost: 0.0,
        },
        value: MicroUsd((terms.worth * work * price.0 as f64).min(1e18) as u64),
        reclaims: true,
    }
}

/// A market of the slots that were seen.
pub(super) fn market(slots: &[Slot], length: Micros, pool: Pool) -> Market {
    Market {
        pool,
        start: Micros(0),
        slot: length,
        slots: slots.to_vec(),
    }
}
