//! A text depends on its own adapter and prompt: not on how it was cut, nor on jobs that came and went.

use std::sync::Arc;

use gpu_actor::sample::choice::Sampling;
use gpu_actor::sample::generator::Generator;
use gpu_actor::stage::adapter::Adapter;
use gpu_actor::stage::step::Stage;
use gpu_actor::train::session::layout_of;
use kernels::cpu::Cpu;
use kernels::weight::Format;
use proptest::prelude::*;
use shared::model::Family;
use system_tests::engine::steps::{self, Trainee};

use crate::broken;
use crate::plan::{self, Plan};
use crate::{cases, packing, tiny};

const NEW: usize = 12;

/// Greedy tokens, and the bits of the logits that chose each.
pub(crate) fn greedy(
    stage: &mut Stage,
    trainee: &Trainee,
    prompt: &[u32],
) -> (Vec<u32>, Vec<Vec<u32>>) {
    let sampling = Sampling::default();
    let mut generator = Generator::new(stage, trainee.slot(), prompt, sampling, NEW).unwrap();
    let (mut tokens, mut logits) = (Vec::new(), Vec::new());
    loop {
        let bits = generator.logits().iter().map(|logit| logit.to_bits());
        let bits = bits.collect();
        let Some(token) = generator.next_token().unwrap() else {
            return (tokens, logits);
        };
        tokens.push(token);
        logits.push(bits);
    }
}

/// A prompt of the job's own.
pub(crate) fn prompt(plan: &Plan, vocab: usize) -> Vec<u32> {
    plan.rows(vocab).remove(0).ids
}

proptest! {
    #![proptest_config(cases(8))]

    #[test]
    fn token_by_token_has_the_logits_of_one_pass(
        plan in plan::any_plan(),
        family in proptest::sample::select(Family::ALL.to_vec()),
    ) {
        let model = tiny::model(family, Format::F32);
        let prompt = prompt(&plan, model.shape.vocab);
        let mut stage = Stage::new(model, Cpu::new(2).unwrap());
        let trainee = packing::attach(&mut stage, &plan);
        let (tokens, logits) = greedy(&mut stage, &trainee, &prompt);
        let all = [prompt.as_slice(), &tokens].concat();
        let whole = steps::logits(&mut stage, Some(&trainee), &all);
        for (i, logits) in logits.iter().enumerate() {
            let row = whole.row(prompt.len() - 1 + i);
            let bits: Vec<u32> = row.iter().map(|&logit| (logit as f32).to_bits()).collect();
            prop_assert!(logits == &bits, "token {i}");
        }
    }

    #[test]
    fn jobs_that_come_train_and_go_do_not_change_a_text(
        plans in plan::any_plans(2..5),
        tokens_per_pass in 1..500usize,
    ) {
        let model = tiny::llama();
        let mut stage = Stage::new(Arc::clone(&model), Cpu::new(2).unwrap());
        let prompt = prompt(&plans[0], model.shape.vocab);
        let trainee = packing::attach(&mut stage, &plans[0]);
        let quiet = greedy(&mut stage, &trainee, &prompt);
        for plan in &plans[1..] {
            let mut neighbour = packing::attach(&mut stage, plan);
            prop_assert!(greedy(&mut stage, &trainee, &prompt) == quiet, "after one came");
            let rows = plan.rows(model.shape.vocab);
            let mut jobs = [(&mut neighbour, rows.iter().collect(), 1e-3)];
            steps::step(&mut stage, &mut jobs, 0, tokens_per_pass).unwrap();
            prop_assert!(greedy(&mut stage, &trainee, &prompt) == quiet, "after one trained");
            neighbour.detach(&mut stage);
            prop_assert!(greedy(&mut stage, &trainee, &prompt) == quiet, "after one went");
        }
    }
}

/// Numbers too large for a norm end a text with an error; before, the norm made zeros of them, and every logit was the same.
#[test]
fn a_model_whose_numbers_cannot_be_squared_writes_no_text() {
    let model = tiny::llama();
    let plan = broken::biased();
    let layout = layout_of(&plan.spec.adapter, &model, plan.spec.seed);
    for value in [1e25, 3e38] {
        let values = vec![value; layout.len];
        let mut stage = Stage::new(Arc::clone(&model), Cpu::new(1).unwrap());
        let slot = stage.attach(Adapter::new(Arc::clone(&layout), values, 0));
        let mut generator =
            Generator::new(&mut stage, slot, &[1, 2], Sampling::default(), NEW).unwrap();
        let error = generator.next_token().unwrap_err();
        assert!(error.to_string().contains("not finite"), "{error}");
    }
}
