//! Tiny models, each written and opened once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use gpu_actor::model::tiny::{TinySpec, write_tiny, write_tiny_gguf};
use gpu_actor::model::{Model, OpenOptions};
use kernels::cpu::Cpu;
use kernels::weight::Format;
use shared::model::Family;

/// The model of a family with its weights stored in a format.
pub(crate) fn model(family: Family, format: Format) -> Arc<Model> {
    static OPENED: Mutex<BTreeMap<String, Arc<Model>>> = Mutex::new(BTreeMap::new());
    let mut opened = OPENED.lock().unwrap();
    let key = format!("{} {format:?}", family.name());
    Arc::clone(opened.entry(key).or_insert_with(|| open(family, format)))
}

/// The plainest one.
pub(crate) fn llama() -> Arc<Model> {
    model(Family::Llama, Format::F32)
}

fn open(family: Family, format: Format) -> Arc<Model> {
    let spec = TinySpec {
        hidden: 32,
        heads: 4,
        kv_heads: 2,
        head_dim: 8,
        intermediate: 64,
        // Shorter than the longest rows, so that windows matter.
        sliding_window: (family == Family::Mistral).then_some(40),
        bias: format == Format::Q8_0,
        tied: family != Family::Qwen2,
        ..TinySpec::smallest(family)
    };
    let folder = tempfile::tempdir().unwrap();
    let path = match format {
        Format::F32 | Format::Bf16 | Format::F16 => {
            let path = folder.path().join("model");
            write_tiny(&path, &TinySpec { format, ..spec }).unwrap();
            path
        }
        Format::Q4_0 | Format::Q4_1 | Format::Q8_0 => {
            let path = folder.path().join("model.gguf");
            write_tiny_gguf(&path, &spec, format).unwrap();
            path
        }
    };
    // The file may go: what is mapped stays.
    let options = OpenOptions::new(Cpu::new(1).unwrap());
    Arc::new(Model::open(&path, &options).unwrap())
}
