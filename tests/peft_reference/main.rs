//! Every golden reference: `SPOTMUX_REFERENCE` names the set, default `../shared/reference` beside the repository.
//!
//! The set is walked as it is: other models, methods and numbers in the same layout run unchanged.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};

use system_tests::reference::comparison::{self, Findings, Tolerances};
use system_tests::reference::contestant::Contestant;
use system_tests::reference::judge::Judge;
use system_tests::reference::set::ReferenceSet;

/// The folder of the set; none, said aloud, when the default one is absent.
///
/// # Panics
/// When the environment names a folder that is not there.
fn root() -> Option<PathBuf> {
    #[expect(clippy::disallowed_methods, reason = "a test suite is a shell")]
    let named = std::env::var_os("SPOTMUX_REFERENCE");
    if let Some(named) = named {
        let path = PathBuf::from(named);
        assert!(
            path.is_dir(),
            "SPOTMUX_REFERENCE = {}: no such folder",
            path.display()
        );
        return Some(path);
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/reference");
    if path.is_dir() {
        return Some(path);
    }
    println!(
        "SKIPPED: no references at {}: set SPOTMUX_REFERENCE",
        path.display()
    );
    None
}

fn hold<C: Contestant>(tolerances: &Tolerances) {
    let Some(root) = root() else { return };
    let set = ReferenceSet::open(&root).unwrap();
    let Findings { failures, table } = comparison::compare::<C>(&set, tolerances);
    println!("{}", table.join("\n"));
    assert!(
        failures.is_empty(),
        "{} failures:\n{}",
        failures.len(),
        failures.join("\n")
    );
    assert_eq!(table.len(), set.models.len() + set.cases.len());
}

#[test]
fn the_judge_agrees_with_every_case() {
    hold::<Judge>(&comparison::F64);
}
