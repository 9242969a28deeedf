//! Long steps that are spread over turns on one to four stages: the same bits as whole ones, small jobs that do not wait, and
//! halts, drains and broken numbers in the middle of a step.
//!
//! Public bug: NovaSky-AI/SkyRL #1846 (a client with small requests waits for seconds behind one with huge ones).

use std::collections::BTreeMap;

use gpu_actor::model::Model;
use gpu_actor::replica::event::ReplicaEvent;
use gpu_actor::replica::lead::{Lead, TextRequest};
use gpu_actor::sample::choice::Sampling;
use gpu_actor::train::event::Event;
use gpu_actor::train::session::Standing;
use proptest::prelude::*;
use shared::ids::JobName;
use shared::job::OptimizerKind;
use shared::model::Family;
use shared::plan::arrangement::Arrangement;
use shared::wire::order::JobAction;
use system_tests::plan::{self, Plan, plain};
use system_tests::{method, methods};

use crate::mixes::cases;
use crate::run::{
    Manner, Store, admit, assert_ends, assert_same, gather, on_one, on_stages_arranged, store,
    stored,
};
use crate::tiny;

fn turns_of(rows: Option<u64>) -> Arrangement<JobName> {
    Arrangement {
        turn_rows: rows,
        ..Arrangement::default()
    }
}

/// A job of eight rows of 200 tokens a step, whose rows on one stage pass in one turn.
fn giant(steps: u64) -> Plan {
    let mut giant = plain("giant", methods::every().remove(1));
    giant.lengths = vec![200; 8];
    giant.spec.train.batch_size = 8;
    giant.spec.train.steps = Some(steps);
    giant
}

fn small(index: usize, steps: u64) -> Plan {
    let mut plan = plain(&format!("small-{index}"), methods::every().remove(index));
    plan.lengths = vec![20; 5];
    plan.spec.train.batch_size = 1;
    plan.spec.train.steps = Some(steps);
    plan
}

/// These jobs are on a lead, and longer steps are spread over turns of so many rows.
fn begin(lead: &mut Lead, plans: &[Plan], rows: u64, (model, store): (&Model, &Store)) {
    lead.arrange(turns_of(Some(rows)));
    for plan in plans {
        admit(lead, plan, model, store);
    }
}

/// Makes a short text with a job's adapter.
fn read(lead: &mut Lead, job: &JobName) {
    let request = TextRequest {
        job: Some(job),
        prompt: &[1, 2, 3],
        sampling: Sampling::default(),
        limit: 2,
        stops: &[],
    };
    lead.sample(&request, |_| true).unwrap().unwrap();
}

fn to_the_end(lead: &mut Lead) {
    while !lead.is_idle() {
        lead.round().unwrap();
    }
    lead.drain().unwrap();
}

proptest! {
    #![proptest_config(cases(10))]

    #[test]
    fn turns_of_any_rows_leave_the_same_bits_on_one_to_four_stages(
        mut plans in plan::any_plans(1..6),
        broken in method::any_method(),
        longer in proptest::collection::vec(0..400usize, 5),
        (stages, threads) in (1..=4usize, 1..3usize),
        turn_rows in prop::option::of(0..400u64),
        tokens_per_pass in 1..300usize,
        ahead in 1..5usize,
        budget in prop_oneof![Just(u64::MAX), 0..3_000_000u64],
    ) {
        for (plan, longer) in plans.iter_mut().zip(longer) {
            plan.lengths.push(2 + longer);
        }
        let mut wrecked = plain("wrecked", broken);
        wrecked.spec.optimizer.kind = OptimizerKind::Sgd;
        wrecked.spec.optimizer.learning_rate = 1e30;
        plans.push(wrecked);
        let model = tiny::model(Family::Llama, true);
        // Passes so large that no step is spread.
        let one = on_one(&model, &plans, 100_000);
        let manner = Manner { threads, budget, ahead, ..Manner::new(stages, tokens_per_pass) };
        let many = on_stages_arranged(&model, &plans, &manner, &turns_of(turn_rows));
        assert_same(&one, &many, &plans, &format!("{turn_rows:?}, {manner:?}"));
    }
}

