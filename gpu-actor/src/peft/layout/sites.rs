//! Site operations: what an adapter does at each place of the backbone. Ranges are those of its flat storage.

use std::ops::Range;
use std::sync::Arc;

use kernels::ops::sparse::Pattern;
use shared::job::NonLinearity;

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
    /// In the order of [`shared::model::Projection`].
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
    /// The layers that it is in front of here; a slice has fewer than all.
    pub layers: Range<usize>,
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

impl LinearSite {
    /// Its ranges of flat storage.
    pub(super) fn ranges_mut(&mut self) -> impl Iterator<Item = &mut Range<usize>> {
        let ranges = match self {
            Self::LowRank {
                a, b, magnitude, ..
            } => [Some(a), Some(b), magnitude.as_mut()],
            Self::ScaleInput(range) | Self::ScaleOutput(range) | Self::Bias(range) => {
                [Some(range), None, None]
            }
            Self::Sparse { values, .. } => [Some(values), None, None],
        };
        ranges.into_iter().flatten()
    }
}

impl BottleneckSite {
    fn ranges_mut(&mut self) -> [&mut Range<usize>; 4] {
        [
            &mut self.down,
            &mut self.down_bias,
            &mut self.up,
            &mut self.up_bias,
        ]
    }
}

impl LayerSites {
    /// Its ranges of flat storage.
    pub(super) fn ranges_mut(&mut self) -> impl Iterator<Item = &mut Range<usize>> {
        let linear = self.linear.iter_mut().flatten();
        let bottlenecks = self.attention.iter_mut().chain(&mut self.feed_forward);
        linear
            .flat_map(LinearSite::ranges_mut)
            .chain(bottlenecks.flat_map(BottleneckSite::ranges_mut))
    }
}

impl PrefixSite {
    /// Its ranges of flat storage.
    pub(super) fn ranges_mut(&mut self) -> impl Iterator<Item = &mut Range<usize>> {
        let projection = self.projection.iter_mut().flat_map(|site| {
            [
                &mut site.embedding,
                &mut site.first,
                &mut site.first_bias,
                &mut site.second,
                &mut site.second_bias,
            ]
        });
        self.direct.iter_mut().chain(projection)
    }
}
