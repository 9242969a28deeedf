//! Plans in a session on one stage, and on replicas of several.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use data::rows::TokenRow;
use gpu_actor::artifacts::Artifacts;
use gpu_actor::artifacts::memory::MemoryArtifacts;
use gpu_actor::artifacts::{first, recover};
use gpu_actor::model::Model;
use gpu_actor::replica::error::ReplicaError;
use gpu_actor::replica::event::ReplicaEvent;
use gpu_actor::replica::lead::{Admission, Lead, Start};
use gpu_actor::replica::local::{LocalReplica, LocalSettings};
use gpu_actor::train::event::Event;
use gpu_actor::train::identity::Identity;
use gpu_actor::train::job_state::JobState;
use gpu_actor::train::session::{Session, Standing, layout_of};
use kernels::cpu::Cpu;
use shared::ids::JobName;
use shared::plan::arrangement::Arrangement;
use shared::recompute::Recompute;
use system_tests::plan::Plan;

/// How a replica is run: none of it may show in any result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    /// Stages.
    pub(crate) stages: usize,
    /// Compute threads.
    pub(crate) threads: usize,
    /// Most rows of a micro-batch.
    pub(crate) tokens_per_pass: usize,
    /// Bytes of activations on a stage.
    pub(crate) budget: u64,
    /// Layers of every stage that run forward again.
    pub(crate) recompute: Recompute,
    /// Chunks a stage may be ahead.
    pub(crate) credits: usize,
    /// Rounds planned at once.
    pub(crate) ahead: usize,
    /// How long nothing may move.
    pub(crate) patience: Duration,
}

impl Manner {
    pub(crate) fn new(stages: usize, tokens_per_pass: usize) -> Self {
        Self {
            stages,
            threads: 2,
            tokens_per_pass,
            budget: u64::MAX,
            recompute: Recompute::None,
            credits: 2,
            ahead: 3,
            patience: Duration::from_secs(120),
        }
    }

    /// A replica without jobs.
    pub(crate) fn start(&self, model: &Model, store: &Store) -> LocalReplica {
        self.start_linked(model, store, 1).pop().unwrap()
    }

    pub(crate) fn settings(&self) -> LocalSettings {
        let mut settings = LocalSettings::new(self.tokens_per_pass);
        settings.budget = self.budget;
        settings.recompute = self.recompute;
        settings.credits = self.credits;
        settings.lead.ahead = self.ahead;
        settings.lead.least_rows = 16;
        settings.patience = self.patience;
        settings
    }

    /// Replicas that can share steps, without jobs.
    pub(crate) fn start_linked(
        &self,
        model: &Model,
        store: &Store,
        replicas: u32,
    ) -> Vec<LocalReplica> {
        let cpu = Cpu::new(self.threads).unwrap();
        let settings = self.settings();
        LocalReplica::start_linked(model, &cpu, (replicas, self.stages), store, &settings).unwrap()
    }
}

/// A store that stages share.
pub(crate) type Store = Arc<dyn Artifacts>;

/// An empty store.
pub(crate) fn store() -> Store {
    Arc::new(MemoryArtifacts::default())
}

/// What is left of a job.
#[derive(Clone, Debug)]
pub(crate) struct Remains {
    /// What was told of it, reasons left out: on which stage a number broke may show in them.
    pub(crate) events: Vec<Event>,
    /// Its last state.
    pub(crate) state: JobState,
    /// Whether it was set aside.
    pub(crate) aside: bool,
}

/// Values and moments as bits.
pub(crate) fn state_bits(state: &JobState) -> [Vec<u32>; 3] {
    let optimizer = &state.optimizer;
    [&state.values, &optimizer.first, &optimizer.second]
        .map(|list| list.iter().map(|value| value.to_bits()).collect())
}

/// Training and held-out rows of a plan.
pub(crate) fn rows(plan: &Plan, vocab: usize) -> (Vec<TokenRow>, Vec<TokenRow>) {
    let rows = plan.rows(vocab);
    let held_out = match plan.spec.eval.every_steps {
        Some(_) => rows.iter().take(2).cloned().collect(),
        None => Vec::new(),
    };
    (rows, held_out)
}

/// The state before the first step.
pub(crate) fn fresh(plan: &Plan, model: &Model) -> JobState {
    let layout = layout_of(&plan.spec.adapter, model, plan.spec.seed);
    JobState::fresh(&plan.spec, plan.values(&layout, model))
}

/// What a plan's states belong to.
pub(crate) fn identity(plan: &Plan) -> Identity {
    Identity {
        spec: plan.spec.clone(),
        backbone: "tiny".into(),
        data: "rows".into(),
        start: None,
        products: shared::job::Products::F32,
    }
}

/// The newest sound state of a plan's job.
pub(crate) fn stored(store: &Store, plan: &Plan, model: &Model) -> recover::Found {
    let layout = layout_of(&plan.spec.adapter, model, plan.spec.seed);
    recover::newest(&**store, &plan.spec.name, &identity(plan), &layout).unwrap()
}

