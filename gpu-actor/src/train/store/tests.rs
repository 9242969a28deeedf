//! Checkpoints that were torn, changed, renamed or written by another release.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};

use safetensors::tensor::TensorView;
use safetensors::{Dtype, serialize};

use super::*;
use crate::stage::optim::OptimizerState;
use crate::train::progress::Progress;

fn identity() -> Identity {
    let spec = r#"{"name": "a", "adapter": {"method": "bitfit"}, "data": {"train": "a.jsonl"}}"#;
    Identity {
        spec: serde_json::from_str(spec).unwrap(),
        backbone: "b".into(),
        data: "d".into(),
        start: None,
        products: shared::job::Products::F32,
    }
}

fn state(step: u64) -> JobState {
    JobState {
        values: vec![1.0, 2.0],
        optimizer: OptimizerState {
            first: vec![0.5; 2],
            second: vec![0.25; 2],
            step,
        },
        progress: Progress {
            step,
            last_loss: Some(0.1 + step as f64),
            ..Progress::default()
        },
    }
}

fn saved(steps: &[u64]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for &step in steps {
        save(folder.path(), &identity(), &state(step)).unwrap();
    }
    folder
}

fn manifest(folder: &Path, step: u64) -> PathBuf {
    folder.join(name(step)).join(MANIFEST)
}

fn change(path: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.contains(from), "{text}");
    fs::write(path, text.replace(from, to)).unwrap();
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn any_change_of_a_manifest_is_seen_and_told() {
    let changes = [
        ("\"step\": 15", "\"step\": 18"),
        ("\"optimizer_steps\": 15", "\"optimizer_steps\": 16"),
        ("\"evals_without_gain\": 0", "\"evals_without_gain\": 1"),
        ("\"backbone\": \"b\"", "\"backbone\": \"c\""),
        ("\"version\": 3", "\"version\": 3, \"note\": 1"),
        ("\"version\": 3", "\"version\":  3"),
    ];
    for (from, to) in changes {
        let folder = saved(&[15]);
        change(&manifest(folder.path(), 15), from, to);
        let found = newest(folder.path(), &identity()).unwrap();
        assert!(found.state.is_none(), "{to}");
        // Nothing is sound, and yet what was skipped is told.
        assert_eq!(found.skipped.len(), 1, "{to}");
    }
}

#[test]
fn the_newest_sound_one_is_used_and_has_its_numbers() {
    let folder = saved(&[5, 10]);
    fs::write(folder.path().join(name(10)).join(STATE), b"torn").unwrap();
    let found = newest(folder.path(), &identity()).unwrap();
    assert_eq!(found.state, Some(state(5)));
    assert!(found.skipped[0].1.contains("4 bytes"), "{found:?}");
    // The step is reached again and saved over what could not be read.
    save(folder.path(), &identity(), &state(10)).unwrap();
    let found = newest(folder.path(), &identity()).unwrap();
    assert_eq!((found.state, found.skipped.len()), (Some(state(10)), 0));
}

#[test]
fn another_version_is_an_error_and_never_removed() {
    let folder = saved(&[5, 10]);
    change(
        &manifest(folder.path(), 10),
        "\"version\": 3",
        "\"version\": 4, \"new\": 1",
    );
    for error in [
        newest(folder.path(), &identity()).unwrap_err(),
        save(folder.path(), &identity(), &state(10)).unwrap_err(),
    ] {
        let message = error.to_string();
        for words in ["version 4", "version 3", "another output folder"] {
            assert!(message.contains(words), "{message}");
        }
    }
    for step in [15, 20, 25] {
        save(folder.path(), &identity(), &state(step)).unwrap();
    }
    let kept = ["step-00000010", "step-00000020", "step-00000025"];
    assert_eq!(names(folder.path()), kept);
}

#[test]
fn what_is_no_checkpoint_takes_no_place_of_one() {
    let folder = saved(&[5]);
    let junk = folder.path().join("step-99999999");
    fs::create_dir(&junk).unwrap();
    for file in [MANIFEST, STATE] {
        fs::copy(folder.path().join(name(5)).join(file), junk.join(file)).unwrap();
    }
    fs::create_dir(folder.path().join("step-7")).unwrap();
    for step in [10, 15] {
        save(folder.path(), &identity(), &state(step)).unwrap();
    }
    let kept = ["step-00000010", "step-00000015", "step-7", "step-99999999"];
    assert_eq!(names(folder.path()), kept);
    let found = newest(folder.path(), &identity()).unwrap();
    assert_eq!(found.state, Some(state(15)));
    assert!(found.skipped[0].1.contains("of step 5"), "{found:?}");
}

