//! A model folder with an adapter folded into its weights, in 16 bits, written tensor by tensor.

mod shape;

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, bail};
use gpu_actor::model::{Model, TokenizerSource};
use gpu_actor::peft::layout::{Layout, LinearSite};
use gpu_actor::peft::merge::{self, Rounding};
use half::{bf16, f16};
use kernels::cpu::Cpu;
use serde_json::{Map, Value, json};
use shared::model::{ModelShape, Projection, config};

use crate::args::MergedFormat;
use crate::interrupt::Interrupt;
use crate::language::Language;
use shape::merged_shape;

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

/// A tensor to be written.
struct Planned {
    name: String,
    shape: Vec<usize>,
    source: Source,
}

enum Source {
    Embedding,
    Head,
    FinalNorm,
    AttentionNorm(usize),
    FeedForwardNorm(usize),
    QNorm(usize),
    KNorm(usize),
    Weight(usize, Projection),
    Bias(usize, Projection),
}

impl Merge<'_> {
    /// Writes the model into an empty folder and tells how far rounding moved it.
    pub(crate) fn write(&self, folder: &Path) -> anyhow::Result<Rounding> {
        merge::check(self.layout)?;
        let shape = merged_shape(&self.model.shape, self.layout)?;
        let dtype = match self.format {
            MergedFormat::Bf16 => "bfloat16",
            MergedFormat::F16 => "float16",
        };
        let rounding = self.write_weights(&folder.join("model.safetensors"), &shape)?;
        fs::write(folder.join("config.json"), config::write(&shape, dtype))?;
        self.write_tokenizer(folder)?;
        Ok(rounding)
    }

    fn write_weights(&self, path: &Path, shape: &ModelShape) -> anyhow::Result<Rounding> {
        let plan = plan(shape);
        let mut file = BufWriter::new(File::create(path)?);
        file.write_all(&header(&plan, self.format))?;
        let mut rounding = Rounding::default();
        for tensor in &plan {
            if self.interrupt.asked() {
                bail!("interrupted");
            }
            let (before, merged) = self.numbers(tensor, shape);
            if let Some(before) = before {
                let mut own = Rounding::default();
                own.note(&before, &merged, |value| self.rounded(value));
                if self.is_trained_bias(tensor) && own.worst_ratio > 1.0 {
                    bail!(
                        "{} is moved further by rounding to {:?} than by the adapter, which would be lost: use --format \
                         f16 if that was bf16, or serve the adapter beside the model",
                        tensor.name,
                        self.format
                    );
                }
                rounding.add(own);
            }
            let mut bytes = Vec::with_capacity(2 * merged.len());
            for value in merged {
                if !self.rounded(value).is_finite() {
                    bail!(
                        "{} has {value}, which {:?} cannot hold: use --format bf16",
                        tensor.name,
                        self.format
                    );
                }
                bytes.extend_from_slice(&self.bits(value).to_le_bytes());
            }
            file.write_all(&bytes)?;
        }
        file.into_inner()
            .map_err(std::io::IntoInnerError::into_error)?
            .sync_all()?;
        Ok(rounding)
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

    fn rounded(&self, value: f32) -> f32 {
        match self.format {
            MergedFormat::Bf16 => bf16::from_f32(value).to_f32(),
            MergedFormat::F16 => f16::from_f32(value).to_f32(),
        }
    }

    fn bits(&self, value: f32) -> u16 {
        match self.format {
            MergedFormat::Bf16 => bf16::from_f32(value).to_bits(),
            MergedFormat::F16 => f16::from_f32(value).to_bits(),
        }
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

/// Every tensor of a shape, in the order it is written.
fn plan(shape: &ModelShape) -> Vec<Planned> {
    let mut list = Vec::new();
    let mut add = |name: String, shape: Vec<usize>, source| {
        list.push(Planned {
            name,
            shape,
            source,
        })
    };
    add(
        "model.embed_tokens.weight".into(),
        vec![shape.vocab, shape.hidden],
        Source::Embedding,
    );
    for layer in 0..shape.layers {
        let name = |rest: &str| format!("model.layers.{layer}.{rest}.weight");
        add(
            name("input_layernorm"),
            vec![shape.hidden],
            Source::AttentionNorm(layer),
        );
        add(
            name("post_attention_layernorm"),
            vec![shape.hidden],
            Source::FeedForwardNorm(layer),
        );
        if shape.qk_norm {
            add(
                name("self_attn.q_norm"),
                vec![shape.head_dim],
                Source::QNorm(layer),
            );
            add(
                name("self_attn.k_norm"),
                vec![shape.head_dim],
                Source::KNorm(layer),
            );
        }
        for projection in Projection::ALL {
            let (out, input) = shape.projection(projection);
            let place = format!(
                "model.layers.{layer}.{}.{}",
                projection.module(),
                projection.name()
            );
            add(
                format!("{place}.weight"),
                vec![out, input],
                Source::Weight(layer, projection),
            );
            if shape.has_bias(projection) {
                add(
                    format!("{place}.bias"),
                    vec![out],
                    Source::Bias(layer, projection),
                );
            }
        }
    }
    add(
        "model.norm.weight".into(),
        vec![shape.hidden],
        Source::FinalNorm,
    );
    if !shape.tied_embeddings {
        add(
            "lm_head.weight".into(),
            vec![shape.vocab, shape.hidden],
            Source::Head,
        );
    }
    list
}

/// The length and header of a safetensors file.
fn header(plan: &[Planned], format: MergedFormat) -> Vec<u8> {
    let dtype = match format {
        MergedFormat::Bf16 => "BF16",
        MergedFormat::F16 => "F16",
    };
    let mut map = Map::new();
    map.insert("__metadata__".into(), json!({ "format": "pt" }));
    let mut start = 0;
    for tensor in plan {
        let end = start + 2 * tensor.shape.iter().product::<usize>();
        let entry = json!({ "dtype": dtype, "shape": tensor.shape, "data_offsets": [start, end] });
        map.insert(tensor.name.clone(), entry);
        start = end;
    }
    let mut text = Value::Object(map).to_string();
    // Numbers start at a multiple of 8, so that a mapped file can be used where it lies.
    while !text.len().is_multiple_of(8) {
        text.push(' ');
    }
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(text.as_bytes());
    bytes
}