/// A plan's job from this state, which is stored before.
pub(crate) fn from_state(store: &Store, plan: &Plan, model: &Model, state: JobState) -> Start {
    let (job, layers) = ((&plan.spec.name, &identity(plan)), model.shape.layers);
    let manifest = first::store(&**store, job, state, layers, (0, 0)).unwrap();
    Start::Stored(Box::new(manifest))
}

/// A plan's job from its first state.
pub(crate) fn begin(store: &Store, plan: &Plan, model: &Model) -> Start {
    from_state(store, plan, model, fresh(plan, model))
}

/// A job of a plan, from this state.
pub(crate) fn admission(plan: &Plan, model: &Model, start: Start) -> Admission {
    let (rows, eval_rows) = rows(plan, model.shape.vocab);
    Admission {
        name: plan.spec.name.clone(),
        identity: identity(plan),
        rows,
        eval_rows,
        start,
        paused: false,
        replicas: Vec::new(),
    }
}

/// Puts a plan's job on a replica, from its newest state in the store or fresh.
pub(crate) fn admit(lead: &mut Lead, plan: &Plan, model: &Model, store: &Store) {
    admit_on(lead, plan, model, store, &[]);
}

/// The same, with steps that these replicas share.
pub(crate) fn admit_on(
    lead: &mut Lead,
    plan: &Plan,
    model: &Model,
    store: &Store,
    replicas: &[u32],
) {
    // A keeper that outlived its replica may remove a state that was just found, but not without a newer one.
    loop {
        let (start, step) = match stored(store, plan, model).recovered {
            Some(recovered) => {
                let step = recovered.state.progress.step;
                (Start::Stored(Box::new(recovered.manifest)), step)
            }
            None => (begin(store, plan, model), 0),
        };
        let job = Admission {
            replicas: replicas.to_vec(),
            ..admission(plan, model, start)
        };
        match lead.admit(job).unwrap() {
            Ok((taken, _)) => {
                assert_eq!(taken, step);
                // One alone has nobody to share with.
                let shared = if replicas.len() > 1 { replicas } else { &[] };
                assert_eq!(lead.sharing(&plan.spec.name), shared);
                return;
            }
            Err(problem) => {
                let newer = stored(store, plan, model).recovered.unwrap();
                assert!(newer.state.progress.step > step, "{problem}");
            }
        }
    }
}

/// Events with reasons left out.
fn told(event: Event) -> Event {
    match event {
        Event::Quarantined { job, step, .. } => Event::Quarantined {
            job,
            step,
            reason: String::new(),
        },
        event => event,
    }
}

/// Puts a plan's job into a session on one stage.
pub(crate) fn admit_to(session: &mut Session, model: &Model, plan: &Plan) {
    let (rows, held_out) = rows(plan, model.shape.vocab);
    let layout = layout_of(&plan.spec.adapter, model, plan.spec.seed);
    let values = plan.values(&layout, model);
    session
        .admit(plan.spec.clone(), layout, values, rows, held_out, None)
        .unwrap();
}

/// All jobs together in a session on one stage, each from the round in which it arrives.
pub(crate) fn on_one(model: &Arc<Model>, plans: &[Plan], tokens_per_pass: usize) -> Vec<Remains> {
    let mut session = Session::new(model.clone(), Cpu::new(2).unwrap(), tokens_per_pass);
    let mut events: BTreeMap<JobName, Vec<Event>> = BTreeMap::new();
    let mut round = 0;
    while !session.is_idle() || plans.iter().any(|plan| plan.arrives >= round) {
        for plan in plans.iter().filter(|plan| plan.arrives == round) {
            admit_to(&mut session, model, plan);
        }
        for event in session.round() {
            if !matches!(event, Event::CheckpointDue { .. }) {
                events
                    .entry(event.job().clone())
                    .or_default()
                    .push(told(event));
            }
        }
        round += 1;
    }
    let remains = plans.iter().map(|plan| {
        let name = &plan.spec.name;
        Remains {
            events: events.remove(name).unwrap_or_default(),
            state: session.state(name).unwrap(),
            aside: matches!(session.standing(name), Some(Standing::Quarantined(_))),
        }
    });
    remains.collect()
}

/// All jobs together on a replica, each from the round in which it arrives; a job that ended leaves at once.
pub(crate) fn on_stages(model: &Arc<Model>, plans: &[Plan], manner: &Manner) -> Vec<Remains> {
    on_stages_arranged(model, plans, manner, &Arrangement::default())
}

/// The same, arranged so from before the first comes.
pub(crate) fn on_stages_arranged(
    model: &Arc<Model>,
    plans: &[Plan],
    manner: &Manner,
    arrangement: &Arrangement<JobName>,
) -> Vec<Remains> {
    let store = store();
    let mut replica = manner.start(model, &store);
    replica.lead().arrange(arrangement.clone());
    let all: Vec<&Plan> = plans.iter().collect();
    let told = match rounds(&mut replica, &all, model, &store, &[]) {
        Ok(told) => told,
        // The stage that failed says more than the lead, which lost it.
        Err(error) => panic!("{}", replica.cause(error)),
    };
    replica.close().unwrap();
    remains(plans, told, &store, model)
}

