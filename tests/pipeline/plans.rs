//! Plans never change results: whatever the planner makes of random nodes, each job ends with the bits it has alone.
//!
//! A plan is carried out as a cluster does: its replicas with its cut of the layers, the jobs of each arranged as its first
//! stage is told; jobs that wait train on their replica when those before have ended, under an arrangement that is out of
//! date by then.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use coordinator::life::admission::{self, Levels};
use coordinator::plan::answer::Plan as Answer;
use coordinator::plan::place::Seat;
use coordinator::plan::profile::{Link, Weights, processor};
use coordinator::plan::snapshot::{Machine, Options, Saturation, Snapshot};
use coordinator::plan::solve::solve;
use coordinator::record::Measure;
use gpu_actor::model::Model;
use gpu_actor::replica::local::LocalReplica;
use kernels::cpu::Cpu;
use proptest::prelude::*;
use shared::ids::{JobId, JobName, NodeName};
use shared::model::Family;
use shared::plan::arrangement::Arrangement;
use shared::units::{Bytes, MicroUsd, Micros};
use system_tests::plan::{self, Plan};

use crate::mixes::cases;
use crate::run::{Manner, Remains, assert_same_state, on_one, remains, rounds, store};
use crate::tiny;

/// A node: threads, and memory beside what the program takes, in KiB.
type Node = (u32, u64);

fn snapshot(model: &Model, plans: &[Plan], nodes: &[Node], options: Options) -> Snapshot {
    let between = Link {
        name: "between".into(),
        latency_nanos: 200_000,
        bytes_per_second: 1_000_000_000,
    };
    let mut profiles = BTreeMap::new();
    let mut machines = BTreeMap::new();
    for (number, (threads, kib)) in nodes.iter().enumerate() {
        let profile = processor::unmeasured("cpu test", *threads, 1 << 30);
        let machine = Machine {
            device: profile.device.clone(),
            memory: Bytes(profile.workspace_bytes + (kib << 10)),
            site: "here".into(),
            price: MicroUsd(0),
            losses_per_kilohour: 0,
        };
        machines.insert(NodeName::new(format!("n{number}")).unwrap(), machine);
        profiles.insert(profile.device.clone(), profile);
    }
    let task = |plan: &Plan| {
        let rows = plan.lengths.iter().map(|length| (*length, *length));
        admission::task(&plan.spec, &Measure::of(rows), Micros(0))
    };
    Snapshot {
        model: model.shape.clone(),
        blocks: Weights::F32,
        tables: Weights::F32,
        profiles,
        nodes: machines,
        inside: between.clone(),
        between,
        tasks: (0..).map(JobId).zip(plans.iter().map(task)).collect(),
        tenants: BTreeMap::new(),
        options,
        now: Micros(0),
    }
}

fn spans(seats: &[Seat]) -> Vec<Range<usize>> {
    let span = |seat: &Seat| seat.first as usize..seat.end as usize;
    seats.iter().map(span).collect()
}

/// Trains jobs together on stages of this cut.
fn train(
    model: &Arc<Model>,
    spans: &[Range<usize>],
    plans: &[&Plan],
    (arrangement, tokens_per_pass): (&Arrangement<JobName>, usize),
) -> Vec<Remains> {
    let store = store();
    let manner = Manner::new(spans.len(), tokens_per_pass);
    let cpu = Cpu::new(manner.threads).unwrap();
    let started = LocalReplica::start_cut(model, &cpu, (1, spans), &store, &manner.settings());
    let mut replica = started.unwrap().pop().unwrap();
    replica.lead().arrange(arrangement.clone());
    let told = rounds(&mut replica, plans, model, &store, &[]).unwrap();
    replica.close().unwrap();
    let plans: Vec<Plan> = plans.iter().map(|plan| (*plan).clone()).collect();
    remains(&plans, told, &store, model)
}

/// Carries out an answer; what is left of each job.
fn carry_out(
    model: &Arc<Model>,
    plans: &[Plan],
    answer: &Answer,
    (levels, tokens_per_pass): (Levels, usize),
) -> BTreeMap<JobId, Remains> {
    let plan = |job: &JobId| &plans[job.0 as usize];
    let mut left = BTreeMap::new();
    for (number, replica) in &answer.replicas {
        let waits = answer
            .waiting
            .iter()
            .filter(|(_, wait)| wait.replica == *number);
        let late: Vec<JobId> = waits.map(|(job, _)| *job).collect();
        let arrangement = admission::of_answer(replica, levels, tokens_per_pass as u64);
        assert_eq!(arrangement.fault(), None);
        let arranged = arrangement.hybrid_tasks().map(|task| task.jobs.len());
        assert_eq!(arranged.sum::<usize>(), replica.jobs.len());
        let arrangement = arrangement.renamed(|job| Some(plan(job).spec.name.clone()));
        for jobs in [&replica.jobs, &late]
            .into_iter()
            .filter(|jobs| !jobs.is_empty())
        {
            let chosen: Vec<&Plan> = jobs.iter().map(plan).collect();
            let how = (&arrangement, tokens_per_pass);
            let remains = train(model, &spans(&replica.seats), &chosen, how);
            left.extend(jobs.iter().copied().zip(remains));
        }
    }
    left
}

proptest! {
    #![proptest_config(cases(8))]

    #[test]
    fn random_plans_of_the_same_jobs_leave_the_same_adapters(
        mut plans in plan::any_plans(1..6),
        family in proptest::sample::select(Family::ALL.to_vec()),
        nodes in proptest::collection::vec((1..5u32, prop_oneof![600..3_000u64, Just(1 << 18)]), 1..5),
        (fuse, order, align) in (any::<bool>(), any::<bool>(), any::<bool>()),
        saturation in prop_oneof![
            Just(Saturation::Off),
            Just(Saturation::NoLoss { permille: 20 }),
            Just(Saturation::Growth { permille: 400 }),
        ],
        stages in proptest::option::of(1..4u32),
        tokens_per_pass in prop_oneof![1..600usize, Just(10_000)],
    ) {
        for plan in &mut plans {
            plan.arrives = 0;
        }
        let model = tiny::model(family, true);
        let stages = stages.filter(|stages| *stages as usize <= nodes.len());
        let options = Options { fuse, order, align, saturation, stages, ..Options::default() };
        let question = snapshot(&model, &plans, &nodes, options);
        // Nodes too small for the backbone make no plan.
        if let Ok((answer, _)) = solve(&question, None) {
            let left = carry_out(&model, &plans, &answer, (Levels { fuse, order, align }, tokens_per_pass));
            let placed = plans.len() - answer.refused.len();
            prop_assert_eq!(left.len(), placed, "a job has no place: {:?}", answer.waiting);
            for (job, found) in left {
                let plan = plans[job.0 as usize].clone();
                let alone = on_one(&model, std::slice::from_ref(&plan), 1_000);
                let what = format!("{:?} under {:?}", plan.spec.adapter, answer.replicas);
                assert_same_state(&alone[0].state, &found.state, &what);
            }
        }
    }
}
