//! What the planner would be asked about the cluster as it stands, and what it says of one job: for people, who want to know
//! why things are so. Nothing is decided here.

use std::collections::BTreeMap;

use shared::ids::JobId;
use shared::units::Micros;
use shared::wire::request::{Refusal, RefusalCode, Reply};
use shared::wire::view::{PlanView, Tempo};

use super::Coordinator;
use super::gate::member;
use crate::life::admission::{Gate, Scene};
use crate::life::ledger::Job;
use crate::life::placement::Stages;
use crate::plan::fair;
use crate::plan::snapshot::Snapshot;

/// Bytes that jobs may take of an answer of a mebibyte, as JSON.
const MOST: usize = 700_000;
/// Bytes of a job beside the lengths of its sequences, and of each length.
const JOB: usize = 400;
const LENGTH: usize = 9;

/// Leaves out jobs that do not fit into an answer, those that would train last; how many.
fn leave_out(snapshot: &mut Snapshot) -> u32 {
    let mut bytes = 0usize;
    let order = fair::order(snapshot);
    let before = snapshot.tasks.len();
    for id in order {
        let sequences = snapshot.tasks.get(&id).map_or(0, |task| task.lengths.len());
        bytes = bytes.saturating_add(JOB + LENGTH.saturating_mul(sequences));
        if bytes > MOST {
            snapshot.tasks.remove(&id);
        }
    }
    u32::try_from(before - snapshot.tasks.len()).unwrap_or(u32::MAX)
}

impl Coordinator {
    /// A gate of all nodes that may have work and all jobs that have not ended.
    fn whole_gate(&mut self) -> Result<Gate, Refusal> {
        let refused = |message: String| Refusal {
            code: RefusalCode::Conflict,
            message,
        };
        let Some(admission) = self.settings.admission.clone() else {
            return Err(refused(
                "this coordinator plans by number alone: it has no planner".into(),
            ));
        };
        self.remember();
        let nodes = self.members.nodes().filter(|(name, node)| {
            let draining = self.book.draining.contains(*name) || node.leaving.is_some();
            node.link.is_some() && !draining
        });
        let seats = self.book.layout.seats();
        let scene = Scene {
            shape: &self.settings.backbone.shape,
            members: nodes
                .map(|(name, node)| (name.clone(), member(node)))
                .collect(),
            seats: &seats,
            on: BTreeMap::new(),
            tasks: self.notes.tasks.clone(),
            served: self.book.ledger.served().clone(),
            now: self.now.wall,
        };
        Gate::new(&admission, scene).map_err(|reason| refused(reason.to_string()))
    }

    /// The question to the planner.
    pub(super) fn plan_view(&mut self) -> Result<Reply, Refusal> {
        let mut snapshot = self.whole_gate()?.into_snapshot();
        let layout = &self.settings.layout;
        snapshot.options.stages = match layout.stages {
            Stages::Fixed(stages) => Some(stages),
            _ => None,
        };
        snapshot.options.replicas = Some(layout.replicas);
        for job in self.book.ledger.jobs() {
            if let Some(task) = snapshot.tasks.get_mut(&job.id) {
                task.started = job.replica.and(job.started);
            }
        }
        let live = self.book.ledger.jobs();
        let unread = live.filter(|job| !job.state.is_final());
        let unread: Vec<JobId> = unread
            .map(|job| job.id)
            .filter(|job| !snapshot.tasks.contains_key(job))
            .collect();
        let left_out = leave_out(&mut snapshot);
        let question = serde_json::to_string(&snapshot).map_err(|error| Refusal {
            code: RefusalCode::Internal,
            message: format!("the question to the planner cannot be written: {error}"),
        })?;
        Ok(Reply::Plan(Box::new(PlanView {
            question,
            unread,
            left_out,
        })))
    }

    /// A step of a job alone on a replica, and whether that rests on measured profiles. Of all others nothing is asked: people
    /// look often, and at many.
    fn alone(&mut self, replica: u32, job: JobId) -> Option<(Micros, bool)> {
        let admission = self.settings.admission.clone()?;
        if !self.notes.tasks.contains_key(&job) {
            self.remember();
        }
        let task = self.notes.tasks.get(&job)?.clone();
        let mut seats = self.book.layout.seats();
        seats.retain(|n, _| *n == replica);
        let names = seats.values().flatten().map(|seat| &seat.node);
        let members = names.filter_map(|name| {
            let node = self.members.get(name)?;
            Some((name.clone(), member(node)))
        });
        let scene = Scene {
            shape: &self.settings.backbone.shape,
            members: members.collect(),
            seats: &seats,
            on: BTreeMap::new(),
            tasks: BTreeMap::from([(job, task)]),
            served: BTreeMap::new(),
            now: self.now.wall,
        };
        Gate::new(&admission, scene).ok()?.alone(replica, job)
    }

    /// How fast a job goes, beside a step of it alone on the same replica.
    pub(super) fn tempo(&mut self, job: &Job) -> Option<Tempo> {
        let (step, steps) = self.notes.tempos.median(job.id)?;
        let replica = job.replica?;
        let alone = self.alone(replica, job.id);
        Some(Tempo {
            step,
            steps,
            alone: alone.map(|(step, _)| step),
            measured: alone.is_some_and(|(_, measured)| measured),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::profile::Peak;
    use crate::plan::testing::{llama_7b, snapshot, task};

    #[test]
    fn what_is_told_fits_an_answer() {
        let mut few = snapshot(llama_7b(), &Peak::A40, 2, vec![task(8, &[64; 4]); 1_000]);
        assert_eq!(leave_out(&mut few), 0);
        let told = serde_json::to_string(&few).map_or(0, |text| text.len());
        assert!(told < 1 << 20, "{told} bytes");
        let mut many = snapshot(
            llama_7b(),
            &Peak::A40,
            2,
            vec![task(8, &[64; 1_024]); 1_000],
        );
        let left = leave_out(&mut many);
        assert!(left > 900, "{left}");
        let told = serde_json::to_string(&many).map_or(0, |text| text.len());
        assert!(told < 1 << 20, "{told} bytes");
    }
}
