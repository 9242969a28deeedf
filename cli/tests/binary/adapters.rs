//! What lies beside an adapter is held against it by whoever reads it, and its base model against the one it is given.

use std::fs;

use crate::sandbox::{Ran, Sandbox, one_job};

const JOB: &str = "adapter = { method = 'lora', rank = 2 }\ntrain = { steps = 4, batch_size = 1 }\n\
                   checkpoint = { every_steps = 2, keep_last = 9 }";
const WEIGHTS: &str = "adapters/one/adapter/adapter_model.safetensors";
const RECORD: &str = "adapters/one/adapter/spotmux.json";

/// A trained job, and a model of the same sizes with other weights.
fn trained() -> Sandbox {
    let sandbox = Sandbox::with_jobs(&one_job(JOB));
    let other = "model tiny other --layers 2 --hidden 64 --seed 7";
    run(&sandbox, other).ended_with(0);
    run(&sandbox, "train jobs.toml").ended_with(0);
    sandbox
}

fn run(sandbox: &Sandbox, words: &str) -> Ran {
    let words: Vec<&str> = words.split_whitespace().collect();
    sandbox.run(&words)
}

/// Every command that reads the adapter of the job, the last with a file of jobs that starts from it.
const READERS: [&str; 5] = [
    "generate --model tiny --adapter adapters/one --max-tokens 1 a",
    "adapter merge adapters/one --model tiny --output read",
    "adapter import adapters/one --model tiny --output read",
    "adapter inspect adapters/one",
    "train next.toml --output read",
];

fn next(sandbox: &Sandbox, from: &str) {
    let rest = format!("{JOB}\ninit_from = '{from}'");
    sandbox.write("next.toml", one_job(&rest));
}

/// One bit of a value is a value still: the hash beside it tells, in each command, and what is left to go on from.
#[test]
fn an_adapter_that_was_changed_is_refused_by_all_who_read_it() {
    let sandbox = trained();
    next(&sandbox, "adapters/one/adapter");
    let whole = fs::read(sandbox.path(WEIGHTS)).unwrap();
    let mut changed = whole.clone();
    *changed.last_mut().unwrap() ^= 1;
    let record = sandbox.read(RECORD);
    let torn = &record[..record.len() / 2];
    for (weights, text, file) in [
        (
            &changed,
            record.as_str(),
            "adapter_model.safetensors is not as it was written",
        ),
        (&whole, torn, "spotmux.json: "),
    ] {
        sandbox.write(WEIGHTS, weights);
        sandbox.write(RECORD, text);
        for reader in READERS {
            let ran = run(&sandbox, reader).ended_with(3);
            let ran = ran.said(&["adapters/one/adapter is damaged", file]);
            if !reader.starts_with("train") {
                let beside = "adapter export adapters/one/checkpoints/step-00000004 ";
                ran.said(&[beside, "remove the spotmux.json"]);
            }
            assert!(!sandbox.path("read").exists(), "{reader}");
        }
    }
    sandbox.write(WEIGHTS, &changed);
    fs::remove_file(sandbox.path(RECORD)).unwrap();
    for reader in READERS {
        run(&sandbox, reader).ended_with(0);
        let _ = fs::remove_dir_all(sandbox.path("read"));
    }
}

/// A record that a crash tore is no other job's: the job's own checkpoints tell whose the adapter is.
#[test]
fn a_torn_record_costs_no_job_its_adapter() {
    let sandbox = trained();
    let (record, whole) = (
        sandbox.read(RECORD),
        fs::read(sandbox.path(WEIGHTS)).unwrap(),
    );
    sandbox.write(RECORD, &record[..record.len() / 2]);
    run(&sandbox, "train jobs.toml").ended_with(0).said(&[
        "is damaged (spotmux.json: ",
        "written anew from the newest checkpoint",
    ]);
    assert_eq!(sandbox.read(RECORD), record);
    assert!(fs::read(sandbox.path(WEIGHTS)).unwrap() == whole);
    sandbox.write(RECORD, "{");
    fs::remove_dir_all(sandbox.path("adapters/one/checkpoints")).unwrap();
    run(&sandbox, "train jobs.toml")
        .ended_with(3)
        .said(&["spotmux.json", "no checkpoint is left"]);
}

#[test]
fn a_damaged_checkpoint_says_which_other_to_take() {
    let sandbox = trained();
    let step = "adapters/one/checkpoints/step-00000004";
    for file in ["manifest.json", "state.safetensors"] {
        let name = format!("{step}/{file}");
        let whole = fs::read(sandbox.path(&name)).unwrap();
        sandbox.write(&name, &whole[..whole.len() / 2]);
        let export = format!("adapter export {step} --model tiny --output none");
        run(&sandbox, &export).ended_with(3).said(&[
            "step-00000004 is a damaged checkpoint",
            file,
            "take adapters/one/checkpoints/step-00000002",
        ]);
        sandbox.write(&name, whole);
    }
}

/// Shapes that fit say nothing of weights.
#[test]
fn a_checkpoint_is_made_an_adapter_of_its_own_backbone_unless_another_is_asked_for() {
    let sandbox = trained();
    let export = "adapter export adapters/one --output made --model";
    run(&sandbox, &format!("{export} other"))
        .ended_with(3)
        .said(&["trained on another backbone than other", "--other-base"]);
    assert!(!sandbox.path("made").exists());
    run(&sandbox, &format!("{export} other --other-base"))
        .ended_with(0)
        .said(&["trained on another backbone"]);
    fs::remove_dir_all(sandbox.path("made")).unwrap();
    let own = run(&sandbox, &format!("{export} tiny")).ended_with(0);
    assert!(!own.err.contains("another backbone"), "{}", own.err);
}

