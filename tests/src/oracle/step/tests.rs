#![allow(clippy::unwrap_used, reason = "tests")]

use shared::job::{
    AdapterSpec, BitFitSpec, BottleneckPlacement, BottleneckSpec, DiffSpec, Ia3Spec, LoraSpec,
    NonLinearity, PrefixSpec, PromptSpec, Targets,
};
use shared::model::{Family, ModelShape, Projection, Rope, RopeScaling, Target};

use super::*;
use crate::oracle::backbone;
use crate::oracle::differences::{close, random, slope};
use crate::oracle::tensor::Tensor;

fn shape() -> ModelShape {
    ModelShape {
        family: Family::Llama,
        vocab: 11,
        hidden: 8,
        intermediate: 12,
        layers: 2,
        heads: 2,
        kv_heads: 1,
        head_dim: 4,
        max_positions: 64,
        norm_eps: 1e-5,
        rope: Rope {
            theta: 100.0,
            scaling: RopeScaling::Default,
        },
        tied_embeddings: true,
        qkv_bias: false,
        o_bias: false,
        mlp_bias: false,
        qk_norm: false,
        sliding_window: None,
        eos: Vec::new(),
        bos: None,
    }
}

fn tensor(shape: &[usize], seed: u64, scale: f64, around: f64) -> Tensor {
    let values = random(1, shape.iter().product(), seed).values;
    Tensor::new(shape, values.iter().map(|v| around + scale * v).collect())
}

/// A model of that shape with random weights.
fn model(shape: &ModelShape) -> Backbone {
    let mut tensors = Tensors::new();
    let mut put = |name: String, sizes: &[usize], around: f64| {
        let seed = 1000 + tensors.len() as u64;
        tensors.insert(name, tensor(sizes, seed, 0.4, around));
    };
    put(
        "model.embed_tokens.weight".into(),
        &[shape.vocab, shape.hidden],
        0.0,
    );
    put("lm_head.weight".into(), &[shape.vocab, shape.hidden], 0.0);
    put("model.norm.weight".into(), &[shape.hidden], 1.0);
    for layer in 0..shape.layers {
        let base = format!("model.layers.{layer}");
        for leaf in ["input_layernorm", "post_attention_layernorm"] {
            put(format!("{base}.{leaf}.weight"), &[shape.hidden], 1.0);
        }
        for leaf in ["self_attn.q_norm", "self_attn.k_norm"] {
            put(format!("{base}.{leaf}.weight"), &[shape.head_dim], 1.0);
        }
        for p in Projection::ALL {
            let (out, input) = shape.projection(p);
            let name = format!("{base}.{}.{}", p.module(), p.name());
            put(format!("{name}.weight"), &[out, input], 0.0);
            put(format!("{name}.bias"), &[out], 0.0);
        }
    }
    Backbone::new(shape, tensors).unwrap()
}

/// A method with random parameters for that shape.
fn adapter(spec: AdapterSpec, shape: &ModelShape) -> Adapter {
    let mut tensors = Tensors::new();
    let mut put = |name: String, sizes: &[usize], around: f64| {
        let seed = 1 + tensors.len() as u64;
        tensors.insert(name, tensor(sizes, seed, 0.3, around));
    };
    let (hidden, kv) = (shape.hidden, shape.kv_width());
    match &spec {
        AdapterSpec::Prompt(prompt) => {
            put("prompt_embeddings".into(), &[prompt.tokens, hidden], 0.0);
        }
        AdapterSpec::Prefix(prefix) => {
            let width = 2 * shape.layers * kv;
            let Some(inner) = prefix.projection else {
                put("prompt_embeddings".into(), &[prefix.tokens, width], 0.0);
                return Adapter::new(spec, tensors);
            };
            let key = |leaf: &str| format!("prompt_encoder.{leaf}");
            put(key("embedding.weight"), &[prefix.tokens, kv], 0.0);
            put(key("transform.0.weight"), &[inner, kv], 0.0);
            put(key("transform.0.bias"), &[inner], 0.0);
            put(key("transform.2.weight"), &[width, inner], 0.0);
            put(key("transform.2.bias"), &[width], 0.0);
        }
        AdapterSpec::Bottleneck(b) => {
            for layer in 0..shape.layers {
                for module in ["self_attn", "mlp"] {
                    if module == "self_attn" && b.placement == BottleneckPlacement::Pfeiffer {
                        continue;
                    }
                    let base = format!("base_model.model.model.layers.{layer}.{module}.adapter");
                    put(format!("{base}.down_proj.weight"), &[b.size, hidden], 0.0);
                    put(format!("{base}.down_proj.bias"), &[b.size], 0.0);
                    put(format!("{base}.up_proj.weight"), &[hidden, b.size], 0.0);
                    put(format!("{base}.up_proj.bias"), &[hidden], 0.0);
                }
            }
        }
        linear => put_linear(linear, shape, &mut put),
    }
    let mut adapter = Adapter::new(spec, with_places(tensors));
    adapter.fix_norms(&model(shape));
    adapter
}

