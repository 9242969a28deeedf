//! Which parameters a method trains, where they attach, and where they lie in the adapter's flat storage.
//!
//! All parameters of an adapter are one `Vec<f32>`; gradients and moments have the same layout, so optimizer,
//! clipping, checkpoints and the tree of block sums know nothing of methods. A method is compiled into *site
//! operations* ([`LinearSite`], [`BottleneckSite`], prefix and prompt ranges): the stage computes those, fused
//! over jobs, and knows nothing of method names.
//!
//! B of a low-rank pair and the up matrix of a bottleneck are stored transposed, `(rank, out)`: then both halves
//! of a pair are read along rows in every product. [`Parameter::transposed`] tells export and import.

use std::ops::Range;
use std::sync::Arc;

use shared::job::AdapterSpec;
use shared::model::{ModelShape, Projection, Target};

use super::mask;

mod builder;
mod piece;
mod sites;
mod slice;

use builder::Builder;
pub use piece::{Home, Piece};
pub use sites::{BottleneckSite, LayerSites, LinearSite, PrefixSite, ProjectionSite, PromptSite};

/// Name of a prefix that is trained as it is: each token's row holds all layers' keys and values.
const DIRECT_PREFIX: &str = "prompt_embeddings";

/// Which learning rate a parameter follows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// The job's own.
    Base,
    /// The job's times the LoRA+ ratio.
    Scaled,
}

/// How a fresh parameter starts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Start {
    /// All zero: the adapter changes nothing at first.
    Zero,
    /// All one: scaling vectors.
    One,
    /// Uniform in +-bound.
    Uniform(f32),
    /// Normal with this standard deviation.
    Normal(f32),
    /// Row norms of the backbone's weight at this site (DoRA magnitude).
    RowNorms(usize, Projection),
    /// Embeddings of a text, or normal when there is none (prompt tuning).
    Embeddings,
}

/// One trained tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Name in the PEFT library's files.
    pub key: String,
    /// Shape in those files.
    pub shape: Vec<usize>,
    /// Place in flat storage.
    pub range: Range<usize>,
    /// Whether flat storage holds the transpose of the file's matrix.
    pub transposed: bool,
    /// Its learning rate.
    pub rate: Rate,
    /// Its initial value.
    pub start: Start,
}

/// The parameters of an adapter and the sites they act at.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    /// In the order of flat storage.
    pub parameters: Vec<Parameter>,
    /// By block.
    pub layers: Vec<LayerSites>,
    /// At the LM head.
    pub head: Option<LinearSite>,
    /// In front of the keys and values.
    pub prefix: Option<PrefixSite>,
    /// In front of the embeddings.
    pub prompt: Option<PromptSite>,
    /// The runs of flat storage that no cut into stages divides, in its order.
    pub pieces: Vec<Piece>,
    /// The layers whose parameters are here; a slice has fewer than all.
    pub span: Range<usize>,
    /// Values in flat storage.
    pub len: usize,
}

impl Layout {
    /// Compiles a method for a backbone. The spec must have passed [`shared::job::JobSpec::problems`].
    ///
    /// # Panics
    /// When the spec names an unknown group of targets, which the check refuses.
    #[must_use]
    pub fn new(spec: &AdapterSpec, shape: &ModelShape, seed: u64) -> Self {
        let mut build = Builder::new(shape);
        match spec {
            AdapterSpec::Lora(lora) => build.lora(lora),
            AdapterSpec::Ia3(ia3) => {
                let feedforward = &ia3.feedforward;
                build.each_linear(&ia3.targets, |b, layer, p| {
                    b.scaling(layer, p, feedforward.contains(&Target::Block(p)))
                });
            }
            AdapterSpec::BitFit(bitfit) => build.each_linear(&bitfit.targets, Builder::bias),
            AdapterSpec::Diff(diff) => build.each_linear(&diff.targets, |b, layer, p| {
                let (out, input) = b.shape.projection(p);
                let pattern = mask::pattern(seed, layer, p, out, input, diff.density);
                let key = format!("{}.diff_values", module_key(layer, p));
                let values = b.add(key, &[pattern.len()], Start::Zero);
                LinearSite::Sparse {
                    values,
                    pattern: Arc::new(pattern),
                }
            }),
            AdapterSpec::Bottleneck(bottleneck) => build.bottlenecks(bottleneck),
            AdapterSpec::Prefix(prefix) => build.prefix(prefix.tokens, prefix.projection),
            AdapterSpec::Prompt(prompt) => {
                let shape = [prompt.tokens, build.shape.hidden];
                build.home = Home::First;
                let embeddings = build.add("prompt_embeddings".into(), &shape, Start::Embeddings);
                build.layout.prompt = Some(PromptSite {
                    tokens: prompt.tokens,
                    embeddings,
                });
            }
        }
        build.layout
    }

