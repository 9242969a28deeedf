//! `spotmux market orphans`: what the record of machines and the provider do not agree on, and machines on record that nobody looks
//! after, since no market actor runs.

use market_actor::actor::MarketSettings;
use market_actor::actor::journal::{self, Journal};
use market_actor::custody::record::{self, Orphans};
use market_actor::provider::Machine;
use serde::Serialize;
use shared::ids::NodeName;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::args::OrphansArgs;
use crate::cluster_file;
use crate::exit::{Exit, Failure, OrExit};
use crate::process;
use crate::render::{Align, Output, Table};
use crate::settings::Settings;

#[derive(Serialize)]
struct Told<'a> {
    held: Vec<&'a NodeName>,
    listed: usize,
    #[serde(flatten)]
    orphans: &'a Orphans,
    /// Machines on record that run while no market actor does.
    unattended: Vec<&'a str>,
}

/// Runs the command: without `--release` nothing is changed, and no file is written.
pub(super) fn run(
    args: &OrphansArgs,
    settings: &Settings,
    output: &Output,
) -> Result<Exit, Failure> {
    let loaded = cluster_file::load(&args.cluster, settings)?;
    let told = process::market::market(&loaded, &args.cluster.set, settings)?;
    let entries = journal::look(&told.record()).or_exit(Exit::BadInput)?;
    let open = record::open(&entries);
    let listed = listed(&told)?;
    let orphans = record::orphans(&open, &listed);
    let attended = journal::is_held(&told.record()).or_exit(Exit::Internal)?;
    let unattended = unattended(&orphans, attended);
    let mut table = Table::new(&[
        ("machine", Align::Left),
        ("request", Align::Left),
        ("is", Align::Left),
    ]);
    for machine in &orphans.unclaimed {
        let token = machine.token.as_ref().map_or("-", NodeName::as_str);
        table.row([
            machine.id.clone(),
            token.to_owned(),
            "running, and on no record: it costs money".to_owned(),
        ]);
    }
    for machine in unattended {
        let token = machine.token.as_ref().map_or("-", NodeName::as_str);
        table.row([
            machine.id.clone(),
            token.to_owned(),
            "running, on record, and no market actor runs: it costs money".to_owned(),
        ]);
    }
    for token in &orphans.missing {
        let id = open.get(token).and_then(|own| own.id.clone());
        table.row([
            id.unwrap_or_else(|| "-".to_owned()),
            token.to_string(),
            "on record, and not running".to_owned(),
        ]);
    }
    let mut text = format!("{} machines on record, {} run\n", open.len(), listed.len());
    if orphans.none() && unattended.is_empty() {
        text.push_str("no orphans");
    } else {
        text.push_str(&table.text());
    }
    output.result(
        &Told {
            held: open.keys().collect(),
            listed: listed.len(),
            orphans: &orphans,
            unattended: unattended.iter().map(|own| own.id.as_str()).collect(),
        },
        &text,
    )?;
    if orphans.unclaimed.is_empty() && unattended.is_empty() {
        return Ok(Exit::Done);
    }
    if args.release {
        release(&told, &listed, output)?;
        return Ok(Exit::Done);
    }
    output.next(&[
        "spotmux market orphans --release".into(),
        "spotmux up   # its market actor goes on with those on record, and releases the others"
            .into(),
    ]);
    // Scripts see it.
    Ok(Exit::Conflict)
}

/// Machines on record, where no market actor looks after them.
fn unattended(orphans: &Orphans, attended: bool) -> &[Machine] {
    match attended {
        true => &[],
        false => &orphans.claimed,
    }
}

/// Asks the provider without changing anything.
fn listed(told: &MarketSettings) -> Result<Vec<Machine>, Failure> {
    let asked = async {
        let listed = told.offered.clone().listed(&told.folder, &told.clocks.wall);
        timeout(told.patience, listed).await
    };
    match runtime()?.block_on(asked) {
        Ok(listed) => listed.or_exit(Exit::Unreachable),
        Err(_) => {
            let message = format!(
                "the provider gave no list within {} s",
                told.patience.as_secs()
            );
            Err(Failure::new(Exit::Unreachable, message)
                .hint("see whether its API or its commands answer from here, then run this again"))
        }
    }
}

/// Ends listed machines: those on no record, and those on record, since no market actor runs. The record is held meanwhile: a market
/// actor that runs does the former itself and needs the latter. It may have grown since it was looked at, so it is compared again: a
/// machine is on record before it is in a list. What is on record is closed by the next market actor, which sees that it is gone.
fn release(told: &MarketSettings, listed: &[Machine], output: &Output) -> Result<(), Failure> {
    let (_held, entries) = Journal::open(&told.record()).or_exit(Exit::Conflict)?;
    let found = record::orphans(&record::open(&entries), listed);
    let machines = found.unclaimed.into_iter().chain(found.claimed);
    let mut provider = told
        .offered
        .clone()
        .provider(&told.folder, &told.clocks.wall)
        .or_exit(Exit::Internal)?;
    let runtime = runtime()?;
    for machine in machines {
        let asked = async { timeout(told.patience, provider.release(&machine.id)).await };
        match runtime.block_on(asked) {
            Ok(done) => done.or_exit(Exit::Unreachable)?,
            Err(_) => {
                let message = format!(
                    "the provider did not answer within {} s when {} was to end: it may have been told",
                    told.patience.as_secs(),
                    machine.id
                );
                return Err(Failure::new(Exit::Unreachable, message).hint(
                    "spotmux market orphans   # shows what still runs; --release tells it again",
                ));
            }
        }
        output.note(format!("{} was told to end", machine.id));
    }
    Ok(())
}

fn runtime() -> Result<Runtime, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.or_exit(Exit::Internal)
}
