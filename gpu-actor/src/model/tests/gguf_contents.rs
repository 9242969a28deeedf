//! GGUF files with sound headers and wrong contents.

use std::collections::BTreeMap;
use std::io::Cursor;

use candle_core::quantized::gguf_file::{self, Content, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use shared::model::RopeScaling;

use super::super::{TokenizerSource, gguf_check};
use super::*;

type Keys = BTreeMap<String, Value>;
type Quantised = Vec<(String, QTensor)>;

/// The message after a change to the contents of a sound file of a Llama model.
fn after(edit: impl FnOnce(&mut Keys, &mut Quantised)) -> Result<Model, String> {
    let scratch = scratch();
    let path = gguf(&scratch, &llama(), Format::Q8_0);
    let mut file = Cursor::new(fs::read(&path).unwrap());
    let content = Content::read(&mut file).unwrap();
    let mut keys: Keys = content.metadata.clone().into_iter().collect();
    let mut tensors: Quantised = content
        .tensor_infos
        .keys()
        .map(|name| {
            (
                name.clone(),
                content.tensor(&mut file, name, &Device::Cpu).unwrap(),
            )
        })
        .collect();
    tensors.sort_by(|(one, _), (other, _)| one.cmp(other));
    edit(&mut keys, &mut tensors);
    let keys: Vec<_> = keys
        .iter()
        .map(|(key, value)| (key.as_str(), value))
        .collect();
    let tensors: Vec<_> = tensors
        .iter()
        .map(|(name, tensor)| (name.as_str(), tensor))
        .collect();
    let mut out = fs::File::create(&path).unwrap();
    gguf_file::write(&mut out, &keys, &tensors).unwrap();
    open(&path).map_err(|error| error.to_string())
}

fn numbers(values: &[f32]) -> QTensor {
    let tensor = Tensor::from_slice(values, values.len(), &Device::Cpu).unwrap();
    QTensor::quantize(&tensor, GgmlDType::F32).unwrap()
}

fn text(text: &str) -> Value {
    Value::String(text.into())
}

fn refused(key: &str, value: Value, want: &str) {
    let message = after(|keys, _| drop(keys.insert(key.into(), value))).unwrap_err();
    assert!(message.contains(want), "wanted {want:?} in {message:?}");
}

#[test]
fn metadata_that_changes_the_arithmetic_is_refused_by_key() {
    refused(
        "general.architecture",
        text("gemma3"),
        "general.architecture is gemma3",
    );
    refused(
        "general.architecture",
        Value::U32(1),
        "general.architecture is of type U32",
    );
    refused(
        "llama.expert_count",
        Value::U32(8),
        "llama.expert_count is 8",
    );
    refused("split.count", Value::U16(2), "split.count is 2");
    refused(
        "llama.rope.scaling.type",
        text("yarn"),
        "llama.rope.scaling.type is yarn",
    );
    refused(
        "llama.rope.scaling.type",
        text("linear"),
        "llama.rope.scaling.factor must be at least 1",
    );
    refused(
        "llama.rope.dimension_count",
        Value::U32(8),
        "llama.rope.dimension_count is 8",
    );
    refused(
        "llama.attention.value_length",
        Value::U32(8),
        "llama.attention.value_length is 8",
    );
    refused(
        "llama.rope.freq_base",
        Value::F32(f32::NAN),
        "llama.rope.freq_base is NaN, allowed are",
    );
    refused(
        "llama.rope.freq_base",
        Value::F32(-1.0),
        "llama.rope.freq_base is -1, allowed are",
    );
    // As rope_theta of config.json: angles of a smaller base grow with the dimension.
    refused(
        "llama.rope.freq_base",
        Value::F32(1e-30),
        "allowed are numbers from 1 and at most 1e12",
    );
    for (value, said) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf"), (0.0, "0")] {
        refused(
            "llama.attention.layer_norm_rms_epsilon",
            Value::F32(value),
            &format!("llama.attention.layer_norm_rms_epsilon is {said}, allowed are"),
        );
    }
}

#[test]
fn wrong_sizes_are_refused_by_key() {
    refused("llama.block_count", Value::U32(0), "llama.block_count is 0");
    refused(
        "llama.block_count",
        Value::U64(u64::MAX),
        "llama.block_count is 18446744073709551615",
    );
    refused(
        "llama.block_count",
        Value::I32(-2),
        "llama.block_count is of type I32",
    );
    refused("llama.block_count", Value::U32(3), "9 tensors are missing");
    refused(
        "llama.block_count",
        Value::U32(1),
        "9 tensors are unexpected",
    );
    refused(
        "llama.embedding_length",
        text("64"),
        "llama.embedding_length is of type String",
    );
    refused("llama.embedding_length", Value::U32(32), "has shape");
    refused(
        "llama.attention.head_count",
        Value::Array(vec![Value::U32(4)]),
        "head_count is of type Array",
    );
    refused(
        "llama.attention.head_count_kv",
        Value::U32(3),
        "3 does not divide 4",
    );
}

