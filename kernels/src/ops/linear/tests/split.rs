//! Products from split numbers.

use super::*;
use crate::reference::split::dot;

fn split_processors() -> Vec<Cpu> {
    let with = |cpu: Cpu| cpu.with_products(Products::Split);
    processors().into_iter().map(with).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn a_row_does_not_see_other_rows_when_split(
        rows in 1usize..150, outputs in 1usize..120, inputs in 1usize..90, at in 0usize..300, seed: u64,
    ) {
        let w = Weight::from_f32(outputs, inputs, numbers(outputs * inputs, seed));
        let values = w.to_f32();
        let at = at % rows;
        let (x, dy) = (numbers(rows * inputs, seed + 1), numbers(rows * outputs, seed + 2));
        let (x_row, dy_row) = (&x[at * inputs..][..inputs], &dy[at * outputs..][..outputs]);
        let y_wanted: Vec<f32> = values.chunks_exact(inputs).map(|w| dot(0.0, x_row, w)).collect();
        let column = |i: usize| -> Vec<f32> { values.iter().skip(i).step_by(inputs).copied().collect() };
        let dx_wanted: Vec<f32> = (0..inputs).map(|i| dot(0.0, dy_row, &column(i))).collect();
        for cpu in split_processors() {
            let y = forwarded(&cpu, &x, &w);
            prop_assert_eq!(bits(&y[at * outputs..][..outputs]), bits(&y_wanted), "{:?}", cpu);
            prop_assert_eq!(bits(&forwarded(&cpu, x_row, &w)), bits(&y_wanted), "{:?} alone", cpu);
            let dx = backed(&cpu, &dy, &w);
            prop_assert_eq!(bits(&dx[at * inputs..][..inputs]), bits(&dx_wanted), "{:?}", cpu);
            prop_assert_eq!(bits(&backed(&cpu, dy_row, &w)), bits(&dx_wanted), "{:?} alone", cpu);
        }
    }
}

/// What is not finite stays in its row, and comes out as it does from the chain.
#[test]
fn rows_that_are_not_finite_are_those_of_the_chain() {
    let (rows, inputs, outputs) = (75, 800, 70);
    let w = Weight::from_f32(outputs, inputs, numbers(outputs * inputs, 1));
    let clean = numbers(rows * inputs, 2);
    let mut x = clean.clone();
    // In the first run of the reduction and in the last, alone, of both signs, and too large for a product.
    x[3 * inputs] = f32::INFINITY;
    x[40 * inputs + 799] = f32::NEG_INFINITY;
    x[41 * inputs + 5] = f32::NAN;
    (x[74 * inputs], x[74 * inputs + 1]) = (f32::INFINITY, f32::NEG_INFINITY);
    let (chain, all) = (Cpu::new(1).unwrap(), split_processors());
    let wanted = forwarded(&chain, &x, &w);
    let kind = |x: f32| {
        (
            x.is_nan(),
            x.is_infinite(),
            !x.is_nan() && x.is_sign_negative(),
        )
    };
    for cpu in all {
        let (found, healthy) = (forwarded(&cpu, &x, &w), forwarded(&cpu, &clean, &w));
        for row in 0..rows {
            let at = row * outputs..(row + 1) * outputs;
            if [3, 40, 41, 74].contains(&row) {
                let kinds = |x: &[f32]| x.iter().map(|x| kind(*x)).collect::<Vec<_>>();
                assert_eq!(
                    kinds(&found[at.clone()]),
                    kinds(&wanted[at]),
                    "{cpu:?} {row}"
                );
            } else {
                assert_eq!(
                    bits(&found[at.clone()]),
                    bits(&healthy[at]),
                    "{cpu:?} {row}"
                );
            }
        }
    }
}

/// Errors of both against double precision, as shares of the root of the mean square of the results.
fn errors(products: Products, x: &[f32], w: &Weight, wanted: &[f64]) -> [f64; 2] {
    let found = forwarded(&Cpu::new(2).unwrap().with_products(products), x, w);
    let size = (wanted.iter().map(|y| y * y).sum::<f64>() / wanted.len() as f64).sqrt();
    let differences = || {
        found
            .iter()
            .zip(wanted)
            .map(|(y, wanted)| (f64::from(*y) - wanted) / size)
    };
    let most = differences().fold(0.0, |most: f64, error| most.max(error.abs()));
    let square: f64 = differences().map(|error| error * error).sum();
    [most, (square / wanted.len() as f64).sqrt()]
}

/// Rows like those of a model: a few numbers are far larger than the others.
fn with_outliers(len: usize, seed: u64) -> Vec<f32> {
    let scale = numbers(len, seed + 9);
    let large = |(x, scale): (f32, &f32)| if scale.abs() > 0.99 { 40.0 * x } else { x };
    numbers(len, seed)
        .into_iter()
        .zip(&scale)
        .map(large)
        .collect()
}

#[test]
fn errors_are_those_of_single_precision() {
    for inputs in [32, 576, 1536, 4096] {
        for outliers in [false, true] {
            let (rows, outputs) = (33, 65);
            let x = match outliers {
                true => with_outliers(rows * inputs, 1),
                false => numbers(rows * inputs, 1),
            };
            let w = Weight::from_f32(outputs, inputs, numbers(outputs * inputs, 2));
            let wanted = reference::linear::forward(&wide(&x), &wide(&w.to_f32()), inputs);
            let [chain, split] = Products::ALL.map(|products| errors(products, &x, &w, &wanted));
            let [[a, b], [c, d]] = [chain, split];
            eprintln!("{inputs} outliers {outliers}: f32 {a:.2e} {b:.2e}, split {c:.2e} {d:.2e}");
            assert!(
                split[0] <= 1.5 * chain[0] && split[1] <= 1.2 * chain[1],
                "{chain:?} {split:?}"
            );
        }
    }
}
