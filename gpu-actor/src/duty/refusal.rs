//! Orders that are not for what this node holds: each is answered by what it does hold. DU-1, DU-2

use shared::ids::PlanEpoch;
use shared::wire::notice::Notice;

use super::{Duty, Effect};

impl Duty {
    pub(super) fn refuse(&mut self, reason: String, effects: &mut Vec<Effect>) {
        let term = self.term;
        self.tell(Notice::Refused { term, reason }, effects);
    }

    pub(super) fn leads(&self, epoch: PlanEpoch) -> bool {
        let held = self.held.as_ref();
        held.is_some_and(|(post, _)| post.epoch == epoch && post.leads())
    }

    pub(super) fn if_leading(
        &mut self,
        epoch: PlanEpoch,
        order: &str,
        effects: &mut Vec<Effect>,
        effect: impl FnOnce(&Self) -> Effect,
    ) {
        if self.leads(epoch) {
            effects.push(effect(self));
        } else {
            self.refuse(self.not_leading(epoch, order), effects);
        }
    }

    pub(super) fn not_leading(&self, epoch: PlanEpoch, order: &str) -> String {
        let holds = match &self.held {
            None => "no stage".to_owned(),
            Some((post, _)) => format!("stage {} of plan {}", post.stage, post.epoch),
        };
        format!("{order} is for the first stage of plan {epoch}: this node holds {holds}")
    }

    pub(super) fn older(&self, epoch: PlanEpoch) -> String {
        let held = self.epoch().unwrap_or_default();
        format!("plan {epoch} is not newer than plan {held}, which this node holds")
    }
}
