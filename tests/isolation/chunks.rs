//! A sequence that is longer than a pass goes in chunks: the same bits, in memory that its length hardly moves.

use std::sync::Arc;

use data::rows::TokenRow;
use gpu_actor::batch::Batch;
use gpu_actor::model::Model;
use gpu_actor::stage::adapter::Adapter;
use gpu_actor::stage::footprint::Footprint;
use gpu_actor::stage::step::Stage;
use gpu_actor::train::event::Event;
use gpu_actor::train::memory::{self, Resident, Rows, StepSize};
use gpu_actor::train::pack::{self, Cut, Request, Size};
use gpu_actor::train::session::layout_of;
use kernels::cpu::Cpu;
use kernels::weight::Format;
use proptest::prelude::*;
use shared::job::{AdapterSpec, PromptSpec};
use shared::model::{Family, Projection};
use shared::plan::arrangement::Arrangement;
use shared::recompute::Recompute;
use system_tests::methods;

use crate::broken;
use crate::cases;
use crate::plan::{self, Plan, plain};
use crate::run::{Manner, admit, alone, assert_same, together};
use crate::tiny;

/// No sequence here is longer.
const WHOLE: usize = 10_000;

fn cut(manner: Manner, chunk_tokens: usize) -> Manner {
    Manner {
        chunk_tokens,
        ..manner
    }
}

#[test]
fn every_method_has_the_same_bits_however_its_rows_are_cut_ch_1() {
    for family in Family::ALL {
        let model = tiny::model(family, Format::F32);
        for spec in methods::every() {
            let mut plan = plain("job", spec);
            plan.lengths = vec![9, 260, 70, 129];
            plan.spec.train.steps = Some(2);
            plan.spec.train.accumulation = 2;
            plan.spec.eval.every_steps = Some(1);
            let whole = alone(&model, &plan, &Manner::new(2, WHOLE));
            for (tokens_per_pass, chunk, recomputed) in
                [(500, 64, 0), (100, 100, 1), (64, 192, 0), (300, 256, 2)]
            {
                let mut manner = cut(Manner::new(2, tokens_per_pass), chunk);
                manner.recomputed = recomputed;
                let what = format!("{family:?}, {chunk} rows a chunk, {:?}", plan.spec.adapter);
                assert_same(&whole, &alone(&model, &plan, &manner), &what);
            }
        }
    }
}

/// Virtual rows that are most of a sequence: the first chunk has them all, and their gradient is whole.
#[test]
fn a_prompt_of_more_rows_than_an_even_cut_has_the_same_bits_ch_1() {
    let model = tiny::llama();
    for (tokens, length, chunk) in [(400, 130, 512), (150, 50, 64), (300, 40, 128)] {
        let spec = PromptSpec {
            tokens,
            init_text: None,
        };
        let mut plan = plain("job", AdapterSpec::Prompt(spec));
        plan.lengths = vec![length, 9];
        plan.spec.train.steps = Some(2);
        plan.spec.eval.every_steps = Some(1);
        let whole = alone(&model, &plan, &Manner::new(2, WHOLE));
        let chunks = alone(&model, &plan, &cut(Manner::new(2, 64), chunk));
        let what = format!("{tokens} virtual rows, {chunk} rows a chunk");
        assert_same(&whole, &chunks, &what);
    }
}

/// However rows are packed and cut, what passes is data and nothing else.
#[test]
fn no_row_is_a_pad() {
    let model = tiny::llama();
    for (tokens_per_pass, chunk) in [(512, 512), (100, 64), (1, 1), (WHOLE, WHOLE)] {
        let mut session = cut(Manner::new(2, tokens_per_pass), chunk).session(&model);
        let mut trained = 0;
        for (index, spec) in methods::every().into_iter().enumerate() {
            let mut plan = plain(&format!("job-{index}"), spec);
            plan.lengths = vec![9, 150 + 7 * index, 64, 5];
            admit(&mut session, &model, &plan, None);
        }
        for event in session.round() {
            if let Event::Step { tokens, .. } = event {
                trained += tokens;
            }
        }
        assert!(trained > 0);
        assert_eq!(session.wasted_rows(), 0);
    }
}