    /// Bytes of the values of a method on a backbone, and of the places of sparse ones, before any are drawn: there may be more
    /// than any machine holds. The spec must have passed [`shared::job::JobSpec::problems`].
    ///
    /// # Panics
    /// As [`Self::new`].
    #[must_use]
    pub fn bytes_of(spec: &AdapterSpec, shape: &ModelShape) -> u64 {
        let float = size_of::<f32>() as u64;
        let AdapterSpec::Diff(diff) = spec else {
            return (Self::new(spec, shape, 0).len as u64).saturating_mul(float);
        };
        let targets = diff.targets.resolve().expect("the spec was checked");
        let sites = targets.iter().filter_map(|target| match target {
            Target::Block(projection) => Some(shape.projection(*projection)),
            Target::LmHead => None,
        });
        let bytes = sites.map(|(out, input)| {
            let places = mask::places_of_output(input, diff.density) as u64;
            let values = places.saturating_mul(out as u64);
            let places = mask::bytes(out, values);
            values.saturating_mul(float).saturating_add(places)
        });
        let layer = bytes.fold(0, u64::saturating_add);
        layer.saturating_mul(shape.layers as u64)
    }

    /// Bytes that the places of sparse deltas take beside the values.
    #[must_use]
    pub fn place_bytes(&self) -> u64 {
        let sites = self.layers.iter().flat_map(|sites| &sites.linear);
        let patterns = sites.flatten().filter_map(|site| match site {
            LinearSite::Sparse { pattern, .. } => Some(pattern),
            _ => None,
        });
        let bytes = patterns.map(|pattern| mask::bytes(pattern.outputs(), pattern.len() as u64));
        bytes.sum()
    }

    /// The parameter with this name.
    #[must_use]
    pub fn parameter(&self, key: &str) -> Option<&Parameter> {
        self.parameters.iter().find(|p| p.key == key)
    }

    /// The parameter that holds a flat index.
    #[must_use]
    pub fn parameter_at(&self, index: usize) -> Option<&Parameter> {
        self.parameters.iter().find(|p| p.range.contains(&index))
    }

    /// The piece that holds a flat index.
    ///
    /// # Panics
    /// When the index leaves the storage.
    #[must_use]
    pub fn piece_at(&self, index: usize) -> &Piece {
        assert!(index < self.len, "index {index} of {}", self.len);
        let behind = self.pieces.partition_point(|p| p.range.end <= index);
        &self.pieces[behind]
    }
}

/// PEFT's name of a projection's module.
#[must_use]
pub fn module_key(layer: usize, projection: Projection) -> String {
    format!(
        "base_model.model.model.layers.{layer}.{}.{}",
        projection.module(),
        projection.name()
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use shared::model::Family;

    use super::*;
    use crate::model::tiny::TinySpec;

    #[test]
    fn bytes_are_known_before_a_place_is_drawn() {
        let mut shape = TinySpec::smallest(Family::Llama).shape();
        let spec = |text: &str| -> AdapterSpec { serde_json::from_str(text).unwrap() };
        for text in [
            r#"{"method": "diff", "density": 0.3}"#,
            r#"{"method": "diff", "density": 1.0, "targets": ["q_proj", "down_proj"]}"#,
            r#"{"method": "lora", "rank": 2}"#,
        ] {
            let layout = Layout::new(&spec(text), &shape, 1);
            let bytes = 4 * layout.len as u64 + layout.place_bytes();
            assert_eq!(Layout::bytes_of(&spec(text), &shape), bytes, "{text}");
        }
        // Each place takes as much again as two values.
        shape.intermediate = 1 << 40;
        let large = spec(r#"{"method": "diff", "density": 1.0, "targets": ["down_proj"]}"#);
        let values = (shape.layers as u64 * shape.hidden as u64) << 40;
        let bytes = Layout::bytes_of(&large, &shape);
        assert!(bytes > 12 * values && bytes < 13 * values, "{bytes}");
    }
}
