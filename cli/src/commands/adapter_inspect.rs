//! `spotmux adapter inspect`: what an adapter is, and whether it fits a model.

use std::fs;
use std::path::Path;

use anyhow::Context;
use gpu_actor::peft::{config, files};
use serde::Serialize;
use shared::job::AdapterSpec;

use crate::adapter_folder;
use crate::args::InspectAdapterArgs;
use crate::backbone;
use crate::exit::{Exit, Failure, OrExit};
use crate::render::{self, Output};
use crate::settings::Settings;

/// What a program is told.
#[derive(Debug, Serialize)]
struct Told<'a> {
    path: String,
    method: String,
    spec: &'a AdapterSpec,
    base: Option<String>,
    tensors: Vec<ToldTensor>,
    values: u64,
    bytes: u64,
    fits: Option<&'a str>,
    /// What is said when the adapter names another base model.
    other_base: Option<String>,
}

#[derive(Debug, Serialize)]
struct ToldTensor {
    name: String,
    shape: Vec<usize>,
    norm: f64,
}

/// Runs the command.
pub(crate) fn run(
    args: &InspectAdapterArgs,
    settings: &Settings,
    output: &Output,
) -> Result<Exit, Failure> {
    let folder = adapter_folder::locate(&args.adapter)?;
    let path = folder.join(files::CONFIG);
    let text = files::read_config(&path).or_exit(Exit::BadInput)?;
    let config = config::read(&text)
        .with_context(|| folder.display().to_string())
        .or_exit(Exit::BadInput)?;
    let weights = files::weights(&folder, &config).or_exit(Exit::BadInput)?;
    let tensors = tensors(&weights)?;
    let mut other_base = None;
    if let Some(name) = &args.model {
        let model = backbone::as_shipped(settings, name)?;
        let opened = adapter_folder::open(&folder, &model.shape)?;
        other_base = adapter_folder::other_base(opened.found.base.as_deref(), &model);
        if let Some(other) = &other_base {
            output.note(format!("note: {other}"));
        }
    }
    let values: u64 = tensors
        .iter()
        .map(|tensor| tensor.shape.iter().product::<usize>() as u64)
        .sum();
    let size = fs::metadata(&weights).map_or(0, |data| data.len());
    let told = Told {
        path: folder.display().to_string(),
        method: config.spec.in_words(),
        spec: &config.spec,
        base: config.base.clone(),
        values,
        bytes: size,
        fits: args.model.as_deref(),
        other_base,
        tensors,
    };
    output.result(&told, &facts(&told))?;
    let word = render::shell_word(&told.path);
    let mut next = vec![format!(
        "spotmux generate --model MODEL --adapter {word} 'Your prompt'"
    )];
    if told.spec.changes_weights() {
        next.push(format!(
            "spotmux adapter merge {word} --model MODEL --output DIR"
        ));
    }
    output.next(&next);
    Ok(Exit::Done)
}

fn tensors(weights: &Path) -> Result<Vec<ToldTensor>, Failure> {
    let found = files::read_tensors(weights).or_exit(Exit::BadInput)?;
    let norm = |values: &[f32]| {
        values
            .iter()
            .map(|&v| f64::from(v).powi(2))
            .sum::<f64>()
            .sqrt()
    };
    let told = found.into_iter().map(|(name, tensor)| ToldTensor {
        name,
        norm: norm(&tensor.values),
        shape: tensor.shape,
    });
    Ok(told.collect())
}

fn facts(told: &Told<'_>) -> String {
    const SHOWN: usize = 4;
    let mut pairs = vec![
        ("path", told.path.clone()),
        ("method", told.method.clone()),
        (
            "base model",
            told.base.clone().unwrap_or_else(|| "not named".into()),
        ),
        (
            "values",
            format!(
                "{} in {} tensors, {}",
                render::count(told.values),
                told.tensors.len(),
                render::bytes(told.bytes)
            ),
        ),
    ];
    if let Some(model) = told.fits {
        pairs.push((
            "fits",
            format!("{model}: every tensor is there, none is left over"),
        ));
    }
    let mut text = render::facts(&pairs);
    for tensor in told.tensors.iter().take(SHOWN) {
        text.push_str(&format!(
            "  {} {:?}, norm {:.4}\n",
            tensor.name, tensor.shape, tensor.norm
        ));
    }
    if told.tensors.len() > SHOWN {
        text.push_str(&format!(
            "  and {} more (--json lists all)\n",
            told.tensors.len() - SHOWN
        ));
    }
    text
}
