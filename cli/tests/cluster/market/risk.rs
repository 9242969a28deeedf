//! A machine that may be taken: nothing moves, the state after nearly every step is durable, and the bytes are those of a quiet run.

use std::collections::BTreeSet;
use std::fs;

use super::super::run::{Cluster, Places, Sandbox, assert_same};

/// Steps of the job, each of many samples: a step takes longer than its state takes to be stored.
const STEPS: u64 = 24;

#[test]
fn a_machine_that_may_be_taken_keeps_its_work_and_every_step_becomes_durable() {
    let sandbox = Sandbox::of(&[(
        "lora",
        r#"method = "lora", rank = 4, targets = "all-linear""#,
        STEPS,
    )]);
    // What the job asks for is no state at all: what is stored is stored for the risk.
    sandbox.without_checkpoints();
    let jobs = fs::read_to_string(sandbox.path().join("jobs.toml")).unwrap();
    let (short, long) = ("accumulation = 1 }", "accumulation = 256 }");
    assert!(jobs.contains(short), "{jobs}");
    sandbox.write("jobs.toml", &jobs.replace(short, long));
    let wanted = sandbox.alone();
    let trace = "{\"metadata\": {\"gap_seconds\": 60}, \"data\": [1, 1, 1, 1]}";
    sandbox.write("trace.json", trace);
    // All machines are said to be at risk in every slot of the trace, and none is taken.
    let market = "[market]\nprovider = \"replay\"\ntrace = \"trace.json\"\ntrace_slot_minutes = 1\nrisk_per_mille = 1000\n\
                  policy = \"maximal\"\nslot_seconds = 3\nmost = 1\ndeadline_minutes = 60\nboot_seconds = 60\n\
                  grace_seconds = 10\nrest_seconds = 2\nhysteresis = 1\nlook_ms = 200\n";
    sandbox.write("cluster.toml", &(Places::free(0).file(1) + market));
    let up = sandbox.command(&["up", "--quiet"]);
    let mut cluster =
        Cluster::without_nodes(&sandbox, vec![("up", up)], |words| sandbox.command(words));
    cluster.submit();
    assert_same(&cluster.adapters(), &wanted);
    let events = cluster.events();
    let kind = |at: usize| events[at]["event"].as_str().unwrap_or_default();
    let begun = (0..events.len()).find(|at| kind(*at) == "node_at_risk");
    let begun = begun.unwrap_or_else(|| panic!("no risk was told\n{}", cluster.logs()));
    let steps = |wanted: &str| -> BTreeSet<u64> {
        let told = (begun..events.len()).filter(|at| kind(*at) == wanted);
        told.filter_map(|at| events[at]["data"]["step"].as_u64())
            .collect()
    };
    let (taken, durable) = (steps("step"), steps("checkpoint"));
    println!("{} steps at risk, {} durable", taken.len(), durable.len());
    assert!(taken.len() as u64 > STEPS / 2, "{taken:?}");
    // A store that is too slow may be spared some; and the last is the job's end.
    assert!(
        durable.len() * 3 >= taken.len() * 2,
        "{taken:?} {durable:?}"
    );
    cluster.assert_no_step_twice(1);
    // Its first stage is given to it while it is at risk already; after the job's end the market may give it back.
    let at_work = (begun..events.len()).find(|at| kind(*at) == "step");
    let ended = (begun..events.len()).rfind(|at| kind(*at) == "step");
    let moves = (at_work.unwrap()..ended.unwrap()).map(kind).filter(|told| {
        told.starts_with("migration") || *told == "recovered" || *told == "node_lost"
    });
    assert_eq!(moves.collect::<Vec<_>>(), [""; 0], "nobody is evicted");
    let reclaims = sandbox.path().join(".spotmux/market/reclaims.jsonl");
    assert!(!reclaims.exists(), "no machine was taken");
}
