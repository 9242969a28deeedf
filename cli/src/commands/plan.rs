//! `spotmux plan`: which jobs would share what, where and why; nothing runs.

use coordinator::plan::place::NoPlace;
use coordinator::plan::solve::{NoPlan, solve};
use serde_json::json;

use crate::args::PlanArgs;
use crate::exit::{Exit, Failure};
use crate::planning::problem::{self, Problem};
use crate::planning::shown;
use crate::session::Session;

/// Runs the command.
pub(crate) fn run(args: &PlanArgs, session: &Session<'_>) -> Result<Exit, Failure> {
    let mut problem = problem::of(&args.problem, session)?;
    let options = &mut problem.snapshot.options;
    options.fuse = !args.no_fuse;
    options.order = !args.no_order;
    options.align = !args.no_align;
    let output = session.output;
    let (plan, explanation) = match solve(&problem.snapshot, None) {
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
    let text = shown::text(&problem, &plan, &explanation, args.explain);
    output.result(&shown::told(&problem, &plan, &explanation), &text)?;
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