#[test]
fn a_wrong_vocabulary_is_refused_by_key() {
    refused(
        "llama.vocab_size",
        Value::U32(300),
        "llama.vocab_size is 300, token_embd.weight has 259",
    );
    refused(
        "tokenizer.ggml.eos_token_id",
        Value::U32(259),
        "eos_token_id is 259",
    );
    refused(
        "tokenizer.ggml.tokens",
        Value::Array(vec![text("a"); 260]),
        "tokens has 260 entries",
    );
    refused(
        "tokenizer.ggml.tokens",
        Value::Array(vec![Value::U8(1)]),
        "array with U8, expected strings",
    );
    refused(
        "tokenizer.ggml.add_bos_token",
        Value::U32(1),
        "add_bos_token is of type U32",
    );
}

#[test]
fn absent_metadata_is_refused_by_key() {
    for key in [
        "general.architecture",
        "llama.context_length",
        "llama.attention.layer_norm_rms_epsilon",
    ] {
        let message = after(|keys, _| drop(keys.remove(key))).unwrap_err();
        assert!(message.contains(&format!("{key} is missing")), "{message}");
    }
}

#[test]
fn tensors_under_other_names_are_unexpected() {
    for name in [
        "blk.0.extra.weight",
        "blk.01.attn_q.weight",
        "model.norm.weight",
        "x",
    ] {
        let message =
            after(|_, tensors| tensors.push((name.into(), numbers(&[1.0; 64])))).unwrap_err();
        assert!(
            message.contains(&format!("1 tensors are unexpected: gguf:{name}")),
            "{message}"
        );
    }
    let message = after(|_, tensors| tensors.retain(|(name, _)| name != "token_embd.weight"));
    assert!(
        message
            .unwrap_err()
            .contains("token_embd.weight is missing")
    );
}

#[test]
fn a_file_without_tokenizer_opens_for_token_ids() {
    let model = after(|keys, _| keys.retain(|key, _| !key.starts_with("tokenizer."))).unwrap();
    assert_eq!(model.tokenizer, TokenizerSource::Missing);
    assert!(model.shape.eos.is_empty());
}

#[test]
fn a_name_that_is_a_path_is_dropped() {
    let name = |name: &str| {
        let value = Value::String(name.into());
        after(|keys, _| drop(keys.insert("general.name".into(), value)))
            .unwrap()
            .name
    };
    assert_eq!(name("/home/me/model"), None);
    assert_eq!(name("C:\\models\\x"), None);
    assert_eq!(name(" "), None);
    assert_eq!(name("org/model").as_deref(), Some("org/model"));
}

/// The factors that a converter writes for Llama 3.1 are turned back into the numbers they came from.
#[test]
fn rotary_factors_are_recognised_or_refused() {
    let scaling = RopeScaling::Llama3 {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position_embeddings: 8192,
    };
    let factors = |theta: f64| -> Vec<f32> {
        (0..8)
            .map(|pair| scaling.divisor(theta.powf(-f64::from(pair) / 8.0)) as f32)
            .collect()
    };
    let with = |theta: f32, factors: &[f32]| {
        let tensor = numbers(factors);
        after(|keys, tensors| {
            keys.insert("llama.rope.freq_base".into(), Value::F32(theta));
            tensors.push(("rope_freqs.weight".into(), tensor));
        })
    };
    let model = with(500_000.0, &factors(500_000.0)).unwrap();
    assert_eq!(model.shape.rope.scaling, scaling);
    // With a base this small the longest wavelength is still on the ramp, so the factor cannot be told.
    let ramp = factors(1500.0);
    assert!(ramp[7] > 1.0 && ramp[7] < 8.0, "{ramp:?}");
    for (theta, factors) in [(1500.0, &ramp[..]), (1e4, &[2.0; 8]), (1e4, &[1.0; 3])] {
        let message = with(theta, factors).unwrap_err();
        assert!(
            message.contains("rope_freqs.weight is other factors"),
            "{message}"
        );
    }
}

#[test]
fn a_block_scale_that_is_no_number_is_named_by_place() {
    let scratch = scratch();
    let path = gguf(&scratch, &llama(), Format::Q4_1);
    let mut bytes = fs::read(&path).unwrap();
    let tensors = gguf_check::check(&bytes).unwrap();
    let up = tensors
        .iter()
        .find(|tensor| tensor.name == "blk.1.ffn_up.weight")
        .unwrap();
    // Row 3, second block of 32: its minimum becomes infinite, which is what bits 0x7c00 mean.
    let at = up.range.start + (3 * 2 + 1) * 20 + 2;
    bytes[at..at + 2].copy_from_slice(&0x7c00u16.to_le_bytes());
    fs::write(&path, bytes).unwrap();
    let message = refusal(&path);
    assert!(
        message.contains("layers.1.mlp.up_proj.weight has the value inf in row 3, column 32"),
        "{message}"
    );
}
