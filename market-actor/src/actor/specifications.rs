//! What jobs are: a list of jobs leaves their specifications out, so each job is asked about once.
//!
//! - `SP-1` No job that is at work is told to the broker without what it asks of the market.
//! - `SP-2` A job is asked about once, and forgotten once it is not listed any more.

use std::collections::{BTreeMap, BTreeSet};

use shared::ids::JobId;
use shared::job::{JobSpec, MarketSpec};
use shared::life::JobState;
use shared::wire::view::JobView;

use crate::broker::told::JobTold;

/// Jobs that have ended and are asked about at one look: of them only their tenant is wanted, for the bill.
const ENDED: usize = 64;

/// Specifications by job; nothing for one that cannot be read: the coordinator accepted it, so it is of a later form.
#[derive(Debug, Default)]
pub(super) struct Specifications(BTreeMap<JobId, Option<JobSpec>>);

impl Specifications {
    /// Jobs that are to be asked about: all that have not ended, then some that have. SP-1, SP-2
    pub(super) fn missing(&mut self, listed: &[JobView]) -> Vec<JobId> {
        let ids: BTreeSet<JobId> = listed.iter().map(|view| view.id).collect();
        self.0.retain(|known, _| ids.contains(known));
        let unknown = |view: &&JobView| !self.0.contains_key(&view.id);
        let (ended, live): (Vec<&JobView>, Vec<&JobView>) = listed
            .iter()
            .filter(unknown)
            .partition(|view| view.state.is_final());
        let all = live.into_iter().chain(ended.into_iter().take(ENDED));
        all.map(|view| view.id).collect()
    }

    /// One job was told with its specification.
    pub(super) fn learn(&mut self, view: &JobView) {
        self.0
            .insert(view.id, serde_json::from_str(&view.spec).ok());
    }

    /// What the broker hears of a job.
    pub(super) fn told(&self, view: &JobView) -> JobTold {
        let spec = self.0.get(&view.id).and_then(Option::as_ref);
        let asks = spec.and_then(|spec| spec.market.as_ref());
        JobTold {
            id: view.id,
            name: view.name.clone(),
            tenant: spec
                .and_then(|spec| spec.tenant.clone())
                .unwrap_or_default(),
            ended: view.state.is_final(),
            paused: view.state == JobState::Paused,
            step: view.step,
            total_steps: view.total_steps,
            tokens: view.tokens,
            deadline: asks.and_then(|asks| asks.until(view.submitted)),
            budget: asks.and_then(MarketSpec::budget),
            zones: asks.map_or_else(Default::default, |asks| {
                asks.zones.iter().cloned().collect()
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use shared::ids::JobName;
    use shared::units::{MicroUsd, Micros};

    use super::*;

    /// A job as lists have it.
    fn listed(id: u64, state: JobState) -> JobView {
        JobView {
            id: JobId(id),
            name: JobName::new("a").unwrap(),
            state,
            reason: None,
            method: "LoRA r=2".into(),
            step: 0,
            total_steps: 9,
            durable_step: 0,
            tokens: 0,
            first_loss: None,
            last_loss: None,
            first_eval: None,
            last_eval: None,
            learning_rate: None,
            replica: None,
            queue_position: None,
            recoveries: 0,
            moves: 0,
            submitted: Micros(0),
            started: None,
            ended: None,
            spec: String::new(),
            trace: String::new(),
            tempo: None,
            money: None,
            samples: Vec::new(),
        }
    }

    #[test]
    fn what_a_job_asks_of_the_market_is_told_though_lists_leave_it_out() {
        let mut known = Specifications::default();
        let list = [
            listed(1, JobState::Succeeded),
            listed(2, JobState::Running),
            listed(3, JobState::Queued),
        ];
        assert_eq!(known.missing(&list), [JobId(2), JobId(3), JobId(1)]);
        let spec = r#"{"name": "a", "tenant": "team-a", "adapter": {"method": "lora", "rank": 2}, "data": {"train": "d.jsonl"},
            "market": {"deadline_hours": 2, "budget_usd": 3, "zones": ["x"]}}"#;
        known.learn(&JobView {
            spec: spec.into(),
            ..list[1].clone()
        });
        let told = known.told(&list[1]);
        assert_eq!(told.tenant, "team-a");
        assert_eq!(told.budget, Some(MicroUsd(3_000_000)));
        assert_eq!(told.deadline, Some(Micros(7_200_000_000)));
        assert_eq!(told.zones.len(), 1);
        // SP-2
        assert_eq!(known.missing(&list), [JobId(3), JobId(1)]);
        known.learn(&list[2]);
        assert_eq!(known.told(&list[2]).budget, None, "it cannot be read");
        assert_eq!(known.missing(&list), [JobId(1)]);
        assert!(known.missing(&[]).is_empty());
        assert_eq!(known.missing(&list[1..]), [JobId(2), JobId(3)]);
    }
}
