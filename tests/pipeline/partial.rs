//! Stages that open their own layers hold what they need and nothing else, and make the same first values.

use std::ops::Range;

use gpu_actor::model::{Model, OpenOptions};
use gpu_actor::peft::init;
use gpu_actor::train::session::layout_of;
use kernels::cpu::Cpu;
use shared::model::Family;
use system_tests::methods;

use crate::tiny;

#[test]
fn a_part_of_a_model_holds_its_ends_only_where_they_are_used() {
    let cpu = Cpu::new(1).unwrap();
    for (family, tied) in [(Family::Llama, true), (Family::Qwen2, false)] {
        let (_folder, path) = tiny::folder(family, tied);
        let open = |layers: Option<Range<usize>>| {
            let options = OpenOptions {
                layers,
                ..OpenOptions::new(cpu.clone())
            };
            Model::open(&path, &options).unwrap()
        };
        let whole = open(None);
        for span in [0..2, 2..4, 4..5, 0..5] {
            let part = open(Some(span.clone()));
            let (first, last) = (span.start == 0, span.end == tiny::LAYERS);
            assert_eq!(
                part.embedding.is_some(),
                first || (last && tied),
                "{span:?}"
            );
            assert_eq!(part.head.is_some(), last && !tied, "{span:?}");
            let cut = whole.slice(span.clone());
            assert_eq!(cut.content_hash(), part.content_hash(), "{span:?}");
            for spec in methods::every() {
                for tokens in [vec![], vec![3, 1, 4, 1, 5]] {
                    let layout = layout_of(&spec, &whole, 11);
                    let slice = layout.slice(span.clone());
                    let of = |model| slice.cut(&init::values(&layout, model, &cpu, 11, &tokens));
                    let bits = |list: Vec<f32>| -> Vec<u32> {
                        list.into_iter().map(f32::to_bits).collect()
                    };
                    assert!(bits(of(&part)) == bits(of(&whole)), "{span:?}: {spec:?}");
                }
            }
        }
    }
}
