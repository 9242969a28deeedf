//! A plan for people and for programs.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use coordinator::plan::answer::Plan;
use coordinator::plan::explain::{Explanation, Limit, ReplicaWhy, counted};
use serde_json::{Value, json};
use shared::ids::JobId;
use shared::units::Micros;

use super::jobs::Job;
use super::problem::Problem;
use crate::render::{self, Align, Table};

/// For people: where stages lie, who trains where, who waits and who is refused; with `why`, why it is so.
pub(crate) fn text(problem: &Problem, plan: &Plan, explanation: &Explanation, why: bool) -> String {
    let snapshot = &problem.snapshot;
    let mut text = format!(
        "{}: {} blocks as {}, tables as {}; {}\n",
        problem.model,
        snapshot.model.layers,
        snapshot.blocks.name(),
        snapshot.tables.name(),
        counted(snapshot.nodes.len() as u64, "node", "nodes")
    );
    for (number, replica) in &plan.replicas {
        let seats = replica.seats.iter().map(|seat| {
            let (from, to) = (seat.first, seat.end);
            format!("{}[{from}..{to}]", seat.node)
        });
        let seats: Vec<String> = seats.collect();
        let _ = writeln!(text, "replica {number}: {}", seats.join(" "));
        if let Some(said) = explanation.replicas.get(number) {
            let _ = writeln!(text, "  {}", glance(said));
        }
    }
    text.push('\n');
    text.push_str(&jobs(&problem.jobs, plan, explanation));
    if why {
        let _ = write!(text, "\n{}", explanation.text());
    } else {
        for refusal in &explanation.refused {
            let _ = writeln!(text, "{} can never train here: {}", refusal.0, refusal.1);
        }
        for ground in &explanation.grounds {
            let _ = writeln!(text, "note: {ground}");
        }
    }
    for assumed in &problem.assumed {
        let _ = writeln!(text, "note: {assumed}");
    }
    text
}

fn glance(said: &ReplicaWhy) -> String {
    let limit = match &said.limit {
        Limit::Memory { stage } => format!("memory of stage {stage} limits it"),
        Limit::Compute { stage } => format!("stage {stage} computes longest"),
    };
    let fullest = said
        .memory
        .iter()
        .enumerate()
        .max_by_key(|(_, (used, offered))| {
            u128::from(used.0) * 1000 / u128::from(offered.0.max(1))
        });
    let memory = fullest.map_or(String::new(), |(stage, (used, offered))| {
        format!("; fullest is stage {stage} with {used} of {offered}")
    });
    format!(
        "a step of {} in {}, {} tokens/s, predicted; {limit}{memory}",
        said.round,
        counted(said.micro_batches, "micro-batch", "micro-batches"),
        said.tokens_per_second
    )
}

fn jobs(known: &BTreeMap<JobId, Job>, plan: &Plan, explanation: &Explanation) -> String {
    let mut table = Table::new(&[
        ("job", Align::Left),
        ("name", Align::Left),
        ("method", Align::Left),
        ("rows a step", Align::Right),
        ("steps", Align::Right),
        ("where", Align::Left),
    ]);
    for (id, job) in known {
        let place = match (plan.replica_of(*id), explanation.waiting.get(id)) {
            (Some((number, replica)), _) => {
                let groups = replica.hybrid_tasks();
                let with = groups.iter().find(|group| group.contains(id));
                let others: Vec<String> = with
                    .into_iter()
                    .flatten()
                    .filter(|other| *other != id)
                    .map(JobId::to_string)
                    .collect();
                if others.is_empty() {
                    format!("replica {number}, passes of its own")
                } else {
                    format!("replica {number}, passes with {}", others.join(", "))
                }
            }
            (None, Some(why)) => why.clone(),
            (None, None) => "refused".into(),
        };
        table.row([
            id.to_string(),
            job.name.clone(),
            job.method.clone(),
            render::count(job.task.tokens()),
            render::count(job.task.steps),
            place,
        ]);
    }
    table.text()
}

/// For programs.
pub(crate) fn told(problem: &Problem, plan: &Plan, explanation: &Explanation) -> Value {
    let replicas: Vec<Value> = plan
        .replicas
        .iter()
        .map(|(number, replica)| {
            json!({
                "replica": number,
                "seats": replica.seats,
                "jobs": replica.jobs,
                "passes_shared_by": replica.hybrid_tasks(),
                "step_micros": replica.step(),
                "round_micros": replica.round(),
            })
        })
        .collect();
    let jobs: Vec<Value> = problem
        .jobs
        .iter()
        .map(|(id, job)| {
            json!({
                "job": id, "name": job.name, "method": job.method,
                "rows_a_step": job.task.tokens(), "steps": job.task.steps,
            })
        })
        .collect();
    json!({
        "model": problem.model,
        "blocks": problem.snapshot.blocks,
        "tables": problem.snapshot.tables,
        "jobs": jobs,
        "replicas": replicas,
        "why": explanation,
        "assumed": problem.assumed,
    })
}

/// For people: jobs that queue because nothing is there to train them.
pub(crate) fn queued(problem: &Problem, reason: &str) -> String {
    let mut text = String::new();
    for (id, job) in &problem.jobs {
        let _ = writeln!(text, "{id} {} queues: {reason}", job.name);
    }
    text
}

/// Hours, minutes or less, for people.
pub(crate) fn span(time: Micros) -> String {
    let seconds = time.seconds();
    if time == Micros(0) {
        return "0 s".to_owned();
    }
    if seconds < 120.0 {
        return time.to_string();
    }
    let minutes = (seconds / 60.0).round() as u64;
    match minutes {
        0..120 => format!("{minutes} min"),
        _ => format!("{} h {:02} min", minutes / 60, minutes % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_in_the_unit_that_people_use() {
        assert_eq!(span(Micros(0)), "0 s");
        assert_eq!(span(Micros(1_500)), "1.5 ms");
        assert_eq!(span(Micros(100_000_000)), "100.0 s");
        assert_eq!(span(Micros(600_000_000)), "10 min");
        assert_eq!(span(Micros(3_600_000_000 * 3)), "3 h 00 min");
    }
}
