//! A record as people read it.

use serde_json::{Value, json};
use shared::life::ReasonClass;
use shared::samples::SampleCount;
use shared::wire::notice::JobNotice;
use shared::wire::view::{EventView, Level};

use super::{Change, Inputs, Record};

/// Kind, level, sentence, numbers.
type Told = (&'static str, Level, String, Value);

impl Record {
    /// The line of the cluster's history.
    #[must_use]
    pub fn view(&self) -> EventView {
        let (kind, level, message, data) = match &self.change {
            Change::Heard { from, notice, .. } => notice_told(notice, from.node.as_str()),
            other => told(other),
        };
        EventView {
            number: self.number,
            at: self.at,
            job: self.change.job(),
            level,
            kind: kind.into(),
            message,
            data: data.to_string(),
        }
    }
}

fn info(kind: &'static str, message: impl Into<String>, data: Value) -> Told {
    (kind, Level::Info, message.into(), data)
}

fn warn(kind: &'static str, message: impl Into<String>, data: Value) -> Told {
    (kind, Level::Warn, message.into(), data)
}

fn told(change: &Change) -> Told {
    let none = || json!({});
    match change {
        Change::Began { term } => info(
            "leadership_began",
            format!("leadership {term} began"),
            json!({ "term": term }),
        ),
        Change::Submitted { accepted, .. } => info(
            "job_submitted",
            format!("{} was accepted: {}", accepted.name, accepted.method),
            json!({ "name": accepted.name, "trace": accepted.trace }),
        ),
        Change::Prepared { inputs, .. } => samples_told(inputs),
        Change::Unfit { reason, .. } => (
            "job_failed",
            Level::Error,
            reason.message.clone(),
            json!({ "class": reason.class }),
        ),
        Change::Placed { replica, .. } => info(
            "job_placed",
            format!("given to replica {replica}"),
            json!({ "replica": replica }),
        ),
        Change::PauseAsked { .. } => info("pause_requested", "its owner asked for a halt", none()),
        Change::ResumeAsked { .. } => info("resume_requested", "its owner asked to go on", none()),
        Change::CancelAsked { .. } => {
            info("cancel_requested", "its owner asked for the end", none())
        }
        Change::Unplanned { reason } => warn(
            "admission_unplanned",
            format!("jobs begin by number alone, without regard to memory and shares: {reason}"),
            none(),
        ),
        Change::SharedByFewer { reason, .. } => warn("shared_by_fewer", reason.clone(), none()),
        Change::Heard { from, notice, .. } => notice_told(notice, from.node.as_str()),
        Change::Broken { replica, reason } => warn(
            "replica_broken",
            format!("replica {replica} cannot go on: {reason}"),
            json!({ "replica": replica }),
        ),
        Change::Regrouped { replica, reason } => warn(
            "passes_made_smaller",
            reason.clone(),
            json!({ "replica": replica }),
        ),
        Change::MoveStarted {
            epoch,
            replicas,
            reason,
        } => info(
            "migration_started",
            format!("plan {epoch} is being prepared: {reason}"),
            json!({ "epoch": epoch, "replicas": replicas }),
        ),
        Change::MoveCalledOff { epoch, reason } => warn(
            "migration_called_off",
            format!("plan {epoch} does not come: {reason}"),
            json!({ "epoch": epoch }),
        ),
        Change::InForce { layout } => info(
            "plan_in_force",
            format!("plan {} holds: {layout}", layout.epoch),
            json!({ "epoch": layout.epoch, "replicas": layout.replicas }),
        ),
        Change::Forgotten { jobs, nodes } => info(
            "let_go",
            format!(
                "{} jobs that ended and {} nodes that are gone are known no more: as many are as limits.ended_jobs_kept \
                 and limits.gone_nodes_kept say",
                jobs.len(),
                nodes.len()
            ),
            json!({ "jobs": jobs, "nodes": nodes }),
        ),
        Change::DrainAsked { .. }
        | Change::NodeJoined { .. }
        | Change::NotDurable { .. }
        | Change::Unsaved { .. }
        | Change::NodeAhead { .. }
        | Change::NodeLeaving { .. }
        | Change::NodeAtRisk { .. }
        | Change::NodeLeft { .. }
        | Change::NodeLost { .. } => told_of_node(change),
    }
}

/// What became of every record of a job's files; rows that are left out or cut are worth a look.
fn samples_told(inputs: &Inputs) -> Told {
    let files: Vec<String> = inputs.samples.iter().map(ToString::to_string).collect();
    let told = match files.is_empty() {
        true => String::new(),
        false => format!(" ({})", files.join("; ")),
    };
    let level = match inputs.samples.iter().all(SampleCount::is_whole) {
        true => Level::Info,
        false => Level::Warn,
    };
    (
        "job_queued",
        level,
        format!("its samples are token rows now{told}; it waits for room"),
        json!({ "rows_sha256": inputs.rows_sha256, "samples": inputs.samples }),
    )
}

/// A change of a node.
fn told_of_node(change: &Change) -> Told {
    match change {
        Change::DrainAsked { node, undo: true } => info(
            "drain_undone",
            format!("{node} may have work again"),
            json!({ "node": node }),
        ),
        Change::DrainAsked { node, undo: false } => info(
            "drain_requested",
            format!("{node} shall be empty"),
            json!({ "node": node }),
        ),
        Change::NodeJoined { node, incarnation } => info(
            "node_joined",
            format!("{node} is here"),
            json!({ "node": node, "incarnation": incarnation.to_string() }),
        ),
        Change::NotDurable { node, reason } => warn(
            "not_durable",
            format!("{node} could not make all states durable: {reason}; it tries again"),
            json!({ "node": node }),
        ),
        Change::Unsaved { node, reason } => warn(
            "not_saved",
            format!(
                "{node} was stopped before all states were known to be durable: {reason}; its jobs go on from their \
                 durable steps"
            ),
            json!({ "node": node }),
        ),
        Change::NodeAhead { node, term, reason } => warn(
            "node_ahead",
            reason.clone(),
            json!({ "node": node, "term": term }),
        ),
        Change::NodeLeaving {
            node,
            within,
            cause,
            ..
        } => info(
            "node_leaving",
            format!("{node} leaves within {within}: {cause}"),
            json!({ "node": node, "within_seconds": within.seconds(), "cause": cause }),
        ),
        Change::NodeAtRisk {
            node,
            cause: Some(cause),
            every_steps,
        } => warn(
            "node_at_risk",
            match every_steps {
                0 => format!("{node} may be taken: {cause}"),
                1 => {
                    format!("{node} may be taken: {cause}; jobs on it are stored after every step")
                }
                steps => {
                    format!(
                        "{node} may be taken: {cause}; jobs on it are stored every {steps} steps"
                    )
                }
            },
            json!({ "node": node, "cause": cause, "every_steps": every_steps }),
        ),
        Change::NodeAtRisk {
            node, cause: None, ..
        } => info(
            "node_risk_over",
            format!("{node} may not be taken any more: jobs on it are stored as they ask"),
            json!({ "node": node }),
        ),
        Change::NodeLeft { node } => info(
            "node_left",
            format!("{node} has left, as it was told to"),
            json!({ "node": node }),
        ),
        Change::NodeLost { node, reason } => warn(
            "node_lost",
            format!("{node} is lost: {reason}"),
            json!({ "node": node }),
        ),
        _ => unreachable!("it is about a node"),
    }
}

fn notice_told(notice: &JobNotice, node: &str) -> Told {
    // {"step": {...}} says its name again: the numbers alone are wanted.
    let data = match serde_json::to_value(notice) {
        Ok(Value::Object(map)) => map
            .into_iter()
            .next()
            .map_or(Value::Null, |(_, inner)| inner),
        _ => json!({}),
    };
    match notice {
        JobNotice::Admitted { step, total } => info(
            "job_admitted",
            format!("on the backbone at {node}, step {step} of {total}"),
            data,
        ),
        JobNotice::Refused(reason) if reason.class == ReasonClass::NoCapacity => {
            warn("job_refused", reason.message.clone(), data)
        }
        JobNotice::Refused(reason) => ("job_refused", Level::Error, reason.message.clone(), data),
        JobNotice::Step { step, loss, .. } => {
            info("step", format!("step {step}, loss {loss:.4}"), data)
        }
        JobNotice::Evaluation { step, loss, .. } => info(
            "evaluation",
            format!("held-out loss {loss:.4} after step {step}"),
            data,
        ),
        JobNotice::Durable { step, bytes } => info(
            "checkpoint",
            format!("step {step} is durable, {bytes}"),
            data,
        ),
        JobNotice::Paused { step } => info("paused", format!("halted after step {step}"), data),
        JobNotice::Resumed => info("resumed", "goes on", data),
        JobNotice::Quarantined { step, reason } => (
            "job_failed",
            Level::Error,
            format!("set aside after step {step}: {reason}"),
            data,
        ),
        JobNotice::Finished { step, early } => {
            let why = if *early { ", earlier than planned" } else { "" };
            info(
                "training_finished",
                format!("last step {step} taken{why}"),
                data,
            )
        }
        JobNotice::Exported { files } => info(
            "job_succeeded",
            format!("the adapter is written: {} files", files.len()),
            data,
        ),
        JobNotice::Salvaged { step, .. } => info(
            "salvaged",
            format!("the adapter of its good state after step {step} is written"),
            data,
        ),
        JobNotice::Cancelled { step } => info(
            "job_cancelled",
            format!("ended by its owner after step {step}"),
            data,
        ),
        JobNotice::Recovered { step } => {
            info("recovered", format!("goes on from step {step}"), data)
        }
    }
}

#[cfg(test)]
mod tests {
    use shared::ids::{EventNumber, JobId};
    use shared::units::Micros;

    use super::*;

    fn queued(samples: Vec<SampleCount>) -> EventView {
        let inputs = Inputs {
            samples,
            ..Inputs::default()
        };
        let job = JobId(1);
        let change = Change::Prepared { job, inputs };
        let (number, at) = (EventNumber(1), Micros(1));
        Record { number, at, change }.view()
    }

    #[test]
    fn rows_that_are_left_out_are_told_aloud() {
        let mut file = SampleCount {
            file: "a.jsonl".into(),
            rows_in: 60,
            rows_used: 60,
            max_length: 64,
            ..SampleCount::default()
        };
        assert_eq!(queued(Vec::new()).level, Level::Info);
        assert_eq!(queued(vec![file.clone()]).level, Level::Info);
        file.rows_used = 40;
        file.dropped.insert("over_long".into(), 20);
        let event = queued(vec![file]);
        assert_eq!(event.level, Level::Warn);
        let told = "a.jsonl: 60 rows in = 40 used + 20 dropped (20 over long)";
        assert!(event.message.contains(told), "{}", event.message);
        let data: Value = serde_json::from_str(&event.data).unwrap_or_default();
        assert_eq!(data["samples"][0]["dropped"]["over_long"], 20);
    }
}