/// What was taken in for another base says so no more: it is taken in only when asked, and then is one of that base.
#[test]
fn an_adapter_of_another_base_is_taken_in_only_when_asked() {
    let sandbox = trained();
    let import = "adapter import adapters/one --output taken --model";
    run(&sandbox, &format!("{import} other"))
        .ended_with(3)
        .said(&["the adapter was made for", "--other-base to take it in"]);
    assert!(!sandbox.path("taken").exists());
    let was: serde_json::Value = serde_json::from_str(&sandbox.read(RECORD)).unwrap();
    run(&sandbox, &format!("{import} other --other-base")).ended_with(0);
    let taken = sandbox.read("taken/spotmux.json");
    let taken: serde_json::Value = serde_json::from_str(&taken).unwrap();
    assert_ne!(taken["base_sha256"], was["base_sha256"]);
    assert_eq!(taken["job_sha256"], was["job_sha256"]);
    run(
        &sandbox,
        "adapter merge taken --model other --output merged",
    )
    .ended_with(0);
    run(&sandbox, "adapter merge taken --model tiny --output none")
        .ended_with(3)
        .said(&["the adapter was made for"]);
}

/// Taken in and merged it says what is not known, and ends with the line that a file of jobs takes.
#[test]
fn a_base_that_cannot_be_compared_is_told_and_the_next_line_is_one_of_toml() {
    let sandbox = trained();
    fs::remove_file(sandbox.path(RECORD)).unwrap();
    let config = "adapters/one/adapter/adapter_config.json";
    let mut told: serde_json::Value = serde_json::from_str(&sandbox.read(config)).unwrap();
    for (base, words) in [
        (serde_json::Value::Null, "names no base model"),
        (
            "/home/a/model".into(),
            "names /home/a/model as its base model",
        ),
        ("owner/model".into(), "no name to compare"),
    ] {
        told["base_model_name_or_path"] = base;
        sandbox.write(config, told.to_string());
        for command in ["import", "merge"] {
            let _ = fs::remove_dir_all(sandbox.path("taken \"in\""));
            let arguments = ["adapter", command, "adapters/one", "--model", "tiny"];
            let to = ["--output", "taken \"in\""];
            let ran = sandbox.run(&[&arguments[..], &to].concat()).ended_with(0);
            let ran = ran.said(&[words, "its shapes fit, and no more is known"]);
            if command == "import" {
                let (_, line) = ran.err.split_once("init_from = ").unwrap();
                let line = format!("{JOB}\ninit_from = {}", line.lines().next().unwrap());
                sandbox.write("next.toml", one_job(&line));
                run(&sandbox, "train next.toml --output next --check").ended_with(0);
            }
        }
    }
}

/// A folder too high up is named with what lies in it.
#[test]
fn folders_around_an_adapter_are_told_with_the_adapter_in_them() {
    let sandbox = trained();
    next(&sandbox, "adapters/one");
    run(&sandbox, "train next.toml --output next").said(&[
        "init_from",
        "the folder of a job",
        "init_from = \"adapters/one/adapter\"",
    ]);
    run(
        &sandbox,
        "adapter import adapters --model tiny --output taken",
    )
    .ended_with(4)
    .said(&["give the job, as adapters/one"]);
}

#[test]
fn values_that_are_not_finite_are_counted() {
    let sandbox = trained();
    fs::remove_file(sandbox.path(RECORD)).unwrap();
    let mut bytes = fs::read(sandbox.path(WEIGHTS)).unwrap();
    let end = bytes.len();
    bytes[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    bytes[end - 8..end - 4].copy_from_slice(&f32::INFINITY.to_le_bytes());
    sandbox.write(WEIGHTS, bytes);
    let ran = run(&sandbox, "adapter inspect adapters/one").ended_with(0);
    assert!(
        ran.out.contains("2 values are infinite or no numbers"),
        "{}",
        ran.out
    );
    let told = run(&sandbox, "adapter inspect adapters/one --json")
        .ended_with(0)
        .last();
    assert_eq!(told["not_finite"], 2);
}

/// What a job goes on writing behind is read before anything is trained.
#[test]
fn metrics_that_are_no_text_are_refused_by_their_line() {
    let sandbox = trained();
    fs::remove_dir_all(sandbox.path("adapters/one/adapter")).unwrap();
    let metrics = "adapters/one/metrics.jsonl";
    let mut bytes = fs::read(sandbox.path(metrics)).unwrap();
    let second = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    bytes[second + 3] = 0xff;
    sandbox.write(metrics, &bytes);
    run(&sandbox, "train jobs.toml").ended_with(3).said(&[
        "one/metrics.jsonl: line 2 is not UTF-8",
        "take that line out",
    ]);
    assert!(fs::read(sandbox.path(metrics)).unwrap() == bytes);
}

/// A job that goes on from an earlier checkpoint tells each step once: lines after it are cut off.
#[test]
fn metrics_have_each_step_once_after_an_earlier_checkpoint_was_gone_on_from() {
    let sandbox = trained();
    let before = sandbox.read("adapters/one/metrics.jsonl");
    fs::remove_dir_all(sandbox.path("adapters/one/adapter")).unwrap();
    fs::remove_dir_all(sandbox.path("adapters/one/checkpoints/step-00000004")).unwrap();
    run(&sandbox, "train jobs.toml").ended_with(0);
    assert_eq!(sandbox.read("adapters/one/metrics.jsonl"), before);
    assert_eq!(before.matches("\"event\":\"step\"").count(), 4);
}
