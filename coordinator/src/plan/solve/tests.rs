use proptest::prelude::*;
use shared::units::{Bytes, MicroUsd};

use super::*;
use crate::plan::adapter::Adapter;
use crate::plan::profile::{Peak, Profile, Weights};
use crate::plan::quote::{Quote, quote, quote_new, quotes};
use crate::plan::snapshot::{Machine, Saturation, Tenant};
use crate::plan::testing::{llama_7b, llama_70b, snapshot, task, workload_b};

fn solved(problem: &Snapshot) -> (Plan, Explanation) {
    solve(problem, None).expect("there is a plan")
}

#[test]
fn jobs_of_one_backbone_share_it_and_the_levels_are_told() {
    let mut problem = snapshot(llama_7b(), &Peak::A40, 4, workload_b());
    problem.options.stages = Some(4);
    problem.options.saturation = Saturation::Off;
    let (plan, why) = solved(&problem);
    assert_eq!(plan.replicas[&0].jobs.len(), 8);
    let said = &why.replicas[&0];
    // No level makes a round longer by more than predictions err by.
    for off in [said.without_fuse, said.without_order, said.without_align] {
        assert!(
            off.is_none_or(|off| off.0 + off.0 / 32 >= said.round.0),
            "{}",
            why.text()
        );
    }
    assert_eq!(said.waste.here, 0);
    let text = why.text();
    for word in [
        "share passes",
        "without fuse",
        "without align",
        "not measured",
        "padding",
    ] {
        assert!(text.contains(word), "{word} in\n{text}");
    }
}

#[test]
fn switches_switch() {
    let mut problem = snapshot(llama_7b(), &Peak::A40, 4, workload_b());
    problem.options.stages = Some(4);
    problem.options.fuse = false;
    let (plan, why) = solved(&problem);
    assert!(
        plan.replicas[&0]
            .hybrid_tasks()
            .iter()
            .all(|jobs| jobs.len() == 1)
    );
    assert!(why.text().contains("fuse is switched off"));
    problem.options.fuse = true;
    problem.options.order = false;
    problem.options.align = false;
    let (plan, _) = solved(&problem);
    let replica = &plan.replicas[&0];
    assert!(
        replica
            .chunks
            .iter()
            .flatten()
            .all(|chunk| !chunk.is_carried())
    );
    let arrangement = replica.arrangement.as_ref().expect("it trains");
    assert!(arrangement.buckets.iter().all(|bucket| bucket.len() == 1));
}

#[test]
fn seventy_billion_from_a_configuration_alone() {
    let jobs = || vec![task(16, &[512; 8]), task(8, &[256; 8])];
    let mut small = snapshot(llama_70b(), &Peak::RTX4090, 8, jobs());
    small.blocks = Weights::Q4;
    let (plan, why) = solved(&small);
    assert!(plan.refused.is_empty() && !plan.replicas[&0].jobs.is_empty());
    let said = why.text();
    assert!(said.contains("limits it") || said.contains("computes longest"));
    // Two cards of 24 GiB are too few; the planner may still take more for speed.
    if plan.replicas[&0].seats.len() == 3 {
        assert!(said.contains("memory asks for 3 stages"), "{said}");
    }
    let large = snapshot(llama_70b(), &Peak::H100, 8, jobs());
    let (plan, why) = solved(&large);
    let mut two = large.clone();
    two.options.stages = Some(2);
    assert!(solved(&two).1.text().contains("memory asks for 2 stages"));
    assert!(plan.replicas[&0].seats.len() >= 2, "{}", why.text());
}

