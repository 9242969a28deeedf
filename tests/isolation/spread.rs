//! A long step is spread over turns, so that short ones pass beside it: no bit shows how, whoever comes, pauses, breaks,
//! leaves or is read in the middle of it.
//!
//! Public bug: NovaSky-AI/SkyRL #1846 (a client with small requests waits for seconds behind one with huge ones).

use gpu_actor::batch::Batch;
use gpu_actor::model::Model;
use gpu_actor::train::event::{Ending, Event};
use gpu_actor::train::memory::{self, Resident, Rows, StepSize};
use gpu_actor::train::session::{Halt, JobState, Session, Standing, layout_of};
use proptest::prelude::*;
use shared::ids::JobName;
use shared::job::{AdapterSpec, OptimizerKind};
use shared::plan::arrangement::Arrangement;
use shared::recompute::Recompute;
use system_tests::methods;

use crate::cases;
use crate::plan::{self, Plan, plain};
use crate::run::{Manner, admit, alone, assert_same, assert_same_state};
use crate::{method, tiny};

/// Turns of at most so many rows of a job.
fn turns_of(session: &mut Session, rows: u64) {
    session.arrange(Arrangement {
        turn_rows: Some(rows),
        ..Arrangement::default()
    });
}

/// A job's states alone, by steps taken.
fn history(model: &std::sync::Arc<Model>, plan: &Plan) -> Vec<JobState> {
    let mut session = Manner::new(1, 1000).session(model);
    admit(&mut session, model, plan, None);
    let name = &plan.spec.name;
    let mut states = vec![session.state(name).unwrap()];
    while !session.is_idle() {
        session.round();
        let state = session.state(name).unwrap();
        if state.progress.step as usize == states.len() {
            states.push(state);
        }
    }
    states
}

/// Reads a few tokens with a job's adapter.
fn read(session: &mut Session, name: &JobName) {
    let (Some(slot), Some(layout)) = (session.slot(name), session.layout(name)) else {
        return;
    };
    let prefix = layout.prefix.as_ref().map_or(0, |site| site.tokens);
    let mut batch = Batch::default();
    batch.push_continuation(slot, &[1, 2, 3], 0, prefix);
    session.stage_mut().logits(&batch, &[2], None);
}

/// What is done to a job before a round.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Pause,
    Resume,
    Read,
    /// All steps that are begun are ended, as before a checkpoint of everything.
    Settle,
}

fn any_deeds(jobs: usize) -> impl Strategy<Value = Vec<(usize, Deed, u64)>> {
    let deed = proptest::sample::select(vec![
        Deed::Pause,
        Deed::Resume,
        Deed::Resume,
        Deed::Read,
        Deed::Settle,
    ]);
    proptest::collection::vec((0..jobs, deed, 0..300u64), 1..12)
}

proptest! {
    #![proptest_config(cases(12))]

    #[test]
    fn turns_of_any_rows_leave_the_same_bits_as_each_job_alone(
        plans in plan::any_plans(4..5),
        broken in method::any_method(),
        longer in proptest::collection::vec(0..400usize, 4),
        deeds in any_deeds(4),
        (tokens_per_pass, threads) in (1..300usize, 1..3usize),
    ) {
        let model = tiny::llama();
        let mut plans = plans;
        for (plan, longer) in plans.iter_mut().zip(longer) {
            plan.lengths.push(2 + longer);
        }
        let mut wrecked = plain("wrecked", broken);
        wrecked.spec.optimizer.kind = OptimizerKind::Sgd;
        wrecked.spec.optimizer.learning_rate = 1e30;
        plans.push(wrecked);
        let histories: Vec<_> = plans.iter().map(|plan| history(&model, plan)).collect();
        let mut session = Manner::new(threads, tokens_per_pass).session(&model);
        let mut events: Vec<Vec<Event>> = vec![Vec::new(); plans.len()];
        let mut take = |told: Vec<Event>| {
            for event in told {
                let at = plans.iter().position(|plan| plan.spec.name == *event.job());
                events[at.unwrap()].push(event);
            }
        };
        let mut script = deeds.into_iter().cycle();
        let mut round = 0;
        while round < 4 || !session.is_idle() {
            for plan in plans.iter().filter(|plan| plan.arrives == round) {
                admit(&mut session, &model, plan, None);
            }
            if round < 40 {
                let (job, deed, rows) = script.next().unwrap();
                let name = &plans[job].spec.name;
                turns_of(&mut session, rows);
                match deed {
                    Deed::Pause => { session.halt(name, Halt::Pause); }
                    Deed::Resume => { session.resume(name); }
                    Deed::Read => read(&mut session, name),
                    Deed::Settle => {
                        let Ok(told) = session.settle();
                        take(told);
                    }
                }
            } else {
                for plan in &plans {
                    session.resume(&plan.spec.name);
                }
            }
            take(session.round());
            // A state is that of a whole step at any time.
            for (plan, history) in plans.iter().zip(&histories) {
                let Some(state) = session.state(&plan.spec.name) else { continue };
                let then = &history[state.progress.step as usize];
                prop_assert!(state.values.iter().map(|v| v.to_bits()).eq(then.values.iter().map(|v| v.to_bits())));
                prop_assert_eq!(state.optimizer.step, state.progress.step);
            }
            round += 1;
            if session.is_idle() {
                for plan in &plans {
                    session.resume(&plan.spec.name);
                }
            }
            prop_assert!(round < 1_000, "jobs that do not end");
        }
        for (plan, events) in plans.iter().zip(events) {
            let name = &plan.spec.name;
            let expected = alone(&model, plan, &Manner::new(1, 300));
            let standing = session.standing(name).cloned().unwrap();
            let state = session.state(name).unwrap();
            let found = crate::run::Record { events, standing, state };
            assert_same(&expected, &found, name.as_str());
        }
    }
}

