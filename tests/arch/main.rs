//! The house keeps its own rules: the same checks as `cargo xtask layers` and `cargo xtask sizes`.

mod keys;
mod pages;

use std::path::Path;

use xtask::finding::{Finding, failures};
use xtask::source::{self, Workspace};
use xtask::{layers, sizes};

fn workspace() -> Workspace {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    source::read(&root).expect("the workspace can be read")
}

fn assert_clean(findings: &[Finding]) {
    let found: Vec<String> = failures(findings).iter().map(ToString::to_string).collect();
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

/// A checker that reads nothing finds nothing: the crates and files of the house must be seen.
#[test]
fn the_whole_house_is_read() {
    let workspace = workspace();
    for folder in [
        "cli",
        "data",
        "gpu-actor",
        "kernels",
        "shared",
        "tests",
        "xtask",
    ] {
        let member = workspace
            .crates
            .iter()
            .find(|member| member.folder == folder);
        let member = member.unwrap_or_else(|| panic!("{folder} is not among the crates"));
        assert!(!member.files.is_empty(), "{folder} has no Rust file");
    }
    assert!(workspace.lines.contains_key("tests/arch/main.rs"));
}

#[test]
fn floors_purity_rings_unsafe_code_and_names_hold() {
    assert_clean(&layers::check(&workspace()));
}

#[test]
fn no_file_outgrows_the_house_style() {
    assert_clean(&sizes::check(&workspace()));
}
