//! A job whose numbers break is set aside with its step and row and its last good state; its neighbour learns as alone.
//!
//! Public bugs: thinking-machines-lab/tinker-feedback #21 (a run is "corrupted", with no cause and no way back),
//! TUDB-Labs/mLoRA (a neighbour's longer rows show in the loss).

use std::fs;

use serde_json::Value;

use crate::sandbox::{PAIRS, Sandbox};

const QUIET: &str = "[[job]]
name = 'quiet'
adapter = { method = 'lora', rank = 3 }
data = { train = 'pairs.jsonl' }
train = { steps = 12, batch_size = 2 }
";
const BROKEN: &str = "[[job]]
name = 'broken'
adapter = { method = 'lora', rank = 3 }
data = { train = 'long.jsonl' }
train = { steps = 12, batch_size = 2 }
optimizer = { kind = 'sgd', learning_rate = RATE }
schedule = { kind = 'linear', warmup_steps = 0 }
";

fn prepared(jobs: &[&str]) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.tiny_model();
    sandbox.write("pairs.jsonl", PAIRS);
    // Ten times as long.
    sandbox.write("long.jsonl", PAIRS.replace("xyz", &"xyz".repeat(30)));
    sandbox.write("jobs.toml", format!("model = 'tiny'\n{}", jobs.concat()));
    sandbox
}

/// The adapter and the metrics of the quiet job.
fn quiet(sandbox: &Sandbox) -> (Vec<u8>, String) {
    let adapter = "adapters/quiet/adapter/adapter_model.safetensors";
    let weights = fs::read(sandbox.path(adapter)).unwrap();
    (weights, sandbox.read("adapters/quiet/metrics.jsonl"))
}

/// What a job of its own comes to.
fn alone() -> (Vec<u8>, String) {
    let alone = prepared(&[QUIET]);
    alone.run(&["train", "jobs.toml"]).ended_with(0);
    quiet(&alone)
}

/// With a rate of a million numbers stay numbers but cannot be squared: the last norm makes zeros of them, and the job
/// would end as if it had learned, with the loss of a guess and a gradient of zero.
#[test]
fn a_rate_of_a_million_sets_its_job_aside_and_is_not_noticed_by_the_neighbour() {
    for kind in ["sgd", "adamw"] {
        let broken = BROKEN.replace("RATE", "1e6").replace("sgd", kind);
        let both = prepared(&[&broken, QUIET]);
        let told = both
            .run(&["train", "jobs.toml", "--json"])
            .ended_with(6)
            .last();
        let job = &told["jobs"][0];
        let reason = job["reason"].as_str().unwrap();
        assert!(
            job["state"] == "quarantined"
                && reason.contains("not finite: sample")
                && reason.contains(" (long.jsonl: line "),
            "{kind}: {told}"
        );
        assert!(!both.path("adapters/broken/adapter").exists());
        for line in both.read("adapters/broken/metrics.jsonl").lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            if line["event"] == "step" {
                assert!(line["gradient_norm"].as_f64() > Some(0.0), "{kind}: {line}");
            }
        }
        assert_eq!(told["jobs"][1]["state"], "finished");
        assert!(quiet(&both) == alone(), "the neighbour noticed");
    }
}

/// A job whose values grow a hundredfold each step: they are numbers for a few steps, and then not to be squared.
const GROWING: &str = "[[job]]
name = 'broken'
adapter = { method = 'lora', rank = 3 }
data = { train = 'pairs.jsonl' }
train = { steps = 12, batch_size = 2 }
optimizer = { kind = 'sgd', learning_rate = 100.0, weight_decay = 1.0 }
checkpoint = { every_steps = EVERY, keep_last = KEEP }
";

fn growing(every: u64, keep: u64) -> String {
    let text = GROWING.replace("EVERY", &every.to_string());
    text.replace("KEEP", &keep.to_string())
}

