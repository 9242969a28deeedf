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

use kernels::ops::sparse::Pattern;
use shared::job::{
    AdapterSpec, BottleneckPlacement, BottleneckSpec, LoraSpec, NonLinearity, Targets,
};
use shared::model::{ModelShape, Projection, Target};

use super::mask;

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

/// What a job adds at one linear layer. Every variant names ranges of the adapter's flat storage.
#[derive(Clone, Debug, PartialEq)]
pub enum LinearSite {
    /// y += scale * B (A drop(x)); with a magnitude: y = m / ||W + scale B A|| * (W x + scale B A x).
    LowRank {
        /// A, `(rank, in)`.
        a: Range<usize>,
        /// B transposed, `(rank, out)`.
        b: Range<usize>,
        /// Inner width.
        rank: usize,
        /// alpha / r or alpha / sqrt(r).
        scale: f32,
        /// Share of inputs set to zero while training.
        dropout: f32,
        /// DoRA magnitude, `(out)`.
        magnitude: Option<Range<usize>>,
    },
    /// The input is multiplied by a vector `(in)` (IA3, feed-forward).
    ScaleInput(Range<usize>),
    /// The output, bias included, is multiplied by a vector `(out)` (IA3).
    ScaleOutput(Range<usize>),
    /// A vector `(out)` is added (BitFit).
    Bias(Range<usize>),
    /// y += x (M * D)^T with a fixed sparse pattern M (diff pruning).
    Sparse {
        /// The values at the pattern's places.
        values: Range<usize>,
        /// The places.
        pattern: Arc<Pattern>,
    },
}

/// A bottleneck adapter: output += up(f(down(input) + bias)) + bias.
#[derive(Clone, Debug, PartialEq)]
pub struct BottleneckSite {
    /// Down matrix, `(size, hidden)`.
    pub down: Range<usize>,
    /// Down bias, `(size)`.
    pub down_bias: Range<usize>,
    /// Up matrix transposed, `(size, hidden)`.
    pub up: Range<usize>,
    /// Up bias, `(hidden)`.
    pub up_bias: Range<usize>,
    /// Inner width.
    pub size: usize,
    /// f.
    pub non_linearity: NonLinearity,
    /// Fed by the sub-layer's input (parallel) instead of its output (serial).
    pub parallel: bool,
}

/// Everything a job adds inside one block.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LayerSites {
    /// By [`Projection`] order.
    pub linear: [Option<LinearSite>; 7],
    /// After (or beside) attention.
    pub attention: Option<BottleneckSite>,
    /// After (or beside) the feed-forward layer.
    pub feed_forward: Option<BottleneckSite>,
}

/// Trained keys and values in front of every sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct PrefixSite {
    /// Number of virtual tokens.
    pub tokens: usize,
    /// The reparameterising layers, if any.
    pub projection: Option<ProjectionSite>,
    /// `(tokens, 2 * layers * kv_width)` in flat storage; absent with a projection, which computes it.
    pub direct: Option<Range<usize>>,
}

/// Embedding, linear, tanh, linear in front of a prefix.
#[derive(Clone, Debug, PartialEq)]
pub struct ProjectionSite {
    /// `(tokens, kv_width)`.
    pub embedding: Range<usize>,
    /// `(hidden, kv_width)`.
    pub first: Range<usize>,
    /// `(hidden)`.
    pub first_bias: Range<usize>,
    /// `(2 * layers * kv_width, hidden)`.
    pub second: Range<usize>,
    /// `(2 * layers * kv_width)`.
    pub second_bias: Range<usize>,
    /// Inner width.
    pub hidden: usize,
}

/// Trained embeddings in front of every sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct PromptSite {
    /// Number of virtual tokens.
    pub tokens: usize,
    /// `(tokens, hidden)`.
    pub embeddings: Range<usize>,
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
                let embeddings = build.add("prompt_embeddings".into(), &shape, Start::Embeddings);
                build.layout.prompt = Some(PromptSite {
                    tokens: prompt.tokens,
                    embeddings,
                });
            }
        }
        build.layout
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

    /// Positions taken in front of every sequence by virtual tokens (prefix or prompt).
    #[must_use]
    pub fn virtual_tokens(&self) -> usize {
        self.prefix.as_ref().map_or(0, |p| p.tokens) + self.prompt.as_ref().map_or(0, |p| p.tokens)
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

struct Builder<'a> {
    shape: &'a ModelShape,
    layout: Layout,
}

impl<'a> Builder<'a> {
    fn new(shape: &'a ModelShape) -> Self {
        let layout = Layout {
            parameters: Vec::new(),
            layers: vec![LayerSites::default(); shape.layers],
            head: None,
            prefix: None,
            prompt: None,
            len: 0,
        };
        Self { shape, layout }
    }

    fn add(&mut self, key: String, shape: &[usize], start: Start) -> Range<usize> {
        self.add_with(key, shape, false, Rate::Base, start)
    }

    fn add_with(
        &mut self,
        key: String,
        shape: &[usize],
        transposed: bool,
        rate: Rate,
        start: Start,
    ) -> Range<usize> {
        let range = self.layout.len..self.layout.len + shape.iter().product::<usize>();
        self.layout.len = range.end;
        let parameter = Parameter {
            key,
            shape: shape.to_vec(),
            range: range.clone(),
            transposed,
            rate,
            start,
        };
        self.layout.parameters.push(parameter);
        range
    }

