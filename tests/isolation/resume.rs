//! A job that goes on from a checkpoint, in another session with other neighbours, ends with the same bits.

use gpu_actor::train::session::{JobState, Standing, layout_of};
use gpu_actor::train::store::{self, Identity};
use proptest::prelude::*;

use gpu_actor::train::event::{Ending, Event};
use shared::job::{AdapterSpec, BitFitSpec, CheckpointSpec, EvalSpec, Targets};

use crate::cases;
use crate::plan::{self, plain};
use crate::run::{Manner, admit, alone, assert_same_state};
use crate::tiny;

proptest! {
    #![proptest_config(cases(10))]

    /// Public bugs: huggingface/accelerate #2016, paiml/entrenar #294, PolymathicAI/the_well #77.
    #[test]
    fn a_job_that_was_interrupted_ends_as_if_it_was_not(
        plans in plan::any_plans(2..4),
        interrupted_after in 0..4u64,
        tokens_per_pass in 1..500usize,
    ) {
        let model = tiny::llama();
        let plan = &plans[0];
        let name = &plan.spec.name;
        let folder = tempfile::tempdir().unwrap();
        let identity = Identity {
            spec: plan.spec.clone(),
            backbone: "tiny".into(),
            data: "rows".into(),
            start: None,
            products: shared::job::Products::F32,
        };

        let mut session = Manner::new(1, tokens_per_pass).session(&model);
        admit(&mut session, &model, plan, None);
        for _ in 0..interrupted_after {
            session.round();
        }
        store::save(folder.path(), &identity, &session.state(name).unwrap()).unwrap();
        drop(session);

        let state = store::newest(folder.path(), &identity).unwrap().state.unwrap();
        let mut session = Manner::new(2, 300).session(&model);
        for neighbour in &plans[1..] {
            admit(&mut session, &model, neighbour, None);
        }
        admit(&mut session, &model, plan, Some(state));
        while session.standing(name) == Some(&Standing::Active) {
            session.round();
        }
        let expected = alone(&model, plan, &Manner::new(1, 300));
        let ended = session.state(name).unwrap();
        assert_same_state(&expected.state, &ended, "after the interruption");
    }
}

#[test]
fn a_job_that_was_stopped_early_stays_stopped() {
    let model = tiny::llama();
    let bias = BitFitSpec {
        targets: Targets::Group("attention".into()),
    };
    let mut plan = plain("stopped-early", AdapterSpec::BitFit(bias));
    plan.spec.train.steps = Some(50);
    // No loss is this much lower than the one before.
    plan.spec.eval = EvalSpec {
        every_steps: Some(1),
        patience: Some(2),
        min_delta: 1e6,
    };
    let manner = Manner::new(1, 300);
    let stopped = alone(&model, &plan, &manner);
    let early = Standing::Finished(Ending::EarlyStopping);
    assert_eq!(stopped.standing, early);

    // Killed between its last checkpoint and the writing of its adapter.
    let name = &plan.spec.name;
    let mut session = manner.session(&model);
    admit(&mut session, &model, &plan, Some(stopped.state.clone()));
    assert_eq!(session.standing(name), Some(&early));
    assert!(session.round().is_empty());
    let state = session.state(name).unwrap();
    assert_same_state(&stopped.state, &state, "after the interruption");
}

