//! Plans on one stage, by the session, and on several.

use std::collections::BTreeMap;
use std::sync::Arc;

use data::rows::TokenRow;
use gpu_actor::model::Model;
use gpu_actor::stage::optim::{OptimizerState, Rule};
use gpu_actor::train::event::Event;
use gpu_actor::train::pack::Request;
use gpu_actor::train::pipelined::{Pipelined, Step, StepOutcome};
use gpu_actor::train::progress;
use gpu_actor::train::session::{Session, Standing, layout_of};
use kernels::cpu::Cpu;
use system_tests::plan::Plan;

/// How a pipeline is run: none of it may show in any result.
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
    /// Chunks a stage may be ahead.
    pub(crate) credits: usize,
}

impl Manner {
    pub(crate) fn new(stages: usize, tokens_per_pass: usize) -> Self {
        Self {
            stages,
            threads: 2,
            tokens_per_pass,
            budget: u64::MAX,
            credits: 2,
        }
    }
}

/// What is left of a job.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Remains {
    /// Loss, accuracy and norm of each step as bits.
    pub(crate) steps: Vec<[u64; 3]>,
    /// Values and moments as bits.
    pub(crate) state: Vec<Vec<u32>>,
    /// Steps taken.
    pub(crate) taken: u64,
    /// Whether the job was set aside.
    pub(crate) aside: bool,
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Values and moments as bits.
pub(crate) fn state_bits(values: &[f32], optimizer: &OptimizerState) -> Vec<Vec<u32>> {
    vec![
        bits(values),
        bits(&optimizer.first),
        bits(&optimizer.second),
    ]
}

fn step_bits(loss: f64, accuracy: f64, norm: f64) -> [u64; 3] {
    [loss, accuracy, norm].map(f64::to_bits)
}

/// All jobs together in a session on one stage.
pub(crate) fn on_one(model: &Arc<Model>, plans: &[Plan], tokens_per_pass: usize) -> Vec<Remains> {
    let mut session = Session::new(model.clone(), Cpu::new(2).unwrap(), tokens_per_pass);
    for plan in plans {
        let (spec, rows) = (plan.spec.clone(), plan.rows(model.shape.vocab));
        let layout = layout_of(&spec.adapter, model, spec.seed);
        let values = plan.values(&layout, model);
        session
            .admit(spec, layout, values, rows, Vec::new(), None)
            .unwrap();
    }
    let mut steps: BTreeMap<_, Vec<[u64; 3]>> = BTreeMap::new();
    while !session.is_idle() {
        for event in session.round() {
            if let Event::Step {
                job,
                loss,
                accuracy,
                gradient_norm,
                ..
            } = event
            {
                let numbers = step_bits(loss, accuracy, gradient_norm);
                steps.entry(job).or_default().push(numbers);
            }
        }
    }
    let remains = plans.iter().map(|plan| {
        let name = &plan.spec.name;
        let aside = matches!(session.standing(name), Some(Standing::Quarantined(_)));
        let state = session.state(name).unwrap();
        Remains {
            steps: steps.remove(name).unwrap_or_default(),
            state: state_bits(&state.values, &state.optimizer),
            taken: state.optimizer.step,
            aside,
        }
    });
    remains.collect()
}

/// All jobs together on a pipeline, all their steps planned at once.
pub(crate) fn on_stages(
    model: &Arc<Model>,
    plans: &[Plan],
    manner: &Manner,
) -> (Vec<Remains>, Vec<StepOutcome>) {
    let fresh = plans.iter().map(|plan| {
        let layout = layout_of(&plan.spec.adapter, model, plan.spec.seed);
        OptimizerState::new(&plan.spec.optimizer, layout.len)
    });
    let fresh: Vec<OptimizerState> = fresh.collect();
    run(model, plans, &fresh, manner)
}

