//! The frozen backbone: found, proven and mapped; never changed.
//!
//! Read from a Hugging Face folder (`config.json` with one or several safetensors files) or a GGUF file. Weights
//! point into the mapped file wherever it has them as they are wanted; only what must be reordered, converted or
//! aligned is copied. Files come from strangers: every size, offset and name in them is checked against what is
//! there before it is used (see `header`, `shards`, `gguf_check`), and no length in a file is allocated by.
//!
//! | file | one line |
//! | --- | --- |
//! | `locate` | which files of a path make a model; links out of the folder are refused |
//! | `mapping` | the one memory map |
//! | `header`, `shards` | safetensors headers and the index of shards, proven |
//! | `gguf_check`, `gguf` | GGUF headers proven, then read |
//! | `gguf_metadata`, `gguf_shape` | GGUF metadata to sizes |
//! | `names`, `tensors` | what the tensors must be called and shaped, against what was found |
//! | `assemble` | tensors to weights: in place, or converted, reordered, aligned |
//! | `parts` | the files that make a model |
//! | `hash` | the identity of a backbone |
//! | [`inspect`] | a summary for people and programs |
//! | [`tiny`] | small random models for tests and offline demos |

#![deny(unsafe_code)]

pub mod arithmetic;
mod assemble;
mod error;
mod gguf;
mod gguf_check;
mod gguf_error;
mod gguf_metadata;
mod gguf_shape;
mod hash;
pub(crate) mod header;
pub mod inspect;
mod locate;
mod mapping;
mod names;
mod open;
mod parts;
mod shards;
mod tensors;
#[cfg(test)]
mod tests;
pub mod tiny;
mod tokenizer;

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Weak;

use kernels::cpu::Cpu;
use kernels::weight::Weight;
use shared::job::BackboneFormat;
use shared::model::{ModelShape, Projection};

pub use error::ModelError;
pub use gguf_check::GgufCheckError;
pub use gguf_error::GgufError;
pub use header::HeaderError;
pub use locate::LocateError;
pub use parts::files;
pub use shards::IndexError;
pub use tensors::TensorError;
pub use tokenizer::TokenizerSource;

use mapping::Mapping;

/// How a model is opened.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// How weights are held.
    pub format: BackboneFormat,
    /// Layers to hold, for a pipeline stage; absent: all.
    pub layers: Option<Range<usize>>,
    /// Whether every value is checked to be a number: reads the whole file once.
    pub check_finite: bool,
    /// Threads for that.
    pub cpu: Cpu,
}

impl OpenOptions {
    /// As shipped, all layers, checked.
    #[must_use]
    pub fn new(cpu: Cpu) -> Self {
        Self {
            format: BackboneFormat::AsShipped,
            layers: None,
            check_finite: true,
            cpu,
        }
    }
}

/// A frozen backbone, or the layers of one that a stage holds.
///
/// Its files must not be changed in place while it lives (replacing them by rename is fine): weights are read
/// from the mapped file. [`Self::changed_file`] tells whether that was kept.
#[derive(Clone)]
pub struct Model {
    /// Sizes and switches of the whole model.
    pub shape: ModelShape,
    /// Token embeddings, `(vocab, hidden)`; held by the first stage, and by the last one of a tied model.
    pub embedding: Option<Weight>,
    /// LM head, `(vocab, hidden)`, of an untied model; held by the last stage.
    pub head: Option<Weight>,
    /// Weight of the norm before the head, `(hidden)`.
    pub final_norm: Vec<f32>,
    /// The layers held, from [`Self::first_layer`] on.
    pub layers: Vec<LayerWeights>,
    /// Number of the first layer held.
    pub first_layer: usize,
    /// Where the tokenizer comes from.
    pub tokenizer: TokenizerSource,
    /// The files that weights were read from; those that weights still lie in are alive.
    pub(crate) files: Vec<Weak<Mapping>>,
    /// Name that means the same elsewhere (a hub id or `general.name`), if the files have one; never a path.
    pub name: Option<String>,
}

/// Which of the model's ends a stage needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    /// The embedding: to embed, or as the head of a tied model.
    pub(crate) embedding: bool,
    /// A head of its own.
    pub(crate) head: bool,
}

impl Ends {
    /// Those of a stage with these layers.
    pub(crate) fn of(span: &Range<usize>, shape: &ModelShape) -> Self {
        let last = span.end == shape.layers;
        Self {
            embedding: span.start == 0 || (last && shape.tied_embeddings),
            head: last && !shape.tied_embeddings,
        }
    }
}

/// The frozen weights of one block.
#[derive(Clone, Debug)]
pub struct LayerWeights {
    /// The seven linear layers, `(out, in)`, in the order of [`Projection::ALL`].
    pub projections: [Weight; 7],
    /// Their biases, `(out)`.
    pub biases: [Option<Vec<f32>>; 7],
    /// Weight of the norm before attention, `(hidden)`.
    pub attention_norm: Vec<f32>,
    /// Weight of the norm before the feed-forward layer, `(hidden)`.
    pub feed_forward_norm: Vec<f32>,
    /// Weight of the per-head norm of queries, `(head_dim)`.
    pub q_norm: Option<Vec<f32>>,
    /// Weight of the per-head norm of keys, `(head_dim)`.
    pub k_norm: Option<Vec<f32>>,
}

