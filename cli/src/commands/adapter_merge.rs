//! `spotmux adapter merge`: an adapter and its model as one model.

use std::fs::{self, File};
use std::path::Path;

use gpu_actor::durable;
use gpu_actor::peft::merge::Rounding;
use serde::Serialize;
use shared::job::BackboneFormat;

use crate::adapter_folder::{self, OtherBase};
use crate::args::{MergeArgs, MergedFormat};
use crate::backbone::{self, Backbone};
use crate::beside::Beside;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::merged_model::{KEPT, Merge, Numbers, Written};
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
    format: Numbers,
    instead_of_f16: Option<String>,
    rounding: Rounding,
    /// Why the base model that the adapter names could not be compared with this one.
    base_not_compared: Option<String>,
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
    let compared = opened.compared(&backbone.model);
    if let Some(other) = compared.other() {
        let asked = OtherBase::asked(args.other_base);
        output.note(asked.judge(other, "merge")?);
    }
    let not_compared = compared.unknown().map(str::to_owned);
    if let Some(said) = &not_compared {
        output.note(format!("note: {said}"));
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
    let written = into(&args.output, &merge)?;
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
        format: written.numbers,
        instead_of_f16: written.instead_of_f16,
        rounding: written.rounding,
        base_not_compared: not_compared,
    };
    output.result(&told, &text(&told, args.format))?;
    let word = render::shell_word(&told.path);
    output.next(&[
        format!("spotmux generate --model {word} 'Your prompt'"),
        format!("spotmux model inspect {word}"),
    ]);
    Ok(Exit::Done)
}

/// Merges into a place: whole, or nothing is there.
fn into(place: &Path, merge: &Merge<'_>) -> Result<Written, Failure> {
    beside(place, |folder| {
        merge.write(folder).map_err(|error| {
            let system = error.chain().any(|cause| cause.is::<std::io::Error>());
            let exit = if merge.interrupt.asked() {
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
    })
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

fn text(told: &Told, asked: MergedFormat) -> String {
    let rounding = &told.rounding;
    let name = told.format;
    let why = match (&told.instead_of_f16, asked) {
        (Some(why), _) => format!("{name}, in twice the bytes of f16: {why}"),
        (None, MergedFormat::Auto) => {
            format!("{name}: it holds every value, and keeps what was learned")
        }
        (None, _) => format!("{name}, as asked for"),
    };
    let loss = match told.format {
        Numbers::F32 => format!(
            "{} weights and biases changed, none rounded",
            rounding.merged
        ),
        Numbers::Bf16 | Numbers::F16 => format!(
            "{} weights and biases changed; rounding to {name} moved values by at most {:.1} % of their change in the mean, \
             and one by at most {:.1} % of the largest change",
            rounding.merged,
            100.0 * rounding.typical_ratio,
            100.0 * rounding.worst_ratio
        ),
    };
    let mut pairs = vec![
        ("adapter", format!("{} ({})", told.adapter, told.method)),
        ("model", told.model.clone()),
        (
            "written",
            format!("{}, {}", told.path, render::bytes(told.bytes)),
        ),
        ("format", why),
        ("precision", loss),
    ];
    if told.quantised_backbone {
        pairs.push(("note", "the model's 4- or 8-bit weights were expanded: the result is larger, and never rounded back".into()));
    }
    if rounding.typical_ratio > KEPT {
        let lost = "rounding took much of what was learned: leave --format out, or say --format f32, to keep it; an adapter that \
                    is served beside the model keeps all";
        pairs.push(("warning", lost.into()));
    }
    render::facts(&pairs)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use gpu_actor::model::tiny::{TinySpec, write_tiny};
    use gpu_actor::model::{Model, OpenOptions};
    use gpu_actor::peft::layout::Layout;
    use kernels::cpu::Cpu;
    use shared::model::Family;

    use super::*;
    use crate::language::Language;

    /// Merges an adapter of LoRA whose values are all so large; what is told of it, and what lies in the folder around.
    fn merged(value: f32, format: MergedFormat, asked: bool) -> (Result<Written, Failure>, usize) {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("model");
        write_tiny(&folder, &TinySpec::smallest(Family::Llama)).unwrap();
        let cpu = Cpu::new(1).unwrap();
        let model = Model::open(&folder, &OpenOptions::new(cpu.clone())).unwrap();
        let spec = serde_json::from_str(r#"{"method": "lora", "rank": 1, "alpha": 1}"#).unwrap();
        let layout = Layout::new(&spec, &model.shape, 1);
        let interrupt = Interrupt::default();
        if asked {
            interrupt.ask();
        }
        let merge = Merge {
            model: &model,
            language: &Language::bytes(None).unwrap(),
            layout: &layout,
            values: &vec![value; layout.len],
            format,
            cpu: &cpu,
            interrupt: &interrupt,
        };
        let written = into(&parent.path().join("merged"), &merge);
        let around = fs::read_dir(parent.path()).unwrap().count();
        (written, around)
    }

    #[test]
    fn an_interrupted_merge_leaves_nothing() {
        let (written, around) = merged(1e-2, MergedFormat::Auto, true);
        assert_eq!(written.unwrap_err().exit, Exit::Interrupted);
        assert_eq!(around, 1, "only the model");
        let (written, around) = merged(1e-2, MergedFormat::Auto, false);
        assert!(written.is_ok());
        assert_eq!(around, 2);
    }

    /// Unless a format is asked for, what was learned is kept: in f16 where it can be, else in f32.
    #[test]
    fn the_format_is_the_smallest_that_keeps_what_was_learned() {
        let auto = |value| merged(value, MergedFormat::Auto, false).0.unwrap();
        let well = auto(0.1);
        assert_eq!(
            (well.numbers, well.instead_of_f16.as_deref()),
            (Numbers::F16, None)
        );
        assert!(well.rounding.typical_ratio > 0.0 && well.rounding.typical_ratio <= KEPT);
        // A change of a millionth of the weights, and one that leaves the range.
        for (value, why) in [(1e-4, "rounding to f16 moves"), (300.0, "f16 cannot hold")] {
            let kept = auto(value);
            assert_eq!(kept.numbers, Numbers::F32);
            assert!(kept.instead_of_f16.unwrap().contains(why));
            assert!(kept.rounding.typical_ratio < f64::EPSILON && kept.rounding.merged > 0);
        }
        let asked = merged(1e-4, MergedFormat::Bf16, false).0.unwrap();
        assert_eq!(asked.numbers, Numbers::Bf16);
        assert!(asked.rounding.typical_ratio > KEPT);
        let refused = merged(300.0, MergedFormat::F16, false).0.unwrap_err();
        assert_eq!(refused.exit, Exit::BadInput);
        assert!(format!("{:#}", refused.error).contains("--format f32"));
    }
}
