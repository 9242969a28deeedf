//! Jobs.

use serde_json::{Value, json};
use shared::job::MarketSpec;
use shared::units::{MicroUsd, Micros};
use shared::wire::market::Money;
use shared::wire::view::{JobView, Tempo};

use super::{inner, span, value};
use crate::render::{self, Align, Table};
use crate::training::report::arrow;

/// Jobs as a table.
pub(crate) fn table(jobs: &[JobView], now: Micros) -> String {
    let (l, r) = (Align::Left, Align::Right);
    let now = moment(jobs, now);
    let mut table = Table::new(&[
        ("id", l),
        ("job", l),
        ("method", l),
        ("state", l),
        ("steps", r),
        ("loss", r),
        ("held-out", r),
        ("place", l),
        ("age", r),
    ]);
    for job in jobs {
        table.row([
            job.id.to_string(),
            job.name.to_string(),
            job.method.clone(),
            job.state.to_string(),
            steps(job),
            arrow([job.first_loss, job.last_loss]),
            held_out(job),
            place(job),
            span(now.since(job.submitted)),
        ]);
    }
    table.text()
}

/// Steps taken and wanted; of a job whose data was not read yet, nobody knows how many.
fn steps(job: &JobView) -> String {
    match job.total_steps {
        0 => "-".into(),
        total => format!("{}/{total}", job.step),
    }
}

/// When jobs are looked at: not before the end of one of them that was waited for.
fn moment<'a>(jobs: impl IntoIterator<Item = &'a JobView>, now: Micros) -> Micros {
    let ended = jobs.into_iter().filter_map(|job| job.ended);
    ended.fold(now, Micros::max)
}

fn held_out(job: &JobView) -> String {
    let Some((last, at)) = job.last_eval else {
        return "-".into();
    };
    // The first is made before the first step: there is nothing to compare it with yet.
    let first = job.first_eval.filter(|_| at > 0);
    let change = arrow([first, Some(last)]);
    if at == job.step {
        change
    } else {
        format!("{change} at step {at}")
    }
}

fn place(job: &JobView) -> String {
    match (job.replica, job.queue_position) {
        (Some(replica), _) => format!("replica {replica}"),
        (None, Some(0)) => "next".into(),
        (None, Some(before)) => format!("{before} before it"),
        (None, None) => "-".into(),
    }
}

/// How fast a job goes, and what its company adds.
fn pace(tempo: &Tempo) -> String {
    let (step, steps) = (tempo.step, tempo.steps);
    let Some(alone) = tempo.alone.filter(|alone| alone.0 > 0) else {
        return format!("{step} (median of {steps})");
    };
    let basis = if tempo.measured {
        "predicted from a measured profile"
    } else {
        "predicted from conservative figures: plan.profile tells better"
    };
    if step <= alone {
        return format!("{step} (median of {steps}), no slower than {alone} alone; {basis}");
    }
    format!(
        "{step} (median of {steps}), {:.2} times the {alone} alone: company adds {} to a step; {basis}",
        step.0 as f64 / alone.0 as f64,
        step.since(alone)
    )
}

/// What its owner would spend on a job.
fn budget(job: &JobView) -> Option<MicroUsd> {
    let spec: Value = serde_json::from_str(&job.spec).ok()?;
    let asks = serde_json::from_value::<MarketSpec>(spec.get("market")?.clone());
    asks.ok()?.budget()
}

/// What a job has cost, what that saved, and what is left of its budget.
fn owed(money: &Money, budget: Option<MicroUsd>) -> String {
    let against = match money.saved < 0 {
        true => "more than",
        false => "saved against",
    };
    let saved = MicroUsd(money.saved.unsigned_abs());
    let mut text = format!(
        "{} spent, {saved} {against} the same machines on demand",
        money.spent
    );
    if let Some(cap) = budget {
        let left = MicroUsd(cap.0.saturating_sub(money.spent.0));
        text.push_str(&format!(", {left} of {cap} left"));
    }
    text
}