    /// Calls `make` for each targeted projection of each block.
    fn each_linear(
        &mut self,
        targets: &Targets,
        mut make: impl FnMut(&mut Self, usize, Projection) -> LinearSite,
    ) {
        let targets = targets.resolve().expect("the spec was checked");
        for layer in 0..self.shape.layers {
            for target in &targets {
                if let Target::Block(projection) = *target {
                    let site = make(self, layer, projection);
                    self.layout.layers[layer].linear[projection as usize] = Some(site);
                }
            }
        }
    }

    fn lora(&mut self, spec: &LoraSpec) {
        self.each_linear(&spec.targets, |b, layer, projection| {
            let (out, input) = b.shape.projection(projection);
            let magnitude = spec.dora.then_some(Start::RowNorms(layer, projection));
            b.low_rank(spec, &module_key(layer, projection), out, input, magnitude)
        });
        let targets = spec.targets.resolve().expect("the spec was checked");
        if targets.contains(&Target::LmHead) {
            let (vocab, hidden) = (self.shape.vocab, self.shape.hidden);
            let site = self.low_rank(spec, "base_model.model.lm_head", vocab, hidden, None);
            self.layout.head = Some(site);
        }
    }

    fn low_rank(
        &mut self,
        spec: &LoraSpec,
        module: &str,
        out: usize,
        input: usize,
        magnitude: Option<Start>,
    ) -> LinearSite {
        // PEFT: kaiming_uniform(a = sqrt 5), that is uniform within 1 / sqrt(fan in); B starts at zero.
        let bound = 1.0 / (input as f32).sqrt();
        let (rank, rate) = (spec.rank, Rate::Scaled);
        let a = self.add(
            format!("{module}.lora_A.weight"),
            &[rank, input],
            Start::Uniform(bound),
        );
        let key = format!("{module}.lora_B.weight");
        let b = self.add_with(key, &[out, rank], true, rate, Start::Zero);
        let magnitude = magnitude
            .map(|start| self.add(format!("{module}.lora_magnitude_vector"), &[out], start));
        let (scale, dropout) = (spec.scale() as f32, spec.dropout as f32);
        LinearSite::LowRank {
            a,
            b,
            rank,
            scale,
            dropout,
            magnitude,
        }
    }

    fn scaling(&mut self, layer: usize, projection: Projection, input: bool) -> LinearSite {
        let (out, width) = self.shape.projection(projection);
        let key = format!("{}.ia3_l", module_key(layer, projection));
        if input {
            LinearSite::ScaleInput(self.add(key, &[1, width], Start::One))
        } else {
            LinearSite::ScaleOutput(self.add(key, &[out, 1], Start::One))
        }
    }

    fn bias(&mut self, layer: usize, projection: Projection) -> LinearSite {
        let (out, _) = self.shape.projection(projection);
        let key = format!("{}.bias_delta", module_key(layer, projection));
        LinearSite::Bias(self.add(key, &[out], Start::Zero))
    }

    fn bottlenecks(&mut self, spec: &BottleneckSpec) {
        for layer in 0..self.shape.layers {
            if spec.placement != BottleneckPlacement::Pfeiffer {
                self.layout.layers[layer].attention =
                    Some(self.bottleneck(spec, layer, "self_attn"));
            }
            self.layout.layers[layer].feed_forward = Some(self.bottleneck(spec, layer, "mlp"));
        }
    }

    fn bottleneck(&mut self, spec: &BottleneckSpec, layer: usize, module: &str) -> BottleneckSite {
        let (size, hidden) = (spec.size, self.shape.hidden);
        let key =
            |leaf: &str| format!("base_model.model.model.layers.{layer}.{module}.adapter.{leaf}");
        let down = self.add(
            key("down_proj.weight"),
            &[size, hidden],
            Start::Normal(0.02),
        );
        let down_bias = self.add(key("down_proj.bias"), &[size], Start::Zero);
        let (up_key, shape) = (key("up_proj.weight"), [hidden, size]);
        let up = self.add_with(up_key, &shape, true, Rate::Base, Start::Zero);
        let up_bias = self.add(key("up_proj.bias"), &[hidden], Start::Zero);
        let (non_linearity, parallel) = (
            spec.non_linearity,
            spec.placement == BottleneckPlacement::Parallel,
        );
        BottleneckSite {
            down,
            down_bias,
            up,
            up_bias,
            size,
            non_linearity,
            parallel,
        }
    }

    fn prefix(&mut self, tokens: usize, projection: Option<usize>) {
        let (kv, layers) = (self.shape.kv_width(), self.shape.layers);
        let width = 2 * layers * kv;
        let mut site = PrefixSite {
            tokens,
            projection: None,
            direct: None,
        };
        if let Some(hidden) = projection {
            // torch.nn.Linear starts uniform within 1 / sqrt(fan in), weight and bias alike.
            let first = Start::Uniform(1.0 / (kv as f32).sqrt());
            let second = Start::Uniform(1.0 / (hidden as f32).sqrt());
            let key = |leaf: &str| format!("prompt_encoder.{leaf}");
            site.projection = Some(ProjectionSite {
                embedding: self.add(key("embedding.weight"), &[tokens, kv], Start::Normal(1.0)),
                first: self.add(key("transform.0.weight"), &[hidden, kv], first),
                first_bias: self.add(key("transform.0.bias"), &[hidden], first),
                second: self.add(key("transform.2.weight"), &[width, hidden], second),
                second_bias: self.add(key("transform.2.bias"), &[width], second),
                hidden,
            });
        } else {
            let key = "prompt_embeddings".into();
            site.direct = Some(self.add(key, &[tokens, width], Start::Normal(1.0)));
        }
        self.layout.prefix = Some(site);
    }
}
