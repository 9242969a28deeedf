//! A tiny model as a GGUF file, written and quantised by candle.

use std::fs::Permissions;
use std::io::{BufWriter, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use data::tokenizer::Tokenizer;
use kernels::weight::Format;
use shared::model::{Family, ModelShape, Projection, RopeScaling};

use super::folder::{CHAT_TEMPLATE, failed, holder, unfinished};
use super::weights::{self, TinyTensor};
use super::{BOS, EOS, TinyError, TinySpec, VOCAB};
use crate::model::names;

/// Writes the file beside its place, then moves it there.
pub(super) fn write(
    file: &Path,
    spec: &TinySpec,
    shape: &ModelShape,
    format: Format,
) -> Result<(), TinyError> {
    if file.exists() {
        return Err(TinyError::Exists {
            path: file.to_owned(),
        });
    }
    let tensors = tensors(spec, shape, format)?;
    let tensors: Vec<_> = tensors
        .iter()
        .map(|(name, tensor)| (name.as_str(), tensor))
        .collect();
    let metadata = metadata(shape)?;
    let metadata: Vec<_> = metadata
        .iter()
        .map(|(key, value)| (key.as_str(), value))
        .collect();
    let io = |source| failed(file, source);
    let beside = unfinished()
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(holder(file))
        // Its kind alone: the words name a place that nobody asked for.
        .map_err(|error| io(error.kind().into()))?;
    let mut out = BufWriter::new(beside.as_file());
    gguf_file::write(&mut out, &metadata, &tensors).map_err(|error| encode(&error))?;
    out.flush().map_err(io)?;
    drop(out);
    beside
        .persist_noclobber(file)
        .map_err(|refused| failed(file, refused.error))?;
    Ok(())
}

fn tensors(
    spec: &TinySpec,
    shape: &ModelShape,
    format: Format,
) -> Result<Vec<(String, QTensor)>, TinyError> {
    weights::make(shape, spec.seed)
        .into_iter()
        .map(|mut tensor| {
            interleave(&mut tensor, shape);
            let kind = match tensor.shape[..] {
                [_] => GgmlDType::F32,
                _ if tensor.name == names::EMBEDDING || tensor.name == names::HEAD => {
                    table_type(format)
                }
                _ => ggml_type(format),
            };
            let name = gguf_name(&tensor.name, shape.layers);
            Ok((name, quantise(tensor, kind)?))
        })
        .collect()
}

fn quantise(tensor: TinyTensor, kind: GgmlDType) -> Result<QTensor, TinyError> {
    let row = tensor.shape.last().copied().unwrap_or(1);
    if !row.is_multiple_of(kind.block_size()) {
        return Err(TinyError::Unsupported {
            what: "a width",
            found: format!("{row} ({})", tensor.name),
            expected: format!("a multiple of {}, the values of a block", kind.block_size()),
        });
    }
    Tensor::from_vec(tensor.values, tensor.shape, &Device::Cpu)
        .and_then(|values| QTensor::quantize(&values, kind))
        .map_err(|error| encode(&error))
}

fn ggml_type(format: Format) -> GgmlDType {
    match format {
        Format::F32 => GgmlDType::F32,
        Format::Bf16 => GgmlDType::BF16,
        Format::F16 => GgmlDType::F16,
        Format::Q4_0 => GgmlDType::Q4_0,
        Format::Q4_1 => GgmlDType::Q4_1,
        Format::Q8_0 => GgmlDType::Q8_0,
    }
}

fn table_type(format: Format) -> GgmlDType {
    match format {
        Format::Q4_0 | Format::Q4_1 => GgmlDType::Q8_0,
        other => ggml_type(other),
    }
}

/// Interleaves the rows of q and k heads as the converter of the `llama` architecture does.
fn interleave(tensor: &mut TinyTensor, shape: &ModelShape) {
    let rotated = tensor.name.contains("q_proj") || tensor.name.contains("k_proj");
    if !rotated || architecture(shape.family) != "llama" {
        return;
    }
    let width = tensor.values.len() / tensor.shape[0];
    let half = shape.head_dim / 2;
    let mut values = Vec::with_capacity(tensor.values.len());
    for row in 0..tensor.shape[0] {
        let (head, at) = (row / shape.head_dim, row % shape.head_dim);
        let from = head * shape.head_dim + (at % 2) * half + at / 2;
        values.extend_from_slice(&tensor.values[from * width..(from + 1) * width]);
    }
    tensor.values = values;
}

fn architecture(family: Family) -> &'static str {
    match family {
        Family::Llama | Family::Mistral => "llama",
        Family::Qwen2 => "qwen2",
        Family::Qwen3 => "qwen3",
    }
}

