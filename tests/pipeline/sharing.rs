//! Steps that several replicas share: the same bits as on one, whatever the number of replicas and stages.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use gpu_actor::model::Model;
use gpu_actor::replica::local::LocalReplica;
use proptest::prelude::*;
use shared::model::Family;
use shared::recompute::Recompute;
use system_tests::methods;
use system_tests::plan::{self, Plan, plain};

use crate::mixes::cases;
use crate::run::{Heard, Manner, Remains, Store, assert_same, on_one, remains, rounds, store};
use crate::tiny;

/// How long a lead without own work sleeps when nothing rings.
const NAP: Duration = Duration::from_millis(20);

/// Leads its own jobs, and then helps until all leads are through.
fn lead(
    mut replica: LocalReplica,
    plans: &[&Plan],
    (model, store): (&Arc<Model>, &Store),
    replicas: &[u32],
    (through, of): (&AtomicUsize, usize),
) -> Heard {
    let told = match rounds(&mut replica, plans, model, store, replicas) {
        Ok(told) => told,
        Err(error) => panic!("{}", replica.cause(error)),
    };
    through.fetch_add(1, Ordering::AcqRel);
    while through.load(Ordering::Acquire) < of {
        let bell = replica.lead().bell();
        let heard = bell.heard();
        let told = replica.lead().tend().unwrap();
        assert!(
            told.is_empty(),
            "what is led elsewhere is told there: {told:?}"
        );
        if !replica.lead().moved() {
            // Whatever it was, the next look finds it.
            let _ = bell.wait(heard, NAP);
        }
    }
    replica.close().unwrap();
    told
}

/// All jobs on linked replicas, led by one after another, each with its steps shared by all.
fn on_replicas(model: &Arc<Model>, plans: &[Plan], manner: &Manner, replicas: u32) -> Vec<Remains> {
    let store = store();
    let started = manner.start_linked(model, &store, replicas);
    let through = AtomicUsize::new(0);
    let all: Heard = thread::scope(|scope| {
        let (through, store) = (&through, &store);
        let threads: Vec<_> = (0..replicas)
            .zip(started)
            .map(|(number, replica)| {
                let own = (0..replicas).cycle().zip(plans);
                let own: Vec<&Plan> = own.filter(|(n, _)| *n == number).map(|(_, p)| p).collect();
                // The own number first, the others in any order.
                let mut sharing: Vec<u32> = (0..replicas).collect();
                sharing.rotate_left(number as usize);
                let of = replicas as usize;
                scope.spawn(move || lead(replica, &own, (model, store), &sharing, (through, of)))
            })
            .collect();
        let mut all: Heard = (BTreeMap::new(), Vec::new());
        for thread in threads {
            let (events, aside) = thread.join().unwrap();
            all.0.extend(events);
            all.1.extend(aside);
        }
        all
    });
    remains(plans, all, &store, model)
}

#[test]
fn every_method_leaves_the_same_bits_on_any_number_of_replicas_and_stages() {
    let model = tiny::model(Family::Llama, true);
    let plans: Vec<Plan> = methods::every()
        .into_iter()
        .enumerate()
        .map(|(index, adapter)| {
            let mut plan = plain(&format!("job-{index}"), adapter);
            // The longest pass in chunks.
            plan.lengths = vec![5, 90, 17, 290, 3, 40, 64];
            plan.spec.train.batch_size = 3 + index % 4;
            plan.spec.train.steps = Some(2);
            if index % 2 == 0 {
                plan.spec.optimizer.max_grad_norm = Some(0.01);
                plan.spec.eval.every_steps = Some(1);
            }
            plan
        })
        .collect();
    let one = on_one(&model, &plans, 1000);
    for (replicas, stages) in [(2, 1), (2, 2), (3, 1), (3, 3)] {
        let manner = Manner::new(stages, 100);
        let many = on_replicas(&model, &plans, &manner, replicas);
        let what = format!("{replicas} replicas of {stages} stages");
        assert_same(&one, &many, &plans, &what);
    }
}

#[test]
fn a_step_with_fewer_sequences_than_replicas_is_taken_by_all() {
    let model = tiny::model(Family::Llama, true);
    let mut plan = plain("few", methods::every().remove(0));
    plan.lengths = vec![70, 5, 20];
    plan.spec.train.batch_size = 2;
    plan.spec.train.steps = Some(4);
    plan.spec.eval.every_steps = Some(2);
    let plans = [plan];
    let one = on_one(&model, &plans, 1000);
    let many = on_replicas(&model, &plans, &Manner::new(2, 64), 3);
    assert_same(&one, &many, &plans, "two sequences on three replicas");
}

proptest! {
    #![proptest_config(cases(6))]

    #[test]
    fn random_mixes_leave_the_same_bits_on_linked_replicas(
        plans in plan::any_plans(1..7),
        family in proptest::sample::select(Family::ALL.to_vec()),
        (replicas, stages, threads) in (1..4u32, 1..4usize, 1..3usize),
        (tokens_per_pass, tokens_on_one) in (1..400usize, 1..400usize),
        (budget, credits) in (prop_oneof![Just(u64::MAX), 0..3_000_000u64], 1..4usize),
        ahead in 1..5usize,
    ) {
        let model = tiny::model(family, false);
        let one = on_one(&model, &plans, tokens_on_one);
        let patience = Duration::from_secs(120);
        let recompute = Recompute::None;
        let manner = Manner { stages, threads, tokens_per_pass, budget, credits, ahead, patience, recompute };
        let many = on_replicas(&model, &plans, &manner, replicas);
        assert_same(&one, &many, &plans, &format!("{replicas} replicas, {manner:?}"));
    }
}
