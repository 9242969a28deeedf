use super::*;
use crate::plan::profile::Peak;
use crate::plan::testing::llama_7b;

const HOUR: Micros = Micros(3_600_000_000);

fn admission(measured: bool) -> Admission {
    let mut profile = Profile::peak(&Peak::A40);
    if measured {
        profile.origin = Origin::Measured;
    }
    Admission {
        profiles: vec![profile],
        blocks: Weights::Bf16,
        tables: Weights::Bf16,
        saturation: Saturation::NO_LOSS,
        max_added_latency: Micros(0),
        patience: HOUR,
        tenants: BTreeMap::new(),
        tokens_per_pass: 512,
        levels: Levels::default(),
    }
}

pub(super) fn job(batch: usize, length: u32, tenant: &str) -> Task {
    let text = format!(
        r#"{{"name":"a","tenant":"{tenant}","adapter":{{"method":"lora","rank":16}},"data":{{"train":"a"}},
            "train":{{"steps":100,"batch_size":{batch}}}}}"#
    );
    let spec = serde_json::from_str(&text).expect("a job");
    let rows = Measure::of((0..64).map(|_| (length as usize, length as usize)));
    task(&spec, &rows, Micros(0))
}

struct Stage {
    members: BTreeMap<NodeName, Member>,
    seats: Seats,
}

fn stage(memory: u64) -> Stage {
    let name = NodeName::new("n").expect("a name");
    let member = Member {
        device: "NVIDIA A40".into(),
        threads: 1,
        memory: Bytes(memory),
    };
    let seat = shared::plan::Seat {
        node: name.clone(),
        address: "here:1".into(),
        first_layer: 0,
        end_layer: 32,
        activation_budget: Bytes(0),
        recomputed_layers: 0,
    };
    Stage {
        members: BTreeMap::from([(name, member)]),
        seats: Seats::from([(0, vec![seat])]),
    }
}

fn gate(admission: &Admission, stage: &Stage, tasks: Vec<Task>, now: Micros) -> Gate {
    let shape = llama_7b();
    let scene = Scene {
        shape: &shape,
        members: stage.members.clone(),
        seats: &stage.seats,
        on: BTreeMap::from([(0, Vec::new())]),
        tasks: (1..).map(JobId).zip(tasks).collect(),
        served: BTreeMap::new(),
        now,
    };
    Gate::new(admission, scene).expect("a sound profile")
}

/// Lets jobs begin in order; how many did, and why the first one waits that does not.
fn fill(gate: &mut Gate, jobs: u64) -> (u64, Option<Wait>) {
    for number in 1..=jobs {
        match gate.takes(0, JobId(number)) {
            Ok(()) => gate.begin(0, JobId(number)),
            Err(wait) => return (number - 1, Some(wait)),
        }
    }
    (jobs, None)
}

#[test]
fn ad_2_an_empty_replica_takes_what_fits_and_memory_ends_it() {
    let stage = stage(15 << 30);
    let tasks = vec![job(4, 256, "t"); 60];
    let mut gate = gate(&admission(false), &stage, tasks, Micros(1));
    let (began, wait) = fill(&mut gate, 60);
    let wait = wait.expect("fifteen GiB are soon full");
    assert!(began >= 1, "{began}");
    assert_eq!(wait.why, Why::Memory);
    assert!(
        wait.estimate > Micros(0) && wait.to_string().contains("memory"),
        "{wait}"
    );
}

#[test]
fn where_devices_were_measured_a_job_that_adds_no_throughput_begins_all_the_same() {
    let stage = stage(48 << 30);
    // Steps that fill the device by themselves: with the paper's rule of growth they would run nearly in turn.
    let tasks = vec![job(8, 512, "t"); 12];
    let mut measured = gate(&admission(true), &stage, tasks, Micros(1));
    assert_eq!(fill(&mut measured, 12), (12, None));
}

#[test]
fn the_rule_of_saturation_is_the_operators() {
    let stage = stage(48 << 30);
    let tasks = || vec![job(8, 512, "t"); 12];
    let mut asked = admission(true);
    asked.saturation = Saturation::GROWTH;
    let mut growth = gate(&asked, &stage, tasks(), Micros(1));
    let (began, wait) = fill(&mut growth, 12);
    assert!((1..12).contains(&began), "{began} of 12 jobs");
    let why = wait.map(|wait| wait.why);
    assert!(matches!(why, Some(Why::Saturated { .. })), "{why:?}");
    // Who has waited for the patience joins all the same.
    let mut patient = gate(&asked, &stage, tasks(), Micros(HOUR.0 + 1));
    assert_eq!(fill(&mut patient, 12), (12, None));
    // Of a device that was not measured nothing is believed.
    asked = admission(false);
    asked.saturation = Saturation::GROWTH;
    let mut guessed = gate(&asked, &stage, tasks(), Micros(1));
    assert_eq!(fill(&mut guessed, 12), (12, None));
    for rule in [Saturation::NO_LOSS, Saturation::Off] {
        let mut asked = admission(true);
        asked.saturation = rule;
        let mut open = gate(&asked, &stage, tasks(), Micros(1));
        assert_eq!(fill(&mut open, 12), (12, None), "{rule:?}");
    }
}

