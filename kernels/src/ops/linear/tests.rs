#![allow(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;

use super::*;
use crate::cpu::{Isa, Products};
use crate::reference;
use crate::testing::{bits, numbers, weight, wide};
use crate::weight::Format;

mod split;

/// One processor for each instruction set and for one and three threads.
fn processors() -> Vec<Cpu> {
    let sets = Isa::available().into_iter();
    sets.flat_map(|isa| [1, 3].map(|threads| Cpu::with_isa(threads, isa).unwrap()))
        .collect()
}

/// The same for each arithmetic.
fn all_processors() -> Vec<Cpu> {
    let with = |products| {
        processors()
            .into_iter()
            .map(move |cpu| cpu.with_products(products))
    };
    Products::ALL.into_iter().flat_map(with).collect()
}

fn forwarded(cpu: &Cpu, x: &[f32], w: &Weight) -> Vec<f32> {
    let mut y = vec![f32::NAN; x.len() / w.cols() * w.rows()];
    forward(cpu, x, w, &mut y);
    y
}

fn backed(cpu: &Cpu, dy: &[f32], w: &Weight) -> Vec<f32> {
    let mut dx = vec![f32::NAN; dy.len() / w.rows() * w.cols()];
    backward(cpu, dy, w, &mut dx, false);
    dx
}

/// The canonical chain of one element.
fn chain(pairs: impl Iterator<Item = (f32, f32)>) -> f32 {
    pairs.fold(0.0, |sum, (a, b)| a.mul_add(b, sum))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_row_does_not_see_other_rows(
        rows in 1usize..300, outputs in 1usize..120, inputs in 1usize..90, at in 0usize..300, seed: u64,
    ) {
        let w = Weight::from_f32(outputs, inputs, numbers(outputs * inputs, seed));
        let values = w.to_f32();
        let at = at % rows;
        let (x, dy) = (numbers(rows * inputs, seed + 1), numbers(rows * outputs, seed + 2));
        let (x_row, dy_row) = (&x[at * inputs..][..inputs], &dy[at * outputs..][..outputs]);
        let y_wanted: Vec<f32> = values
            .chunks_exact(inputs)
            .map(|w| chain(x_row.iter().copied().zip(w.iter().copied())))
            .collect();
        let dx_wanted: Vec<f32> = (0..inputs)
            .map(|i| chain((0..outputs).map(|o| (dy_row[o], values[o * inputs + i]))))
            .collect();
        for cpu in processors() {
            let y = forwarded(&cpu, &x, &w);
            prop_assert_eq!(bits(&y[at * outputs..][..outputs]), bits(&y_wanted), "{:?}", cpu);
            prop_assert_eq!(bits(&forwarded(&cpu, x_row, &w)), bits(&y_wanted), "{:?} alone", cpu);
            let dx = backed(&cpu, &dy, &w);
            prop_assert_eq!(bits(&dx[at * inputs..][..inputs]), bits(&dx_wanted), "{:?}", cpu);
            prop_assert_eq!(bits(&backed(&cpu, dy_row, &w)), bits(&dx_wanted), "{:?} alone", cpu);
        }
    }

    #[test]
    fn stored_formats_give_the_bits_of_their_numbers(
        format in prop::sample::select(&Format::ALL[1..]), rows in 1usize..20, outputs in 1usize..70,
        blocks in 1usize..5, seed: u64,
    ) {
        let w = weight(format, outputs, blocks * 32, seed);
        let plain = w.convert(Format::F32).unwrap();
        let (x, dy) = (numbers(rows * w.cols(), seed + 1), numbers(rows * outputs, seed + 2));
        for cpu in all_processors() {
            prop_assert_eq!(bits(&forwarded(&cpu, &x, &w)), bits(&forwarded(&cpu, &x, &plain)));
            prop_assert_eq!(bits(&backed(&cpu, &dy, &w)), bits(&backed(&cpu, &dy, &plain)));
        }
    }

    #[test]
    fn several_weights_at_once_are_the_same_as_one_by_one(
        rows in 1usize..20, widths in prop::collection::vec(1usize..150, 1..4), blocks in 1usize..3, seed: u64,
    ) {
        let inputs = blocks * 32;
        let make = |(i, width): (usize, &usize)| weight(Format::ALL[i], *width, inputs, seed);
        let weights: Vec<Weight> = widths.iter().enumerate().map(make).collect();
        let x = numbers(rows * inputs, seed);
        let dys: Vec<Vec<f32>> = widths.iter().map(|width| numbers(rows * width, seed + 3)).collect();
        for cpu in all_processors() {
            let mut ys: Vec<Vec<f32>> = dys.clone();
            let mut products: Vec<_> = weights.iter().zip(ys.iter_mut().map(Vec::as_mut_slice)).collect();
            forward_many(&cpu, &x, &mut products);
            for (w, y) in weights.iter().zip(&ys) {
                prop_assert_eq!(bits(y), bits(&forwarded(&cpu, &x, w)));
            }
            let parts: Vec<_> = dys.iter().map(Vec::as_slice).zip(&weights).collect();
            let mut dx = numbers(rows * inputs, seed + 4);
            let mut chained = dx.clone();
            backward_many(&cpu, &parts, &mut dx, true);
            for (dy, w) in parts {
                backward(&cpu, dy, w, &mut chained, true);
            }
            prop_assert_eq!(bits(&dx), bits(&chained));
        }
    }
}

