#![allow(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;

use super::*;
use crate::cpu::Isa;
use crate::reference;
use crate::testing::{bits, check_gradient, numbers, wide};

prop_compose! {
    fn patterns()(outputs in 1..30usize, inputs in 1..30usize)(
        outputs in Just(outputs),
        inputs in Just(inputs),
        chosen in prop::collection::vec(prop::bool::weighted(0.2), outputs * inputs),
    ) -> Pattern {
        let mut starts = vec![0];
        let mut columns = Vec::new();
        for row in chosen.chunks_exact(inputs) {
            columns.extend((0..).zip(row).filter(|(_, chosen)| **chosen).map(|(column, _)| column));
            starts.push(columns.len());
        }
        Pattern::new(outputs, inputs, starts, columns)
    }
}

fn near(found: &[f32], wanted: &[f64]) {
    for (found, wanted) in found.iter().zip(wanted) {
        assert!(
            (f64::from(*found) - wanted).abs() <= 2e-5,
            "{found} for {wanted}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn products_are_near_the_dense_reference(pattern in patterns(), tokens in 0..40usize, threads in 1..3usize) {
        let cpu = Cpu::new(threads).unwrap();
        let (outputs, inputs) = (pattern.outputs(), pattern.inputs());
        let values = numbers(pattern.len(), 1);
        let dense = reference::sparse::dense(&pattern, &wide(&values));
        let (x, dy) = (numbers(tokens * inputs, 2), numbers(tokens * outputs, 3));

        let mut y = vec![0.5; tokens * outputs];
        forward(&cpu, &pattern, &values, &x, &mut y);
        let wanted: Vec<f64> =
            reference::linear::forward(&wide(&x), &dense, inputs).iter().map(|y| y + 0.5).collect();
        near(&y, &wanted);

        let mut dx = vec![0.25; tokens * inputs];
        backward(&cpu, &pattern, &values, &dy, &mut dx);
        let wanted: Vec<f64> =
            reference::linear::backward(&wide(&dy), &dense, inputs).iter().map(|dx| dx + 0.25).collect();
        near(&dx, &wanted);
    }

    #[test]
    fn the_gradient_is_that_of_the_places_however_it_is_cut(
        pattern in patterns(),
        sizes in prop::collection::vec(0..20usize, 1..9),
        cut in any::<prop::sample::Index>(),
        threads in 1..3usize,
    ) {
        let mut start = 0;
        let blocks: Vec<Range<usize>> = sizes.iter().map(|size| {
            start += size;
            start - size..start
        }).collect();
        let (x, dy) = (numbers(start * pattern.inputs(), 2), numbers(start * pattern.outputs(), 3));
        let wanted = reference::sparse::gradient(&pattern, &wide(&x), &wide(&dy));
        let mut bits_found = None;
        for isa in Isa::available() {
            let cpu = Cpu::with_isa(threads, isa).unwrap();
            for cut in [0, cut.index(sizes.len() + 1)] {
                let mut nodes = Nodes::new();
                let mut found = vec![f32::NAN; pattern.len()];
                for (run, last) in [(0..cut, false), (cut..sizes.len(), true)] {
                    gradient(&cpu, &pattern, Values {
                        first_block: u64::try_from(run.start).unwrap(),
                        blocks: &blocks[run],
                        x: &x,
                        dy: &dy,
                        nodes: &mut nodes,
                        gradient: last.then_some(found.as_mut_slice()),
                    });
                }
                near(&found, &wanted);
                let found = bits(&found);
                prop_assert_eq!(bits_found.get_or_insert_with(|| found.clone()), &found);
            }
        }
    }

    #[test]
    fn rows_do_not_see_rows(pattern in patterns(), row in 0..8usize) {
        let cpu = Cpu::new(2).unwrap();
        let (outputs, inputs) = (pattern.outputs(), pattern.inputs());
        let values = numbers(pattern.len(), 1);
        let mut x = vec![f32::NAN; 8 * inputs];
        let alone = numbers(inputs, 2);
        x[row * inputs..][..inputs].copy_from_slice(&alone);
        let (mut many, mut one) = (vec![0.0; 8 * outputs], vec![0.0; outputs]);
        forward(&cpu, &pattern, &values, &x, &mut many);
        forward(&cpu, &pattern, &values, &alone, &mut one);
        prop_assert_eq!(bits(&many[row * outputs..][..outputs]), bits(&one));
    }
}

#[test]
fn the_reference_has_the_gradients_of_its_product() {
    let pattern = Pattern::new(3, 4, vec![0, 2, 2, 5], vec![0, 3, 0, 1, 2]);
    let (values, x) = (wide(&numbers(5, 1)), wide(&numbers(6 * 4, 2)));
    let weights = wide(&numbers(6 * 3, 3));
    // A number that depends on every output: its gradient with respect to y is `weights`.
    let value = |values: &[f64], x: &[f64]| -> f64 {
        let dense = reference::sparse::dense(&pattern, values);
        let y = reference::linear::forward(x, &dense, 4);
        y.iter().zip(&weights).map(|(y, weight)| y * weight).sum()
    };
    let dense = reference::sparse::dense(&pattern, &values);
    let dx = reference::linear::backward(&weights, &dense, 4);
    let d_values = reference::sparse::gradient(&pattern, &x, &weights);
    check_gradient("x", &x, &dx, |x| value(&values, x));
    check_gradient("values", &values, &d_values, |values| value(values, &x));
}

#[test]
#[should_panic(expected = "columns of output 1 must ascend below 3")]
fn a_column_outside_is_refused() {
    Pattern::new(2, 3, vec![0, 1, 2], vec![0, 3]);
}
