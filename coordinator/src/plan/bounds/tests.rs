use proptest::prelude::*;
use shared::ids::JobId;
use shared::units::{Bytes, MicroUsd, Micros};

use super::*;
use crate::plan::profile::{Link, Peak, Profile, processor};
use crate::plan::quote::quote;
use crate::plan::solve::solve;
use crate::plan::testing::{llama_7b, snapshot, task};

#[test]
fn a_number_outside_is_told_with_its_key_and_bound() {
    let said = THREADS.check(99_999_999_999).expect_err("no machine");
    assert_eq!(
        said.to_string(),
        "threads = 99999999999 is not within 1 and 65536"
    );
    assert_eq!(THREADS.check(4), Ok(4));
    for wrong in [f64::NAN, f64::INFINITY, -1.0, 1e300] {
        assert!(PRICE.check_real(wrong).is_err(), "{wrong}");
    }
    assert_eq!(PRICE.check_real(0.25), Ok(0.25));
    assert_eq!(MEMORY.nearest(u64::MAX), MEMORY.most);
}

#[test]
fn what_a_node_says_of_itself_makes_a_profile_whatever_it_is() {
    for threads in [0, 1, 4, u32::MAX] {
        for memory in [0, 1 << 30, u64::MAX] {
            let profile = processor::unmeasured("cpu avx2", threads, memory);
            profile.check().expect("a sound profile");
            profile.with_threads(u32::MAX).check().expect("a sound one");
        }
    }
}

/// Ordinary numbers, and those that files and flags bring in by accident or malice.
fn hostile() -> impl Strategy<Value = u64> {
    prop_oneof![
        0u64..5_000,
        Just(u64::from(u32::MAX)),
        Just(1_000_000_000_000),
        Just(u64::MAX / 2),
        Just(u64::MAX),
        any::<u64>(),
    ]
}

/// The same within a bound, its ends more often.
fn within(bound: Bound) -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(bound.least),
        Just(bound.most),
        bound.least..=bound.most,
        (bound.least..=bound.most).prop_map(move |number| number.min(bound.least + 4_096)),
    ]
}

fn size(most: u64) -> impl Strategy<Value = usize> {
    within(Bound::new("", 1, most)).prop_map(|size| size as usize)
}

/// The largest backbones that `config.json` may name, and small ones.
fn models() -> impl Strategy<Value = ModelShape> {
    let heads = (
        size(limits::HEADS),
        size(limits::HEAD_DIM),
        size(limits::VOCAB),
    );
    let rest = (
        size(limits::LAYERS),
        size(limits::HIDDEN),
        size(limits::INTERMEDIATE),
    );
    (heads, rest).prop_map(
        |((heads, head_dim, vocab), (layers, hidden, intermediate))| ModelShape {
            layers,
            hidden,
            intermediate,
            vocab,
            heads,
            kv_heads: heads,
            head_dim,
            ..llama_7b()
        },
    )
}

fn problems() -> impl Strategy<Value = Snapshot> {
    let node = (hostile(), hostile(), hostile());
    let job = (
        hostile(),
        prop::collection::vec(prop_oneof![1u32..3_000, any::<u32>()], 1..5),
        hostile(),
    );
    let nodes = prop::collection::vec(node, 1..4);
    let jobs = prop::collection::vec(job, 0..5);
    let link = (hostile(), hostile());
    let rates = (
        within(RATE),
        within(RATE),
        within(NANOS),
        within(Bound::new("", 1, 1000)),
    );
    (models(), nodes, jobs, link, rates).prop_map(
        |(model, nodes, jobs, (latency, rate), (flops, bytes, launch, reached))| {
            let tasks = jobs.into_iter().map(|(rank, lengths, steps)| {
                let mut task = task(rank, &lengths);
                task.steps = steps;
                task.deadline = Some(Micros(steps));
                task.max_added_latency = steps.is_multiple_of(2).then_some(steps);
                task
            });
            let mut problem = snapshot(model, &Peak::A40, nodes.len(), tasks.collect());
            for (machine, (memory, price, losses)) in problem.nodes.values_mut().zip(nodes) {
                machine.memory = Bytes(memory);
                machine.price = MicroUsd(price);
                machine.losses_per_kilohour = losses;
            }
            problem.inside = Link {
                name: "inside".into(),
                latency_nanos: latency,
                bytes_per_second: rate,
            };
            for profile in problem.profiles.values_mut() {
                if let Some(roofline) = &mut profile.roofline {
                    roofline.flops_per_second = flops;
                    roofline.bytes_per_second = bytes;
                    roofline.launch_nanos = launch;
                    roofline.compute_permille = reached;
                }
            }
            problem
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    /// Tests have overflow checks: a sum or product that leaves 64 bits is a panic.
    #[test]
    fn no_number_panics_the_planner(problem in problems()) {
        let Ok((plan, why)) = solve(&problem, None) else {
            return Ok(());
        };
        for job in problem.tasks.keys() {
            let quoted = quote(&problem, &plan, *job).expect("profiles are here");
            let _ = quoted.map(|quote| quote.to_string());
        }
        prop_assert!(!why.text().is_empty());
        prop_assert!(plan.replica_of(JobId(u64::MAX)).is_none());
    }

    /// A profile is refused by its key, or it is one that plans can go by.
    #[test]
    fn no_profile_panics_the_planner(
        points in prop::collection::vec((hostile(), hostile()), 1..4),
        numbers in (hostile(), hostile(), hostile(), hostile()),
    ) {
        let mut profile = Profile::peak(&Peak::A40);
        profile.memory_bytes = numbers.0;
        profile.workspace_bytes = numbers.1;
        profile.reconfiguration.switch_nanos = numbers.2;
        profile.links[0].latency_nanos = numbers.3;
        profile.stream = points;
        let text = serde_json::to_string(&profile).expect("JSON");
        let Ok(profile) = Profile::parse(&text) else {
            return Ok(());
        };
        let mut problem = snapshot(llama_7b(), &Peak::A40, 2, vec![task(8, &[64; 4])]);
        for machine in problem.nodes.values_mut() {
            machine.memory = Bytes(profile.memory_bytes);
        }
        problem.profiles.insert(profile.device.clone(), profile);
        let _ = solve(&problem, None);
    }
}
