//! Tiny models of five layers: enough for stages of one, two and three.

use std::path::PathBuf;
use std::sync::Arc;

use gpu_actor::model::tiny::{TinySpec, write_tiny};
use gpu_actor::model::{Model, OpenOptions};
use kernels::cpu::Cpu;
use shared::model::Family;

/// Layers of the models here.
pub(crate) const LAYERS: usize = 5;

/// The files of such a model.
pub(crate) fn folder(family: Family, tied: bool) -> (tempfile::TempDir, PathBuf) {
    of_layers(family, tied, LAYERS)
}

fn of_layers(family: Family, tied: bool, layers: usize) -> (tempfile::TempDir, PathBuf) {
    let spec = TinySpec {
        hidden: 32,
        layers,
        heads: 4,
        kv_heads: 2,
        head_dim: 8,
        intermediate: 64,
        sliding_window: (family == Family::Mistral).then_some(40),
        tied,
        ..TinySpec::smallest(family)
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model");
    write_tiny(&path, &spec).unwrap();
    (folder, path)
}

/// A model of a family with the embedding for a head, or a head of its own.
pub(crate) fn model(family: Family, tied: bool) -> Arc<Model> {
    opened(folder(family, tied))
}

/// A model of so many layers.
pub(crate) fn deep(layers: usize) -> Arc<Model> {
    opened(of_layers(Family::Llama, true, layers))
}

fn opened((_folder, path): (tempfile::TempDir, PathBuf)) -> Arc<Model> {
    // The file may go: what is mapped stays.
    let options = OpenOptions::new(Cpu::new(1).unwrap());
    Arc::new(Model::open(&path, &options).unwrap())
}
