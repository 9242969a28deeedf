//! What a job's adapter adds to a pass: where it is, how many values it has, how much it computes.
//!
//! | method | values at a site `(out, in)` | operations per token, forward |
//! | --- | --- | --- |
//! | lora (rank r) | `r (in + out)`, DoRA: `+ out` | `2 r (in + out)` |
//! | ia3, bitfit | `out` (ia3 on feed-forward inputs: `in`) | `out` |
//! | bottleneck (size m, width h) | `2 m h + m + h` | `4 m h` |
//! | diff (density d) | `d out in` | `2 d out in` |
//! | prefix (p virtual tokens) | `2 p kv` a block | none of its own: attention has p keys more |
//! | prompt (p virtual tokens) | `p hidden`, with the embedding | none of its own: every sequence has p rows more |
//!
//! Backward computes the gradients of the input and of the values: twice the operations of forward.

use serde::{Deserialize, Serialize};
use shared::job::{AdapterSpec, BottleneckPlacement};
use shared::model::{ModelShape, Projection, Target};

use super::profile::roofline::Work;

/// A place in a block, or the head, where an adapter may be. Sites of the same kind in one pass share a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Site {
    /// A linear layer of the block.
    Linear(Projection),
    /// After (or beside) attention.
    Attention,
    /// After (or beside) the feed-forward half.
    FeedForward,
    /// The head; once in the whole backbone.
    Head,
}

/// Kinds of sites in a block.
pub const SITES: usize = 9;

impl Site {
    /// Its place among the kinds in a block; the head has none.
    #[must_use]
    pub fn index(self) -> Option<usize> {
        match self {
            Self::Linear(projection) => Projection::ALL.iter().position(|p| *p == projection),
            Self::Attention => Some(7),
            Self::FeedForward => Some(8),
            Self::Head => None,
        }
    }

    /// Rows and columns of what it is at.
    #[must_use]
    pub fn shape(self, model: &ModelShape) -> (u64, u64) {
        let (out, input) = match self {
            Self::Linear(projection) => model.projection(projection),
            Self::Attention | Self::FeedForward => (model.hidden, model.hidden),
            Self::Head => (model.vocab, model.hidden),
        };
        (out as u64, input as u64)
    }
}

/// The kind of an adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Method {
    /// Low-rank updates.
    Lora,
    /// With a magnitude: the norms of the sum of weight and update are taken anew in every pass.
    Dora,
    /// Learned scaling.
    Ia3,
    /// Small feed-forward layers.
    Bottleneck,
    /// Trained keys and values.
    Prefix,
    /// Trained embeddings.
    Prompt,
    /// Trained biases.
    BitFit,
    /// A sparse delta.
    Diff,
}

impl Method {
    /// The word in jobs and profiles.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lora | Self::Dora => "lora",
            Self::Ia3 => "ia3",
            Self::Bottleneck => "bottleneck",
            Self::Prefix => "prefix",
            Self::Prompt => "prompt",
            Self::BitFit => "bitfit",
            Self::Diff => "diff",
        }
    }
}

/// A job's adapter, in integers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Adapter {
    /// Its kind.
    pub method: Method,
    /// Rank, inner size or virtual tokens; 1 where there is none. Of diff: values of a million that may change.
    pub width: u64,
    /// Where it is, without repeats, in order.
    pub sites: Vec<Site>,
}

impl Adapter {
    /// LoRA of a rank on all linear layers of every block.
    #[must_use]
    pub fn lora(rank: u64) -> Self {
        Self {
            method: Method::Lora,
            width: rank,
            sites: Projection::ALL.map(Site::Linear).to_vec(),
        }
    }

    /// What a job asks for. Targets that name nothing count as none: jobs are checked before they are planned.
    #[must_use]
    pub fn of(spec: &AdapterSpec) -> Self {
        let at = |targets: Result<Vec<Target>, String>| -> Vec<Site> {
            let site = |target| match target {
                Target::Block(projection) => Site::Linear(projection),
                Target::LmHead => Site::Head,
            };
            targets.unwrap_or_default().into_iter().map(site).collect()
        };
        let (method, width, sites) = match spec {
            AdapterSpec::Lora(lora) => {
                let method = if lora.dora {
                    Method::Dora
                } else {
                    Method::Lora
                };
                (method, lora.rank as u64, at(lora.targets.resolve()))
            }
            AdapterSpec::Ia3(ia3) => (Method::Ia3, 1, at(ia3.targets.resolve())),
            AdapterSpec::Bottleneck(bottleneck) => {
                let sites = match bottleneck.placement {
                    BottleneckPlacement::Pfeiffer => vec![Site::FeedForward],
                    _ => vec![Site::Attention, Site::FeedForward],
                };
                (Method::Bottleneck, bottleneck.size as u64, sites)
            }
            AdapterSpec::Prefix(prefix) => (Method::Prefix, prefix.tokens as u64, Vec::new()),
            AdapterSpec::Prompt(prompt) => (Method::Prompt, prompt.tokens as u64, Vec::new()),
            AdapterSpec::BitFit(bitfit) => (Method::BitFit, 1, at(bitfit.targets.resolve())),
            AdapterSpec::Diff(diff) => {
                let millionths = (diff.density * 1e6).clamp(1.0, 1e6) as u64;
                (Method::Diff, millionths, at(diff.targets.resolve()))
            }
        };
        Self {
            method,
            width,
            sites,
        }
    }

