//! One job's trained parameters, and what they change at each site of the backbone.

use std::collections::BTreeMap;

use shared::job::{AdapterSpec, BottleneckPlacement};
use shared::model::{Projection, Target};

use super::backbone::Backbone;
use super::bottleneck::Bottleneck;
use super::matrix::Matrix;
use super::tensor::{Tensor, Tensors};

/// Suffix of the tensor with the places of a sparse delta: column of each value, row after row.
const COLUMNS: &str = ".diff_columns";

/// A method with its parameters.
#[derive(Clone, Debug)]
pub struct Adapter {
    /// The method.
    pub spec: AdapterSpec,
    /// Trained values by name.
    pub parameters: Tensors,
    /// Columns of sparse deltas by module.
    columns: BTreeMap<String, Vec<usize>>,
    /// Row norms of W + s B A by module (DoRA): constants of a step.
    norms: BTreeMap<String, Vec<f64>>,
}

/// What an adapter does to one linear layer.
#[derive(Clone, Debug)]
pub enum Change<'a> {
    /// Nothing.
    None,
    /// y += scale * B (A drop(x)), then times magnitude / norm for DoRA.
    LowRank {
        /// A, `(rank, in)`.
        a: Matrix,
        /// B, `(out, rank)`.
        b: Matrix,
        /// alpha / r or alpha / sqrt(r).
        scale: f64,
        /// Share of inputs that fall in training.
        dropout: f64,
        /// Magnitude and norm, `(out)` each.
        magnitude: Option<(&'a [f64], &'a [f64])>,
    },
    /// The input is multiplied by a vector `(in)`.
    ScaleInput(&'a [f64]),
    /// The output, bias included, is multiplied by a vector `(out)`.
    ScaleOutput(&'a [f64]),
    /// A vector `(out)` is added to the output.
    Bias(&'a [f64]),
    /// y_o += sum over the places j of row o of value_j * x_(column_j).
    Sparse {
        /// The values, the same number for every row.
        values: &'a [f64],
        /// Their columns.
        columns: &'a [usize],
    },
}

impl Adapter {
    /// An adapter from named tensors; those that are places and not values are told apart.
    #[must_use]
    pub fn new(spec: AdapterSpec, mut tensors: Tensors) -> Self {
        let places: Vec<String> = tensors
            .keys()
            .filter(|key| key.ends_with(COLUMNS))
            .cloned()
            .collect();
        let columns = places
            .into_iter()
            .filter_map(|key| {
                let columns = tensors.remove(&key)?.values;
                let module = key.strip_suffix(COLUMNS)?.to_owned();
                Some((module, columns.into_iter().map(|c| c as usize).collect()))
            })
            .collect();
        Self {
            spec,
            parameters: tensors,
            columns,
            norms: BTreeMap::new(),
        }
    }

    fn values(&self, module: &str, leaf: &str) -> Option<&Tensor> {
        self.parameters.get(&format!("{module}.{leaf}"))
    }

    /// What happens at the linear layer `target` whose PEFT name is `module`.
    #[must_use]
    pub fn change(&self, module: &str, target: Target) -> Change<'_> {
        let vector = |leaf| self.values(module, leaf).map(|t| t.values.as_slice());
        match &self.spec {
            AdapterSpec::Lora(lora) => {
                let pair = (
                    self.values(module, "lora_A.weight"),
                    self.values(module, "lora_B.weight"),
                );
                let (Some(a), Some(b)) = pair else {
                    return Change::None;
                };
                let magnitude = vector("lora_magnitude_vector").zip(self.norms.get(module));
                Change::LowRank {
                    a: a.matrix(),
                    b: b.matrix(),
                    scale: lora.scale(),
                    dropout: lora.dropout,
                    magnitude: magnitude.map(|(m, n)| (m, n.as_slice())),
                }
            }
            AdapterSpec::Ia3(ia3) => match vector("ia3_l") {
                Some(l) if ia3.feedforward.contains(&target) => Change::ScaleInput(l),
                Some(l) => Change::ScaleOutput(l),
                None => Change::None,
            },
            AdapterSpec::BitFit(_) => vector("bias_delta").map_or(Change::None, Change::Bias),
            AdapterSpec::Diff(_) => match vector("diff_values").zip(self.columns.get(module)) {
                Some((values, columns)) => Change::Sparse { values, columns },
                None => Change::None,
            },
            AdapterSpec::Bottleneck(_) | AdapterSpec::Prefix(_) | AdapterSpec::Prompt(_) => {
                Change::None
            }
        }
    }

    /// The bottleneck after (or beside) a sub-layer, `self_attn` or `mlp`.
    #[must_use]
    pub fn bottleneck(&self, layer: usize, module: &str) -> Option<Bottleneck> {
        let AdapterSpec::Bottleneck(spec) = &self.spec else {
            return None;
        };
        let key = format!("base_model.model.model.layers.{layer}.{module}.adapter");
        Some(Bottleneck {
            down: self.values(&key, "down_proj.weight")?.matrix(),
            down_bias: self.values(&key, "down_proj.bias")?.values.clone(),
            up: self.values(&key, "up_proj.weight")?.matrix(),
            up_bias: self.values(&key, "up_proj.bias")?.values.clone(),
            non_linearity: spec.non_linearity,
            parallel: spec.placement == BottleneckPlacement::Parallel,
            key,
        })
    }

    /// The virtual tokens of prompt tuning, `(tokens, hidden)`.
    #[must_use]
    pub fn prompt(&self) -> Option<Matrix> {
        match &self.spec {
            AdapterSpec::Prompt(_) => Some(self.parameters.get("prompt_embeddings")?.matrix()),
            _ => None,
        }
    }

    /// Computes the row norms that DoRA takes for constants; call at the start of every step.
    pub fn fix_norms(&mut self, backbone: &Backbone) {
        let AdapterSpec::Lora(lora) = &self.spec else {
            return;
        };
        if !lora.dora {
            return;
        }
        let scale = lora.scale();
        for layer in 0..backbone.layers.len() {
            for projection in Projection::ALL {
                let module = super::backbone::module(layer, projection);
                let pair = (
                    self.values(&module, "lora_A.weight"),
                    self.values(&module, "lora_B.weight"),
                );
                let (Some(a), Some(b)) = pair else {
                    continue;
                };
                let mut weight = backbone.layers[layer].projection(projection).clone();
                weight.add(&b.matrix().times(&a.matrix()).scaled(scale));
                let norms = weight.each_row().map(|row| {
                    let squares = row.iter().map(|value| value * value);
                    squares.sum::<f64>().sqrt()
                });
                let norms = norms.collect();
                self.norms.insert(module, norms);
            }
        }
    }
}