/// A job as facts.
pub(crate) fn facts(job: &JobView, now: Micros) -> String {
    let now = moment([job], now);
    let ago = |at: Micros| format!("{} ago", span(now.since(at)));
    let mut pairs = vec![
        ("job", format!("{} ({})", job.name, job.id)),
        ("method", job.method.clone()),
        ("state", job.state.to_string()),
    ];
    if let Some(reason) = &job.reason {
        let class = value(&reason.class);
        let class = class.as_str().unwrap_or_default().replace('_', " ");
        pairs.push(("reason", format!("{} ({class})", reason.message)));
    }
    pairs.push((
        "steps",
        format!(
            "{} of {}, {} durable",
            job.step, job.total_steps, job.durable_step
        ),
    ));
    pairs.push(("tokens", render::count(job.tokens)));
    pairs.push(("loss", arrow([job.first_loss, job.last_loss])));
    pairs.push(("held-out", held_out(job)));
    if let Some(rate) = job.learning_rate {
        pairs.push(("learning rate", format!("{rate:.3e}")));
    }
    pairs.push(("place", place(job)));
    if let Some(tempo) = &job.tempo {
        pairs.push(("step", pace(tempo)));
    }
    if let Some(money) = &job.money {
        pairs.push(("money", owed(money, budget(job))));
    }
    if job.recoveries > 0 {
        pairs.push(("recoveries", job.recoveries.to_string()));
    }
    if job.moves > 0 {
        pairs.push(("moves", job.moves.to_string()));
    }
    pairs.push(("submitted", ago(job.submitted)));
    if let Some(started) = job.started {
        pairs.push(("started", ago(started)));
    }
    if let Some(ended) = job.ended {
        let took = ended.since(job.started.unwrap_or(job.submitted));
        pairs.push(("ended", format!("{}, after {}", ago(ended), span(took))));
    }
    pairs.push(("trace", job.trace.clone()));
    render::facts(&pairs)
}

