//! Replicas that are killed and rebuilt from what is durable, with another number of stages: the same final bits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use gpu_actor::artifacts::memory::MemoryArtifacts;
use gpu_actor::artifacts::stored::SharedStore;
use gpu_actor::artifacts::{ArtifactError, Artifacts, manifest, part};
use gpu_actor::replica::event::ReplicaEvent;
use gpu_actor::replica::lead::{Lead, Start};
use gpu_actor::train::session::{Standing, layout_of};
use proptest::prelude::*;
use shared::artifact::{self, BlockingStore};
use shared::model::Family;
use shared::wire::order::JobAction;
use system_tests::methods;
use system_tests::plan::{self, Plan, plain};

use crate::mixes::cases;
use crate::run::{
    Manner, Store, admission, admit, assert_ends, assert_same_state, begin, gather, on_one, store,
    stored,
};
use crate::tiny;

/// Lets all jobs end and makes their ends durable.
fn to_the_end(lead: &mut Lead) {
    while !lead.is_idle() {
        lead.round().unwrap();
    }
    lead.drain().unwrap();
}

proptest! {
    #![proptest_config(cases(8))]

    #[test]
    fn what_was_killed_goes_on_from_what_is_durable(
        plans in plan::any_plans(1..6),
        lives in prop::collection::vec((1..=tiny::LAYERS, 0..4usize, any::<bool>()), 1..4),
        last in 1..=tiny::LAYERS,
        every in 1..3u64,
        tokens_per_pass in 1..300usize,
    ) {
        let model = tiny::model(Family::Llama, false);
        let mut plans = plans;
        for plan in &mut plans {
            plan.arrives = 0;
            plan.spec.checkpoint.every_steps = Some(every);
            plan.spec.checkpoint.keep_last = 1;
        }
        let one = on_one(&model, &plans, 200);
        let store = store();
        for (stages, rounds, drained) in lives {
            let mut replica = Manner::new(stages, tokens_per_pass).start(&model, &store);
            let lead = replica.lead();
            for plan in &plans {
                admit(lead, plan, &model, &store);
            }
            for _ in 0..rounds {
                lead.round().unwrap();
            }
            if drained {
                lead.drain().unwrap();
                for plan in &plans {
                    let found = stored(&store, plan, &model).recovered.unwrap();
                    let (progress, _) = lead.progress(&plan.spec.name).unwrap();
                    // The keeper of a replica that was killed may have come further.
                    prop_assert!(progress.step <= found.state.progress.step);
                    if progress.step == found.state.progress.step {
                        prop_assert_eq!(progress, &found.state.progress);
                    }
                }
            }
            replica.kill();
        }
        let mut replica = Manner::new(last, tokens_per_pass).start(&model, &store);
        for plan in &plans {
            admit(replica.lead(), plan, &model, &store);
        }
        to_the_end(replica.lead());
        replica.close().unwrap();
        assert_ends(&one, &plans, (&store, &model), "recovered");
    }
}