    /// Rows that every sequence has more than its data.
    #[must_use]
    pub fn prompt_rows(&self) -> u64 {
        if self.method == Method::Prompt {
            self.width
        } else {
            0
        }
    }

    /// Keys that every sequence has more than its rows.
    #[must_use]
    pub fn prefix_keys(&self) -> u64 {
        if self.method == Method::Prefix {
            self.width
        } else {
            0
        }
    }

    /// Trained values at one site.
    #[must_use]
    pub fn values_at(&self, site: Site, model: &ModelShape) -> u64 {
        let (out, input) = site.shape(model);
        match self.method {
            Method::Lora => self.width * (input + out),
            Method::Dora => self.width * (input + out) + out,
            Method::Ia3 | Method::BitFit => out.max(input),
            Method::Bottleneck => 2 * self.width * out + out + self.width,
            Method::Diff => (out * input).saturating_mul(self.width).div_ceil(1_000_000),
            Method::Prefix | Method::Prompt => 0,
        }
    }

    /// Trained values of one block.
    #[must_use]
    pub fn values_per_block(&self, model: &ModelShape) -> u64 {
        let sites = self.sites.iter().filter(|site| **site != Site::Head);
        let at_sites: u64 = sites.map(|site| self.values_at(*site, model)).sum();
        at_sites + self.prefix_keys() * 2 * model.kv_width() as u64
    }

    /// Trained values with the embedding.
    #[must_use]
    pub fn values_of_embedding(&self, model: &ModelShape) -> u64 {
        self.prompt_rows() * model.hidden as u64
    }

    /// Trained values with the head.
    #[must_use]
    pub fn values_of_head(&self, model: &ModelShape) -> u64 {
        if self.sites.contains(&Site::Head) {
            self.values_at(Site::Head, model)
        } else {
            0
        }
    }

    /// Values that backward needs of forward, per row and block.
    #[must_use]
    pub fn kept_per_row(&self, model: &ModelShape) -> u64 {
        let at = |site: &Site| {
            let (out, _) = site.shape(model);
            match self.method {
                Method::Lora => self.width,
                Method::Dora => self.width + out,
                Method::Ia3 => out,
                Method::Bottleneck => self.width + out,
                Method::BitFit | Method::Diff | Method::Prefix | Method::Prompt => 0,
            }
        };
        let sites = self.sites.iter().filter(|site| **site != Site::Head);
        sites.map(at).sum()
    }

    /// What it computes at a site; `value` is the bytes of one.
    pub(crate) fn work(&self, site: Site, model: &ModelShape, value: u64) -> [Work; 2] {
        let (out, input) = site.shape(model);
        let (launches, operations, fixed, moved) = match self.method {
            Method::Lora | Method::Dora => {
                let norms = if self.method == Method::Dora {
                    out * input
                } else {
                    0
                };
                let operations = 2 * self.width * (input + out);
                (2, operations, norms, input + 2 * out + 2 * self.width)
            }
            Method::Ia3 | Method::BitFit => (1, out, out, 2 * out),
            Method::Bottleneck => (3, 4 * self.width * out, 0, 3 * out + 4 * self.width),
            Method::Diff => {
                let values = self.values_at(site, model);
                // Values and their places.
                (1, 2 * values, 2 * values, input + 2 * out)
            }
            Method::Prefix | Method::Prompt => return [Work::default(); 2],
        };
        let forward = Work {
            launches,
            operations,
            fixed_bytes: (fixed + self.values_at(site, model)) * value,
            bytes: moved * value,
        };
        let backward = Work {
            launches: 2 * launches,
            operations: 2 * operations,
            fixed_bytes: 2 * forward.fixed_bytes,
            bytes: 2 * forward.bytes,
        };
        [forward, backward]
    }
}
