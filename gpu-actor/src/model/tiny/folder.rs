//! A tiny model as a folder in the Hugging Face layout.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use data::tokenizer::{byte_tokenizer_config, byte_tokenizer_json};
use half::{bf16, f16};
use kernels::weight::Format;
use safetensors::tensor::{Dtype, View};
use serde_json::{Value, json};
use shared::model::{ModelShape, config};

use super::weights::{self, TinyTensor};
use super::{TinyError, TinySpec};

/// ChatML, as SmolLM2 and Qwen write it, without a default system line.
pub(super) const CHAT_TEMPLATE: &str = "{% for message in messages %}\
    {{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}\
    {% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/// Writes the folder beside its place, then moves it there.
pub(super) fn write(folder: &Path, spec: &TinySpec, shape: &ModelShape) -> Result<(), TinyError> {
    if !is_free(folder) {
        return Err(TinyError::Exists {
            path: folder.to_owned(),
        });
    }
    let io = |source| failed(folder, source);
    fs::create_dir_all(holder(folder)).map_err(io)?;
    let beside = unfinished()
        .permissions(Permissions::from_mode(0o777))
        .tempdir_in(holder(folder))
        // Its kind alone: the words name a place that nobody asked for.
        .map_err(|error| io(error.kind().into()))?;
    fill(beside.path(), spec, shape)?;
    fs::rename(beside.path(), folder).map_err(io)?;
    // It is no longer there to be removed.
    let _ = beside.keep();
    Ok(())
}

/// The folder that holds a path.
pub(super) fn holder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Makes what is not finished: under a name that nobody has and nobody takes for a model, and gone after an error.
pub(super) fn unfinished() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".spotmux-tiny.").suffix(".partial");
    builder
}

/// Names the place of a failure.
pub(super) fn failed(path: &Path, source: io::Error) -> TinyError {
    TinyError::Io {
        path: path.to_owned(),
        source,
    }
}

fn is_free(folder: &Path) -> bool {
    match fs::read_dir(folder) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

fn fill(folder: &Path, spec: &TinySpec, shape: &ModelShape) -> Result<(), TinyError> {
    let dtype = match spec.format {
        Format::F32 => "float32",
        Format::Bf16 => "bfloat16",
        Format::F16 => "float16",
        other => {
            return Err(TinyError::Unsupported {
                what: "format",
                found: other.to_string(),
                expected: "F32, BF16 or F16 (blocks need a GGUF file)".into(),
            });
        }
    };
    fs::create_dir_all(folder).map_err(|source| failed(folder, source))?;
    let text = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).map_err(|source| failed(&path, source))
    };
    text("tokenizer.json", &byte_tokenizer_json())?;
    text("tokenizer_config.json", &tokenizer_config()?)?;
    write_shards(folder, spec, weights::make(shape, spec.seed))?;
    text("config.json", &config::write(shape, dtype))
}

fn tokenizer_config() -> Result<String, TinyError> {
    let mut config: Value =
        serde_json::from_str(&byte_tokenizer_config()).map_err(|error| encode(&error))?;
    config["chat_template"] = CHAT_TEMPLATE.into();
    Ok(format!("{config:#}\n"))
}

fn write_shards(folder: &Path, spec: &TinySpec, tensors: Vec<TinyTensor>) -> Result<(), TinyError> {
    let stored: Vec<Stored> = tensors
        .into_iter()
        .map(|tensor| Stored::new(tensor, spec.format))
        .collect();
    if spec.shards == 1 {
        return write_file(&folder.join("model.safetensors"), &stored);
    }
    let mut weight_map = BTreeMap::new();
    let total: usize = stored.iter().map(|tensor| tensor.bytes.len()).sum();
    let per_shard = stored.len().div_ceil(spec.shards);
    let parts: Vec<&[Stored]> = stored.chunks(per_shard).collect();
    for (index, part) in parts.iter().enumerate() {
        let name = format!("model-{:05}-of-{:05}.safetensors", index + 1, parts.len());
        write_file(&folder.join(&name), part)?;
        for tensor in *part {
            weight_map.insert(tensor.name.clone(), name.clone());
        }
    }
    let index = json!({"metadata": {"total_size": total}, "weight_map": weight_map});
    let path = folder.join("model.safetensors.index.json");
    fs::write(&path, format!("{index:#}\n")).map_err(|source| failed(&path, source))
}

fn write_file(path: &Path, tensors: &[Stored]) -> Result<(), TinyError> {
    let metadata = [("format".to_owned(), "pt".to_owned())].into();
    let views = tensors.iter().map(|tensor| (tensor.name.as_str(), tensor));
    let bytes = safetensors::serialize(views, Some(metadata)).map_err(|error| encode(&error))?;
    fs::write(path, bytes).map_err(|source| failed(path, source))
}

fn encode(error: &dyn std::error::Error) -> TinyError {
    TinyError::Encode {
        reason: error.to_string(),
    }
}

/// A tensor in the bytes of its file.
struct Stored {
    name: String,
    shape: Vec<usize>,
    dtype: Dtype,
    bytes: Vec<u8>,
}

impl Stored {
    fn new(tensor: TinyTensor, format: Format) -> Self {
        let narrow = |narrow: fn(f32) -> [u8; 2]| {
            tensor
                .values
                .iter()
                .flat_map(|&value| narrow(value))
                .collect()
        };
        let (dtype, bytes) = match format {
            Format::Bf16 => (
                Dtype::BF16,
                narrow(|value| bf16::from_f32(value).to_le_bytes()),
            ),
            Format::F16 => (
                Dtype::F16,
                narrow(|value| f16::from_f32(value).to_le_bytes()),
            ),
            _ => (Dtype::F32, bytemuck::cast_slice(&tensor.values).to_vec()),
        };
        Self {
            name: tensor.name,
            shape: tensor.shape,
            dtype,
            bytes,
        }
    }
}

impl View for &Stored {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        self.bytes.as_slice().into()
    }

    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}