/// The public case, counted in steps.
#[test]
fn small_jobs_take_a_step_for_each_sequence_of_a_huge_one() {
    let model = tiny::model(Family::Llama, true);
    let mut plans = vec![giant(2)];
    plans.extend((0..4).map(|index| small(index, 30)));
    for stages in [1, 2, 3] {
        let store = store();
        let mut replica = Manner::new(stages, 100).start(&model, &store);
        let lead = replica.lead();
        begin(lead, &plans, 100, (&model, &store));
        let mut steps = BTreeMap::<String, u64>::new();
        while !lead.is_idle() {
            for event in lead.round().unwrap() {
                let ReplicaEvent::Training(Event::Step { job, step, .. }) = event else {
                    continue;
                };
                steps.insert(job.to_string(), step);
                if job.as_str() == "giant" {
                    // Of each small job those of eight turns, the last of which may not be told yet.
                    let least = (0..4).map(|index| steps[&format!("small-{index}")]).min();
                    assert!(least >= Some(8 * step - 1), "{stages} stages: {steps:?}");
                }
            }
        }
        replica.close().unwrap();
        assert_eq!(steps["giant"], 2);
    }
}

/// In the middle of a step, a drain and a pause end it, and a cancelled job leaves in the state before it.
#[test]
fn halts_and_drains_see_whole_steps() {
    let model = tiny::model(Family::Llama, true);
    let plans = [giant(3), small(0, 40), small(2, 40)];
    let one = on_one(&model, &plans, 100_000);
    for (stages, rounds) in [(1, 2), (2, 3), (3, 1), (4, 5)] {
        let store = store();
        let mut replica = Manner::new(stages, 100).start(&model, &store);
        let lead = replica.lead();
        begin(lead, &plans, 100, (&model, &store));
        let name = &plans[0].spec.name;
        for _ in 0..rounds {
            lead.round().unwrap();
        }
        assert_eq!(lead.progress(name).unwrap().0.step, 0, "in its first step");
        read(lead, name);
        lead.drain().unwrap();
        assert_eq!(
            (lead.progress(name).unwrap().0.step, lead.durable(name)),
            (1, Some(1))
        );
        // On other stages, and paused in the middle of the next one.
        replica.kill();
        let mut replica = Manner::new(5 - stages, 50).start(&model, &store);
        let lead = replica.lead();
        begin(lead, &plans, 1, (&model, &store));
        lead.round().unwrap();
        assert!(lead.act(name, JobAction::Pause).unwrap());
        assert_eq!(
            lead.standing(name),
            Some(&Standing::Active),
            "its step is not through"
        );
        let mut events = BTreeMap::new();
        while lead.standing(name) == Some(&Standing::Active) {
            gather(lead.round().unwrap(), &mut events);
        }
        let paused = |event: &ReplicaEvent| matches!(event, ReplicaEvent::Paused { step: 2, .. });
        assert!(events[name].iter().any(paused), "{events:?}");
        for _ in 0..3 {
            lead.round().unwrap();
        }
        assert_eq!(lead.progress(name).unwrap().0.step, 2);
        assert!(lead.act(name, JobAction::Resume).unwrap());
        to_the_end(lead);
        replica.close().unwrap();
        assert_ends(&one, &plans, (&store, &model), &format!("{stages} stages"));
    }
}

/// What a job that was cancelled began is gone with it: the next one in its place has its own sums and losses.
#[test]
fn a_step_that_was_begun_is_dropped_with_its_job() {
    let model = tiny::model(Family::Llama, true);
    let mut next = plain("next", giant(1).spec.adapter);
    next.spec.train.steps = Some(2);
    let plans = [next, small(0, 30)];
    let one = on_one(&model, &plans, 100_000);
    for stages in [1, 2, 3] {
        let store = store();
        let mut replica = Manner::new(stages, 100).start(&model, &store);
        let lead = replica.lead();
        lead.arrange(turns_of(Some(100)));
        let giant = giant(2);
        admit(lead, &giant, &model, &store);
        admit(lead, &plans[1], &model, &store);
        for _ in 0..3 {
            lead.round().unwrap();
        }
        let name = &giant.spec.name;
        assert!(lead.act(name, JobAction::Cancel).unwrap());
        while lead.standing(name).is_some() {
            lead.round().unwrap();
        }
        let kept = stored(&store, &giant, &model).recovered.unwrap();
        assert_eq!(kept.state.progress.step, 0);
        admit(lead, &plans[0], &model, &store);
        to_the_end(lead);
        replica.close().unwrap();
        assert_ends(&one, &plans, (&store, &model), &format!("{stages} stages"));
    }
}
