//! Every golden reference: `SPOTMUX_REFERENCE` names the set, default `../shared/reference` beside the repository.
//!
//! The set is walked as it is: other models, methods and numbers in the same layout run unchanged.

#![allow(clippy::unwrap_used, reason = "tests")]

mod rewrite;
mod smollm2;

use std::path::PathBuf;

use system_tests::engine::contestant::{Engine, SplitEngine};
use system_tests::outside;
use system_tests::reference::case::Case;
use system_tests::reference::comparison::{self, Findings, Tolerances};
use system_tests::reference::contestant::{Contestant, Outcome};
use system_tests::reference::judge::Judge;
use system_tests::reference::set::ReferenceSet;

/// The folder of the set.
fn root() -> Option<PathBuf> {
    outside::reference()
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

#[test]
fn the_engine_agrees_with_every_case() {
    hold::<Engine>(&comparison::F32);
}

/// Split products are as exact as single precision: they keep its tolerances.
#[test]
fn the_engine_agrees_with_every_case_from_split_products() {
    hold::<SplitEngine>(&comparison::F32);
}

/// All cases of a model in the same passes: the same bits as each alone, so the same agreement.
#[test]
fn cases_that_train_together_come_out_as_alone() {
    let Some(root) = root() else { return };
    let set = ReferenceSet::open(&root).unwrap();
    for (name, reference) in &set.models {
        // Unreadable cases are the failures of the comparison above.
        let cases = set.cases_of(name, &mut Vec::new());
        let cases: Vec<&Case> = cases.iter().collect();
        let mut engine = Engine::open(&reference.folder).unwrap();
        let together = engine.train(&cases, &set.rows).unwrap();
        engine.tokens_per_pass = 1000;
        for (case, together) in cases.iter().zip(together) {
            let alone = engine.train(&[case], &set.rows).unwrap().remove(0);
            assert_same_bits(&case.name, &alone, &together);
        }
    }
}

fn assert_same_bits(name: &str, alone: &Outcome, together: &Outcome) {
    assert_eq!(alone.losses, together.losses, "{name}: losses");
    assert_eq!(alone.norms, together.norms, "{name}: norms");
    assert!(alone == together, "{name}: gradients or parameters differ");
}
