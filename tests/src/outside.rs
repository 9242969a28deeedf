//! What suites read from outside the repository: golden references and the real small model.
//!
//! `SPOTMUX_REFERENCE` names the references (default: `../shared/reference` beside the repository), `SPOTMUX_SMOLLM2`
//! the model's GGUF file (default: where `spotmux model pull` puts it). What is absent is said aloud; what the
//! environment names must be there.

use std::fs;
use std::path::{Path, PathBuf};

use crate::skipped;

#[expect(clippy::disallowed_methods, reason = "a test suite is a shell")]
fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from)
}

/// The folder of golden references.
///
/// # Panics
/// When the environment names a folder that is not there.
#[must_use]
pub fn reference() -> Option<PathBuf> {
    if let Some(path) = variable("SPOTMUX_REFERENCE") {
        let shown = path.display();
        assert!(path.is_dir(), "SPOTMUX_REFERENCE = {shown}: no such folder");
        return Some(path);
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/reference");
    if path.is_dir() {
        return Some(path);
    }
    skipped::aloud(&format!(
        "no reference set at {}: set SPOTMUX_REFERENCE",
        path.display()
    ));
    None
}

/// The GGUF file of SmolLM2-135M-Instruct.
///
/// # Panics
/// When the environment names a file that is not there.
#[must_use]
pub fn smollm2() -> Option<PathBuf> {
    if let Some(path) = variable("SPOTMUX_SMOLLM2") {
        let shown = path.display();
        assert!(path.is_file(), "SPOTMUX_SMOLLM2 = {shown}: no such file");
        return Some(path);
    }
    let found = pulled();
    if found.is_none() {
        skipped::aloud(
            "no SmolLM2: `spotmux model pull smollm2-135m-instruct`, or set SPOTMUX_SMOLLM2",
        );
    }
    found
}

fn pulled() -> Option<PathBuf> {
    let home = || variable("HOME").map(|home| home.join(".cache"));
    let cache = variable("SPOTMUX_CACHE").or_else(|| variable("XDG_CACHE_HOME"));
    let folder = cache
        .or_else(home)?
        .join("spotmux/models/smollm2-135m-instruct");
    let mut files = fs::read_dir(folder).ok()?.flatten().map(|e| e.path());
    files.find(|path| path.extension().is_some_and(|kind| kind == "gguf"))
}
