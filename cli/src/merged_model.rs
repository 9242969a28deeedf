//! A model folder with an adapter folded into its weights, written tensor by tensor.
//!
//! **In which numbers.** Rounding moves values, and a short training moves them by little: in bf16 most of it can be lost. Unless a
//! format is asked for, it is f16, half as large as f32, where
//!
//! - every value of every tensor is within its range, and
//! - of no tensor that the adapter changed rounding moves the values by more than [`KEPT`] of what the adapter moved them by (root
//!   of the mean square of both),
//!
//! and f32 otherwise. The first tensor that fails ends the attempt.

mod numbers;
mod shape;
mod tensors;

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, bail};
use gpu_actor::model::{Model, TokenizerSource};
use gpu_actor::peft::layout::{Layout, LinearSite};
use gpu_actor::peft::merge::{self, Rounding};
use kernels::cpu::Cpu;
use shared::model::{ModelShape, Projection, config};
use thiserror::Error;

use crate::args::MergedFormat;
use crate::interrupt::Interrupt;
use crate::language::Language;
pub(crate) use numbers::Numbers;
use shape::merged_shape;
use tensors::{Planned, Source, header, plan};

/// Of what the adapter changed, what rounding may move for a change to count as kept.
pub(crate) const KEPT: f64 = 0.5;

/// What is merged.
pub(crate) struct Merge<'a> {
    /// The backbone.
    pub(crate) model: &'a Model,
    /// Its tokenizer.
    pub(crate) language: &'a Language,
    /// Where the adapter attaches.
    pub(crate) layout: &'a Layout,
    /// Its values.
    pub(crate) values: &'a [f32],
    /// Number format of the result.
    pub(crate) format: MergedFormat,
    /// Threads.
    pub(crate) cpu: &'a Cpu,
    /// Whether the user wants the end; looked at before each tensor.
    pub(crate) interrupt: &'a Interrupt,
}

/// What was written.
#[derive(Debug)]
pub(crate) struct Written {
    /// In which numbers.
    pub(crate) numbers: Numbers,
    /// How far rounding moved it.
    pub(crate) rounding: Rounding,
    /// Why it is not f16, where that was tried.
    pub(crate) instead_of_f16: Option<String>,
}

/// Why numbers are not fit for a tensor.
#[derive(Debug, Error)]
enum Unfit {
    /// A value is out of their range.
    #[error("{tensor} has {value}, which {numbers} cannot hold")]
    Range {
        tensor: String,
        value: f32,
        numbers: Numbers,
    },
    /// Rounding takes too much of what was learned.
    #[error(
        "rounding to {numbers} moves {tensor} by {percent:.0} % of what the adapter changes it by"
    )]
    Lossy {
        tensor: String,
        percent: f64,
        numbers: Numbers,
    },
}

