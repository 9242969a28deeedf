//! Adapters on the backbone: values, gradients and what is derived from the values once per step.

use std::sync::Arc;

use kernels::cpu::Cpu;
use kernels::ops::dora;
use shared::model::{ModelShape, Projection};

use super::agreement::Share;
use super::gradient::GradientTree;
use super::reparam;
use crate::model::Model;
use crate::peft::layout::{Layout, LinearSite};

/// One job's trainable parameters and their gradient.
#[derive(Clone, Debug)]
pub struct Adapter {
    /// Where parameters attach and lie.
    pub layout: Arc<Layout>,
    /// All parameters, in the order of the layout.
    pub values: Vec<f32>,
    /// Seed of the job's random numbers.
    pub seed: u64,
    pub(super) gradient: GradientTree,
    pub(super) derived: Derived,
}

/// Functions of the values that every pass of a step needs.
#[derive(Clone, Debug, Default)]
pub(super) struct Derived {
    /// 1 / row norm of W + s B A by layer and projection (DoRA), else empty.
    pub(super) inverse_norms: Vec<[Vec<f32>; 7]>,
    /// Magnitude / row norm, likewise.
    pub(super) dora_scale: Vec<[Vec<f32>; 7]>,
    /// Prefix keys and values, `(2 * layers, tokens, kv_width)`: keys of the i-th layer held at 2 i, values at 2 i + 1.
    pub(super) prefix: Vec<f32>,
    /// Gradient of `prefix`, in the same order.
    pub(super) prefix_gradient: GradientTree,
    /// What the layers held add to the gradient of a reparameterised prefix.
    pub(super) shares: Vec<Share>,
}

impl Adapter {
    /// An adapter with the given values; call [`Adapter::derive`] before a pass.
    ///
    /// # Panics
    /// When the values are not as many as the layout has.
    #[must_use]
    pub fn new(layout: Arc<Layout>, values: Vec<f32>, seed: u64) -> Self {
        assert_eq!(values.len(), layout.len, "values of another layout");
        let gradient = GradientTree::new(layout.len);
        Self {
            layout,
            values,
            seed,
            gradient,
            derived: Derived::default(),
        }
    }

    /// The gradient of the last finished step, in the order of the layout.
    #[must_use]
    pub fn gradient(&self) -> &[f32] {
        &self.gradient.total
    }

