//! `spotmux market`: recorded markets, forecasts of them, policies in them.

mod backtest;
mod bill;
mod explain;
mod forecast;
mod orphans;
mod players;
mod show;
mod together;
mod whatif;

use std::fs;
use std::path::Path;

use anyhow::Context;

use crate::args::MarketCommand;
use crate::exit::{Exit, Failure, OrExit};
use crate::markets::source::Recorded;
use crate::render::Output;
use crate::settings::Settings;

/// Runs a command of the group.
///
/// # Errors
/// What it says.
pub(crate) fn run(
    command: &MarketCommand,
    settings: &Settings,
    output: &Output,
) -> Result<Exit, Failure> {
    match command {
        MarketCommand::Show(args) => show::run(args, output),
        MarketCommand::Bill(args) => bill::run(args, settings, output),
        MarketCommand::Forecast(args) => forecast::run(args, output),
        MarketCommand::Backtest(args) => backtest::run(args, output),
        MarketCommand::Explain(args) => explain::run(args, output),
        MarketCommand::Whatif(args) => whatif::run(args, output),
        MarketCommand::Orphans(args) => orphans::run(args, settings, output),
    }
}

/// Writes a picture.
fn draw(path: &Path, svg: &str, output: &Output) -> Result<(), Failure> {
    fs::write(path, svg)
        .with_context(|| format!("cannot write {}", path.display()))
        .or_exit(Exit::Internal)?;
    output.note(format!("drawn: {}", path.display()));
    Ok(())
}

/// Says what was taken where a source does not tell.
fn say_assumed(recorded: &Recorded, output: &Output) {
    for sentence in &recorded.assumed {
        output.note(format!("{}: {sentence}", recorded.name));
    }
}
