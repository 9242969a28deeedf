//! The same weights in every container and format are the same model.

use std::ops::Range;

use shared::job::BackboneFormat;
use shared::model::{ModelShape, Projection, RopeScaling};

use super::super::names;
use super::*;

/// Every tensor as numbers, by canonical name.
fn numbers(model: &Model) -> Vec<(String, Vec<f32>)> {
    let mut list = vec![
        (names::EMBEDDING.to_owned(), model.embedding().to_f32()),
        (names::FINAL_NORM.to_owned(), model.final_norm.clone()),
        (names::HEAD.to_owned(), model.head().to_f32()),
    ];
    for (index, layer) in model.layers.iter().enumerate() {
        let index = index + model.first_layer;
        list.push((names::attention_norm(index), layer.attention_norm.clone()));
        list.push((names::ffn_norm(index), layer.feed_forward_norm.clone()));
        for projection in Projection::ALL {
            let weight = layer.projection(projection);
            list.push((names::weight(index, projection), weight.to_f32()));
            if let Some(bias) = layer.bias(projection) {
                list.push((names::bias(index, projection), bias.to_vec()));
            }
        }
        for (name, norm) in [
            (names::q_norm(index), &layer.q_norm),
            (names::k_norm(index), &layer.k_norm),
        ] {
            list.extend(norm.clone().map(|norm| (name, norm)));
        }
    }
    list
}

/// The largest difference, as a share of the tensor's largest value.
fn distance(a: &Model, b: &Model) -> f32 {
    let mut worst = 0f32;
    for ((name, a), (other, b)) in numbers(a).iter().zip(&numbers(b)) {
        assert_eq!((name, a.len()), (other, b.len()));
        let largest = a.iter().fold(0f32, |most, value| most.max(value.abs()));
        for (a, b) in a.iter().zip(b) {
            worst = worst.max((a - b).abs() / largest);
        }
    }
    worst
}

fn specifications() -> Vec<TinySpec> {
    let mut specs: Vec<TinySpec> = Family::ALL.map(TinySpec::smallest).into();
    specs.push(TinySpec {
        tied: false,
        bias: true,
        rope_scaling: RopeScaling::Linear { factor: 2.0 },
        ..llama()
    });
    specs.push(TinySpec {
        sliding_window: Some(8),
        tied: false,
        ..TinySpec::smallest(Family::Qwen3)
    });
    specs.push(TinySpec {
        head_dim: 8,
        kv_heads: 1,
        ..TinySpec::smallest(Family::Mistral)
    });
    specs
}

#[test]
fn a_folder_has_the_shape_it_was_written_with() {
    for spec in specifications() {
        let scratch = scratch();
        let model = open(&folder(&scratch, &spec)).unwrap();
        assert_eq!(model.shape, spec.shape());
        assert_eq!(model.layers.len(), spec.layers);
        assert_eq!(model.head.is_none(), spec.tied);
        let count: usize = numbers(&model)
            .iter()
            .filter(|(name, _)| name != names::HEAD || !spec.tied)
            .map(|(_, values)| values.len())
            .sum();
        assert_eq!(count as u64, model.shape.parameters());
    }
}

#[test]
fn shards_hold_the_same_model_as_one_file() {
    let (one, several) = (scratch(), scratch());
    let spec = llama();
    let single = open(&folder(&one, &spec)).unwrap();
    let spec = TinySpec { shards: 3, ..spec };
    let path = folder(&several, &spec);
    assert!(!path.join("model.safetensors").exists());
    let sharded = open(&path).unwrap();
    assert_eq!(single.content_hash(), sharded.content_hash());
}

#[test]
fn gguf_in_f32_is_the_same_model_bit_for_bit() {
    for spec in specifications() {
        let scratch = scratch();
        let from_folder = open(&folder(&scratch, &spec)).unwrap();
        let from_gguf = open(&gguf(&scratch, &spec, Format::F32)).unwrap();
        assert_eq!(from_folder.content_hash(), from_gguf.content_hash());
        // A GGUF file calls a Mistral model llama: the arithmetic is the same.
        let want = ModelShape {
            family: from_gguf.shape.family,
            ..spec.shape()
        };
        assert_eq!(from_gguf.shape, want);
    }
}

#[test]
fn quantised_files_stay_near_and_are_kept_as_shipped() {
    // Half a step of the block's grid over its largest value, doubled for the f16 scale.
    for (format, bound) in [
        (Format::F16, 1e-3),
        (Format::Bf16, 4e-3),
        (Format::Q8_0, 0.5 / 127.0 * 2.0),
        (Format::Q4_0, 1.0 / 8.0 * 1.1),
        (Format::Q4_1, 2.0 / 15.0 * 0.5 * 1.1),
    ] {
        let scratch = scratch();
        let spec = llama();
        let exact = open(&folder(&scratch, &spec)).unwrap();
        let path = gguf(&scratch, &spec, format);
        let quantised = open(&path).unwrap();
        for layer in &quantised.layers {
            assert!(layer.projections.iter().all(|w| w.format() == format));
        }
        let apart = distance(&exact, &quantised);
        assert!(apart > 0.0 && apart < bound, "{format}: {apart}");
        let expanded = OpenOptions {
            format: BackboneFormat::F32,
            ..options()
        };
        let expanded = Model::open(&path, &expanded).unwrap();
        assert_eq!(numbers(&expanded), numbers(&quantised));
        assert!(expanded.matrices().all(|w| w.format() == Format::F32));
    }
}