/// Every method's parts of three stages load on two, from a folder; what is torn is passed over, and old states go.
#[test]
fn parts_of_three_stages_load_on_two() {
    let model = tiny::model(Family::Qwen3, true);
    let root = tempfile::tempdir().unwrap();
    let address = root.path().display().to_string();
    let folder = artifact::Store::open(&address, &BTreeMap::new()).unwrap();
    let store: Store = Arc::new(SharedStore::new(BlockingStore::new(folder).unwrap()));
    let plans: Vec<Plan> = methods::every()
        .into_iter()
        .enumerate()
        .map(|(index, spec)| {
            let mut plan = plain(&format!("job-{index:02}"), spec);
            plan.spec.checkpoint.every_steps = Some(1);
            plan.spec.checkpoint.keep_last = 2;
            plan
        })
        .collect();
    let one = on_one(&model, &plans, 200);
    let manner = Manner {
        ahead: 1,
        ..Manner::new(3, 100)
    };
    let mut replica = manner.start(&model, &store);
    let lead = replica.lead();
    for plan in &plans {
        admit(lead, plan, &model, &store);
    }
    while lead.progress(&plans[0].spec.name).unwrap().0.step < 3 {
        lead.round().unwrap();
    }
    lead.drain().unwrap();
    replica.kill();
    for plan in &plans {
        let name = &plan.spec.name;
        let keys = store.list(&part::job_folder(name)).unwrap();
        assert_eq!(manifest::steps(name, &keys), [3, 2], "keep_last");
        assert_eq!(keys.len(), 2 * 4, "{keys:?}");
        // The newest state of each job is torn in another way.
        let folder = part::folder(name, 3);
        let torn = format!("{folder}layers-2-4.safetensors");
        match name.as_str().len() + keys[0].len() + plan.spec.seed as usize {
            odd if odd % 2 == 1 => store.delete(&torn).unwrap(),
            _ => store.put(&torn, b"torn").unwrap(),
        }
        let found = stored(&store, plan, &model);
        assert_eq!(found.recovered.unwrap().state.progress.step, 2);
        assert!(found.skipped[0].0.ends_with("step-00000003/manifest.json"));
        assert!(
            found.skipped[0].1.contains("layers-2-4"),
            "{found:?}",
            found = found.skipped
        );
    }
    let mut replica = Manner::new(2, 100).start(&model, &store);
    for plan in &plans {
        admit(replica.lead(), plan, &model, &store);
    }
    to_the_end(replica.lead());
    replica.close().unwrap();
    assert_ends(&one, &plans, (&store, &model), "recovered");
}

/// Values that each stage makes for itself are those of the whole model.
#[test]
fn fresh_values_are_the_same_on_any_stages() {
    let mut model = tiny::model(Family::Llama, true);
    for tied in [true, false] {
        if !tied {
            model = tiny::model(Family::Llama, tied);
        }
        for spec in methods::every() {
            let plan = plain("job", spec);
            let init_tokens = vec![3, 1, 4];
            let mut whole = None;
            for stages in [1, 3] {
                let store = store();
                let mut replica = Manner::new(stages, 70).start(&model, &store);
                let init_tokens = init_tokens.clone();
                let start = Start::Fresh { init_tokens };
                let lead = replica.lead();
                let admitted = lead.admit(admission(&plan, &model, start)).unwrap();
                assert_eq!(admitted, Ok((0, 4)));
                lead.drain().unwrap();
                replica.close().unwrap();
                let found = stored(&store, &plan, &model).recovered.unwrap().state;
                let layout = layout_of(&plan.spec.adapter, &model, plan.spec.seed);
                assert_eq!(found.values.len(), layout.len);
                let what = format!("{stages} stages, tied {tied}: {:?}", plan.spec.adapter);
                assert_same_state(whole.get_or_insert_with(|| found.clone()), &found, &what);
            }
        }
    }
}