/// What was told, by job, and which jobs were set aside.
pub(crate) type Heard = (BTreeMap<JobName, Vec<ReplicaEvent>>, Vec<JobName>);

/// Rounds on a replica until its jobs are done and all is stored; their steps are shared with these replicas, the own
/// first.
pub(crate) fn rounds(
    replica: &mut LocalReplica,
    plans: &[&Plan],
    model: &Arc<Model>,
    store: &Store,
    replicas: &[u32],
) -> Result<Heard, ReplicaError> {
    let mut events: BTreeMap<JobName, Vec<ReplicaEvent>> = BTreeMap::new();
    let mut aside = Vec::new();
    let mut round = 0;
    while !replica.lead().is_idle() || plans.iter().any(|plan| plan.arrives >= round) {
        for plan in plans.iter().filter(|plan| plan.arrives == round) {
            admit_on(replica.lead(), plan, model, store, replicas);
        }
        let told = replica.lead().round()?;
        gather(told, &mut events);
        let lead = replica.lead();
        let ended: Vec<JobName> = lead
            .jobs()
            .filter(|job| !matches!(lead.standing(job), Some(Standing::Active)))
            .cloned()
            .collect();
        for job in ended {
            let step = lead.progress(&job).unwrap().0.step;
            if lead.durable(&job) == Some(step) {
                if let Some(Standing::Quarantined(_)) = lead.standing(&job) {
                    aside.push(job.clone());
                }
                assert!(lead.remove(&job)?);
            }
        }
        round += 1;
    }
    let lead = replica.lead();
    gather(lead.drain()?, &mut events);
    for job in lead.jobs().cloned().collect::<Vec<_>>() {
        if let Some(Standing::Quarantined(_)) = lead.standing(&job) {
            aside.push(job);
        }
    }
    Ok((events, aside))
}

/// What is left of jobs of which this was told.
pub(crate) fn remains(
    plans: &[Plan],
    (mut events, aside): Heard,
    store: &Store,
    model: &Model,
) -> Vec<Remains> {
    let remains = plans.iter().map(|plan| {
        let name = &plan.spec.name;
        let training = events.remove(name).unwrap_or_default();
        let training = training.into_iter().filter_map(|event| match event {
            ReplicaEvent::Training(event) => Some(told(event)),
            // A job that joined behind rounds on their way is not stored before its first step, unless that breaks.
            ReplicaEvent::Durable { step, .. } if step > 0 || aside.contains(name) => None,
            other => panic!("{other:?}"),
        });
        Remains {
            events: training.collect(),
            state: stored(store, plan, model).recovered.unwrap().state,
            aside: aside.contains(name),
        }
    });
    remains.collect()
}

/// Sorts events by job.
pub(crate) fn gather(events: Vec<ReplicaEvent>, by_job: &mut BTreeMap<JobName, Vec<ReplicaEvent>>) {
    for event in events {
        let job = match &event {
            ReplicaEvent::Training(event) => event.job(),
            ReplicaEvent::Durable { job, .. }
            | ReplicaEvent::NotDurable { job, .. }
            | ReplicaEvent::NotShared { job, .. }
            | ReplicaEvent::Paused { job, .. }
            | ReplicaEvent::Resumed { job }
            | ReplicaEvent::Cancelled { job, .. } => job,
        };
        by_job.entry(job.clone()).or_default().push(event);
    }
}

/// Asserts that a replica leaves what one stage does, to the last bit.
pub(crate) fn assert_same(one: &[Remains], many: &[Remains], plans: &[Plan], what: &str) {
    for ((one, many), plan) in one.iter().zip(many).zip(plans) {
        let spec = &plan.spec;
        let what = format!("{what}, {}: {:?}", spec.name, spec.adapter);
        assert_eq!(one.events, many.events, "{what}: events");
        assert_same_state(&one.state, &many.state, &what);
        assert_eq!(one.aside, many.aside, "{what}: ends");
    }
}

/// What is durable of each job at its end is what it came to on one stage.
pub(crate) fn assert_ends(
    one: &[Remains],
    plans: &[Plan],
    (store, model): (&Store, &Model),
    about: &str,
) {
    for (one, plan) in one.iter().zip(plans) {
        let found = stored(store, plan, model).recovered.unwrap();
        let what = format!("{about}, {}: {:?}", plan.spec.name, plan.spec.adapter);
        assert_same_state(&one.state, &found.state, &what);
    }
}

/// Asserts that two states are the same to the last bit.
pub(crate) fn assert_same_state(one: &JobState, many: &JobState, what: &str) {
    assert!(state_bits(one) == state_bits(many), "{what}: state");
    assert_eq!(one.optimizer.step, many.optimizer.step, "{what}: steps");
    assert_eq!(one.progress, many.progress, "{what}: progress");
}