/// Longer than one run along the reduction, in every format, against double precision.
#[test]
fn long_products_are_near_the_reference() {
    for format in Format::ALL {
        let (rows, outputs, inputs) = (3, 1057, 1120);
        let w = weight(format, outputs, inputs, 5);
        let values = wide(&w.to_f32());
        let (x, dy) = (numbers(rows * inputs, 6), numbers(rows * outputs, 7));
        let y_wanted = reference::linear::forward(&wide(&x), &values, inputs);
        let dx_wanted = reference::linear::backward(&wide(&dy), &values, inputs);
        // Numbers of some formats are large: errors are measured against the largest one.
        let largest = values
            .iter()
            .fold(1.0f64, |largest, x| largest.max(x.abs()));
        let near = |found: &[f32], wanted: &[f64]| {
            let mut pairs = found.iter().zip(wanted);
            pairs.all(|(f, w)| (f64::from(*f) - w).abs() < 1e-4 * largest)
        };
        for products in Products::ALL {
            let cpu = Cpu::new(2).unwrap().with_products(products);
            assert!(
                near(&forwarded(&cpu, &x, &w), &y_wanted),
                "{format} {products}"
            );
            assert!(
                near(&backed(&cpu, &dy, &w), &dx_wanted),
                "{format} {products}"
            );
        }
    }
}

/// More of the reduction than is packed at once, over two left matrices, with enough rows to pack.
#[test]
fn packed_runs_continue_the_chain() {
    let (rows, inputs, outputs) = (70, 40, 1800);
    let first = Weight::from_f32(outputs, inputs, numbers(outputs * inputs, 1));
    let second = Weight::from_f32(500, inputs, numbers(500 * inputs, 2));
    let (dy, more) = (numbers(rows * outputs, 3), numbers(rows * 500, 4));
    for cpu in all_processors() {
        let mut dx = vec![f32::NAN; rows * inputs];
        backward_many(&cpu, &[(&dy, &first), (&more, &second)], &mut dx, false);
        for row in [0, 37, 69] {
            let mut alone = vec![f32::NAN; inputs];
            let (dy, more) = (&dy[row * outputs..][..outputs], &more[row * 500..][..500]);
            backward_many(&cpu, &[(dy, &first), (more, &second)], &mut alone, false);
            assert_eq!(
                bits(&dx[row * inputs..][..inputs]),
                bits(&alone),
                "{cpu:?} {row}"
            );
        }
    }
}

/// The reference's backward is the derivative of its forward.
#[test]
fn the_gradient_is_that_of_the_product() {
    let (rows, outputs, inputs) = (2, 5, 7);
    let w = wide(&numbers(outputs * inputs, 1));
    let x = wide(&numbers(rows * inputs, 2));
    let dy = wide(&numbers(rows * outputs, 3));
    let loss = |x: &[f64]| -> f64 {
        let y = reference::linear::forward(x, &w, inputs);
        y.iter().zip(&dy).map(|(y, dy)| y * dy).sum()
    };
    let dx = reference::linear::backward(&dy, &w, inputs);
    for i in 0..x.len() {
        let step = 1e-5;
        let (mut up, mut down) = (x.clone(), x.clone());
        up[i] += step;
        down[i] -= step;
        let slope = (loss(&up) - loss(&down)) / (2.0 * step);
        assert!((slope - dx[i]).abs() < 1e-8, "{i}: {slope} {}", dx[i]);
    }
}

#[test]
fn no_rows_are_no_work() {
    let w = Weight::from_f32(3, 4, numbers(12, 1));
    let cpu = Cpu::new(2).unwrap();
    forward(&cpu, &[], &w, &mut []);
    backward(&cpu, &[], &w, &mut [], true);
    backward_many(&cpu, &[], &mut [], false);
}

#[test]
#[should_panic(expected = "rows of y and x")]
fn shapes_that_do_not_fit_panic() {
    let w = Weight::from_f32(3, 4, numbers(12, 1));
    forward(&Cpu::new(1).unwrap(), &[0.0; 8], &w, &mut [0.0; 9]);
}