/// A job of eight rows of 300 tokens a step, twice.
fn giant() -> Plan {
    let mut giant = plain("giant", methods::every().remove(1));
    giant.lengths = vec![300; 8];
    giant.spec.train.batch_size = 8;
    giant.spec.train.steps = Some(2);
    giant
}

/// Jobs of one row of 20 tokens a step.
fn tiny_jobs() -> Vec<Plan> {
    let tiny = |index| {
        let mut plan = plain(&format!("tiny-{index}"), methods::every().remove(index));
        plan.lengths = vec![20; 5];
        plan.spec.train.batch_size = 1;
        plan.spec.train.steps = Some(30);
        plan
    };
    (0..4).map(tiny).collect()
}

/// Sums of gradients that wait between turns are memory: of each job whose step is spread, as many copies of it as the
/// number of its blocks so far has binary ones.
#[test]
fn what_waits_between_turns_is_no_more_than_was_foreseen() {
    let chosen = |spec: &AdapterSpec| match spec {
        AdapterSpec::Lora(_) => true,
        // What waits of a prefix is of its keys and values.
        AdapterSpec::Prefix(prefix) => prefix.projection.is_none(),
        _ => false,
    };
    methods::every()
        .iter()
        .filter(|spec| chosen(spec))
        .for_each(waits_as_foreseen);
}

fn waits_as_foreseen(adapter: &AdapterSpec) {
    let model = tiny::llama();
    let mut plans = vec![plain("small", adapter.clone())];
    plans[0].lengths = vec![20; 5];
    plans[0].spec.train.steps = Some(40);
    for name in ["one", "two", "three"] {
        let mut large = giant();
        (large.spec.name, large.spec.adapter) = (JobName::new(name).unwrap(), adapter.clone());
        plans.push(large);
    }
    let mut session = Manner::new(1, 64).session(&model);
    for plan in &plans {
        admit(&mut session, &model, plan, None);
    }
    let mut most = 0;
    while !session.is_idle() {
        session.round();
        let held = plans
            .iter()
            .map(|plan| session.job_bytes(&plan.spec.name).unwrap());
        most = held.sum::<u64>().max(most);
    }
    let layouts: Vec<_> = plans
        .iter()
        .map(|plan| layout_of(&plan.spec.adapter, &model, plan.spec.seed))
        .collect();
    let residents: Vec<Resident<'_>> = plans
        .iter()
        .zip(&layouts)
        .map(|(plan, layout)| Resident {
            spec: &plan.spec,
            layout,
            step: StepSize::of(&plan.spec, layout, plan.lengths.iter().copied()),
        })
        .collect();
    let sizes = Rows {
        pass: 64,
        chunk: 1_000,
        longest: 300,
    };
    let foreseen = |jobs: &[Resident<'_>], sizes| {
        memory::predict(&model.shape, 0, jobs, sizes, Recompute::None).adapters
    };
    let states = |jobs: &[Resident<'_>]| -> u64 {
        let each = jobs.iter();
        each.map(|job| memory::adapter_bytes(job.spec, job.layout, &model.shape))
            .sum()
    };
    let known = states(&residents);
    assert!(
        most > known,
        "{most} bytes, states of {known}: nothing waited"
    );
    let expected = foreseen(&residents, sizes);
    assert!(most <= expected, "{most} bytes, {expected} were foreseen");
    // Jobs of equal steps are not spread: one of them at a time is between two passes.
    let equal = &residents[1..];
    let one = residents[1].layout.len as u64 * 4 * u64::from(residents[1].step.blocks.ilog2());
    assert_eq!(foreseen(equal, sizes), states(equal) + one);
    // And a step that is one pass leaves nothing to wait.
    let alone = &residents[..1];
    assert_eq!(foreseen(alone, sizes), states(alone));
}

