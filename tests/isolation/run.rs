//! Plans in a session, alone or together, and what is left of each.

use std::collections::BTreeMap;
use std::sync::Arc;

use gpu_actor::model::Model;
use gpu_actor::train::event::Event;
use gpu_actor::train::session::{JobState, Session, Standing, layout_of};
use kernels::cpu::{Cpu, Products};
use shared::ids::JobName;

use crate::plan::Plan;

/// How a session is run: none of it may show in any result.
#[derive(Clone, Debug)]
pub(crate) struct Manner {
    /// The device.
    pub(crate) cpu: Cpu,
    /// Most rows of a pass.
    pub(crate) tokens_per_pass: usize,
    /// Rows above which a sequence is cut.
    pub(crate) chunk_tokens: usize,
    /// Layers that run forward again.
    pub(crate) recomputed: usize,
}

/// What a job leaves behind.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// Everything that happened to it.
    pub(crate) events: Vec<Event>,
    /// How it ended.
    pub(crate) standing: Standing,
    /// Its values, moments and progress.
    pub(crate) state: JobState,
}

impl Manner {
    /// So many threads and rows a pass.
    pub(crate) fn new(threads: usize, tokens_per_pass: usize) -> Self {
        Self {
            cpu: Cpu::new(threads).unwrap(),
            tokens_per_pass,
            chunk_tokens: tokens_per_pass,
            recomputed: 0,
        }
    }

    /// The same with another arithmetic of frozen products, which shows.
    pub(crate) fn with_products(self, products: Products) -> Self {
        let cpu = self.cpu.with_products(products);
        Self { cpu, ..self }
    }

    /// A session without jobs.
    pub(crate) fn session(&self, model: &Arc<Model>) -> Session {
        let mut session = Session::new(Arc::clone(model), self.cpu.clone(), self.tokens_per_pass);
        session.cut_above(self.chunk_tokens);
        session.stage_mut().recompute(self.recomputed);
        session
    }
}

/// Adds a plan's job to a session.
pub(crate) fn admit(session: &mut Session, model: &Model, plan: &Plan, state: Option<JobState>) {
    let problems = plan.spec.problems(&model.shape);
    assert!(problems.is_empty(), "{problems:?}");
    let layout = layout_of(&plan.spec.adapter, model, plan.spec.seed);
    let values = plan.values(&layout, model);
    let rows = plan.rows(model.shape.vocab);
    // The first row is held out too: evaluations must not disturb anybody either.
    let held_out = match plan.spec.eval.every_steps {
        Some(_) => vec![rows[0].clone()],
        None => Vec::new(),
    };
    let spec = plan.spec.clone();
    session
        .admit(spec, layout, values, rows, held_out, state)
        .unwrap();
}

/// Runs plans together, each from the round in which it arrives; a job that ends leaves at once.
pub(crate) fn together(
    model: &Arc<Model>,
    plans: &[Plan],
    manner: &Manner,
) -> BTreeMap<JobName, Record> {
    let mut session = manner.session(model);
    let mut events: BTreeMap<JobName, Vec<Event>> = BTreeMap::new();
    let mut records = BTreeMap::new();
    let mut round = 0;
    while records.len() < plans.len() {
        for plan in plans.iter().filter(|plan| plan.arrives == round) {
            admit(&mut session, model, plan, None);
        }
        for event in session.round() {
            events.entry(event.job().clone()).or_default().push(event);
        }
        for plan in plans {
            let name = &plan.spec.name;
            let ended = session.standing(name).filter(|s| **s != Standing::Active);
            if let Some(standing) = ended.cloned() {
                let state = session.remove(name).unwrap();
                let events = events.remove(name).unwrap_or_default();
                records.insert(
                    name.clone(),
                    Record {
                        events,
                        standing,
                        state,
                    },
                );
            }
        }
        round += 1;
        assert!(round < 1_000, "jobs that do not end");
    }
    records
}

/// Runs one plan alone.
pub(crate) fn alone(model: &Arc<Model>, plan: &Plan, manner: &Manner) -> Record {
    let plan = Plan {
        arrives: 0,
        ..plan.clone()
    };
    let mut records = together(model, std::slice::from_ref(&plan), manner);
    records.remove(&plan.spec.name).unwrap()
}

/// Asserts that two records are the same to the last bit.
pub(crate) fn assert_same(left: &Record, right: &Record, what: &str) {
    assert_eq!(left.events, right.events, "{what}: events differ");
    assert_eq!(left.standing, right.standing, "{what}: ends differ");
    assert_same_state(&left.state, &right.state, what);
}

/// Asserts that two states are the same to the last bit.
pub(crate) fn assert_same_state(left: &JobState, right: &JobState, what: &str) {
    let bits = |values: &[f32]| -> Vec<u32> { values.iter().map(|v| v.to_bits()).collect() };
    for (left, right, part) in [
        (&left.values, &right.values, "values"),
        (
            &left.optimizer.first,
            &right.optimizer.first,
            "first moments",
        ),
        (
            &left.optimizer.second,
            &right.optimizer.second,
            "second moments",
        ),
    ] {
        assert!(bits(left) == bits(right), "{what}: {part} differ");
    }
    assert_eq!(left.optimizer.step, right.optimizer.step, "{what}: steps");
    assert_eq!(left.progress, right.progress, "{what}: progress differs");
}
