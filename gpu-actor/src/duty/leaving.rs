//! A node that is to end: it says so, and stays until it is let go. DU-5

use shared::ids::PlanEpoch;
use shared::wire::notice::{Departure, Notice};

use super::post::Standing;
use super::{Duty, Effect};

/// What a first stage ends its steps toward when nobody ordered it.
pub(super) const NO_PLAN: PlanEpoch = PlanEpoch(0);

impl Duty {
    pub(super) fn leave(&mut self, departure: Departure, effects: &mut Vec<Effect>) {
        self.leaving = true;
        self.tell(Notice::Leaving(departure), effects);
        self.fend(effects);
    }

    /// A node that leaves and reaches no coordinator does alone what it can. DU-5
    pub(super) fn fend(&self, effects: &mut Vec<Effect>) {
        if !self.leaving || self.connected {
            return;
        }
        match &self.held {
            Some((post, Standing::Linked)) if post.leads() => {
                effects.push(Effect::Drain {
                    toward: NO_PLAN,
                    soon: true,
                });
            }
            // Its first stage may be at it: its end comes with that of its links.
            Some((_, Standing::Linked)) => {}
            _ => effects.push(Effect::Stop),
        }
    }
}