fn step_of(event: &Event) -> Option<(&JobName, u64)> {
    match event {
        Event::Step { job, step, .. } => Some((job, *step)),
        _ => None,
    }
}

/// The public case, counted in steps: a small job takes one a turn, and turns end at one sequence of the large one.
#[test]
fn small_jobs_take_a_step_for_each_sequence_of_a_huge_one() {
    let model = tiny::llama();
    let mut plans = vec![giant()];
    plans.extend(tiny_jobs());
    // By the default of passes of 64 rows, and as told.
    for (told, sequences) in [(None, 1), (Some(64), 1), (Some(700), 2), (Some(10_000), 8)] {
        let mut session = Manner::new(2, 64).session(&model);
        session.arrange(Arrangement {
            turn_rows: told,
            ..Arrangement::default()
        });
        for plan in &plans {
            admit(&mut session, &model, plan, None);
        }
        let (mut large, mut small) = (0, 0);
        let mut events = std::collections::BTreeMap::<JobName, Vec<Event>>::new();
        while !session.is_idle() {
            let told = session.round();
            for (job, step) in told.iter().filter_map(step_of) {
                match job.as_str() {
                    "giant" => large += 1,
                    "tiny-3" => {
                        small += 1;
                        assert_eq!(step, small);
                    }
                    _ => {}
                }
            }
            if told
                .iter()
                .filter_map(step_of)
                .any(|(job, _)| job.as_str() == "giant")
            {
                assert_eq!(small, large * 8 / sequences, "steps of each small job");
            }
            for event in told {
                events.entry(event.job().clone()).or_default().push(event);
            }
        }
        assert_eq!((large, small), (2, 30));
        for plan in &plans {
            let name = &plan.spec.name;
            let found = crate::run::Record {
                events: events.remove(name).unwrap(),
                standing: session.standing(name).cloned().unwrap(),
                state: session.state(name).unwrap(),
            };
            assert_eq!(found.standing, Standing::Finished(Ending::Complete));
            assert_same(
                &alone(&model, plan, &Manner::new(1, 1000)),
                &found,
                name.as_str(),
            );
        }
    }
}

/// A large job alone takes a step a turn; when another comes in the middle of its life it is spread from then on.
#[test]
fn a_job_alone_and_jobs_of_about_equal_steps_are_not_spread() {
    let model = tiny::llama();
    let mut session = Manner::new(1, 64).session(&model);
    admit(&mut session, &model, &giant(), None);
    assert_eq!(session.round().iter().filter_map(step_of).count(), 1);
    let mut other = giant();
    other.spec.name = JobName::new("other").unwrap();
    other.spec.train.batch_size = 6;
    admit(&mut session, &model, &other, None);
    let told = session.round();
    let steps: Vec<_> = told.iter().filter_map(step_of).collect();
    assert_eq!(steps.len(), 2, "{steps:?}");
}

/// A job that is cancelled in the middle of a step leaves nothing to the next one in its slot.
#[test]
fn a_step_that_was_begun_is_dropped_with_its_job() {
    let model = tiny::llama();
    let mut session = Manner::new(1, 64).session(&model);
    let (giant, tiny) = (giant(), tiny_jobs().remove(0));
    let before = history(&model, &giant);
    admit(&mut session, &model, &giant, None);
    admit(&mut session, &model, &tiny, None);
    for _ in 0..3 {
        session.round();
    }
    let slot = session.slot(&giant.spec.name);
    assert!(session.halt(&giant.spec.name, Halt::Cancel));
    assert_eq!(
        session.standing(&giant.spec.name),
        Some(&Standing::Cancelled)
    );
    let state = session.remove(&giant.spec.name).unwrap();
    assert_same_state(&before[0], &state, "before the step that was begun");
    let mut next = plain("next", giant.spec.adapter.clone());
    next.spec.train.steps = Some(2);
    admit(&mut session, &model, &next, None);
    assert_eq!(session.slot(&next.spec.name), slot);
    while !session.is_idle() {
        session.round();
    }
    let expected = alone(&model, &next, &Manner::new(1, 300)).state;
    assert_same_state(
        &expected,
        &session.state(&next.spec.name).unwrap(),
        "the next",
    );
}