/// A job for programs.
pub(crate) fn told(job: &JobView) -> Value {
    let mut told = value(job);
    if let Some(money) = &job.money {
        let left = budget(job).map(|cap| cap.0.saturating_sub(money.spent.0));
        told["money"]["budget_left"] = json!(left);
    }
    told["id"] = json!(job.id.to_string());
    told["spec"] = inner(&job.spec);
    let eval = job.last_eval;
    told["last_eval"] = json!(eval.map(|(loss, _)| loss));
    let times = [
        ("submitted", Some(job.submitted)),
        ("started", job.started),
        ("ended", job.ended),
    ];
    for (name, at) in times {
        told[name] = json!(at.map(Micros::seconds));
    }
    told["last_eval_step"] = json!(eval.map(|(_, step)| step));
    told["tempo"] = json!(job.tempo.map(|tempo| json!({
        "step_seconds": tempo.step.seconds(),
        "steps": tempo.steps,
        "alone_seconds": tempo.alone.map(Micros::seconds),
        "slowdown": tempo.alone.filter(|alone| alone.0 > 0)
            .map(|alone| tempo.step.0 as f64 / alone.0 as f64),
        "added_seconds": tempo.alone.map(|alone| tempo.step.since(alone).seconds()),
        "profile_measured": tempo.measured,
    })));
    told
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use shared::life::{JobState, Reason, ReasonClass};

    use super::*;
    use crate::shown::samples;

    const NOW: Micros = Micros(100_000_000);

    #[test]
    fn a_table_tells_where_each_job_is() {
        let mut running = samples::job(3, "support", JobState::Running);
        (running.step, running.last_eval) = (40, Some((1.25, 20)));
        let mut queued = samples::job(4, "style", JobState::Queued);
        (queued.replica, queued.queue_position) = (None, Some(2));
        let text = table(&[running, queued], NOW);
        let expected = "\
id  job      method    state     steps          loss                 held-out  place         age
j3  support  LoRA r=8  running  40/100  2.00 -> 1.50  2.25 -> 1.25 at step 20  replica 0    90 s
j4  style    LoRA r=8  queued    0/100  2.00 -> 1.50                        -  2 before it  90 s
";
        assert_eq!(text, expected, "{text}");
    }

    #[test]
    fn a_job_tells_what_its_company_costs() {
        let mut job = samples::job(3, "support", JobState::Running);
        job.tempo = Some(Tempo {
            step: Micros(1_500_000),
            steps: 8,
            alone: Some(Micros(1_000_000)),
            measured: true,
        });
        let text = facts(&job, NOW);
        let said =
            "1.5 s (median of 8), 1.50 times the 1.0 s alone: company adds 500.0 ms to a step";
        assert!(text.contains(said), "{text}");
        assert_eq!(told(&job)["tempo"]["slowdown"], 1.5);
        if let Some(tempo) = &mut job.tempo {
            tempo.alone = Some(Micros(2_000_000));
        }
        let text = facts(&job, NOW);
        let said = "1.5 s (median of 8), no slower than 2.0 s alone; predicted";
        assert!(text.contains(said) && !text.contains("company"), "{text}");
        if let Some(tempo) = &mut job.tempo {
            (tempo.alone, tempo.measured) = (None, false);
        }
        assert!(
            facts(&job, NOW).contains("1.5 s (median of 8)\n"),
            "{}",
            facts(&job, NOW)
        );
        job.tempo = None;
        assert_eq!(told(&job)["tempo"], Value::Null);
    }

    #[test]
    fn a_job_tells_what_it_has_cost_where_there_is_a_market() {
        let mut job = samples::job(3, "support", JobState::Running);
        assert!(!facts(&job, NOW).contains("money"));
        assert_eq!(told(&job)["money"], Value::Null);
        job.money = Some(Money {
            spent: MicroUsd(2_500_000),
            saved: 6_000_000,
        });
        let text = facts(&job, NOW);
        let said = "money          $2.50 spent, $6.00 saved against the same machines on demand\n";
        assert!(text.contains(said), "{text}");
        job.spec = r#"{"market":{"budget_usd":4.0}}"#.into();
        assert!(facts(&job, NOW).contains("demand, $1.50 of $4.00 left"));
        assert_eq!(told(&job)["money"]["budget_left"], 1_500_000);
        assert_eq!(told(&job)["money"]["spent"], 2_500_000);
    }

    #[test]
    fn a_job_that_was_just_submitted_or_waited_for_tells_no_nonsense() {
        let mut job = samples::job(3, "a", JobState::Queued);
        (job.step, job.total_steps, job.replica) = (0, 0, None);
        job.queue_position = Some(0);
        job.first_eval = Some(6.63);
        job.last_eval = Some((6.63, 0));
        assert_eq!(steps(&job), "-");
        assert_eq!(place(&job), "next");
        assert_eq!(held_out(&job), "6.63");
        job.step = 3;
        assert_eq!(held_out(&job), "6.63 at step 0");
        // It was submitted at 10 s and ended at 110 s, after the command that waits began.
        job.ended = Some(Micros(110_000_000));
        assert!(table(&[job], NOW).trim_end().ends_with("100 s"));
    }

    #[test]
    fn a_job_tells_why() {
        let mut job = samples::job(3, "support", JobState::Failed);
        job.reason = Some(Reason {
            class: ReasonClass::NoCapacity,
            message: "no node has 4 GiB".into(),
        });
        job.ended = Some(Micros(95_000_000));
        let text = facts(&job, NOW);
        assert!(
            text.contains("reason         no node has 4 GiB (no capacity)"),
            "{text}"
        );
        assert!(
            text.contains("ended          5.0 s ago, after 65 s"),
            "{text}"
        );
        let told = told(&job);
        assert_eq!(told["id"], "j3");
        assert_eq!(told["spec"]["seed"], 42);
        assert_eq!(told["last_eval"], Value::Null);
        assert_eq!(told["state"], "failed");
        assert_eq!(
            (&told["submitted"], &told["ended"]),
            (&json!(10.0), &json!(95.0))
        );
    }
}
