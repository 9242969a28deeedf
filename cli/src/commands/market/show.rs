//! `spotmux market show`: recorded markets in a few figures.

use market_actor::feed::digest::{Digest, digest};
use market_actor::feed::instant_text;
use market_actor::plot::Picture;
use serde::Serialize;

use super::{draw, say_assumed};
use crate::args::ShowMarketArgs;
use crate::exit::{Exit, Failure};
use crate::markets::source::{Recorded, read};
use crate::render::{self, Output};

/// Spot machines taken where a source does not say.
const USUAL: u32 = 12;

#[derive(Serialize)]
struct Told<'a> {
    name: &'a str,
    from: Option<String>,
    #[serde(flatten)]
    digest: Digest,
    assumed: &'a [String],
}

/// Runs the command.
pub(super) fn run(args: &ShowMarketArgs, output: &Output) -> Result<Exit, Failure> {
    let all = read(&args.trace, USUAL)?;
    for recorded in &all {
        let Some(digest) = digest(&recorded.market) else {
            continue;
        };
        let from = recorded.dated.then(|| instant_text(recorded.market.start));
        let text = text(recorded, from.as_deref(), &digest);
        say_assumed(recorded, output);
        output.result(
            &Told {
                name: &recorded.name,
                from,
                digest,
                assumed: &recorded.assumed,
            },
            &text,
        )?;
    }
    if let (Some(path), Some(first)) = (&args.plot, all.first()) {
        let picture = Picture {
            title: &first.name,
            market: &first.market,
            dated: first.dated,
            outlooks: &[],
            held: &[],
        };
        draw(path, &picture.svg(), output)?;
    }
    Ok(Exit::Done)
}

fn text(recorded: &Recorded, from: Option<&str>, digest: &Digest) -> String {
    let [low, middle, high] = digest.spot_price.map(|price| price.dollars());
    let [fewest, usual, most] = digest.spot_available;
    let days = digest.slots as f64 * digest.slot_minutes / 1440.0;
    let begins = from.map_or_else(|| "no dates".to_owned(), |from| format!("from {from}"));
    render::facts(&[
        ("market", recorded.name.clone()),
        (
            "time",
            format!(
                "{} slots of {} min, {days:.1} days, {begins}",
                render::count(digest.slots as u64),
                digest.slot_minutes
            ),
        ),
        (
            "spot price",
            format!(
                "{low:.4} to {high:.4} USD an hour, median {middle:.4}, {} changes",
                render::count(digest.price_changes as u64)
            ),
        ),
        (
            "on demand",
            format!(
                "{:.4} USD an hour; spot is at least as dear in {:.1} % of slots",
                digest.on_demand_price.dollars(),
                100.0 * digest.dear
            ),
        ),
        (
            "spot machines",
            format!(
                "{fewest} to {most}, median {usual}, mean {:.2}",
                digest.mean_available
            ),
        ),
        (
            "none at all",
            format!(
                "{:.1} % of slots, at most {} in a row",
                100.0 * digest.without,
                digest.longest_without
            ),
        ),
        (
            "fewer than before",
            format!("in {} slots", render::count(digest.losses as u64)),
        ),
    ])
}