#[test]
fn a_job_that_never_fits_is_told_what_would() {
    // 8 GiB: the four-bit backbone fits, an adapter of rank 4096 does not.
    let mut problem = snapshot(
        llama_7b(),
        &Peak::A40,
        1,
        vec![task(4096, &[128; 4]), task(8, &[128; 4])],
    );
    problem.blocks = Weights::Q4;
    for machine in problem.nodes.values_mut() {
        machine.memory = Bytes(10 << 30);
    }
    let (plan, why) = solved(&problem);
    let refusal = plan.refused[&JobId(1)];
    let rank = refusal.largest_rank.expect("a smaller rank fits");
    assert!((64..4096).contains(&rank), "{refusal}");
    assert!(refusal.needed > refusal.offered);
    assert!(why.text().contains(&format!("rank up to {rank} fits")));
    assert_eq!(plan.replicas[&0].jobs, [JobId(2)]);
    // What it names fits, and one more does not.
    for (rank, fits) in [(rank, true), (rank + 1, false)] {
        problem.tasks.insert(JobId(1), task(rank, &[128; 4]));
        assert_eq!(solved(&problem).0.refused.is_empty(), fits, "rank {rank}");
    }
}

#[test]
fn jobs_beyond_memory_and_saturation_wait_with_an_estimate() {
    // Adapters of 4 GiB each with moments, and of 10 with sums that wait: some fit.
    let jobs = vec![task(100, &[256; 16]); 24];
    let mut problem = snapshot(llama_7b(), &Peak::A40, 1, jobs);
    problem.options.saturation = Saturation::Off;
    let (plan, _) = solved(&problem);
    let trains = plan.replicas[&0].jobs.len();
    assert!(trains > 1 && trains < 24, "{trains}");
    assert!(
        plan.waiting
            .values()
            .all(|wait| wait.why == Why::Memory && wait.estimate.0 > 0)
    );
    // Large steps saturate a device: most of them wait although memory suffices.
    let jobs = vec![task(8, &[512; 32]); 12];
    let mut problem = snapshot(llama_7b(), &Peak::A40, 1, jobs);
    problem.options.saturation = Saturation::Growth { permille: 20 };
    let (plan, why) = solved(&problem);
    assert!(plan.replicas[&0].jobs.len() < 12, "{}", why.text());
    assert!(
        plan.waiting
            .values()
            .all(|wait| matches!(wait.why, Why::Saturated { .. }))
    );
}

#[test]
fn a_bound_on_added_latency_is_kept() {
    let mut jobs = vec![task(8, &[128; 2])];
    jobs[0].max_added_latency = Some(500);
    jobs.extend(vec![task(8, &[512; 8]); 6]);
    let mut problem = snapshot(llama_7b(), &Peak::A40, 1, jobs);
    problem.options.saturation = Saturation::Off;
    let (plan, _) = solved(&problem);
    let bounded = quote(&problem, &plan, JobId(1))
        .expect("profiles are here")
        .expect("it trains");
    assert!(bounded.slowdown_permille <= 1500 || plan.replicas[&0].jobs == [JobId(1)]);
    assert!(
        plan.waiting
            .values()
            .any(|wait| matches!(wait.why, Why::Latency { .. }))
    );
}

#[test]
fn a_quote_has_a_range_and_a_chance() {
    let mut problem = snapshot(llama_7b(), &Peak::A40, 2, workload_b());
    problem.tenants.insert(
        "t".into(),
        Tenant {
            weight: 2,
            served: 5,
        },
    );
    let mut job = task(16, &[256; 4]);
    job.steps = 10_000;
    job.deadline = Some(Micros(1));
    let late = quote_new(&problem, None, job.clone())
        .expect("there is a plan")
        .expect("it fits");
    assert_eq!(late.chance_permille, Some(0));
    job.deadline = Some(Micros(100 * late.latest.0));
    let fine = quote_new(&problem, None, job.clone())
        .expect("there is a plan")
        .expect("it fits");
    assert_eq!(fine.chance_permille, Some(1000));
    job.deadline = Some(fine.expected);
    let even = quote_new(&problem, None, job)
        .expect("there is a plan")
        .expect("it fits");
    assert!(
        even.chance_permille
            .is_some_and(|chance| (300..700).contains(&chance)),
        "{even}"
    );
    assert!(even.earliest < even.expected && even.expected < even.latest);
    let cost = even.cost.expect("nodes have a price");
    assert!(cost.least < cost.expected && cost.expected < cost.most && cost.least > MicroUsd(0));
    for machine in problem.nodes.values_mut() {
        machine.price = MicroUsd(0);
    }
    let unknown = quote_new(&problem, None, task(16, &[256; 4]))
        .expect("there is a plan")
        .expect("it fits");
    assert_eq!(unknown.cost, None);
    assert!(
        unknown.to_string().contains("no price is known"),
        "{unknown}"
    );
    assert!(even.slowdown_permille >= 1000);
}