/// Trains from an adapter at a low rate, in a folder of its own; the exit code, and the losses.
fn go_on(sandbox: &Sandbox, from: &str) -> (i32, Vec<Option<f64>>) {
    let _ = fs::remove_dir_all(sandbox.path("elsewhere/out"));
    let model = sandbox.path("tiny").display().to_string();
    let lower = format!(
        "model = '{model}'
[[job]]
name = 'lower'
adapter = {{ method = 'lora', rank = 3 }}
data = {{ train = '../pairs.jsonl' }}
train = {{ steps = 4, batch_size = 2 }}
optimizer = {{ kind = 'sgd', learning_rate = 1e-6, max_grad_norm = 1.0 }}
init_from = {from}
"
    );
    sandbox.write("elsewhere/jobs.toml", lower);
    let arguments = [
        "train",
        "elsewhere/jobs.toml",
        "--output",
        "elsewhere/out",
        "--json",
    ];
    let ran = sandbox.run(&arguments);
    let steps = ran
        .lines()
        .into_iter()
        .filter(|line| line["event"] == "step");
    (ran.code, steps.map(|line| line["loss"].as_f64()).collect())
}

/// The same report: what was good before the rate broke it is an adapter again, and a job goes on from it. The state that
/// broke is kept, and is never what is told.
#[test]
fn a_job_goes_on_from_the_good_state_of_one_that_was_set_aside() {
    for keep_last in [1, 9] {
        let sandbox = prepared(&[&growing(1, keep_last)]);
        let ran = sandbox.run(&["train", "jobs.toml"]).ended_with(6);
        let checkpoints = sandbox.names("adapters/broken/checkpoints");
        assert!(checkpoints.len() >= 2, "{checkpoints:?}");
        let [.., good, broke] = &checkpoints[..] else {
            panic!("{checkpoints:?}");
        };
        let folder = |step: &str| format!("adapters/broken/checkpoints/{step}");
        // The command that is told is run as it is told.
        let told = ran
            .out
            .lines()
            .find_map(|line| line.split_once("spotmux adapter export "));
        let words: Vec<&str> = told.unwrap().1.split_whitespace().collect();
        assert_eq!(words[0], folder(good), "{}", ran.out);
        let export = |words: &[&str], code: i32| {
            let arguments: Vec<&str> = ["adapter", "export"].iter().chain(words).copied().collect();
            sandbox.run(&arguments).ended_with(code)
        };
        let rescued = export(&words, 0);
        // As is the place of it, from anywhere.
        let (_, from) = rescued.err.split_once("init_from = ").unwrap();
        let (code, losses) = go_on(&sandbox, from.lines().next().unwrap());
        assert_eq!((code, losses.len()), (0, 4));
        assert!(losses.iter().all(Option::is_some), "{losses:?}");

        // The folder of the job means the same state, and one that is named itself is taken as it is.
        let of = |from: &str, to: &str, code: i32| {
            export(&[from, "--model", "tiny", "--output", to], code)
        };
        let skips = of("adapters/broken", "by-job", 0).out;
        assert!(skips.contains(good) && skips.contains(broke), "{skips}");
        let weights = |folder: &str| {
            fs::read(sandbox.path(&format!("{folder}/adapter_model.safetensors"))).unwrap()
        };
        assert!(weights("by-job") == weights("broken-last-good"));
        of(&folder(broke), "as-it-is", 0);
        let from = format!("'{}'", sandbox.path("as-it-is").display());
        assert_eq!(go_on(&sandbox, &from), (6, Vec::new()), "it broke already");
        of(&folder(broke), "as-it-is", 3);
        of("tiny", "none", 4);
        // Given again, it breaks at the same place, and has the same to go on from.
        let again = sandbox
            .run(&["train", "jobs.toml", "--json"])
            .ended_with(6)
            .last();
        let good_again = again["jobs"][0]["last_good"]["checkpoint"].as_str();
        assert_eq!(good_again, Some(folder(good).as_str()));

        let damaged = damage(&sandbox, &folder(good));
        of(&damaged, "none", 3).said(&["a damaged checkpoint"]);
    }
}

fn damage(sandbox: &Sandbox, checkpoint: &str) -> String {
    let state = format!("{checkpoint}/state.safetensors");
    let mut bytes = fs::read(sandbox.path(&state)).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    sandbox.write(&state, bytes);
    checkpoint.to_owned()
}