fn keeping(keep_last: usize) -> Identity {
    let mut identity = identity();
    identity.spec.checkpoint.keep_last = keep_last;
    identity
}

/// A state that cannot be read is none to go on from: a sound one stays for it.
#[test]
fn a_damaged_state_takes_no_place_of_a_sound_one() {
    for keep_last in [1, 2] {
        let folder = tempfile::tempdir().unwrap();
        let identity = keeping(keep_last);
        for step in [50, 100] {
            save(folder.path(), &identity, &state(step)).unwrap();
        }
        let torn = folder.path().join(name(100)).join(STATE);
        let mut bytes = fs::read(&torn).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&torn, bytes).unwrap();
        save(folder.path(), &identity, &state(150)).unwrap();
        let names_of = |steps: &[u64]| -> Vec<String> { steps.iter().copied().map(name).collect() };
        assert_eq!(names(folder.path()), names_of(&[50, 100, 150]));
        let found = newest_proven(folder.path(), Proof::of_set_aside(150, false)).unwrap();
        assert_eq!(found.map(|(step, _)| step), Some(50));
        // Once the newest is proven, as many sound ones stay as are asked for.
        prune(folder.path(), 151, keep_last).unwrap();
        let kept: &[u64] = match keep_last {
            1 => &[150],
            _ => &[50, 100, 150],
        };
        assert_eq!(names(folder.path()), names_of(kept));
    }
}

#[test]
fn the_newest_proven_one_stays_while_a_newer_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let save = |step| save(folder.path(), &keeping(1), &state(step)).unwrap();
    save(5);
    save(10);
    assert_eq!(names(folder.path()), ["step-00000005", "step-00000010"]);
    // The step after it was taken: no other is needed.
    prune(folder.path(), 11, 1).unwrap();
    assert_eq!(names(folder.path()), ["step-00000010"]);
    save(15);
    let good = |proven| {
        let proof = Proof::of_set_aside(15, proven);
        let found = newest_proven(folder.path(), proof).unwrap();
        found.map(|(step, _)| step)
    };
    assert_eq!((good(false), good(true)), (Some(10), Some(15)));
    fs::write(folder.path().join(name(10)).join(STATE), b"torn").unwrap();
    assert_eq!(good(false), None);
}

#[test]
fn what_broke_is_passed_over_unless_it_is_named_itself() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = folder.path().join(FOLDER);
    for step in [5, 10] {
        save(&checkpoints, &identity(), &state(step)).unwrap();
    }
    let opened = |folder: &Path, proof| {
        let saved = open(folder, proof).unwrap()?;
        Some((saved.state.progress.step, saved.skipped.len()))
    };
    let broke = |step| Some(Proof::of_set_aside(step, false));
    assert_eq!(opened(folder.path(), None), Some((10, 0)));
    assert_eq!(opened(folder.path(), broke(10)), Some((5, 1)));
    assert_eq!(opened(folder.path(), broke(5)), None);
    assert_eq!(
        opened(&checkpoints.join(name(10)), broke(10)),
        Some((10, 0))
    );
}

/// A state that another program wrote, with a manifest that fits it.
fn foreign(tensors: &[(&str, Dtype, Vec<usize>)]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let zeros = [0_u8; 64];
    let views = tensors.iter().map(|(name, dtype, shape)| {
        let bytes = shape.iter().product::<usize>() * 4;
        let view = TensorView::new(*dtype, shape.clone(), &zeros[..bytes]);
        (*name, view.unwrap())
    });
    let bytes = serialize(views, None).unwrap();
    let text = Manifest::of(&identity(), &state(1), &bytes).text();
    let target = folder.path().join(name(1));
    durable::write_folder(&target, &[(STATE, bytes), (MANIFEST, text)]).unwrap();
    let found = newest(folder.path(), &identity()).unwrap();
    assert!(found.state.is_none(), "{tensors:?}");
    found.skipped[0].1.clone()
}

#[test]
fn tensors_of_another_kind_or_length_are_refused() {
    let list = |name, length| (name, Dtype::F32, vec![length]);
    let first = list("first_moment", 2);
    let cases = [
        (vec![("values", Dtype::I32, vec![2]), first.clone()], "I32"),
        (
            vec![("values", Dtype::F32, vec![1, 2]), first.clone()],
            "[1, 2]",
        ),
        (vec![list("values", 3), first.clone()], "3 values"),
        (vec![list("values", 2), first, list("more", 1)], "\"more\""),
    ];
    for (mut tensors, words) in cases {
        tensors.push(list("second_moment", 2));
        let reason = foreign(&tensors);
        assert!(reason.contains(words), "{reason}");
    }
}
