//! `spotmux quote`: when jobs would be done, what they would cost, and the chance to keep a deadline.

use coordinator::plan::place::NoPlace;
use coordinator::plan::quote::{Cost, Quote, quotes};
use coordinator::plan::solve::{NoPlan, solve};
use serde_json::{Value, json};
use shared::units::{MicroUsd, Micros};

use super::plan::failure;
use crate::args::QuoteArgs;
use crate::exit::{Exit, Failure, OrExit};
use crate::planning::problem;
use crate::planning::shown::{self, span};
use crate::render::{Align, Table};
use crate::session::Session;

/// Runs the command.
pub(crate) fn run(args: &QuoteArgs, session: &Session<'_>) -> Result<Exit, Failure> {
    let mut problem = problem::of(&args.problem, session)?;
    let deadline = args.deadline.map(|hours| Micros((hours * 3.6e9) as u64));
    for task in problem.snapshot.tasks.values_mut() {
        task.deadline = deadline;
    }
    let output = session.output;
    let (plan, explanation) = match solve(&problem.snapshot, None) {
        Ok(found) => found,
        Err(NoPlan::NoPlace(reason @ NoPlace::NoNode)) => {
            let reason = reason.to_string();
            output.result(
                &json!({ "jobs": [], "reason": reason }),
                &shown::queued(&problem, &reason),
            )?;
            return Ok(Exit::Done);
        }
        Err(error) => return Err(failure(&error, &problem)),
    };
    let mut table = Table::new(&[
        ("job", Align::Left),
        ("name", Align::Left),
        ("waits", Align::Right),
        ("done in", Align::Right),
        ("earliest", Align::Right),
        ("latest", Align::Right),
        ("cost", Align::Right),
        ("least", Align::Right),
        ("most", Align::Right),
        ("slowdown", Align::Right),
        ("in time", Align::Right),
    ]);
    let mut told = Vec::new();
    let quoted = quotes(&problem.snapshot, &plan).or_exit(Exit::Internal)?;
    for (id, job) in &problem.jobs {
        let found = quoted.get(id);
        let refused = explanation.refused.get(id);
        told.push(told_of(&job.name, found, refused));
        let mut cells = vec![id.to_string(), job.name.clone()];
        match found {
            Some(quote) => cells.extend(cells_of(quote)),
            None => cells.extend((0..9).map(|_| "-".to_owned())),
        }
        table.row(cells);
    }
    let mut text = table.text();
    for (id, why) in &explanation.refused {
        text.push_str(&format!("{id} can never train here: {why}\n"));
    }
    let mut notes = explanation.grounds.clone();
    if problem
        .snapshot
        .nodes
        .values()
        .all(|node| node.price.0 == 0)
    {
        notes.push(
            "no price of a node is known: price_usd_hour in a file of --nodes tells it".into(),
        );
    }
    for line in notes.iter().chain(&problem.assumed) {
        text.push_str(&format!("note: {line}\n"));
    }
    let told = json!({ "jobs": told, "grounds": notes, "assumed": problem.assumed });
    output.result(&told, &text)?;
    Ok(if plan.refused.is_empty() {
        Exit::Done
    } else {
        Exit::WouldNotFit
    })
}

fn cells_of(quote: &Quote) -> [String; 9] {
    let paid = |pick: fn(&Cost) -> MicroUsd| {
        quote
            .cost
            .as_ref()
            .map_or_else(|| "no price".into(), |cost| price(pick(cost)))
    };
    [
        span(quote.wait),
        span(quote.expected),
        span(quote.earliest),
        span(quote.latest),
        paid(|cost| cost.expected),
        paid(|cost| cost.least),
        paid(|cost| cost.most),
        format!("{:.2}", quote.slowdown_permille as f64 / 1000.0),
        quote.chance_permille.map_or_else(
            || "-".into(),
            |chance| format!("{:.1} %", chance as f64 / 10.0),
        ),
    ]
}

/// A sum of money; what four digits would show as nothing is told as less than they can show.
fn price(sum: MicroUsd) -> String {
    match sum.0 {
        1..50 => "< $0.0001".to_owned(),
        _ => sum.to_string(),
    }
}

fn told_of(name: &str, quote: Option<&Quote>, refused: Option<&String>) -> Value {
    json!({ "name": name, "quote": quote, "refused": refused })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_price_is_not_shown_as_none() {
        assert_eq!(price(MicroUsd(0)), "$0.0000");
        assert_eq!(price(MicroUsd(12)), "< $0.0001");
        assert_eq!(price(MicroUsd(50)), "$0.0001");
    }
}