/// One that saved nothing before has nothing to go on from, and says how to have it.
#[test]
fn a_job_that_kept_no_good_state_says_so() {
    let sandbox = prepared(&[&growing(50, 2)]);
    let ran = sandbox.run(&["train", "jobs.toml"]).ended_with(6);
    assert_eq!(sandbox.names("adapters/broken/checkpoints").len(), 1);
    assert!(!ran.out.contains("adapter export"), "{}", ran.out);
    assert!(
        ran.out
            .contains("checkpoint.every_steps lower than that (now 50)"),
        "{}",
        ran.out
    );
    let arguments = "adapter export adapters/broken --model tiny --output none";
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let parts = ["holds no good state", "checkpoint.every_steps"];
    sandbox.run(&arguments).ended_with(4).said(&parts);
}

#[test]
fn a_job_that_breaks_is_set_aside_and_the_others_bytes_are_those_of_it_alone() {
    let both = prepared(&[&BROKEN.replace("RATE", "1e30"), QUIET]);
    let told = both
        .run(&["train", "jobs.toml", "--json"])
        .ended_with(6)
        .last();
    let alone = alone();
    assert!(quiet(&both) == alone, "the neighbour noticed");

    let job = &told["jobs"][0];
    assert_eq!(
        (&job["job"], &job["state"]),
        (&"broken".into(), &"quarantined".into())
    );
    let reason = job["reason"].as_str().unwrap();
    assert!(
        reason.contains("not finite") && reason.contains("row"),
        "{reason}"
    );
    let steps = job["step"].as_u64().unwrap();
    assert_eq!(
        both.names("adapters/broken/checkpoints"),
        [format!("step-{steps:08}")]
    );
    assert!(!both.path("adapters/broken/adapter").exists());

    // Given again, it goes on from that state, breaks at the same place, and says so once.
    let before = both.read("adapters/broken/metrics.jsonl");
    let again = both
        .run(&["train", "jobs.toml", "--json"])
        .ended_with(6)
        .last();
    assert_eq!(
        (&again["jobs"][0]["reason"], &again["jobs"][0]["step"]),
        (&job["reason"], &job["step"])
    );
    assert_eq!(both.read("adapters/broken/metrics.jsonl"), before);
    assert!(quiet(&both) == alone, "the neighbour was touched");
}

/// A value that is no number is refused by its place, before anything is trained or sampled with it.
#[test]
fn an_adapter_with_an_infinite_weight_is_refused_by_the_name_of_its_tensor() {
    let sandbox = prepared(&[QUIET]);
    sandbox.run(&["train", "jobs.toml"]).ended_with(0);
    let path = sandbox.path("adapters/quiet/adapter/adapter_model.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let tensors: Value = serde_json::from_slice(&bytes[8..8 + header]).unwrap();
    let name = "base_model.model.model.layers.1.mlp.up_proj.lora_B.weight";
    let start = 8 + header + tensors[name]["data_offsets"][0].as_u64().unwrap() as usize;
    bytes[start..start + 4].copy_from_slice(&f32::INFINITY.to_le_bytes());
    fs::write(&path, bytes).unwrap();
    fs::remove_file(sandbox.path("adapters/quiet/adapter/spotmux.json")).unwrap();
    let parts = [name, "not finite at flat index 0"];
    let generate = [
        "generate",
        "--model",
        "tiny",
        "--adapter",
        "adapters/quiet",
        "hi",
    ];
    sandbox.run(&generate).ended_with(3).said(&parts);
    let import = [
        "adapter",
        "import",
        "adapters/quiet",
        "--model",
        "tiny",
        "--output",
        "taken",
    ];
    sandbox.run(&import).ended_with(3).said(&parts);
    assert!(!sandbox.path("taken").exists());
    let jobs = format!("model = 'tiny'\n{QUIET}init_from = 'adapters/quiet/adapter'\n");
    sandbox.write("jobs.toml", jobs);
    sandbox
        .run(&["train", "jobs.toml", "--output", "more"])
        .ended_with(3)
        .said(&parts);
    assert!(!sandbox.path("more").exists());
}
