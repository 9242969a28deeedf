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
            job["state"] == "quarantined" && reason.contains("not finite: sample"),
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

/// The same report: what was good before the rate broke it is an adapter again, and a job goes on from it.
#[test]
fn a_job_goes_on_from_a_checkpoint_of_one_that_was_set_aside() {
    let often = "checkpoint = { every_steps = 1, keep_last = 9 }\nschedule";
    let broken = BROKEN.replace("RATE", "1e30").replace("schedule", often);
    let sandbox = prepared(&[&broken]);
    let ran = sandbox.run(&["train", "jobs.toml"]).ended_with(6);
    let remedy = "spotmux adapter export adapters/broken --model tiny";
    assert!(ran.out.contains(remedy), "{}", ran.out);
    let export = |from: &str, to: &str, code: i32| {
        let arguments = ["adapter", "export", from, "--model", "tiny", "--output", to];
        sandbox.run(&arguments).ended_with(code)
    };
    let told = export("adapters/broken", "rescued", 0).out;
    let newest = sandbox.names("adapters/broken/checkpoints").pop().unwrap();
    assert!(told.contains(&newest), "{told}");
    let one = format!("adapters/broken/checkpoints/{newest}");
    export(&one, "the-same", 0);
    let weights = |folder: &str| {
        fs::read(sandbox.path(&format!("{folder}/adapter_model.safetensors"))).unwrap()
    };
    assert!(weights("rescued") == weights("the-same"));
    export(&one, "the-same", 3);
    export("tiny", "none", 4);

    let lower = broken
        .replace("1e30", "1e-3")
        .replace("'broken'", "'lower'");
    sandbox.write(
        "jobs.toml",
        format!("model = 'tiny'\n{lower}init_from = 'rescued'\n"),
    );
    sandbox
        .run(&["train", "jobs.toml", "--check"])
        .ended_with(0);

    let state = format!("{one}/state.safetensors");
    let mut bytes = fs::read(sandbox.path(&state)).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    sandbox.write(&state, bytes);
    let parts = ["no sound checkpoint"];
    export(&one, "none", 3).said(&parts);
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
