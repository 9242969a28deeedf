//! `spotmux adapter merge`: an adapter and its model as one model.

use std::fs::{self, File};
use std::path::Path;

use gpu_actor::durable;
use gpu_actor::peft::merge::Rounding;
use serde::Serialize;
use shared::job::BackboneFormat;

use crate::adapter_folder;
use crate::args::MergeArgs;
use crate::backbone::{self, Backbone};
use crate::beside::Beside;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::merged_model::Merge;
use crate::render::{self, Output};
use crate::settings::Settings;
use crate::store::Store;

/// What a program is told.
#[derive(Debug, Serialize)]
struct Told {
    adapter: String,
    method: String,
    model: String,
    path: String,
    bytes: u64,
    quantised_backbone: bool,
    rounding: Rounding,
}

/// Runs the command.
pub(crate) fn run(args: &MergeArgs, settings: &Settings, output: &Output) -> Result<Exit, Failure> {
    if args.output.symlink_metadata().is_ok() {
        let message = format!(
            "{} is there already: it is never replaced",
            args.output.display()
        );
        return Err(Failure::new(Exit::BadInput, message).hint("remove it, or name another folder"));
    }
    let interrupt = Interrupt::listen()?;
    let store = Store::new(settings)?;
    let cpu = backbone::cpu(None)?;
    let here = Path::new(".");
    let backbone = Backbone::open(&store, &args.model, here, BackboneFormat::AsShipped, &cpu)?;
    let opened = adapter_folder::open(&args.adapter, &backbone.model.shape)?;
    let found = &opened.found;
    if let Some(other) = adapter_folder::other_base(found.base.as_deref(), &backbone.model) {
        if !args.other_base {
            let hint = "give the model it was made for, or --other-base to merge nevertheless";
            return Err(Failure::new(Exit::BadInput, other).hint(hint));
        }
        output.note(format!("note: {other}"));
    }
    let merge = Merge {
        model: &backbone.model,
        language: &backbone.language,
        layout: &found.layout,
        values: &found.values,
        format: args.format,
        cpu: &cpu,
        interrupt: &interrupt,
    };
    interrupt.after_steps();
    let rounding = beside(&args.output, |folder| {
        merge.write(folder).map_err(|error| {
            let system = error.chain().any(|cause| cause.is::<std::io::Error>());
            let exit = if interrupt.asked() {
                Exit::Interrupted
            } else if system {
                Exit::Internal
            } else {
                Exit::BadInput
            };
            Failure {
                exit,
                error,
                hints: Vec::new(),
            }
        })
    })?;
    let weights = args.output.join("model.safetensors");
    let told = Told {
        adapter: opened.folder.display().to_string(),
        method: found.spec.in_words(),
        model: args.model.clone(),
        path: args.output.display().to_string(),
        bytes: fs::metadata(weights).map_or(0, |data| data.len()),
        quantised_backbone: backbone
            .model
            .matrices()
            .any(|weight| weight.format().block_values() > 1),
        rounding,
    };
    output.result(&told, &text(&told))?;
    let word = render::shell_word(&told.path);
    output.next(&[
        format!("spotmux generate --model {word} 'Your prompt'"),
        format!("spotmux model inspect {word}"),
    ]);
    Ok(Exit::Done)
}

/// Fills a folder beside its place, then moves it there: whole or not at all.
fn beside<T>(place: &Path, fill: impl FnOnce(&Path) -> Result<T, Failure>) -> Result<T, Failure> {
    let parent = place
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or_else(|| Path::new("."));
    let refused = |error: std::io::Error| {
        Failure::new(
            Exit::Internal,
            format!("cannot write {}: {error}", place.display()),
        )
    };
    durable::make_folders(parent).map_err(refused)?;
    let folder = Beside::new(parent, ".spotmux-merge-").map_err(refused)?;
    let value = fill(folder.path()).map_err(|failure| failure.about(place))?;
    for file in fs::read_dir(folder.path()).map_err(refused)? {
        let file = file.and_then(|file| File::open(file.path()));
        file.and_then(|file| file.sync_all()).map_err(refused)?;
    }
    durable::sync(folder.path()).map_err(refused)?;
    fs::rename(folder.path(), place).map_err(refused)?;
    durable::sync(parent).map_err(refused)?;
    Ok(value)
}

fn text(told: &Told) -> String {
    let rounding = &told.rounding;
    let loss = format!(
        "{} weights and biases changed; rounding to 16 bits moved a value by at most {:.1} % of the largest change",
        rounding.merged,
        100.0 * rounding.worst_ratio
    );
    let mut pairs = vec![
        ("adapter", format!("{} ({})", told.adapter, told.method)),
        ("model", told.model.clone()),
        (
            "written",
            format!("{}, {}", told.path, render::bytes(told.bytes)),
        ),
        ("precision", loss),
    ];
    if told.quantised_backbone {
        pairs.push(("note", "the model's 4- or 8-bit weights were expanded: the result is larger, and never rounded back".into()));
    }
    render::facts(&pairs)
}
