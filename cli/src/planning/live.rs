//! The running cluster as a question to the planner, and what stands there beside the answer.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Context;
use coordinator::plan::answer::{Plan, Replica};
use coordinator::plan::place::Seat;
use coordinator::plan::profile::Origin;
use coordinator::plan::snapshot::{Options, Snapshot};
use serde_json::{Value, json};
use shared::ids::JobId;
use shared::life::JobState;
use shared::plan::Seat as Standing;
use shared::wire::request::{Reply, Request};
use shared::wire::view::{ClusterView, JobView};

use super::jobs::Job;
use super::problem::Problem;
use crate::args::{Joining, ProblemArgs};
use crate::commands::cluster::look;
use crate::control::unfitting;
use crate::desk::Desk;
use crate::exit::{Exit, Failure, OrExit};

/// What stands on a cluster.
#[derive(Debug)]
pub(crate) struct Stands {
    /// Its plan, as the planner has it.
    pub(crate) plan: Plan,
    /// Its jobs that have not ended.
    jobs: Vec<JobView>,
    epoch: String,
}

/// Asks a cluster what its planner would be asked now, and what stands. Options that the command names go before those
/// of the cluster.
///
/// # Errors
/// Of the cluster; [`Exit::Coordinator`] when the answer is none.
pub(crate) fn ask(desk: &Desk<'_>, args: &ProblemArgs) -> Result<(Problem, Stands), Failure> {
    let view = match desk.control.request(&Request::Plan)? {
        Reply::Plan(view) => *view,
        other => return Err(unfitting(&other)),
    };
    let status = desk.status()?;
    let mut jobs = look::all_jobs(desk)?;
    jobs.retain(|job| !job.state.is_final());
    let mut snapshot: Snapshot = serde_json::from_str(&view.question)
        .context("the coordinator's question to the planner cannot be read")
        .or_exit(Exit::Coordinator)?;
    snapshot.options = Options {
        stages: args.stages.or(snapshot.options.stages),
        replicas: args.replicas.or(snapshot.options.replicas),
        saturation: args
            .saturation
            .map_or(snapshot.options.saturation, Joining::rule),
        ..snapshot.options
    };
    let name = |id: &JobId| jobs.iter().find(|job| job.id == *id);
    let known = snapshot.tasks.iter().map(|(id, task)| {
        let view = name(id);
        let job = Job {
            name: view.map_or_else(|| id.to_string(), |job| job.name.to_string()),
            method: view.map_or_else(String::new, |job| job.method.clone()),
            task: task.clone(),
        };
        (*id, job)
    });
    let mut assumed = Vec::new();
    assumed.extend(unmeasured(&snapshot, args.saturation.is_some()));
    if !view.unread.is_empty() {
        let all: Vec<String> = view.unread.iter().map(JobId::to_string).collect();
        assumed.push(format!(
            "not planned, as their rows are not known yet: {}",
            all.join(", ")
        ));
    }
    if view.left_out > 0 {
        assumed.push(format!(
            "{} jobs are left out, as all would not fit into one answer: those that would train last",
            view.left_out
        ));
    }
    let problem = Problem {
        jobs: known.collect(),
        assumed,
        model: status.model.clone(),
        snapshot,
    };
    let stands = Stands {
        plan: standing(&status),
        epoch: status.plan.epoch.to_string(),
        jobs,
    };
    Ok((problem, stands))
}

/// What is to be said of saturation, where the cluster does not ask about it.
fn unmeasured(snapshot: &Snapshot, asked: bool) -> Option<String> {
    let devices = snapshot.profiles.values();
    let guessed: Vec<&str> = devices
        .filter(|profile| profile.origin != Origin::Measured)
        .map(|profile| profile.device.as_str())
        .collect();
    if asked || guessed.is_empty() {
        return None;
    }
    Some(format!(
        "no job waits by plan.saturation, as a cluster asks only where all devices were measured (plan.profile): {} was not",
        guessed.join(", ")
    ))
}

/// The plan in force as the planner has it.
fn standing(status: &ClusterView) -> Plan {
    let seat = |seat: &Standing| Seat {
        node: seat.node.clone(),
        first: u64::from(seat.first_layer),
        end: u64::from(seat.end_layer),
    };
    let replicas = status.plan.replicas.iter().map(|replica| {
        let standing = Replica {
            seats: replica.seats.iter().map(seat).collect(),
            jobs: replica.jobs.clone(),
            arrangement: None,
            round: 0,
            chunks: Vec::new(),
        };
        (replica.number, standing)
    });
    Plan {
        replicas: replicas.collect(),
        ..Plan::default()
    }
}

