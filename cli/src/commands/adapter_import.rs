//! `spotmux adapter import`: takes in an adapter made elsewhere.

use gpu_actor::peft::files::Export;
use serde::Serialize;

use crate::adapter_folder::{self, OtherBase};
use crate::args::ImportArgs;
use crate::backbone;
use crate::exit::{Exit, Failure};
use crate::render::{self, Output};
use crate::settings::Settings;
use crate::training::record;

/// What a program is told.
#[derive(Debug, Serialize)]
struct Told {
    from: String,
    method: String,
    named_base: Option<String>,
    base: String,
    values: usize,
    written: Option<String>,
    /// Why the base model that the adapter names could not be compared with this one.
    base_not_compared: Option<String>,
}

/// Runs the command.
pub(crate) fn run(
    args: &ImportArgs,
    settings: &Settings,
    output: &Output,
) -> Result<Exit, Failure> {
    let model = backbone::as_shipped(settings, &args.model)?;
    let opened = adapter_folder::open(&args.adapter, &model.shape)?;
    let found = &opened.found;
    let base = model.identity();
    let compared = opened.compared(&model);
    if let Some(other) = compared.other() {
        let asked = OtherBase::asked(args.other_base);
        output.note(asked.judge(other, "take it in")?);
    }
    let written = args.output.as_ref().filter(|_| !args.check);
    if let Some(folder) = written {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let export = Export {
            name: &name,
            spec: &found.spec,
            layout: &found.layout,
            values: &found.values,
            shape: &model.shape,
            base: &base,
        };
        let from = &opened.folder;
        record::write(folder, &export, |files| {
            record::carried(from, &files, &base, || model.content_hash())
        })?;
    }
    let told = Told {
        from: opened.folder.display().to_string(),
        method: found.spec.in_words(),
        named_base: found.base.clone(),
        values: found.values.len(),
        written: written.map(|folder| folder.display().to_string()),
        base_not_compared: compared.unknown().map(str::to_owned),
        base,
    };
    output.result(&told, &text(&told))?;
    if let Some(said) = &told.base_not_compared {
        output.note(format!("note: {said}"));
    }
    if let Some(folder) = &told.written {
        // A path in a file of jobs starts at that file, wherever it is.
        let whole = std::path::absolute(folder)
            .map_or_else(|_| folder.clone(), |whole| whole.display().to_string());
        let (model, folder) = (render::shell_word(&args.model), render::shell_word(folder));
        output.next(&[
            format!("spotmux generate --model {model} --adapter {folder} 'Your prompt'"),
            format!("in a job: init_from = {}", render::toml_text(&whole)),
        ]);
    }
    Ok(Exit::Done)
}

fn text(told: &Told) -> String {
    let written = told
        .written
        .clone()
        .unwrap_or_else(|| "nothing (--check)".into());
    render::facts(&[
        ("from", told.from.clone()),
        ("method", told.method.clone()),
        (
            "values",
            format!(
                "{}, every tensor there and none left over",
                render::count(told.values as u64)
            ),
        ),
        ("base model", told.base.clone()),
        ("written", written),
    ])
}