/// A checkpoint that another program made up: each part must be of this job before a step is taken.
#[test]
fn a_state_of_another_job_is_refused_in_words() {
    let model = tiny::llama();
    let bias = BitFitSpec {
        targets: Targets::Group("attention".into()),
    };
    let plan = plain("one", AdapterSpec::BitFit(bias));
    let manner = Manner::new(1, 300);
    let sound = alone(&model, &plan, &manner).state;
    type Change = fn(&mut JobState);
    let changes: [(Change, &str); 5] = [
        (|state| state.values.truncate(1), "values"),
        (|state| state.optimizer.first.truncate(1), "moments"),
        (|state| state.optimizer.second.push(0.0), "moments"),
        (|state| state.optimizer.step += 1, "its optimizer took"),
        (
            |state| {
                state.optimizer.step += 1_000_000;
                state.progress.step += 1_000_000;
            },
            "the job has",
        ),
    ];
    for (change, words) in changes {
        let mut state = sound.clone();
        change(&mut state);
        let layout = layout_of(&plan.spec.adapter, &model, plan.spec.seed);
        let values = plan.values(&layout, &model);
        let rows = plan.rows(model.shape.vocab);
        let mut session = manner.session(&model);
        let refused = session.admit(
            plan.spec.clone(),
            layout,
            values,
            rows,
            Vec::new(),
            Some(state),
        );
        let problem = refused.unwrap_err();
        assert!(problem.contains(words), "{problem}");
    }
}

/// A run that is killed between the two must not lose the evaluation: the checkpoint would count it as told.
#[test]
fn an_evaluation_is_told_before_the_checkpoint_that_counts_it() {
    let model = tiny::llama();
    let method = AdapterSpec::BitFit(BitFitSpec {
        targets: Targets::Group("all-linear".into()),
    });
    let mut plans = [plain("one", method.clone()), plain("two", method)];
    for plan in &mut plans {
        plan.spec.eval = EvalSpec {
            every_steps: Some(1),
            ..EvalSpec::default()
        };
        plan.spec.checkpoint = CheckpointSpec {
            every_steps: Some(1),
            ..CheckpointSpec::default()
        };
    }
    let mut session = Manner::new(1, 300).session(&model);
    for plan in &plans {
        admit(&mut session, &model, plan, None);
    }
    let mut due = 0;
    while !session.is_idle() {
        let events = session.round();
        let first = events
            .iter()
            .position(|event| matches!(event, Event::CheckpointDue { .. }));
        let (before, after) = events.split_at(first.unwrap());
        let told = |event: &&Event| matches!(event, Event::Step { .. } | Event::Evaluation { .. });
        assert!(before.iter().filter(told).count() >= 4, "{events:?}");
        assert_eq!(after.iter().filter(told).count(), 0, "{events:?}");
        due += after
            .iter()
            .filter(|event| matches!(event, Event::CheckpointDue { .. }))
            .count();
    }
    assert_eq!(due, 8, "one a step and job");
}

/// A store that takes states more slowly than steps end is not given more and more of them: one that fell due meanwhile is
/// stored as soon as it can be, and no bit shows it.
#[test]
fn a_checkpoint_that_a_slow_store_puts_off_is_made_up_for() {
    let model = tiny::llama();
    let method = AdapterSpec::BitFit(BitFitSpec {
        targets: Targets::Group("all-linear".into()),
    });
    let mut plan = plain("one", method);
    plan.spec.train.steps = Some(10);
    let due = |every: Option<u64>, behind: &dyn Fn(u64) -> bool| {
        let mut plan = plan.clone();
        plan.spec.checkpoint.every_steps = every;
        let mut session = Manner::new(1, 300).session(&model);
        admit(&mut session, &model, &plan, None);
        let mut due = Vec::new();
        for taken in 0.. {
            session.hasten(0, |_| behind(taken));
            for event in session.round() {
                if let Event::CheckpointDue { step, .. } = event {
                    due.push(step);
                }
            }
            if session.is_idle() {
                break;
            }
        }
        (due, session.state(&plan.spec.name).unwrap())
    };
    let (steps, peace) = due(Some(3), &|_| false);
    assert_eq!(steps, [3, 6, 9, 10]);
    let (steps, late) = due(Some(3), &|taken| (2..4).contains(&taken));
    assert_eq!(steps, [5, 6, 9, 10]);
    assert_same_state(&peace, &late, "beside a slow store");
    let (steps, _) = due(Some(1), &|taken| taken % 3 != 0);
    assert_eq!(steps, [1, 4, 7, 10]);
    // In one process a job that does not say is stored seldom.
    assert_eq!(due(None, &|_| false).0, [10]);
}
