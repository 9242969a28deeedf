//! Texts sampled over stages, between rounds, are those of one stage.

use gpu_actor::replica::lead::TextRequest;
use gpu_actor::sample::choice::Sampling;
use gpu_actor::sample::generator::Generator;
use gpu_actor::stage::adapter::Adapter;
use gpu_actor::stage::step::Stage;
use gpu_actor::train::session::layout_of;
use kernels::cpu::Cpu;
use shared::model::Family;
use system_tests::methods;
use system_tests::plan::plain;

use crate::run::{Manner, admission, begin, store, stored};
use crate::tiny;

const NEW: usize = 6;

#[test]
fn texts_over_stages_are_those_of_one_stage() {
    let model = tiny::model(Family::Llama, true);
    for (index, spec) in methods::every().into_iter().enumerate() {
        let mut plan = plain("job", spec);
        plan.spec.train.steps = Some(5);
        let prompt: Vec<u32> = (1..20 + 3 * index as u32).map(|i| i * 7 % 60).collect();
        let sampling = Sampling {
            temperature: 0.8,
            seed: 5,
            ..Sampling::default()
        };
        for stages in [1, 2, 5] {
            let store = store();
            let mut replica = Manner::new(stages, 50).start(&model, &store);
            let lead = replica.lead();
            let start = begin(&store, &plan, &model);
            lead.admit(admission(&plan, &model, start))
                .unwrap()
                .unwrap();
            lead.round().unwrap();
            // Rounds that were planned ahead are under way: the text meets the weights after them.
            let mut texts = Vec::new();
            for job in [Some(&plan.spec.name), None] {
                let request = TextRequest {
                    job,
                    prompt: &prompt,
                    sampling: sampling.clone(),
                    limit: NEW,
                    stops: &[],
                };
                let mut text = Vec::new();
                let sampled = lead.sample(&request, |token| {
                    text.push(token);
                    true
                });
                sampled.unwrap().unwrap();
                texts.push(text);
            }
            lead.drain().unwrap();
            replica.close().unwrap();
            let state = stored(&store, &plan, &model).recovered.unwrap().state;
            let mut stage = Stage::new(model.clone(), Cpu::new(2).unwrap());
            let layout = layout_of(&plan.spec.adapter, &model, plan.spec.seed);
            let slot = stage.attach(Adapter::new(layout, state.values, plan.spec.seed));
            for (slot, text) in [slot, usize::MAX].into_iter().zip(texts) {
                let made = Generator::new(&mut stage, slot, &prompt, sampling.clone(), NEW);
                let mut made = made.unwrap();
                let mut wanted = Vec::new();
                while let Some(token) = made.next_token().unwrap() {
                    wanted.push(token);
                }
                assert_eq!(text, wanted, "{stages} stages, {:?}", plan.spec.adapter);
                assert!(!text.is_empty());
            }
        }
    }
}