impl Stands {
    /// Where a job is, in words.
    fn place(job: &JobView) -> String {
        match (job.replica, &job.reason) {
            (Some(replica), _) => format!("on replica {replica}, {}", job.state),
            (None, Some(reason)) => format!("{}: {}", job.state, reason.message),
            (None, None) => job.state.to_string(),
        }
    }

    /// Whether the planner would have a job elsewhere than it is.
    fn differs(job: &JobView, answer: &Plan) -> bool {
        let would = answer.replica_of(job.id).map(|(number, _)| number);
        let known = would.is_some() || answer.waiting.contains_key(&job.id);
        known && would != job.replica && job.state != JobState::Paused
    }

    /// For people: what was done, beside what the planner would do now.
    pub(crate) fn text(&self, answer: &Plan) -> String {
        let mut text = format!("\nin force: plan {}\n", self.epoch);
        for (number, replica) in &self.plan.replicas {
            let seats = replica.seats.iter();
            let seats: Vec<String> = seats
                .map(|seat| format!("{}[{}..{}]", seat.node, seat.first, seat.end))
                .collect();
            let same = answer
                .replicas
                .values()
                .any(|other| other.seats == replica.seats);
            let said = if same {
                "as the planner would have it"
            } else {
                "the planner would cut otherwise, if it had to begin"
            };
            let _ = writeln!(text, "  replica {number}: {}; {said}", seats.join(" "));
        }
        for job in &self.jobs {
            let note = if Self::differs(job, answer) {
                "; the planner would decide otherwise now"
            } else {
                ""
            };
            let _ = writeln!(
                text,
                "  {} {}: {}{note}",
                job.id,
                job.name,
                Self::place(job)
            );
        }
        text.push_str(
            "what trains is never paused for another, and stages are moved only when nodes come, leave or are lost\n",
        );
        text
    }

    /// For programs.
    pub(crate) fn told(&self, answer: &Plan) -> Value {
        let job = |job: &JobView| {
            json!({
                "job": job.id, "name": job.name, "state": job.state, "replica": job.replica,
                "reason": job.reason, "differs": Self::differs(job, answer),
            })
        };
        let seats: BTreeMap<u32, Value> = self
            .plan
            .replicas
            .iter()
            .map(|(number, replica)| (*number, json!(replica.seats)))
            .collect();
        json!({
            "epoch": self.epoch,
            "seats": seats,
            "jobs": self.jobs.iter().map(job).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use coordinator::plan::admit::{Wait, Why};
    use shared::units::Micros;

    use super::*;
    use crate::shown::samples;

    #[test]
    fn of_devices_that_were_not_measured_it_is_said_that_nobody_waits_by_saturation() {
        use coordinator::plan::profile::processor;
        let planned = crate::planning::backbone::of_shape(
            crate::planning::shapes::named("llama-2-7b")
                .unwrap()
                .unwrap(),
            "llama".into(),
        );
        let profile = processor::unmeasured("cpu avx2", 2, 1 << 30);
        let mut site = crate::planning::nodes::Site::default();
        site.profiles.insert(profile.device.clone(), profile);
        let options = Options::default();
        let mut snapshot =
            super::super::problem::snapshot(&planned, site, &BTreeMap::new(), options);
        let said = unmeasured(&snapshot, false).unwrap();
        assert!(
            said.contains("plan.profile") && said.contains("cpu avx2"),
            "{said}"
        );
        assert_eq!(unmeasured(&snapshot, true), None, "it was asked for");
        for profile in snapshot.profiles.values_mut() {
            profile.origin = Origin::Measured;
        }
        assert_eq!(unmeasured(&snapshot, false), None);
    }

    #[test]
    fn what_stands_is_shown_beside_what_would_be() {
        let status = samples::cluster();
        let plan = standing(&status);
        assert_eq!(plan.replicas[&0].seats.len(), 2);
        let mut queued = samples::job(4, "style", JobState::Queued);
        queued.replica = None;
        let stands = Stands {
            plan: plan.clone(),
            epoch: status.plan.epoch.to_string(),
            jobs: vec![samples::job(3, "support", JobState::Running), queued],
        };
        // The planner would let the other one train.
        let mut answer = plan;
        answer.replicas.get_mut(&0).unwrap().jobs = vec![JobId(4)];
        let wait = Wait {
            replica: 0,
            why: Why::Memory,
            estimate: Micros(1),
        };
        answer.waiting.insert(JobId(3), wait);
        let text = stands.text(&answer);
        assert!(text.contains("n1[0..2] n2[2..4]; as the planner"), "{text}");
        assert_eq!(text.matches("would decide otherwise").count(), 2, "{text}");
        let told = stands.told(&answer);
        assert_eq!(told["jobs"][1]["differs"], true);
        assert_eq!(told["epoch"], "e2");
    }
}
