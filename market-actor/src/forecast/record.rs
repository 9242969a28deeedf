//! What a forecaster thought at each slot of a market: made once, asked by every policy and episode of a back-test.
//!
//! FO-1: the outlook at a slot is a function of the slots up to it. It is what the same forecaster would have said then.

use serde::{Deserialize, Serialize};

use super::forecaster::{Forecaster, MEMORY, proven};
use super::trial::Plan;
use super::{Forecast, Outlook};
use crate::market::Slot;

/// A forecaster by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// What is, stays, with the changes of the past about it.
    Persistence,
    /// All models, weighed by how they did.
    Ensemble,
    /// For price and for capacity the best model that was proven on the past, or persistence.
    Proven,
}

/// Proves models now and then, and forecasts with those that were proven last.
///
/// The proof of a point is made on what was seen up to the last multiple of `again` slots, so it is the same at all points
/// until the next one; before there is enough for it, what is, stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proving {
    /// A day in slots, 0 where there is no day to look for.
    pub day: usize,
    /// Slots from one proof to the next.
    pub again: usize,
    /// How models are tried.
    pub plan: Plan,
}

/// The outlooks of a market, slot by slot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outlooks {
    first: usize,
    outlooks: Vec<Outlook>,
}

impl Kind {
    /// All.
    pub const ALL: [Self; 3] = [Self::Persistence, Self::Ensemble, Self::Proven];

    /// One word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Persistence => "persistence with bands",
            Self::Ensemble => "ensemble",
            Self::Proven => "proven",
        }
    }

    /// The forecaster. `day` is a day in slots, 0 where there is no day to look for; `horizon` the slots it is tried over.
    #[must_use]
    pub fn forecast(self, day: usize, horizon: usize) -> Box<dyn Forecast> {
        match self {
            Self::Persistence => Box::new(Forecaster::persistence()),
            Self::Ensemble => Box::new(Forecaster::ensemble(day)),
            Self::Proven => Box::new(Proving::every(4 * day.max(12), day, horizon)),
        }
    }
}

impl Proving {
    /// A proof every `again` slots, of paths of `horizon` slots from every fourth point on.
    #[must_use]
    pub const fn every(again: usize, day: usize, horizon: usize) -> Self {
        let plan = Plan {
            horizon,
            first: 96,
            stride: 4,
            refit: 12,
            memory: MEMORY,
        };
        Self { day, again, plan }
    }

    /// How many of `seen` slots the proof is made on that holds after them.
    #[must_use]
    pub const fn proof(&self, seen: usize) -> usize {
        let again = if self.again == 0 { 1 } else { self.again };
        seen / again * again
    }

    /// The forecaster that a proof on these slots leaves.
    #[must_use]
    pub fn prove(&self, slots: &[Slot]) -> Forecaster {
        let points = 8 * self.plan.stride.max(1);
        if slots.len() < self.plan.first + self.plan.horizon + points {
            return Forecaster::persistence();
        }
        proven(slots, self.day, &self.plan).forecaster
    }
}

impl Forecast for Proving {
    fn outlook(&self, seen: &[Slot], horizon: usize) -> Outlook {
        self.prove(&seen[..self.proof(seen.len())])
            .outlook(seen, horizon)
    }
}

impl Outlooks {
    /// Asks a forecaster at each slot from `first` on for the `horizon` slots after it.
    #[must_use]
    pub fn of(slots: &[Slot], first: usize, horizon: usize, forecaster: &dyn Forecast) -> Self {
        Self::build(slots, first, |seen| forecaster.outlook(seen, horizon))
    }

    /// The same of [`Proving`], which is asked for each proof once.
    #[must_use]
    pub fn proven(slots: &[Slot], first: usize, horizon: usize, proving: &Proving) -> Self {
        let mut last: Option<(usize, Forecaster)> = None;
        Self::build(slots, first, |seen| {
            let proof = proving.proof(seen.len());
            let kept = last.take().filter(|(at, _)| *at == proof);
            let (_, forecaster) =
                last.insert(kept.unwrap_or_else(|| (proof, proving.prove(&seen[..proof]))));
            forecaster.outlook(seen, horizon)
        })
    }

    fn build(slots: &[Slot], first: usize, mut ask: impl FnMut(&[Slot]) -> Outlook) -> Self {
        let outlooks = (first..slots.len()).map(|at| ask(&slots[..=at]));
        Self {
            first,
            outlooks: outlooks.collect(),
        }
    }

    /// What was thought once the market's slot `at` was seen; nothing where it was not asked.
    #[must_use]
    pub fn at(&self, at: usize) -> Option<&Outlook> {
        self.outlooks.get(at.checked_sub(self.first)?)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::forecast::testing::slots;

    /// Proofs that need few slots.
    fn proving() -> Proving {
        let mut proving = Proving::every(10, 12, 3);
        proving.plan.first = 10;
        proving.plan.stride = 2;
        proving
    }

    #[test]
    fn a_record_has_the_slots_it_was_asked_for() {
        let slots = slots(1, 12);
        let record = Outlooks::of(&slots, 4, 3, &Forecaster::persistence());
        assert!(record.at(3).is_none() && record.at(12).is_none());
        let said = Forecaster::persistence().outlook(&slots[..=4], 3);
        assert_eq!(record.at(4), Some(&said));
        assert_eq!(record.at(11).map(|outlook| outlook.slots.len()), Some(3));
    }

    #[test]
    fn a_proof_is_made_again_when_its_time_has_come() {
        let proving = proving();
        assert_eq!(
            [0, 9, 10, 19, 20].map(|n| proving.proof(n)),
            [0, 0, 10, 10, 20]
        );
        // Too little to try anything on.
        assert_eq!(proving.prove(&slots(1, 20)).capacity.name(), "persistence");
        let mut swinging = slots(1, 60);
        for (at, slot) in swinging.iter_mut().enumerate() {
            slot.spot_available = if at % 2 == 0 { 2 } else { 9 };
        }
        assert_ne!(proving.prove(&swinging).capacity.name(), "persistence");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4))]

        /// FO-1.
        #[test]
        fn fo_1_no_record_looks_ahead(seed: u64, other: u64) {
            let (mut changed, slots) = (slots(other, 48), slots(seed, 48));
            let seen = 44;
            changed[..seen].copy_from_slice(&slots[..seen]);
            let ensemble = Forecaster::ensemble(12);
            let proving = proving();
            let records = |slots: &[Slot]| [
                Outlooks::of(slots, 40, 3, &ensemble),
                Outlooks::proven(slots, 40, 3, &proving),
            ];
            for (one, two) in records(&slots).iter().zip(&records(&changed)) {
                for at in 40..seen {
                    prop_assert!(one.at(at).is_some());
                    prop_assert_eq!(one.at(at), two.at(at));
                }
            }
            // A record says what would have been said then.
            let then = proving.outlook(&slots[..=42], 3);
            let [_, record] = records(&slots);
            prop_assert_eq!(record.at(42), Some(&then));
        }
    }
}