impl Merge<'_> {
    /// Writes the model into an empty folder and tells in which numbers, and how far rounding moved it.
    pub(crate) fn write(&self, folder: &Path) -> anyhow::Result<Written> {
        merge::check(self.layout)?;
        let shape = merged_shape(&self.model.shape, self.layout)?;
        let written = self.write_weights(&folder.join("model.safetensors"), &shape)?;
        let dtype = written.numbers.in_config();
        fs::write(folder.join("config.json"), config::write(&shape, dtype))?;
        self.write_tokenizer(folder)?;
        Ok(written)
    }

    fn write_weights(&self, path: &Path, shape: &ModelShape) -> anyhow::Result<Written> {
        let numbers = match self.format {
            MergedFormat::Auto => Numbers::F16,
            MergedFormat::Bf16 => Numbers::Bf16,
            MergedFormat::F16 => Numbers::F16,
            MergedFormat::F32 => Numbers::F32,
        };
        let unfit = match self.write_as(numbers, path, shape) {
            Ok(rounding) => {
                return Ok(Written {
                    numbers,
                    rounding,
                    instead_of_f16: None,
                });
            }
            Err(error) => error.downcast::<Unfit>()?,
        };
        if let Unfit::Range { value, .. } = unfit
            && !value.is_finite()
        {
            bail!(
                "{unfit}: no format does, as adapter and model add up to it; train with a lower learning rate"
            );
        }
        if self.format != MergedFormat::Auto {
            bail!("{unfit}: --format f32 keeps it as it is");
        }
        Ok(Written {
            numbers: Numbers::F32,
            rounding: self.write_as(Numbers::F32, path, shape)?,
            instead_of_f16: Some(unfit.to_string()),
        })
    }

    fn write_as(
        &self,
        numbers: Numbers,
        path: &Path,
        shape: &ModelShape,
    ) -> anyhow::Result<Rounding> {
        let plan = plan(shape);
        let mut file = BufWriter::new(File::create(path)?);
        file.write_all(&header(&plan, numbers))?;
        let mut rounding = Rounding::default();
        for tensor in &plan {
            if self.interrupt.asked() {
                bail!("interrupted");
            }
            let (before, merged) = self.numbers(tensor, shape);
            if let Some(value) = merged.iter().find(|v| !numbers.rounded(**v).is_finite()) {
                return Err(Unfit::Range {
                    tensor: tensor.name.clone(),
                    value: *value,
                    numbers,
                }
                .into());
            }
            if let Some(before) = before {
                let mut own = Rounding::default();
                own.note(&before, &merged, |value| numbers.rounded(value));
                if own.typical_ratio > self.most(tensor) {
                    return Err(Unfit::Lossy {
                        tensor: tensor.name.clone(),
                        percent: 100.0 * own.typical_ratio,
                        numbers,
                    }
                    .into());
                }
                rounding.add(own);
            }
            file.write_all(&numbers.bytes(&merged))?;
        }
        file.into_inner()
            .map_err(std::io::IntoInnerError::into_error)?
            .sync_all()?;
        Ok(rounding)
    }

    /// Of what the adapter changes in a tensor, the most that rounding may move it by. Where a format was asked for that is no
    /// bound, but for a bias: of a BitFit adapter there is nothing else.
    fn most(&self, tensor: &Planned) -> f64 {
        match self.format {
            MergedFormat::Auto => KEPT,
            _ if self.is_trained_bias(tensor) => 1.0,
            _ => f64::INFINITY,
        }
    }

    /// A tensor after merging, and before when the adapter changes it.
    fn numbers(&self, tensor: &Planned, shape: &ModelShape) -> (Option<Vec<f32>>, Vec<f32>) {
        let layers = &self.model.layers;
        let absent = |width: usize| vec![0.0; width];
        let values = match tensor.source {
            Source::Embedding => self.model.embedding().to_f32(),
            Source::Head => return self.head(),
            Source::FinalNorm => self.model.final_norm.clone(),
            Source::AttentionNorm(layer) => layers[layer].attention_norm.clone(),
            Source::FeedForwardNorm(layer) => layers[layer].feed_forward_norm.clone(),
            Source::QNorm(layer) => layers[layer]
                .q_norm
                .clone()
                .unwrap_or_else(|| absent(shape.head_dim)),
            Source::KNorm(layer) => layers[layer]
                .k_norm
                .clone()
                .unwrap_or_else(|| absent(shape.head_dim)),
            Source::Weight(layer, projection) => {
                let changed = matches!(
                    self.layout.layers[layer].linear[projection as usize],
                    Some(
                        LinearSite::LowRank { .. }
                            | LinearSite::ScaleInput(_)
                            | LinearSite::ScaleOutput(_)
                            | LinearSite::Sparse { .. }
                    )
                );
                let before = changed.then(|| layers[layer].projection(projection).to_f32());
                return (before, self.projection(layer, projection).0);
            }
            Source::Bias(layer, projection) => {
                let width = shape.projection(projection).0;
                let or_absent = |bias: Option<Vec<f32>>| bias.unwrap_or_else(|| vec![0.0; width]);
                let changed = matches!(
                    self.layout.layers[layer].linear[projection as usize],
                    Some(LinearSite::Bias(_) | LinearSite::ScaleOutput(_))
                );
                let before = layers[layer].bias(projection).map(<[f32]>::to_vec);
                return (
                    changed.then(|| or_absent(before)),
                    or_absent(self.projection(layer, projection).1),
                );
            }
        };
        (None, values)
    }

    /// Whether a tensor is a bias that the adapter trained, and nothing beside it.
    fn is_trained_bias(&self, tensor: &Planned) -> bool {
        let Source::Bias(layer, projection) = tensor.source else {
            return false;
        };
        let site = &self.layout.layers[layer].linear[projection as usize];
        matches!(site, Some(LinearSite::Bias(_)))
    }

    fn projection(&self, layer: usize, projection: Projection) -> (Vec<f32>, Option<Vec<f32>>) {
        merge::projection(
            self.cpu,
            self.model,
            self.layout,
            self.values,
            layer,
            projection,
        )
    }

    fn head(&self) -> (Option<Vec<f32>>, Vec<f32>) {
        let before = self.model.head().to_f32();
        let Some(LinearSite::LowRank {
            a, b, rank, scale, ..
        }) = &self.layout.head
        else {
            return (None, before);
        };
        let (a, b) = (&self.values[a.clone()], &self.values[b.clone()]);
        let mut merged = before.clone();
        merge::add_product(&mut merged, self.model.shape.hidden, a, b, *rank, *scale);
        (Some(before), merged)
    }

    /// The files of the backbone where it has them, else the tokenizer written anew.
    fn write_tokenizer(&self, folder: &Path) -> anyhow::Result<()> {
        if let TokenizerSource::Files {
            tokenizer,
            config,
            chat_template,
        } = &self.model.tokenizer
        {
            let files = [
                (Some(tokenizer), "tokenizer.json"),
                (config.as_ref(), "tokenizer_config.json"),
                (chat_template.as_ref(), "chat_template.jinja"),
            ];
            for (from, name) in files {
                if let Some(from) = from {
                    fs::copy(from, folder.join(name))
                        .with_context(|| format!("cannot copy {}", from.display()))?;
                }
            }
            return Ok(());
        }
        let tokenizer = &self.language.tokenizer;
        fs::write(folder.join("tokenizer.json"), tokenizer.json()?)?;
        Ok(fs::write(
            folder.join("tokenizer_config.json"),
            tokenizer.config_json(),
        )?)
    }
}