proptest! {
    #![proptest_config(cases(12))]

    #[test]
    fn random_mixes_leave_the_same_bits_however_they_are_cut(
        mut plans in plan::any_plans(1..5),
        longer in proptest::collection::vec(0..500usize, 4),
        family in proptest::sample::select(Family::ALL.to_vec()),
        (threads, tokens_per_pass, chunk) in (1..4usize, 1..400usize, 1..400usize),
        recomputed in 0..3usize,
    ) {
        for (plan, longer) in plans.iter_mut().zip(longer) {
            plan.lengths[0] += longer;
        }
        let model = tiny::model(family, Format::F32);
        let whole = together(&model, &plans, &Manner::new(2, WHOLE));
        let mut manner = cut(Manner::new(threads, tokens_per_pass), chunk);
        manner.recomputed = recomputed;
        let chunks = together(&model, &plans, &manner);
        for (name, whole) in &whole {
            assert_same(whole, &chunks[name], name.as_str());
        }
    }
}

/// A stage with a job of this plan, and the passes of its rows.
fn staged(model: &Arc<Model>, plan: &Plan, chunk: usize) -> (Stage, Vec<Batch>) {
    let mut stage = Stage::new(Arc::clone(model), Cpu::new(2).unwrap());
    let layout = layout_of(&plan.spec.adapter, model, plan.spec.seed);
    let values = plan.values(&layout, model);
    let rows = plan.rows(model.shape.vocab);
    let size = Size {
        budget: chunk,
        chunk,
        cut: Cut::Anywhere,
    };
    let passes = pack::cut_passes(&[plan.request(&layout, &rows)], size);
    assert_eq!(stage.attach(Adapter::new(layout, values, 7)), 0);
    (stage, passes)
}

/// Bytes at the peak, what was said before, and the gradient as bits.
fn trained(model: &Arc<Model>, plan: &Plan, chunk: usize) -> (u64, Footprint, Vec<u32>) {
    let (mut stage, passes) = staged(model, plan, chunk);
    let footprint = stage.footprint(&passes[0]);
    for chain in pack::chains(&passes) {
        stage.train_chunks(chain);
    }
    assert_eq!(stage.held_bytes(), 0, "nothing is left behind");
    let gradient = stage.adapter(0).unwrap().gradient().iter();
    let bits = gradient.map(|value| value.to_bits()).collect();
    (stage.take_peak(), footprint, bits)
}

#[test]
fn a_long_sequence_trains_in_bounded_memory_ch_2() {
    let model = tiny::model(Family::Llama, Format::F32);
    const CHUNK: usize = 128;
    let row = Footprint::of_cut_row(&model.shape, model.shape.layers, true, true);
    let mut beside = Vec::new();
    for length in [1024, 4096 + 50] {
        let mut plan = plain("job", methods::every().remove(1));
        plan.lengths = vec![length];
        let (peak, footprint, gradient) = trained(&model, &plan, CHUNK);
        let carried = row * length as u64;
        assert_eq!(footprint.kept, carried);
        assert!(peak <= footprint.total(), "{peak} bytes of {footprint:?}");
        // What grows with the length is what chunks hand each other, and nothing else.
        beside.push(footprint.passing);
        let (whole, predicted, same) = trained(&model, &plan, WHOLE);
        assert!(gradient == same && whole <= predicted.total());
        assert!(
            2 * peak < whole,
            "{peak} bytes in chunks, {whole} in one pass"
        );
    }
    assert_eq!(beside[0], beside[1], "a chunk's tape is a chunk's tape");
}

/// The forecast of a run counts what is carried, and is above what the engine counts.
#[test]
fn the_forecast_is_above_what_is_needed() {
    let model = tiny::model(Family::Qwen3, Format::F32);
    // A chunk has all virtual rows, however few it should have.
    let prompt = PromptSpec {
        tokens: 400,
        init_text: None,
    };
    let mut specs = methods::every();
    specs.push(AdapterSpec::Prompt(prompt));
    let chunks = [64, 128, 256].into_iter().cycle();
    for (spec, chunk) in specs.into_iter().rev().zip(chunks) {
        let mut plan = plain("job", spec);
        plan.lengths = vec![900];
        let (peak, ..) = trained(&model, &plan, chunk);
        let layout = layout_of(&plan.spec.adapter, &model, plan.spec.seed);
        let virtual_rows = layout.prompt.as_ref().map_or(0, |site| site.tokens);
        let sizes = Rows {
            pass: chunk,
            chunk,
            longest: 900 + virtual_rows,
        };
        let jobs = [Resident {
            spec: &plan.spec,
            layout: &layout,
            step: StepSize::of(&plan.spec, &layout, plan.lengths.iter().copied()),
        }];
        let forecast = memory::predict(&model.shape, 0, &jobs, sizes, Recompute::None);
        assert!(forecast.carried > 0);
        let most = forecast.tape + forecast.carried;
        assert!(peak <= most, "{peak} bytes, {forecast:?}");
    }
}