/// Who ends leaves the others faster: a long job beside a short one is reckoned alone once that has taken its steps.
#[test]
fn company_ends_with_its_own_steps() {
    let mut jobs = vec![task(8, &[256; 4]); 3];
    (jobs[0].steps, jobs[1].steps, jobs[2].steps) = (10, 10, 1_000);
    let mut problem = snapshot(llama_7b(), &Peak::A40, 1, jobs);
    problem.options.saturation = Saturation::Off;
    let (plan, _) = solved(&problem);
    assert_eq!(plan.replicas[&0].jobs.len(), 3);
    let told = quotes(&problem, &plan).expect("profiles are here");
    let (short, long) = (told[&JobId(1)], told[&JobId(3)]);
    assert_eq!((short.step, short.wait), (long.step, Micros(0)));
    assert!(long.step.0 > 2 * long.alone.0, "{long}");
    // Half of the time is the least that a computed profile leaves.
    let about = |told: Micros, time: u64| told.0.abs_diff(time / 2) <= 1;
    assert!(about(short.earliest, 10 * short.step.0), "{short}");
    let work = 10 * long.step.0 + 990 * long.alone.0;
    assert!(about(long.earliest, work), "{long}, not {work}");
    // Alone it pays for all of the replica.
    let cost = |quote: &Quote| quote.cost.expect("nodes have a price").expected.0;
    assert!(cost(&long) > 90 * cost(&short), "{short} {long}");
}

/// Rounds that follow each other overlap: what jobs see is less than a step by itself, and that is what they are told.
#[test]
fn quotes_and_waits_go_by_steady_rounds() {
    let mut jobs = workload_b();
    jobs.extend(vec![task(400, &[256; 16]); 40]);
    let mut problem = snapshot(llama_7b(), &Peak::A40, 4, jobs);
    problem.options.stages = Some(4);
    problem.options.saturation = Saturation::Off;
    problem.options.quantum = Micros(u64::MAX);
    let (plan, why) = solved(&problem);
    let replica = &plan.replicas[&0];
    assert!(
        Micros(0) < replica.round() && replica.round() < replica.step(),
        "{}",
        why.text()
    );
    let job = replica.jobs[0];
    let told = quote(&problem, &plan, job)
        .expect("profiles are here")
        .expect("it trains");
    assert_eq!(told.step, replica.round().max(told.alone));
    let rest = problem.tasks[&job].steps * told.step.0;
    assert!(told.earliest < Micros(rest) && Micros(rest) < told.latest);
    let (late, waits) = plan.waiting.iter().next().expect("not all fit");
    assert_eq!(waits.estimate, Micros(100 * replica.round().0));
    let late = quote(&problem, &plan, *late)
        .expect("profiles are here")
        .expect("it trains later");
    assert!(late.wait >= waits.estimate, "{late}");
    let said = &why.replicas[&0];
    assert_eq!((said.step, said.round), (replica.step(), replica.round()));
    let tokens: u64 = replica
        .jobs
        .iter()
        .map(|job| problem.tasks[job].tokens())
        .sum();
    assert_eq!(
        said.tokens_per_second,
        (u128::from(tokens) * 1_000_000_000 / u128::from(replica.round)) as u64
    );
    assert!(why.text().contains("by itself, as rounds overlap"));
}

