//! A job that goes on from a checkpoint, in another session with other neighbours, ends with the same bits.

use gpu_actor::train::session::Standing;
use gpu_actor::train::store::{self, Identity};
use proptest::prelude::*;

use gpu_actor::train::event::Ending;
use shared::job::{AdapterSpec, BitFitSpec, EvalSpec, Targets};

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
        };

        let mut session = Manner::new(1, tokens_per_pass).session(&model);
        admit(&mut session, &model, plan, None);
        for _ in 0..interrupted_after {
            session.round();
        }
        store::save(folder.path(), &identity, &session.state(name).unwrap()).unwrap();
        drop(session);

        let state = store::newest(folder.path(), &identity).unwrap().unwrap().state;
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
