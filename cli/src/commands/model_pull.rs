//! `spotmux model pull`: fetches a model and keeps it.

use serde::Serialize;

use crate::args::PullArgs;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::render::{self, Output};
use crate::settings::Settings;
use crate::store::{Pull, Pulled, Store};

/// What a program is told.
#[derive(Debug, Serialize)]
struct Told<'a> {
    name: &'a str,
    path: String,
    source: &'a str,
    licence: Option<&'a str>,
    bytes: u64,
    fetched_now: bool,
}

/// Runs the command.
pub(crate) fn run(args: &PullArgs, settings: &Settings, output: &Output) -> Result<Exit, Failure> {
    let interrupt = Interrupt::listen()?;
    interrupt.after_steps();
    let pull = Pull {
        name: &args.name,
        from: args.from.as_deref(),
        revision: args.revision.as_deref(),
    };
    let pulled = Store::new(settings)?.pull(&pull, output, &interrupt)?;
    show(&pulled, output)?;
    let word = render::shell_word(&pulled.entry.name);
    output.next(&[
        format!("spotmux model inspect {word}"),
        format!("spotmux generate --model {word} 'What is the capital of France?'"),
        "spotmux demo".into(),
    ]);
    Ok(Exit::Done)
}

fn show(pulled: &Pulled, output: &Output) -> Result<(), Failure> {
    let entry = &pulled.entry;
    let told = Told {
        name: &entry.name,
        path: entry.model().display().to_string(),
        source: &entry.source,
        licence: entry.licence.as_deref(),
        bytes: entry.bytes(),
        fetched_now: pulled.fresh,
    };
    let state = if pulled.fresh {
        "fetched and verified"
    } else {
        "already here, verified again"
    };
    let text = render::facts(&[
        ("model", format!("{} ({state})", told.name)),
        ("path", told.path.clone()),
        ("source", told.source.into()),
        (
            "licence",
            told.licence.unwrap_or("see the model's page").into(),
        ),
        ("size", render::bytes(told.bytes)),
    ]);
    Ok(output.result(&told, &text)?)
}