fn put_linear(spec: &AdapterSpec, shape: &ModelShape, put: &mut impl FnMut(String, &[usize], f64)) {
    let targets = match spec {
        AdapterSpec::Lora(lora) => &lora.targets,
        AdapterSpec::Ia3(ia3) => &ia3.targets,
        AdapterSpec::BitFit(bitfit) => &bitfit.targets,
        AdapterSpec::Diff(diff) => &diff.targets,
        _ => unreachable!("the others have no targets"),
    };
    for target in targets.resolve().unwrap() {
        let sites: Vec<(String, usize, usize)> = match target {
            Target::LmHead => vec![("base_model.model.lm_head".into(), shape.vocab, shape.hidden)],
            Target::Block(p) => (0..shape.layers)
                .map(|layer| {
                    let (out, input) = shape.projection(p);
                    (backbone::module(layer, p), out, input)
                })
                .collect(),
        };
        for (module, out, input) in sites {
            match spec {
                AdapterSpec::Lora(lora) => {
                    put(format!("{module}.lora_A.weight"), &[lora.rank, input], 0.0);
                    put(format!("{module}.lora_B.weight"), &[out, lora.rank], 0.0);
                    if lora.dora {
                        put(format!("{module}.lora_magnitude_vector"), &[out], 1.0);
                    }
                }
                AdapterSpec::Ia3(ia3) if ia3.feedforward.contains(&target) => {
                    put(format!("{module}.ia3_l"), &[1, input], 1.0);
                }
                AdapterSpec::Ia3(_) => put(format!("{module}.ia3_l"), &[out, 1], 1.0),
                AdapterSpec::BitFit(_) => put(format!("{module}.bias_delta"), &[out], 0.0),
                _ => put(format!("{module}.diff_values"), &[2 * out], 0.0),
            }
        }
    }
}

/// Gives every sparse delta two places a row: columns 1 and 4.
fn with_places(mut tensors: Tensors) -> Tensors {
    let deltas: Vec<(String, usize)> = tensors
        .iter()
        .filter_map(|(key, t)| {
            let module = key.strip_suffix(".diff_values")?;
            Some((format!("{module}.diff_columns"), t.values.len()))
        })
        .collect();
    for (key, len) in deltas {
        let columns = [1.0, 4.0].into_iter().cycle().take(len).collect();
        tensors.insert(key, Tensor::new(&[len], columns));
    }
    tensors
}

fn rows() -> [TokenRow; 2] {
    [
        TokenRow::new(vec![3, 7, 1, 9, 2], vec![-100, -100, 1, 9, 2]),
        TokenRow::new(vec![5, 5, 10], vec![5, 5, 10]),
    ]
}

/// Asserts that the gradient of every parameter is the slope of the loss.
fn check_with(spec: AdapterSpec, shape: &ModelShape, draw: Option<(u64, u32)>) {
    let (backbone, mut adapter) = (model(shape), adapter(spec, shape));
    let rows = rows();
    let rows: Vec<&TokenRow> = rows.iter().collect();
    let outcome = gradient(&backbone, &adapter, &rows, draw);
    assert!(!outcome.gradient.is_empty());
    for (key, expected) in &outcome.gradient {
        assert!(expected.largest() > 1e-6, "{key} has no gradient");
        for (i, &value) in expected.values.iter().enumerate() {
            let before = adapter.parameters[key].values[i];
            let slope = slope(|step| {
                adapter.parameters.get_mut(key).unwrap().values[i] = before + step;
                gradient(&backbone, &adapter, &rows, draw).loss
            });
            adapter.parameters.get_mut(key).unwrap().values[i] = before;
            assert!(
                close(value, slope),
                "{key}[{i}]: gradient {value}, slope {slope}"
            );
        }
    }
}

