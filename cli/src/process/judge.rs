//! Whether the processes of a cluster can be told what they are to do: what each of them reads at its start, read without
//! starting any or writing anything.

use coordinator::store::sqlite::Sqlite;
use shared::config::load::Loaded;

use super::{Given, artifacts, decide, threads, told_to_joiners};
use crate::exit::{Failure, OrExit};
use crate::security;
use crate::settings::Settings;

/// Of which process, and why it would end at its start.
pub(crate) type Fault = (&'static str, Failure);

/// All that is wrong with what processes are told; each thing once. Of a market: [`super::market::problems`].
pub(crate) fn faults(loaded: &Loaded, settings: &Settings) -> Vec<Fault> {
    let judged = [
        ("coordinator", coordinator(loaded, settings)),
        ("journal", journal(loaded)),
        ("gpu-actor", nodes(loaded)),
        ("certificate", certificates(loaded)),
    ];
    let wrong = judged.into_iter();
    wrong
        .filter_map(|(who, outcome)| Some((who, outcome.err()?)))
        .collect()
}

/// What a coordinator is told, but for the hash of the backbone.
fn coordinator(loaded: &Loaded, settings: &Settings) -> Result<(), Failure> {
    let given = Given::read(loaded, settings)?;
    decide(loaded, &given.model, String::new())?;
    told_to_joiners(loaded)?;
    artifacts(loaded, settings)?;
    Ok(())
}

/// A journal that is there is one, and of this program.
fn journal(loaded: &Loaded) -> Result<(), Failure> {
    let path = loaded.path_of(&loaded.config.coordinator.journal);
    if path.exists() {
        let held = Sqlite::read(&path).or_exit(crate::exit::Exit::BadInput)?;
        held.book().or_exit(crate::exit::Exit::BadInput)?;
    }
    Ok(())
}

/// Each node has threads to compute with.
fn nodes(loaded: &Loaded) -> Result<(), Failure> {
    let products = loaded.config.model.products;
    let mut nodes = loaded.config.nodes().into_iter();
    nodes.try_for_each(|node| threads(node.threads, products).map(|_| ()))
}

/// Certificates that are there can be kept, or made anew.
fn certificates(loaded: &Loaded) -> Result<(), Failure> {
    security::can_ensure(loaded)
}
