//! Any instruction set and any number of threads: the same bits.

use std::collections::BTreeMap;

use kernels::cpu::{Cpu, Isa, Products};
use kernels::weight::Format;
use shared::model::Family;
use system_tests::methods;

use crate::plan::plain;
use crate::run::{Manner, assert_same, together};
use crate::tiny;

/// Every instruction set with each arithmetic.
fn sets() -> impl Iterator<Item = (Isa, Products)> {
    let of = |isa| Products::ALL.map(move |products| (isa, products));
    Isa::available().into_iter().flat_map(of)
}

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
        let expected = Products::ALL.map(|products| {
            let manner = Manner::new(1, 400).with_products(products);
            (products.name(), together(&model, &plans, &manner))
        });
        let expected = BTreeMap::from(expected);
        for (isa, products) in sets() {
            let expected = &expected[products.name()];
            for threads in [1, 2, 5] {
                let cpu = Cpu::with_isa(threads, isa).unwrap().with_products(products);
                let manner = Manner {
                    cpu,
                    ..Manner::new(1, 400)
                };
                let records = together(&model, &plans, &manner);
                for (name, record) in &records {
                    let what = format!("{name}, {isa} and {products} with {threads} threads");
                    assert_same(&expected[name], record, &what);
                }
            }
        }
    }
}
