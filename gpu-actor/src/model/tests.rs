//! Whole models through [`Model::open`]; the parts have their own tests beside them.
#![allow(clippy::unwrap_used, reason = "tests")]

mod containers;
mod folders;
mod gguf_contents;
mod gguf_headers;
mod real;
mod safetensors_headers;
mod surroundings;

use std::fs;
use std::path::{Path, PathBuf};

use kernels::cpu::Cpu;
use kernels::weight::Format;
use shared::model::Family;
use tempfile::TempDir;

use super::tiny::{TinySpec, write_tiny, write_tiny_gguf};
use super::{Model, ModelError, OpenOptions};

fn options() -> OpenOptions {
    OpenOptions::new(Cpu::new(1).unwrap())
}

fn open(path: &Path) -> Result<Model, ModelError> {
    Model::open(path, &options())
}

/// The message of the error that opening ends in.
fn refusal(path: &Path) -> String {
    match open(path) {
        Ok(_) => panic!("{} was opened", path.display()),
        Err(error) => error.to_string(),
    }
}

fn scratch() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// A tiny model folder of a specification.
fn folder(scratch: &TempDir, spec: &TinySpec) -> PathBuf {
    let path = scratch.path().join("model");
    write_tiny(&path, spec).unwrap();
    path
}

/// A tiny GGUF file of a specification.
fn gguf(scratch: &TempDir, spec: &TinySpec, format: Format) -> PathBuf {
    let path = scratch.path().join("model.gguf");
    write_tiny_gguf(&path, spec, format).unwrap();
    path
}

fn llama() -> TinySpec {
    TinySpec::smallest(Family::Llama)
}

/// Changes one key of a folder's `config.json`.
fn edit_config(folder: &Path, edit: impl FnOnce(&mut serde_json::Value)) {
    let path = folder.join("config.json");
    let mut config = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    edit(&mut config);
    fs::write(path, config.to_string()).unwrap();
}
