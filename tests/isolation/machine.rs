//! Any instruction set and any number of threads: the same bits.

use kernels::cpu::{Cpu, Isa};
use kernels::weight::Format;
use shared::model::Family;
use system_tests::methods;

use crate::plan::plain;
use crate::run::{Manner, assert_same, together};
use crate::tiny;

#[test]
fn instruction_sets_and_threads_do_not_show() {
    let plans: Vec<_> = methods::every()
        .into_iter()
        .enumerate()
        .map(|(index, spec)| {
            let mut plan = plain(&format!("job-{index}"), spec);
            plan.spec.train.steps = Some(2);
            plan.lengths = vec![9, 70];
            plan
        })
        .collect();
    for format in [Format::F32, Format::Q4_0] {
        let model = tiny::model(Family::Llama, format);
        let expected = together(&model, &plans, &Manner::new(1, 400));
        for isa in Isa::available() {
            for threads in [1, 2, 5] {
                let cpu = Cpu::with_isa(threads, isa).unwrap();
                let manner = Manner {
                    cpu,
                    ..Manner::new(1, 400)
                };
                let records = together(&model, &plans, &manner);
                for (name, record) in &records {
                    let what = format!("{name}, {} with {threads} threads", isa.name());
                    assert_same(&expected[name], record, &what);
                }
            }
        }
    }
}