fn check(spec: AdapterSpec) {
    check_with(spec, &shape(), None);
}

fn lora() -> LoraSpec {
    LoraSpec {
        rank: 2,
        alpha: Some(3.0),
        dropout: 0.0,
        targets: Targets::Group("all-linear".into()),
        rslora: false,
        dora: false,
        lr_ratio: 1.0,
    }
}

#[test]
fn lora_on_every_linear_layer_and_the_head() {
    let targets = Targets::Named(Target::ALL.to_vec());
    check(AdapterSpec::Lora(LoraSpec { targets, ..lora() }));
}

#[test]
fn lora_with_dropout_whose_mask_is_keyed() {
    let targets = Targets::Named(Target::ALL.to_vec());
    let spec = AdapterSpec::Lora(LoraSpec {
        dropout: 0.3,
        targets,
        ..lora()
    });
    check_with(spec, &shape(), Some((7, 3)));
}

#[test]
fn dora_with_constant_norms_on_a_model_with_biases() {
    let shape = ModelShape {
        qkv_bias: true,
        o_bias: true,
        mlp_bias: true,
        ..shape()
    };
    let spec = AdapterSpec::Lora(LoraSpec {
        dora: true,
        rslora: true,
        ..lora()
    });
    check_with(spec, &shape, None);
}

#[test]
fn ia3_on_outputs_with_biases_and_on_inputs() {
    let shape = ModelShape {
        qkv_bias: true,
        ..shape()
    };
    let down = Target::Block(Projection::Down);
    let spec = AdapterSpec::Ia3(Ia3Spec {
        targets: Targets::Named(vec![
            Target::Block(Projection::K),
            Target::Block(Projection::V),
            down,
        ]),
        feedforward: vec![down],
    });
    check_with(spec, &shape, None);
}

#[test]
fn bottlenecks_in_every_place_with_every_function() {
    for (placement, non_linearity) in [
        (BottleneckPlacement::Houlsby, NonLinearity::Relu),
        (BottleneckPlacement::Pfeiffer, NonLinearity::Gelu),
        (BottleneckPlacement::Parallel, NonLinearity::Silu),
    ] {
        check(AdapterSpec::Bottleneck(BottleneckSpec {
            size: 3,
            placement,
            non_linearity,
        }));
    }
}

#[test]
fn prefixes_given_and_computed() {
    for projection in [None, Some(5)] {
        check(AdapterSpec::Prefix(PrefixSpec {
            tokens: 3,
            projection,
        }));
    }
}

#[test]
fn prompts_and_the_order_of_virtual_tokens() {
    check(AdapterSpec::Prompt(PromptSpec {
        tokens: 2,
        init_text: None,
    }));
}

#[test]
fn biases_and_sparse_deltas() {
    let targets = Targets::Group("all-linear".into());
    check(AdapterSpec::BitFit(BitFitSpec {
        targets: targets.clone(),
    }));
    check(AdapterSpec::Diff(DiffSpec {
        targets,
        density: 0.2,
    }));
}

#[test]
fn every_switch_of_every_family() {
    let windowed = ModelShape {
        sliding_window: Some(2),
        ..shape()
    };
    let normed = ModelShape {
        qk_norm: true,
        tied_embeddings: false,
        ..shape()
    };
    let targets = Targets::Group("attention".into());
    for shape in [windowed, normed] {
        let spec = LoraSpec {
            targets: targets.clone(),
            ..lora()
        };
        check_with(AdapterSpec::Lora(spec), &shape, None);
        let prefix = PrefixSpec {
            tokens: 2,
            projection: None,
        };
        check_with(AdapterSpec::Prefix(prefix), &shape, None);
    }
}