#[test]
fn a_sequence_longer_than_a_turn_is_told_where_others_wait_for_it() {
    let long = || task(8, &[4_000, 64]);
    let told = |jobs: Vec<Task>, tokens_per_pass| {
        let mut problem = snapshot(llama_7b(), &Peak::A40, 2, jobs);
        problem.options.stages = Some(2);
        problem.options.saturation = Saturation::Off;
        problem.options.tokens_per_pass = tokens_per_pass;
        let (_, why) = solved(&problem);
        (why.replicas[&0].long_sequence, why.text())
    };
    let (found, text) = told(vec![long(), task(8, &[64])], 512);
    let found = found.expect("4,000 rows are more than four passes");
    assert_eq!(
        (found.job, found.rows, found.turn_rows),
        (JobId(1), 4_000, 2_048)
    );
    assert!(found.takes > Micros(0) && text.contains("is one turn's work"));
    // Alone, beside its like, or with larger passes, nobody waits for it more than for a turn.
    assert_eq!(told(vec![long()], 512).0, None);
    assert_eq!(told(vec![long(), long()], 512).0, None);
    assert_eq!(told(vec![long(), task(8, &[64])], 1_024).0, None);
}

#[test]
fn the_plan_becomes_orders() {
    let problem = snapshot(llama_7b(), &Peak::A40, 2, workload_b());
    let (plan, _) = solved(&problem);
    let addresses = problem
        .nodes
        .keys()
        .map(|node| (node.clone(), format!("{node}:1")))
        .collect();
    let orders = plan.orders(shared::ids::PlanEpoch(3), &addresses, Bytes(7));
    assert_eq!(orders.replicas.len(), plan.replicas.len());
    for (order, replica) in orders.replicas.iter().zip(plan.replicas.values()) {
        assert_eq!(order.jobs, replica.jobs);
        assert!(
            order
                .seats
                .iter()
                .all(|seat| seat.address.ends_with(":1") && seat.activation_budget > Bytes(7))
        );
    }
}

fn problems() -> impl Strategy<Value = Snapshot> {
    let job = (1u32..12, 0usize..4, 1usize..9, 0usize..3, any::<bool>()).prop_map(
        |(length, rank, batch, tenant, odd)| {
            let mut lengths = vec![length * 50; batch];
            if odd {
                lengths[0] = 37;
            }
            let mut job = task([4, 16, 64, 2000][rank], &lengths);
            job.tenant = ["a", "b", "c"][tenant].into();
            if odd {
                job.adapter = Adapter {
                    sites: job.adapter.sites[..2].to_vec(),
                    ..job.adapter
                };
            }
            job
        },
    );
    let nodes = (1usize..5, 0usize..3, any::<bool>());
    let switches = (any::<bool>(), any::<bool>(), any::<bool>());
    (prop::collection::vec(job, 0..9), nodes, switches).prop_map(
        |(jobs, (nodes, quick, tight), (fuse, order, align))| {
            let mut problem = snapshot(llama_7b(), &Peak::A40, nodes, jobs);
            let fast = Profile::peak(&Peak::H100);
            for (at, machine) in problem.nodes.values_mut().enumerate() {
                if at < quick {
                    *machine = Machine {
                        device: fast.device.clone(),
                        site: format!("s{}", at % 2),
                        ..machine.clone()
                    };
                }
                if tight {
                    machine.memory = Bytes(20 << 30);
                }
            }
            problem.profiles.insert(fast.device.clone(), fast);
            (
                problem.options.fuse,
                problem.options.order,
                problem.options.align,
            ) = (fuse, order, align);
            problem
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// The checks (PL-1 to PL-8) are part of `solve`: a broken plan is an error.
    #[test]
    fn plans_are_sound_the_same_and_stay(problem in problems()) {
        let (plan, why) = solve(&problem, None).expect("there is a plan");
        prop_assert_eq!(&solve(&problem, None).expect("again").0, &plan);
        let (again, _) = solve(&problem, Some(&plan)).expect("again");
        prop_assert_eq!(&again, &plan, "{}", why.text());
    }
}