/// A job that is paused, goes on, and one that is cancelled: neither shows in the bits of the others.
#[test]
fn jobs_halt_and_go_on_between_rounds() {
    let model = tiny::model(Family::Llama, true);
    let names = ["goes", "pauses", "cancelled"];
    let plans: Vec<Plan> = names
        .iter()
        .enumerate()
        .map(|(index, name)| {
            let mut plan = plain(name, methods::every().remove(index));
            plan.spec.train.steps = Some(6);
            plan
        })
        .collect();
    let one = on_one(&model, &plans, 200);
    let store = store();
    let mut replica = Manner::new(3, 50).start(&model, &store);
    let lead = replica.lead();
    let [goes, pauses, cancelled] = [0, 1, 2].map(|at| plans[at].spec.name.clone());
    for plan in &plans {
        let mut job = admission(plan, &model, begin(&store, plan, &model));
        job.paused = plan.spec.name == pauses;
        assert_eq!(lead.admit(job).unwrap(), Ok((0, 6)));
    }
    let mut events = BTreeMap::new();
    gather(lead.round().unwrap(), &mut events);
    assert_eq!(lead.standing(&pauses), Some(&Standing::Paused));
    assert!(lead.act(&pauses, JobAction::Resume).unwrap());
    assert!(lead.act(&cancelled, JobAction::Cancel).unwrap());
    gather(lead.round().unwrap(), &mut events);
    assert!(lead.act(&pauses, JobAction::Pause).unwrap());
    while !lead.is_idle() {
        gather(lead.round().unwrap(), &mut events);
    }
    gather(lead.drain().unwrap(), &mut events);
    let of = |job| &events[job];
    let ended = of(&cancelled).iter().find_map(|event| match event {
        ReplicaEvent::Cancelled { step, .. } => Some(*step),
        _ => None,
    });
    assert!(
        ended.is_some_and(|step| (1..6).contains(&step)),
        "{events:?}"
    );
    assert_eq!(lead.standing(&cancelled), None);
    let halted = of(&pauses)
        .iter()
        .any(|event| matches!(event, ReplicaEvent::Paused { .. }));
    assert!(halted, "{events:?}");
    assert_eq!(lead.progress(&goes).unwrap().0.step, 6);
    assert!(!lead.act(&goes, JobAction::Pause).unwrap(), "it has ended");
    assert!(lead.act(&pauses, JobAction::Resume).unwrap());
    to_the_end(lead);
    replica.close().unwrap();
    assert_ends(&one[..2], &plans[..2], (&store, &model), "recovered");
    let kept = stored(&store, &plans[2], &model).recovered.unwrap();
    assert_eq!(Some(kept.state.progress.step), ended);
}

/// A store that gives a part of a state once a part of each stage was asked for, or is waited for too long.
#[derive(Debug, Default)]
struct Together {
    inner: MemoryArtifacts,
    /// Stages; none: it gives what it has.
    stages: AtomicUsize,
    asked: Mutex<BTreeSet<String>>,
    one_more: Condvar,
}

impl Artifacts for Together {
    fn get(&self, key: &str) -> Result<Vec<u8>, ArtifactError> {
        let stages = self.stages.load(Ordering::Acquire);
        if stages > 0 && key.contains("layers-") {
            let mut asked = self.asked.lock().unwrap();
            asked.insert(key.to_owned());
            self.one_more.notify_all();
            let few = |asked: &mut BTreeSet<String>| asked.len() < stages;
            let wait = self.one_more.wait_timeout_while(asked, PATIENCE, few);
            if wait.unwrap().1.timed_out() {
                let (key, reason) = (key.to_owned(), "the other stages did not ask".to_owned());
                return Err(ArtifactError::Failed { key, reason });
            }
        }
        self.inner.get(key)
    }
    fn put(&self, key: &str, bytes: &[u8]) -> Result<(), ArtifactError> {
        self.inner.put(key, bytes)
    }
    fn create(&self, key: &str, bytes: &[u8]) -> Result<bool, ArtifactError> {
        self.inner.create(key, bytes)
    }
    fn list(&self, prefix: &str) -> Result<Vec<String>, ArtifactError> {
        self.inner.list(prefix)
    }
    fn delete(&self, key: &str) -> Result<(), ArtifactError> {
        self.inner.delete(key)
    }
}

/// How long a stage waits for the others to ask.
const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn all_stages_read_their_parts_of_a_state_at_once() {
    let model = tiny::model(Family::Llama, true);
    let plan = plain("one", methods::every().remove(0));
    let together = Arc::new(Together::default());
    let store: Store = Arc::clone(&together) as Store;
    let mut replica = Manner::new(3, 50).start(&model, &store);
    admit(replica.lead(), &plan, &model, &store);
    replica.lead().round().unwrap();
    replica.lead().drain().unwrap();
    replica.close().unwrap();
    let found = stored(&store, &plan, &model).recovered.unwrap();
    let mut replica = Manner::new(3, 50).start(&model, &store);
    together.stages.store(3, Ordering::Release);
    let job = admission(&plan, &model, Start::Stored(Box::new(found.manifest)));
    assert!(replica.lead().admit(job).unwrap().is_ok());
    replica.kill();
}
