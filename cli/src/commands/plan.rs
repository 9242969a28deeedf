//! `spotmux plan`: which jobs would share what, where and why; nothing runs. With `--cluster` alone, those of the running
//! cluster, beside what stands there.

use coordinator::plan::place::NoPlace;
use coordinator::plan::solve::{NoPlan, solve};
use serde_json::json;

use crate::args::PlanArgs;
use crate::clock::Stopwatch;
use crate::desk::Desk;
use crate::exit::{Exit, Failure};
use crate::planning::problem::{self, Problem};
use crate::planning::{live, shown};
use crate::session::Session;

/// Runs the command.
pub(crate) fn run(args: &PlanArgs, session: &Session<'_>) -> Result<Exit, Failure> {
    let asked = &args.problem;
    let live = asked.cluster_nodes && asked.jobs.is_none() && asked.model.is_none();
    let (mut problem, stands) = if live {
        let ask = |desk: &Desk<'_>| live::ask(desk, asked);
        let (problem, stands) = session.with_cluster(&asked.cluster, ask)?;
        (problem, Some(stands))
    } else {
        (problem::of(asked, session)?, None)
    };
    let options = &mut problem.snapshot.options;
    // What the cluster has switched off stays off.
    options.fuse &= !args.no_fuse;
    options.order &= !args.no_order;
    options.align &= !args.no_align;
    let output = session.output;
    let clock = Stopwatch::start();
    let found = solve(
        &problem.snapshot,
        stands.as_ref().map(|stands| &stands.plan),
    );
    let planner_ms = clock.seconds() * 1e3;
    let (plan, explanation) = match found {
        Ok(found) => found,
        Err(NoPlan::NoPlace(reason @ NoPlace::NoNode)) => {
            let reason = reason.to_string();
            let queued: Vec<_> = problem.jobs.values().map(|job| &job.name).collect();
            let told = json!({ "queued": queued, "reason": reason });
            output.result(&told, &shown::queued(&problem, &reason))?;
            return Ok(Exit::Done);
        }
        Err(error) => return Err(failure(&error, &problem)),
    };
    let mut text = shown::text(&problem, &plan, &explanation, args.explain);
    let mut told = shown::told(&problem, &plan, &explanation);
    told["planner_ms"] = json!(planner_ms);
    if args.explain {
        text.push_str(&format!("planned in {planner_ms:.1} ms\n"));
    }
    if let Some(stands) = stands {
        text.push_str(&stands.text(&plan));
        told["in_force"] = stands.told(&plan);
    }
    output.result(&told, &text)?;
    Ok(if plan.refused.is_empty() {
        Exit::Done
    } else {
        Exit::WouldNotFit
    })
}

/// Why there is no plan, as a command ends.
pub(crate) fn failure(error: &NoPlan, problem: &Problem) -> Failure {
    let exit = match error {
        NoPlan::NoPlace(NoPlace::TooBig { .. }) => Exit::WouldNotFit,
        NoPlan::NoPlace(NoPlace::NoNode) => Exit::NoCapacity,
        NoPlan::NoPlace(_) => Exit::BadInput,
        NoPlan::Broken(_) => Exit::Internal,
    };
    let failure = Failure::new(exit, format!("{}: {error}", problem.model));
    match error {
        NoPlan::NoPlace(NoPlace::Profile(_)) => {
            failure.hint("a profile holds for the shapes of the model it was measured on")
        }
        _ => failure,
    }
}
