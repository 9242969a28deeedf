//! `spotmux adapter inspect`: what an adapter is, and whether it fits a model.

use std::fs;
use std::path::Path;

use anyhow::Context;
use gpu_actor::peft::{config, files};
use serde::Serialize;
use shared::excerpt::excerpt;
use shared::job::AdapterSpec;

use crate::adapter_folder;
use crate::args::InspectAdapterArgs;
use crate::backbone;
use crate::exit::{Exit, Failure, OrExit};
use crate::render::{self, Output};
use crate::settings::Settings;
use crate::store;
use crate::training::proof;

/// What a program is told.
#[derive(Debug, Serialize)]
struct Told<'a> {
    path: String,
    method: String,
    spec: &'a AdapterSpec,
    base: Option<String>,
    tensors: Vec<ToldTensor>,
    values: u64,
    /// Values of all tensors that are not finite: no command takes such an adapter.
    not_finite: u64,
    bytes: u64,
    fits: Option<&'a str>,
    /// What is said when the adapter names another base model.
    other_base: Option<String>,
}

#[derive(Debug, Serialize)]
struct ToldTensor {
    name: String,
    shape: Vec<usize>,
    /// Of the values that are finite.
    norm: f64,
    /// Values that are not.
    not_finite: u64,
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
    proof::prove(&folder)?;
    let mut other_base = None;
    if let Some(name) = &args.model {
        let model = backbone::as_shipped(settings, name)?;
        let opened = adapter_folder::open(&folder, &model.shape)?;
        let compared = opened.compared_for_reading(&model);
        other_base = compared.other().map(str::to_owned);
        if let Some(said) = compared.noted() {
            output.note(format!("note: {said}"));
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
        not_finite: tensors.iter().map(|tensor| tensor.not_finite).sum(),
        bytes: size,
        fits: args.model.as_deref(),
        other_base,
        tensors,
    };
    output.result(&told, &facts(&told))?;
    output.next(&next(&told));
    Ok(Exit::Done)
}

/// What can be done with it, with the model that was asked about, else the one that it names.
fn next(told: &Told<'_>) -> Vec<String> {
    let asked = told.fits.map(str::to_owned);
    let model = asked.or_else(|| store::called(told.base.as_deref()?));
    let model = model.map_or_else(|| "MODEL".into(), |model| render::shell_word(&model));
    let word = render::shell_word(&told.path);
    let mut next = vec![format!(
        "spotmux generate --model {model} --adapter {word} 'Your prompt'"
    )];
    if told.spec.changes_weights() {
        next.push(format!(
            "spotmux adapter merge {word} --model {model} --output DIR"
        ));
    }
    next
}

fn tensors(weights: &Path) -> Result<Vec<ToldTensor>, Failure> {
    let found = files::read_tensors(weights).or_exit(Exit::BadInput)?;
    let norm = |values: &[f32]| {
        let finite = values.iter().filter(|v| v.is_finite());
        finite.map(|&v| f64::from(v).powi(2)).sum::<f64>().sqrt()
    };
    let told = found.into_iter().map(|(name, tensor)| ToldTensor {
        name,
        norm: norm(&tensor.values),
        not_finite: tensor.values.iter().filter(|v| !v.is_finite()).count() as u64,
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
    let broken = told.tensors.iter().find(|tensor| tensor.not_finite > 0);
    if let Some(first) = broken {
        pairs.push((
            "not finite",
            format!(
                "{} values are infinite or no numbers, the first in {}: the adapter is broken, and no command takes it",
                render::count(told.not_finite),
                excerpt(&first.name)
            ),
        ));
    }
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
            excerpt(&tensor.name),
            tensor.shape,
            tensor.norm
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn what_is_next_names_the_model_where_it_is_known() {
        let spec: AdapterSpec = serde_json::from_str(r#"{"method":"lora","rank":2}"#).unwrap();
        let named = |fits, base: Option<&str>| {
            let told = Told {
                path: "a".into(),
                method: String::new(),
                spec: &spec,
                base: base.map(str::to_owned),
                tensors: Vec::new(),
                values: 0,
                not_finite: 0,
                bytes: 0,
                fits,
                other_base: None,
            };
            next(&told)[1].clone()
        };
        let hub = Some("HuggingFaceTB/SmolLM2-135M-Instruct");
        let told = named(None, hub);
        assert_eq!(
            told,
            "spotmux adapter merge a --model smollm2-135m-instruct --output DIR"
        );
        assert!(named(Some("my model"), hub).contains("--model 'my model'"));
        assert!(named(None, Some("owner/other")).contains("--model owner/other "));
        for unknown in [None, Some("sha256:00")] {
            assert!(named(None, unknown).contains("--model MODEL "));
        }
    }
}