#[test]
fn ad_3_who_has_waited_for_the_patience_is_asked_for_memory_alone_and_passed_by_none() {
    let stage = stage(15 << 30);
    let mut small = job(1, 64, "t");
    small.queued = Micros(HOUR.0);
    let large = job(4, 256, "t");
    let mut tasks = vec![large; 59];
    tasks.push(small);
    let mut gate = gate(&admission(true), &stage, tasks, Micros(HOUR.0 + 1));
    let mut lacks = None;
    for number in 1..60 {
        match gate.takes(0, JobId(number)) {
            Ok(()) => gate.begin(0, JobId(number)),
            Err(wait) => {
                assert_eq!(wait.why, Why::Memory, "it has waited for the patience");
                gate.waits(JobId(number), &wait);
                lacks = Some(number);
                break;
            }
        }
    }
    assert!(lacks.is_some());
    assert!(
        gate.takes(0, JobId(60)).is_err(),
        "a small one does not pass it"
    );
}

#[test]
fn a_bound_on_added_latency_keeps_company_small() {
    let stage = stage(48 << 30);
    let tasks = vec![job(8, 512, "t"); 6];
    let mut bounded = admission(false);
    bounded.max_added_latency = Micros::of_millis(15);
    let mut gate = gate(&bounded, &stage, tasks, Micros(1));
    let (began, wait) = fill(&mut gate, 6);
    assert_eq!(began, 1);
    assert!(matches!(
        wait.map(|wait| wait.why),
        Some(Why::Latency { .. })
    ));
}

/// A giant's step is spread over turns: a small job begins beside it within the bound, and the first stage is told so.
#[test]
fn a_bound_on_added_latency_spreads_a_giant_instead_of_making_a_small_job_wait() {
    let stage = stage(48 << 30);
    let mut bounded = admission(true);
    let with = |bounded: &Admission| {
        let tasks = vec![job(64, 512, "t"), job(1, 64, "t")];
        let mut gate = gate(bounded, &stage, tasks, Micros(1));
        let began = fill(&mut gate, 2).0;
        let jobs = [JobId(1), JobId(2)];
        let told = gate.arranged(0, &jobs[..began as usize]);
        (began, told.and_then(|told| told.turn_rows))
    };
    assert_eq!(
        with(&bounded),
        (2, None),
        "without a bound the first stage goes by its own passes"
    );
    bounded.max_added_latency = Micros::of_millis(600_000);
    assert_eq!(with(&bounded), (2, Some(64 * 512)), "whole steps keep it");
    let giant = gate(&bounded, &stage, vec![job(64, 512, "t")], Micros(1));
    let (step, _) = giant.alone(0, JobId(1)).expect("it fits");
    bounded.max_added_latency = Micros(step.0 / 3);
    let (began, rows) = with(&bounded);
    assert_eq!(began, 2);
    let rows = rows.expect("a bound");
    assert!((512..=64 * 512 / 2).contains(&rows), "{rows} rows a turn");
    // Less than a turn of the fewest rows adds.
    bounded.max_added_latency = Micros(1);
    assert_eq!(with(&bounded).0, 1);
}

#[test]
fn tenants_take_turns_by_weight() {
    let stage = stage(48 << 30);
    let mut tasks = vec![job(4, 128, "a"); 6];
    tasks.extend(vec![job(4, 128, "b"); 6]);
    let mut weighted = admission(false);
    weighted.tenants = BTreeMap::from([("b".into(), 2)]);
    let gate = gate(&weighted, &stage, tasks, Micros(1));
    let waiting: Vec<JobId> = (1..=13).map(JobId).collect();
    let order = gate.order(&waiting);
    assert_eq!(
        order[0],
        JobId(13),
        "of the thirteenth nothing is known: it does not wait"
    );
    let of_b = order[1..7].iter().filter(|job| job.0 > 6).count();
    assert_eq!(of_b, 4, "{order:?}");
}

#[test]
fn a_job_that_never_fits_is_refused_with_what_would() {
    let stage = stage(16 << 30);
    let text = r#"{"name":"a","adapter":{"method":"lora","rank":4000},"data":{"train":"a"}}"#;
    let spec = serde_json::from_str(text).expect("a job");
    let rows = Measure::of([(256, 256)]);
    let huge = task(&spec, &rows, Micros(0));
    let gate = gate(
        &admission(false),
        &stage,
        vec![huge, job(1, 64, "t")],
        Micros(1),
    );
    let refusal = gate.never(JobId(1)).expect("it never fits");
    assert!(
        refusal.largest_rank.is_some_and(|rank| rank < 4000),
        "{refusal}"
    );
    assert_eq!(gate.never(JobId(2)), None);
}

#[test]
fn a_measured_device_has_a_pace() {
    let member = stage(48 << 30)
        .members
        .into_values()
        .next()
        .expect("a node");
    let pace = admission(true)
        .pace(&member, &llama_7b())
        .expect("measured");
    assert!(pace.layer > 0 && pace.head > 0);
    assert_eq!(
        pace.of(&(0..32), 32),
        pace.embedding + 32 * pace.layer + pace.head
    );
    assert_eq!(pace.of(&(1..3), 32), 2 * pace.layer);
    assert_eq!(admission(false).pace(&member, &llama_7b()), None);
}