/// The GGUF name of a canonical one: the inverse of [`names::from_gguf`].
fn gguf_name(name: &str, layers: usize) -> String {
    let plain = ["token_embd.weight", "output_norm.weight", "output.weight"];
    let leaves = ["attn_norm", "ffn_norm", "attn_q_norm", "attn_k_norm"];
    let in_layers = (0..layers).flat_map(|layer| {
        let leaves = leaves.map(|leaf| format!("blk.{layer}.{leaf}.weight"));
        let linear = Projection::ALL.map(names::gguf_module).map(|leaf| {
            [
                format!("blk.{layer}.{leaf}.weight"),
                format!("blk.{layer}.{leaf}.bias"),
            ]
        });
        leaves.into_iter().chain(linear.into_iter().flatten())
    });
    plain
        .map(str::to_owned)
        .into_iter()
        .chain(in_layers)
        .find(|gguf| names::from_gguf(gguf).as_deref() == Some(name))
        .expect("every canonical name has a GGUF name")
}

fn metadata(shape: &ModelShape) -> Result<Vec<(String, Value)>, TinyError> {
    let architecture = architecture(shape.family);
    let text = |text: &str| Value::String(text.to_owned());
    let own = |leaf: &str| format!("{architecture}.{leaf}");
    let size = |leaf: &str, size: usize| (own(leaf), Value::U32(size as u32));
    let mut list = vec![
        ("general.architecture".to_owned(), text(architecture)),
        ("general.name".to_owned(), text("spotmux tiny")),
        size("block_count", shape.layers),
        size("context_length", shape.max_positions),
        size("embedding_length", shape.hidden),
        size("feed_forward_length", shape.intermediate),
        size("attention.head_count", shape.heads),
        size("attention.head_count_kv", shape.kv_heads),
        size("attention.key_length", shape.head_dim),
        size("attention.value_length", shape.head_dim),
        size("rope.dimension_count", shape.head_dim),
        size("vocab_size", shape.vocab),
        (own("rope.freq_base"), Value::F32(shape.rope.theta as f32)),
        (
            own("attention.layer_norm_rms_epsilon"),
            Value::F32(shape.norm_eps as f32),
        ),
    ];
    if let Some(window) = shape.sliding_window {
        list.push(size("attention.sliding_window", window));
    }
    match shape.rope.scaling {
        RopeScaling::Default => {}
        RopeScaling::Linear { factor } => {
            list.push((own("rope.scaling.type"), text("linear")));
            list.push((own("rope.scaling.factor"), Value::F32(factor as f32)));
        }
        RopeScaling::Llama3 { .. } => {
            return Err(TinyError::Unsupported {
                what: "rope_scaling",
                found: "llama3".into(),
                expected: "none or linear in a GGUF file".into(),
            });
        }
    }
    list.extend(tokenizer());
    Ok(list)
}

fn tokenizer() -> Vec<(String, Value)> {
    const NORMAL: i32 = 1;
    const CONTROL: i32 = 3;
    let bytes = Tokenizer::bytes();
    let tokens = (0..VOCAB as u32)
        .map(|id| Value::String(bytes.id_to_token(id).expect("every id has a token")))
        .collect();
    let kinds = (0..VOCAB)
        .map(|id| Value::I32(if id < 256 { NORMAL } else { CONTROL }))
        .collect();
    let ggml = |leaf: &str, value| (format!("tokenizer.ggml.{leaf}"), value);
    vec![
        ggml("model", Value::String("gpt2".into())),
        ggml("pre", Value::String("smollm".into())),
        ggml("tokens", Value::Array(tokens)),
        ggml("token_type", Value::Array(kinds)),
        ggml("merges", Value::Array(Vec::new())),
        ggml("bos_token_id", Value::U32(BOS)),
        ggml("eos_token_id", Value::U32(EOS)),
        ggml("add_bos_token", Value::Bool(false)),
        (
            "tokenizer.chat_template".to_owned(),
            Value::String(CHAT_TEMPLATE.into()),
        ),
    ]
}

fn encode(error: &candle_core::Error) -> TinyError {
    TinyError::Encode {
        reason: error.to_string(),
    }
}
