//! `spotmux market orphans`: what the record of machines and the provider do not agree on.

use std::sync::Arc;

use market_actor::actor::journal;
use market_actor::custody::record::{self, Orphans};
use market_actor::provider::Machine;
use serde::Serialize;
use shared::ids::NodeName;

use crate::args::OrphansArgs;
use crate::clock;
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
}

/// Runs the command: nothing is changed.
pub(super) fn run(
    args: &OrphansArgs,
    settings: &Settings,
    output: &Output,
) -> Result<Exit, Failure> {
    let loaded = cluster_file::load(&args.cluster, settings)?;
    let told = process::market::market(&loaded, &args.cluster.set)?;
    let entries = journal::look(&told.record()).or_exit(Exit::BadInput)?;
    let open = record::open(&entries);
    let clock: Arc<dyn Fn() -> shared::units::Micros + Send + Sync> = Arc::new(clock::now);
    let listed = listed(&told, &clock)?;
    let orphans = record::orphans(&open, &listed);
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
    for token in &orphans.missing {
        let id = open.get(token).and_then(|own| own.id.clone());
        table.row([
            id.unwrap_or_else(|| "-".to_owned()),
            token.to_string(),
            "on record, and not running".to_owned(),
        ]);
    }
    let mut text = format!("{} machines on record, {} run\n", open.len(), listed.len());
    if orphans == Orphans::default() {
        text.push_str("no orphans");
    } else {
        text.push_str(&table.text());
    }
    output.result(
        &Told {
            held: open.keys().collect(),
            listed: listed.len(),
            orphans: &orphans,
        },
        &text,
    )?;
    if !orphans.unclaimed.is_empty() {
        output.next(&["spotmux market-actor   # it releases what is on no record".into()]);
    }
    Ok(Exit::Done)
}

fn listed(
    told: &market_actor::actor::MarketSettings,
    clock: &Arc<dyn Fn() -> shared::units::Micros + Send + Sync>,
) -> Result<Vec<Machine>, Failure> {
    let mut provider = told
        .offered
        .clone()
        .provider(&told.folder, clock)
        .or_exit(Exit::Internal)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .or_exit(Exit::Internal)?;
    let asked = async { tokio::time::timeout(told.patience, provider.list()).await };
    match runtime.block_on(asked) {
        Ok(listed) => listed.or_exit(Exit::Unreachable),
        Err(_) => {
            let message = format!(
                "the provider gave no list within {} s",
                told.patience.as_secs()
            );
            Err(Failure::new(Exit::Unreachable, message))
        }
    }
}
