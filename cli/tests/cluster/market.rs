//! Machines come and go as a recorded market has it: the same bytes, on time, and nothing is left over.

mod ec2;
mod risk;
mod slurm;

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::run::{Cluster, Places, Sandbox, assert_same};
use super::sandbox::Method;

/// Jobs that live long enough to lose machines.
const FEW: &[Method] = &[
    (
        "lora",
        r#"method = "lora", rank = 4, targets = "all-linear""#,
        800,
    ),
    ("bottleneck", r#"method = "bottleneck", size = 5"#, 800),
    ("bitfit", r#"method = "bitfit""#, 900),
];

/// The same, long enough for twenty.
const LONG: &[Method] = &[
    (
        "lora",
        r#"method = "lora", rank = 4, targets = "all-linear""#,
        1200,
    ),
    (
        "dora",
        r#"method = "lora", rank = 3, dora = true, targets = ["q_proj", "down_proj"]"#,
        900,
    ),
    ("ia3", r#"method = "ia3""#, 1000),
    ("bottleneck", r#"method = "bottleneck", size = 5"#, 1000),
    ("prompt", r#"method = "prompt", tokens = 4"#, 1200),
    ("bitfit", r#"method = "bitfit""#, 1500),
];

/// A minute a value: one taken, two at once, all, and back.
const TRACE: &str = "3, 3, 2, 3, 1, 3, 3, 0, 3, 2, 1, 3";

/// Whose jobs they are: of a job the market knows what its specification says.
const TENANT: &str = "team";

/// What it took.
struct Borne {
    reclaims: usize,
    told: usize,
    /// Most machines that were taken within a second.
    at_once: usize,
    recoveries: u64,
    seconds: f64,
    stalls: Stalls,
}

/// What it cost the jobs.
#[derive(Debug, Default)]
struct Stalls {
    /// Steps that were told and had to be taken again.
    lost_steps: u64,
    /// Longest time between two steps of a job in seconds, and how many took longer than [`STALL`].
    longest: f64,
    count: usize,
    /// Bytes of states that were read elsewhere.
    moved: u64,
}

/// A job that takes no step for so long stalls; seconds.
const STALL: f64 = 2.0;

impl Stalls {
    /// From what was told of all jobs.
    fn of(events: &[Value]) -> Self {
        let mut stalls = Self::default();
        // By job: its last step and when that was; bytes of its newest state.
        let mut steps: BTreeMap<&str, (u64, f64)> = BTreeMap::new();
        let mut states: BTreeMap<&str, u64> = BTreeMap::new();
        for event in events {
            let (Some(job), Some(at)) = (event["job"].as_str(), event["at"].as_f64()) else {
                continue;
            };
            let step = event["data"]["step"].as_u64();
            match (event["event"].as_str().unwrap_or_default(), step) {
                ("step", Some(step)) => {
                    let (last, since) = steps.get(job).copied().unwrap_or((step - 1, at));
                    stalls.lost_steps += (last + 1).saturating_sub(step);
                    stalls.longest = stalls.longest.max(at - since);
                    stalls.count += usize::from(at - since > STALL);
                    steps.insert(job, (step, at));
                }
                ("checkpoint", _) => {
                    let bytes = event["data"]["bytes"].as_u64();
                    states.insert(job, bytes.unwrap_or(0));
                }
                ("recovered", _) => stalls.moved += states.get(job).copied().unwrap_or(0),
                _ => {}
            }
        }
        stalls
    }
}

/// Starts a cluster whose machines follow the trace, trains, and compares.
/// Of a thousand machines that are taken `abrupt` are not told; the others are as many milliseconds before as `notice` says.
fn through(
    methods: &[Method],
    seconds_a_slot: u64,
    least: usize,
    [notice, abrupt]: [u64; 2],
) -> Borne {
    let sandbox = Sandbox::of(methods);
    let jobs = fs::read_to_string(sandbox.path().join("jobs.toml")).unwrap();
    let own = format!("[[job]]\ntenant = \"{TENANT}\"\n");
    sandbox.write("jobs.toml", &jobs.replace("[[job]]\n", &own));
    let wanted = sandbox.alone();
    let trace = format!("{{\"metadata\": {{\"gap_seconds\": 60}}, \"data\": [{TRACE}]}}");
    sandbox.write("trace.json", &trace);
    let places = Places {
        replicas: 3,
        ..Places::free(0)
    };
    let market = format!(
        "[market]\nprovider = \"replay\"\ntrace = \"trace.json\"\ntrace_slot_minutes = 1\nspeed = {}\n\
         notice_ms = {notice}\nabrupt_per_mille = {abrupt}\nseed = 3\npolicy = \"maximal\"\nslot_seconds = 3\nmost = 3\n\
         deadline_minutes = 60\nboot_seconds = 60\ngrace_seconds = 10\nrest_seconds = 2\nhysteresis = 1\nlook_ms = 200\n",
        60 / seconds_a_slot
    );
    sandbox.write("cluster.toml", &(places.file(1) + &market));
    let begin = Instant::now();
    let up = sandbox.command(&["up", "--quiet"]);
    let mut cluster =
        Cluster::without_nodes(&sandbox, vec![("up", up)], |words| sandbox.command(words));
    // Long jobs on a busy machine.
    cluster.patience = Duration::from_secs(1800);
    cluster.submit();
    let adapters = cluster.adapters();
    let seconds = begin.elapsed().as_secs_f64();
    assert_same(&adapters, &wanted);
    // No work: no machine, and no doubt about any.
    cluster.until("all machines are given up", |cluster| {
        let told = cluster.json(&["market", "orphans"])?;
        let none = |key: &str| told[key].as_array().is_some_and(Vec::is_empty);
        (none("held") && none("unclaimed") && none("missing") && told["listed"] == 0).then_some(())
    });
    let jobs = cluster.jobs().unwrap();
    let recoveries = jobs
        .iter()
        .filter_map(|job| job["recoveries"].as_u64())
        .sum();
    let text = fs::read_to_string(sandbox.path().join(".spotmux/market/reclaims.jsonl"));
    let lines: Vec<Value> = text
        .unwrap_or_default()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let at = |line: &Value| line["at"].as_u64().unwrap();
    let together = |line: &Value| {
        let own = at(line);
        lines
            .iter()
            .filter(|other| at(other).abs_diff(own) < 1_000_000)
            .count()
    };
    let borne = Borne {
        reclaims: lines.len(),
        told: lines.iter().filter(|line| line["told"] == true).count(),
        at_once: lines.iter().map(together).max().unwrap_or(0),
        recoveries,
        seconds,
        stalls: Stalls::of(&cluster.events()),
    };
    println!(
        "{} reclaims, {} of them with a notice, at most {} at once; {} recoveries; {:.0} s",
        borne.reclaims, borne.told, borne.at_once, borne.recoveries, borne.seconds
    );
    let stalls = &borne.stalls;
    println!(
        "{} steps lost and taken again; {} stalls of more than {STALL} s, the longest {:.1} s; {} KiB of states moved",
        stalls.lost_steps,
        stalls.count,
        stalls.longest,
        stalls.moved >> 10
    );
    bills_agree(&mut cluster);
    assert!(
        borne.reclaims >= least,
        "{} reclaims\n{}",
        borne.reclaims,
        cluster.logs()
    );
    assert!(begin.elapsed() < Duration::from_secs(3600), "on time");
    borne
}

/// What jobs owe is what was spent, and each job shows its own.
fn bills_agree(cluster: &mut Cluster<'_>) {
    let bill = cluster.json(&["market", "bill"]).unwrap();
    println!("bill: {bill}");
    let paid: u64 = bill["jobs"].as_object().map_or(0, |jobs| {
        jobs.values()
            .filter_map(|bill| bill["spent"].as_u64())
            .sum()
    });
    let owes = bill["tenants"][TENANT]["spent"].as_u64();
    assert_eq!(owes, Some(paid), "all jobs are of one tenant");
    let whole = ["idle", "not_yet_charged"].map(|key| bill[key].as_u64().unwrap_or(0));
    assert_eq!(
        Some(paid + whole[0] + whole[1]),
        bill["spent"].as_u64(),
        "what jobs owe and what nobody owes is what was spent"
    );
    // Each job shows the same.
    cluster.until("jobs show what the bill says", |cluster| {
        let bill = cluster.json(&["market", "bill"])?;
        let mut jobs = bill["jobs"].as_object()?.iter();
        let same = jobs.all(|(name, own)| {
            let told = cluster.json(&["job", name]);
            let same = |key: &str| {
                told.as_ref()
                    .is_some_and(|told| told["money"][key] == own[key])
            };
            same("spent") && same("saved")
        });
        same.then_some(())
    });
}

#[test]
fn machines_that_a_market_takes_change_no_bit() {
    through(FEW, 3, 4, [2500, 400]);
}

#[test]
#[ignore = "takes minutes: twenty reclaims; cargo test -p spotmux --test cluster -- --ignored twenty_reclaims --nocapture"]
fn twenty_reclaims_with_and_without_a_notice_change_no_bit() {
    let borne = through(LONG, 3, 20, [2500, 400]);
    assert!(borne.told > 0 && borne.told < borne.reclaims, "both kinds");
    assert!(borne.at_once >= 2, "two at once");
}

#[test]
#[ignore = "takes minutes; cargo test -p spotmux --test cluster -- --ignored told_of_their_end --nocapture"]
fn machines_that_are_told_of_their_end_lose_no_step() {
    let borne = through(FEW, 6, 4, [6000, 0]);
    assert_eq!(borne.told, borne.reclaims);
    assert_eq!(borne.stalls.lost_steps, 0);
}