    /// Bytes held by values, places of sparse ones, gradient and derived values.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let derived = self.derived.prefix.len()
            + self
                .derived
                .inverse_norms
                .iter()
                .flatten()
                .map(|n| 2 * n.len())
                .sum::<usize>();
        ((self.values.len() + derived) * size_of::<f32>()) as u64
            + self.gradient.bytes()
            + self.derived.prefix_gradient.bytes()
            + self.layout.place_bytes()
    }

    /// Recomputes what depends on the values; call after every change of them.
    pub fn derive(&mut self, cpu: &Cpu, model: &Model) {
        self.derive_dora(cpu, model);
        self.derive_prefix(&model.shape);
    }

    fn derive_dora(&mut self, cpu: &Cpu, model: &Model) {
        let dora = |site: &Option<LinearSite>| {
            matches!(
                site,
                Some(LinearSite::LowRank {
                    magnitude: Some(_),
                    ..
                })
            )
        };
        if !self
            .layout
            .layers
            .iter()
            .any(|sites| sites.linear.iter().any(dora))
        {
            return;
        }
        let layers = self.layout.layers.len();
        self.derived
            .inverse_norms
            .resize_with(layers, Default::default);
        self.derived
            .dora_scale
            .resize_with(layers, Default::default);
        for (layer, sites) in self.layout.layers.iter().enumerate() {
            for projection in Projection::ALL {
                let Some(LinearSite::LowRank {
                    a,
                    b,
                    rank,
                    scale,
                    magnitude: Some(m),
                    ..
                }) = &sites.linear[projection as usize]
                else {
                    continue;
                };
                let weights = model.layer(layer).expect("a site is at a layer held");
                let weight = weights.projection(projection);
                let (a, b) = (&self.values[a.clone()], &self.values[b.clone()]);
                let norms = &mut self.derived.inverse_norms[layer][projection as usize];
                norms.resize(weight.rows(), 0.0);
                dora::row_norms(cpu, weight, a, b, *rank, *scale, norms);
                for norm in norms.iter_mut() {
                    *norm = 1.0 / *norm;
                }
                let magnitude = &self.values[m.clone()];
                self.derived.dora_scale[layer][projection as usize] = magnitude
                    .iter()
                    .zip(norms.iter())
                    .map(|(m, n)| m * n)
                    .collect();
            }
        }
    }

    fn derive_prefix(&mut self, shape: &ModelShape) {
        let Some(site) = &self.layout.prefix else {
            return;
        };
        let flat = reparam::prefix(site, &self.values, shape);
        let (kv, halves) = (shape.kv_width(), 2 * site.layers.len());
        let width = halves * kv;
        self.derived.prefix.resize(flat.len(), 0.0);
        // The file has token-major rows; attention wants each layer's keys together.
        for token in 0..site.tokens {
            for half in 0..halves {
                let to = (half * site.tokens + token) * kv;
                let from = token * width + half * kv;
                self.derived.prefix[to..to + kv].copy_from_slice(&flat[from..from + kv]);
            }
        }
        if self.derived.prefix_gradient.total.len() != flat.len() {
            self.derived.prefix_gradient = GradientTree::new(flat.len());
        }
    }

    /// Forgets the gradient of a step that was begun.
    pub fn clear_gradient(&mut self) {
        self.gradient.clear();
        self.derived.prefix_gradient.clear();
    }

    /// Ends the optimizer step's gradient: maps derived gradients back to the parameters.
    pub(super) fn close_gradient(&mut self, shape: &ModelShape) {
        let Some(site) = &self.layout.prefix else {
            return;
        };
        let (kv, halves) = (shape.kv_width(), 2 * site.layers.len());
        let width = halves * kv;
        let by_layer = &self.derived.prefix_gradient.total;
        let mut flat = vec![0.0; by_layer.len()];
        for token in 0..site.tokens {
            for half in 0..halves {
                let from = (half * site.tokens + token) * kv;
                let to = token * width + half * kv;
                flat[to..to + kv].copy_from_slice(&by_layer[from..from + kv]);
            }
        }
        let total = &mut self.gradient.total;
        self.derived.shares = reparam::gradient(site, &self.values, &flat, shape, total);
        if self.layout.is_whole() {
            self.finish_gradient(&[]);
        }
    }

    /// Computes those parts of the gradient that need all layers: `others` has the shares of layers not held here.
    pub(super) fn finish_gradient(&mut self, others: &[Share]) {
        let Some(site) = self
            .layout
            .prefix
            .as_ref()
            .filter(|s| s.projection.is_some())
        else {
            return;
        };
        let span = &self.layout.span;
        let before = others.iter().filter(|share| share.layer < span.start);
        let after = others.iter().filter(|share| share.layer >= span.end);
        let all = before.chain(&self.derived.shares).chain(after);
        let total = &mut self.gradient.total;
        reparam::finish(site, &self.values, all, total);
    }

    /// Prefix keys and values of a layer, each `(tokens, kv_width)`.
    pub(super) fn prefix(&self, layer: usize, shape: &ModelShape) -> Option<(&[f32], &[f32])> {
        let site = self.layout.prefix.as_ref()?;
        let size = site.tokens * shape.kv_width();
        let layer = layer - site.layers.start;
        let keys = &self.derived.prefix[2 * layer * size..][..size];
        let values = &self.derived.prefix[(2 * layer + 1) * size..][..size];
        Some((keys, values))
    }
}
