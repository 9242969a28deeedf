#![allow(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;

use super::*;
use crate::cpu::Isa;
use crate::reference;
use crate::testing::{bits, numbers, wide};

fn near(found: &[f32], wanted: &[f64], bound: f64) {
    for (found, wanted) in found.iter().zip(wanted) {
        let error = (f64::from(*found) - wanted).abs();
        assert!(
            error <= bound * wanted.abs().max(1.0),
            "{found} for {wanted}"
        );
    }
}

fn adam(step: u64) -> AdamW {
    AdamW {
        learning_rate: 1e-2,
        beta1: 0.9,
        beta2: 0.999,
        epsilon: 1e-8,
        weight_decay: 0.1,
        step,
        gradient_factor: 0.75,
    }
}

#[test]
fn adamw_follows_the_reference_for_many_steps() {
    let cpu = Cpu::new(2).unwrap();
    let len = TASK + 37;
    let mut values = numbers(len, 1);
    let (mut first, mut second) = (vec![0.0; len], vec![0.0; len]);
    let mut wanted = reference::optimizer::Adam::new(&wide(&values));
    for step in 1..=200u64 {
        let gradient = numbers(len, step + 1);
        let rule = adam(step);
        adamw(&cpu, &mut values, &gradient, &mut first, &mut second, &rule);
        wanted.step(&wide(&gradient), &rule);
    }
    near(&values, &wanted.values, 5e-6);
    near(&first, &wanted.first, 5e-6);
    near(&second, &wanted.second, 5e-6);
}

#[test]
fn sgd_follows_the_reference_for_many_steps() {
    let cpu = Cpu::new(2).unwrap();
    let len = TASK + 37;
    let mut values = numbers(len, 1);
    let mut first = vec![0.0; len];
    let (mut wanted, mut momentum) = (wide(&values), vec![0.0; len]);
    let rule = Sgd {
        learning_rate: 1e-2,
        momentum: 0.9,
        weight_decay: 0.1,
        gradient_factor: 0.5,
    };
    for step in 1..=200u64 {
        let gradient = numbers(len, step + 1);
        sgd(&cpu, &mut values, &gradient, &mut first, &rule);
        reference::optimizer::sgd(&mut wanted, &wide(&gradient), &mut momentum, &rule);
    }
    near(&values, &wanted, 5e-6);
    near(&first, &momentum, 5e-6);
}

#[test]
fn a_first_step_moves_by_the_rate_against_the_sign() {
    let cpu = Cpu::new(1).unwrap();
    let mut values = [1.0, 1.0, 1.0];
    let rule = AdamW {
        weight_decay: 0.0,
        ..adam(1)
    };
    adamw(
        &cpu,
        &mut values,
        &[3.0, -0.01, 0.0],
        &mut [0.0; 3],
        &mut [0.0; 3],
        &rule,
    );
    near(&values, &[0.99, 1.01, 1.0], 1e-6);
}

#[test]
fn powers_are_those_of_repeated_products() {
    let mut wanted = 1.0;
    for exponent in 0..2000 {
        assert!((power(0.999, exponent) - wanted).abs() <= 1e-12);
        wanted *= 0.999;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn bits_do_not_depend_on_threads_or_instructions(
        len in prop_oneof![0..100usize, TASK - 3..TASK + 3, Just(3 * TASK + 5)],
        seed in any::<u64>(),
        threads in 1..4usize,
    ) {
        let gradient = numbers(len, seed);
        let run = |cpu: &Cpu| {
            let (mut p, mut m, mut v) = (numbers(len, 1), numbers(len, 2), vec![0.1; len]);
            adamw(cpu, &mut p, &gradient, &mut m, &mut v, &adam(7));
            let rule = Sgd { learning_rate: 0.1, momentum: 0.9, weight_decay: 0.1, gradient_factor: 0.5 };
            sgd(cpu, &mut p, &gradient, &mut m, &rule);
            (bits(&p), bits(&m), bits(&v), sum_of_squares(cpu, &gradient).to_bits())
        };
        let wanted = run(&Cpu::with_isa(1, Isa::portable()).unwrap());
        for isa in Isa::available() {
            prop_assert_eq!(&run(&Cpu::with_isa(threads, isa).unwrap()), &wanted);
        }
        let squares: f64 = wide(&gradient).iter().map(|g| g * g).sum();
        prop_assert!((f64::from_bits(wanted.3) - squares).abs() <= 1e-12 * squares);
    }
}

/// The trial says the first element that the step breaks, and only then.
#[test]
fn a_trial_finds_what_the_step_would_break() {
    for threads in [1, 2] {
        let cpu = Cpu::new(threads).unwrap();
        let len = 2 * TASK + 37;
        let (values, gradient, zeros) = (numbers(len, 1), numbers(len, 2), vec![0.0; len]);
        let rule = AdamW {
            learning_rate: 1e2,
            ..adam(1)
        };
        let plain = Sgd {
            learning_rate: 1e-2,
            momentum: 0.9,
            weight_decay: 0.0,
            gradient_factor: 1.0,
        };
        assert_eq!(
            trial::adamw(&cpu, &values, &gradient, &zeros, &zeros, &rule),
            None
        );
        assert_eq!(trial::sgd(&cpu, &values, &gradient, &zeros, &plain), None);
        for at in [0, TASK + 3, len - 1] {
            let mut wild = values.clone();
            wild[at] = 3.4e38;
            // Decay is a factor of -9 at this rate, which leaves the range.
            let found = trial::adamw(&cpu, &wild, &gradient, &zeros, &zeros, &rule);
            let (mut p, mut m, mut v) = (wild.clone(), zeros.clone(), zeros.clone());
            adamw(&cpu, &mut p, &gradient, &mut m, &mut v, &rule);
            assert_eq!(
                (found, p.iter().position(|p| !p.is_finite())),
                (Some(at), found)
            );
            let mut steep = gradient.clone();
            steep[at] = -3.4e38;
            let plain = Sgd {
                learning_rate: 1e3,
                ..plain
            };
            let found = trial::sgd(&cpu, &values, &steep, &zeros, &plain);
            assert_eq!(found, Some(at));
            // A second moment that overflows leaves the value as it is, and would freeze it for good.
            steep[at] = 1e22;
            let rule = AdamW {
                gradient_factor: 1.0,
                ..adam(1)
            };
            let found = trial::adamw(&cpu, &values, &steep, &zeros, &zeros, &rule);
            assert_eq!(found, Some(at));
        }
    }
}

#[test]
fn sums_of_pieces_are_the_sums_of_their_values() {
    let cpu = Cpu::new(2).unwrap();
    let values = numbers(3 * TASK, 3);
    let ranges = [0..5, 5..5, 5..TASK + 9, TASK + 9..3 * TASK];
    let sums = sums_of_squares(&cpu, &values, &ranges);
    for (sum, range) in sums.iter().zip(&ranges) {
        let alone = sum_of_squares(&cpu, &values[range.clone()]);
        assert_eq!(sum.to_bits(), alone.to_bits());
    }
    assert!(sums_of_squares(&cpu, &values, &[]).is_empty());
}