/// candle's own dequantisation is an outside opinion on blocks and on the row order.
#[test]
fn quantised_blocks_mean_what_candle_says() {
    use candle_core::Device;
    use candle_core::quantized::gguf_file::Content;
    for format in [Format::Q4_0, Format::Q4_1, Format::Q8_0] {
        let scratch = scratch();
        let path = gguf(&scratch, &TinySpec::smallest(Family::Qwen2), format);
        let model = open(&path).unwrap();
        let mut file = fs::File::open(&path).unwrap();
        let content = Content::read(&mut file).unwrap();
        for (name, ours) in [
            (
                "blk.1.attn_q.weight",
                model.layers[1].projection(Projection::Q),
            ),
            (
                "blk.0.ffn_down.weight",
                model.layers[0].projection(Projection::Down),
            ),
            ("token_embd.weight", model.embedding()),
        ] {
            let theirs = content.tensor(&mut file, name, &Device::Cpu).unwrap();
            let theirs = theirs.dequantize(&Device::Cpu).unwrap();
            let theirs: Vec<f32> = theirs.flatten_all().unwrap().to_vec1().unwrap();
            assert_eq!(ours.to_f32(), theirs, "{format} {name}");
        }
    }
}

#[test]
fn narrow_safetensors_are_kept_or_converted() {
    for stored in [Format::Bf16, Format::F16] {
        let scratch = scratch();
        let spec = TinySpec {
            format: stored,
            ..llama()
        };
        let path = folder(&scratch, &spec);
        let kept = open(&path).unwrap();
        assert!(kept.matrices().all(|weight| weight.format() == stored));
        for (wanted, format) in [
            (BackboneFormat::F32, Format::F32),
            (BackboneFormat::Bf16, Format::Bf16),
        ] {
            let opened = OpenOptions {
                format: wanted,
                ..options()
            };
            let model = Model::open(&path, &opened).unwrap();
            assert!(model.matrices().all(|weight| weight.format() == format));
            assert!(distance(&kept, &model) <= 4e-3);
        }
    }
}

#[test]
fn a_stage_holds_its_layers_only() {
    let scratch = scratch();
    let path = folder(
        &scratch,
        &TinySpec {
            layers: 3,
            ..llama()
        },
    );
    let whole = open(&path).unwrap();
    let held = |layers: Range<usize>| {
        let opened = OpenOptions {
            layers: Some(layers),
            ..options()
        };
        Model::open(&path, &opened)
    };
    let stage = held(1..3).unwrap();
    assert_eq!((stage.first_layer, stage.layers.len()), (1, 2));
    assert_eq!(
        stage.layers[0].projection(Projection::Up).bytes(),
        whole.layers[1].projection(Projection::Up).bytes()
    );
    assert_eq!(held(0..3).unwrap().content_hash(), whole.content_hash());
    assert_ne!(stage.content_hash(), whole.content_hash());
    #[expect(clippy::reversed_empty_ranges, reason = "a wrong range is the point")]
    for wrong in [0..4, 2..1, 4..4] {
        let error = held(wrong).unwrap_err().to_string();
        assert!(error.contains("the model has layers 0 to 3"), "{error}");
    }
}

#[test]
fn the_hash_depends_on_every_byte_and_on_nothing_else() {
    let (one, other) = (scratch(), scratch());
    let path = folder(&one, &llama());
    let hash = open(&path).unwrap().content_hash();
    assert_eq!(hash.len(), 64);
    assert_eq!(
        open(&folder(&other, &llama())).unwrap().content_hash(),
        hash
    );
    let file = path.join("model.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&file, bytes).unwrap();
    assert_ne!(open(&path).unwrap().content_hash(), hash);
}

/// The same tensors under another config.json are another function.
#[test]
fn the_hash_depends_on_what_the_formulas_take_from_the_shape() {
    let scratch = scratch();
    let path = folder(
        &scratch,
        &TinySpec {
            sliding_window: Some(16),
            ..TinySpec::smallest(Family::Mistral)
        },
    );
    let hash = open(&path).unwrap().content_hash();
    let file = path.join("config.json");
    let text = fs::read_to_string(&file).unwrap();
    let config: serde_json::Value = serde_json::from_str(&text).unwrap();
    let mut seen = vec![hash.clone()];
    for (key, value) in [
        ("rope_theta", serde_json::json!(20_000.0)),
        (
            "rope_scaling",
            serde_json::json!({"rope_type": "linear", "factor": 2.0}),
        ),
        ("rms_norm_eps", serde_json::json!(1e-6)),
        ("sliding_window", serde_json::json!(17)),
        ("sliding_window", serde_json::json!(null)),
    ] {
        let mut other = config.clone();
        other[key] = value;
        fs::write(&file, other.to_string()).unwrap();
        let found = open(&path).unwrap().content_hash();
        assert!(!seen.contains(&found), "{key}");
        seen.push(found);
    }
    let mut shorter = config.clone();
    shorter["max_position_embeddings"] = serde_json::json!(64);
    fs::write(&file, shorter.to_string()).unwrap();
    assert_eq!(open(&path).unwrap().content_hash(), hash);
}

#[test]
fn weights_that_start_on_an_odd_byte_are_copied_and_equal() {
    let scratch = scratch();
    let path = folder(&scratch, &llama());
    let hash = open(&path).unwrap().content_hash();
    let file = path.join("model.safetensors");
    let bytes = fs::read(&file).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let mut odd = (length as u64 + 1).to_le_bytes().to_vec();
    odd.extend_from_slice(&bytes[8..8 + length]);
    odd.push(b' ');
    odd.extend_from_slice(&bytes[8 + length..]);
    fs::write(&file, odd).unwrap();
    assert_eq!(open(&path).unwrap().content_hash(), hash);
}