impl LayerWeights {
    /// The weight of a projection, `(out, in)`.
    #[must_use]
    pub fn projection(&self, projection: Projection) -> &Weight {
        &self.projections[projection as usize]
    }

    /// The bias of a projection, `(out)`, if the backbone has one.
    #[must_use]
    pub fn bias(&self, projection: Projection) -> Option<&[f32]> {
        self.biases[projection as usize].as_deref()
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model")
            .field("name", &self.name)
            .field("shape", &self.shape)
            .field("layers", &self.span())
            .finish_non_exhaustive()
    }
}

impl Model {
    /// Opens the model at a path: a Hugging Face folder, a `.gguf` file, or a folder with exactly one.
    ///
    /// # Errors
    /// [`ModelError`], which names the file, what in it is wrong, and what was expected.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Self, ModelError> {
        open::open(path, options)
    }

    /// Bytes of the matrices held, mapped ones among them.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let layers = self.layers.iter().flat_map(|layer| &layer.projections);
        let all = layers.chain(&self.embedding).chain(&self.head);
        all.map(|weight| weight.bytes().len() as u64).sum()
    }

    /// The layers held.
    #[must_use]
    pub fn span(&self) -> Range<usize> {
        self.first_layer..self.first_layer + self.layers.len()
    }

    /// The weights of a layer by its number in the whole model, if it is held.
    #[must_use]
    pub fn layer(&self, number: usize) -> Option<&LayerWeights> {
        self.layers.get(number.checked_sub(self.first_layer)?)
    }

    /// The same weights with fewer layers, for a stage of a pipeline in this process; matrices are shared.
    ///
    /// # Panics
    /// When a layer of the span is not held.
    #[must_use]
    pub fn slice(&self, span: Range<usize>) -> Self {
        let held = self.span();
        assert!(
            held.start <= span.start && span.end <= held.end,
            "layers {span:?} of {held:?}"
        );
        let ends = Ends::of(&span, &self.shape);
        Self {
            shape: self.shape.clone(),
            embedding: self.embedding.clone().filter(|_| ends.embedding),
            head: self.head.clone().filter(|_| ends.head),
            final_norm: self.final_norm.clone(),
            layers: self.layers[span.start - held.start..span.end - held.start].to_vec(),
            first_layer: span.start,
            tokenizer: self.tokenizer.clone(),
            files: self.files.clone(),
            name: self.name.clone(),
        }
    }

    /// The token embeddings, `(vocab, hidden)`.
    ///
    /// # Panics
    /// When they are not held: only a first stage embeds.
    #[must_use]
    pub fn embedding(&self) -> &Weight {
        let held = self.embedding.as_ref();
        held.expect("the first stage holds the embedding")
    }

    /// The LM head, `(vocab, hidden)`: the embedding in a tied model.
    ///
    /// # Panics
    /// When it is not held: only a last stage computes losses and logits.
    #[must_use]
    pub fn head(&self) -> &Weight {
        let tied = self.embedding.as_ref();
        let tied = tied.filter(|_| self.shape.tied_embeddings);
        let held = self.head.as_ref().or(tied);
        held.expect("the last stage holds the head")
    }

    /// The turn per position, in radians, of each pair of a head: `(head_dim / 2)`.
    #[must_use]
    pub fn inverse_frequencies(&self) -> Vec<f64> {
        self.shape.rope.inverse_frequencies(self.shape.head_dim)
    }

    /// SHA-256 in hexadecimal over what the formulas take from the shape (rotation, epsilon, window, heads), and over
    /// names, formats and bytes of all tensors held, in canonical order.
    ///
    /// The same weights in another container (shards, one file, GGUF of the same formats) give the same hash; a
    /// conversion to another format gives another, because it computes something else. Reads all weights.
    #[must_use]
    pub fn content_hash(&self) -> String {
        hash::content_hash(self)
    }

    /// A file in which weights lie and that was written to since it was opened: what was computed meanwhile is of no model.
    #[must_use]
    pub fn changed_file(&self) -> Option<PathBuf> {
        let mut alive = self.files.iter().filter_map(Weak::upgrade);
        alive.find_map(|file| file.changed().map(Path::to_owned))
    }

    /// What names the backbone on any machine: its name, or `sha256:` and its content hash.
    #[must_use]
    pub fn identity(&self) -> String {
        match &self.name {
            Some(name) => name.clone(),
            None => format!("sha256:{}", self.content_hash()),
        }
    }

    /// Every weight matrix held: embedding, layers, head.
    pub fn matrices(&self) -> impl Iterator<Item = &Weight> {
        let embedding = self.embedding.iter();
        embedding
            .chain(self.layers.iter().flat_map(|layer| &layer.projections))
            .chain(&self.head)
    }
}