/// Why a job was set aside that adds a number which is none in one layer.
fn reason(model: &Arc<Model>, layer: usize, chunk: usize) -> String {
    let mut plan = broken::biased();
    plan.lengths = vec![300; 4];
    let manner = cut(Manner::new(1, WHOLE), chunk);
    broken::reason(model, &plan, &manner, (layer, Projection::O))
}

#[test]
fn a_number_that_breaks_is_found_at_the_same_place() {
    let model = tiny::llama();
    for layer in 0..model.shape.layers {
        let whole = reason(&model, layer, WHOLE);
        assert!(whole.contains(&format!("layer {layer}")), "{whole}");
        for chunk in [64, 256] {
            assert_eq!(reason(&model, layer, chunk), whole);
        }
    }
}

/// A row that breaks in the second chunk is told by its place in the sequence.
#[test]
fn rows_are_counted_from_the_start_of_the_sequence() {
    let model = tiny::llama();
    let length = 200;
    let labels = (0..length)
        .map(|at| if at > 150 { 3 } else { -100 })
        .collect();
    let row = TokenRow::new(vec![3; length as usize], labels);
    let plan = plain("job", methods::every().remove(0));
    let (mut stage, _) = staged(&model, &plan, 64);
    let adapter = stage.adapter_mut(0).unwrap();
    adapter.values.fill(f32::NAN);
    stage.derive(0);
    let request = Request {
        slot: 0,
        prompt_tokens: 0,
        prefix_tokens: 0,
        step: 0,
        rows: vec![&row],
        part: None,
    };
    let size = Size {
        budget: 64,
        chunk: 64,
        cut: Cut::Anywhere,
    };
    let chunks = pack::cut_passes(&[request], size);
    let outcomes = stage.train_chunks(&chunks);
    assert_eq!(outcomes.len(), 4);
    let bad = |at: usize| outcomes[at][0].bad.map(|bad| bad.row);
    // Row 150 predicts the first label.
    assert_eq!(
        [bad(0), bad(1), bad(2), bad(3)],
        [None, None, Some(150), Some(192)]
    );
}

/// What a plan bounds holds for held-out rows too: they take no more memory than rows that train.
#[test]
fn held_out_rows_pass_within_the_bounds_of_the_arrangement() {
    let model = tiny::llama();
    let bytes = |pass_rows: Option<u64>| {
        let mut plan = plain("job", methods::every().remove(0));
        plan.lengths = vec![30; 12];
        plan.spec.eval.every_steps = Some(1);
        let layout = layout_of(&plan.spec.adapter, &model, plan.spec.seed);
        let values = plan.values(&layout, &model);
        let held = plan.rows(model.shape.vocab);
        let rows = held[..1].to_vec();
        let mut session = Manner::new(1, WHOLE).session(&model);
        session.arrange(Arrangement {
            pass_rows,
            ..Arrangement::default()
        });
        let spec = plan.spec.clone();
        session
            .admit(spec, layout, values, rows, held, None)
            .unwrap();
        let events = session.round();
        let measured = events.iter().filter_map(|event| match event {
            Event::Evaluation { loss, .. } => Some(loss.to_bits()),
            _ => None,
        });
        let losses: Vec<u64> = measured.collect();
        assert!(!losses.is_empty(), "{events:?}");
        (session.stage().passing_bytes(), losses)
    };
    let ((whole, losses), (bounded, same)) = (bytes(None), bytes(Some(60)));
    assert_eq!(losses, same);
    assert!(
        3 * bounded < whole,
        "{bounded} bytes within 60 rows, {whole} without"
    );
}