/// One job on a pipeline, from moments of before.
pub(crate) fn from(
    model: &Arc<Model>,
    plan: &Plan,
    optimizer: &OptimizerState,
    manner: &Manner,
) -> (Remains, Vec<StepOutcome>) {
    let (plans, states) = (std::slice::from_ref(plan), std::slice::from_ref(optimizer));
    let (mut remains, outcomes) = run(model, plans, states, manner);
    (remains.remove(0), outcomes)
}

fn run(
    model: &Arc<Model>,
    plans: &[Plan],
    states: &[OptimizerState],
    manner: &Manner,
) -> (Vec<Remains>, Vec<StepOutcome>) {
    let cpu = Cpu::new(manner.threads).unwrap();
    let mut pipeline = Pipelined::new(model, cpu, manner.stages).unwrap();
    pipeline.budget = manner.budget;
    pipeline.credits = manner.credits;
    let mut slots = Vec::new();
    for (plan, state) in plans.iter().zip(states) {
        let spec = &plan.spec;
        let layout = layout_of(&spec.adapter, model, spec.seed);
        let values = plan.values(&layout, model);
        let rule = Rule::new(&spec.optimizer, &spec.adapter);
        slots.push(pipeline.admit(&layout, spec.seed, &rule, &values, state));
    }
    let rows: Vec<Vec<TokenRow>> = plans.iter().map(|p| p.rows(model.shape.vocab)).collect();
    let rounds = rounds(model, plans, &rows, &slots);
    let outcomes = pipeline.run(&rounds, manner.tokens_per_pass).unwrap();
    let remains = slots.iter().map(|&slot| {
        let own: Vec<&StepOutcome> = outcomes.iter().filter(|o| o.slot == slot).collect();
        let taken = own.iter().filter_map(|outcome| {
            let norm = outcome.numbers.as_ref().ok()?.gradient_norm;
            Some(step_bits(outcome.loss, outcome.accuracy, norm))
        });
        let (values, optimizer) = pipeline.state(slot).unwrap();
        Remains {
            steps: taken.collect(),
            state: state_bits(&values, &optimizer),
            taken: optimizer.step,
            aside: own.iter().any(|outcome| outcome.numbers.is_err()),
        }
    });
    (remains.collect(), outcomes)
}

/// The steps of all jobs, in the order in which a session takes them: that of their names.
fn rounds<'a>(
    model: &Model,
    plans: &[Plan],
    rows: &'a [Vec<TokenRow>],
    slots: &[usize],
) -> Vec<Vec<Step<'a>>> {
    let mut rounds: Vec<Vec<Step<'a>>> = Vec::new();
    for ((plan, rows), &slot) in plans.iter().zip(rows).zip(slots) {
        let spec = &plan.spec;
        let layout = layout_of(&spec.adapter, model, spec.seed);
        let total = progress::total_steps(&spec.train, rows.len());
        let mut batches = progress::batches(spec, rows.len());
        for step in 0..total {
            let chosen = batches.rows(step);
            let request = Request {
                slot,
                prompt_tokens: layout.prompt.as_ref().map_or(0, |p| p.tokens),
                prefix_tokens: layout.prefix.as_ref().map_or(0, |p| p.tokens),
                step,
                rows: chosen.iter().map(|&row| &rows[row as usize]).collect(),
            };
            let peak = spec.optimizer.learning_rate;
            let learning_rate = spec.schedule.learning_rate(peak, step, total);
            let step = step as usize;
            rounds.resize_with(rounds.len().max(step + 1), Vec::new);
            rounds[step].push(Step {
                request,
                learning_rate,
            });
        }
    }
    rounds
}

/// Asserts that a pipeline leaves what one stage does, to the last bit.
pub(crate) fn assert_same(one: &[Remains], many: &[Remains], plans: &[Plan], what: &str) {
    for ((one, many), plan) in one.iter().zip(many).zip(plans) {
        let spec = &plan.spec;
        let what = format!("{what}, {}: {:?}", spec.name, spec.adapter);
        assert_eq!(one.steps, many.steps, "{what}: steps");
        assert!(one.state == many.state, "{what}: state");
        assert_eq!(
            (one.taken, one.aside),
            (many.taken, many.aside),
            "{what}: ends"
        );
    }
}
