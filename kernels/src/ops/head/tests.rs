#![allow(clippy::unwrap_used, reason = "tests")]

use std::ops::Range;

use proptest::prelude::*;

use super::*;
use crate::cpu::{Isa, Products};
use crate::ops::block_sum::Nodes;
use crate::reference::head::{Head, Made};
use crate::testing::{bits, check_gradient, numbers, weight, wide};
use crate::weight::Format;

mod adapted;

/// Rows and a head to compute.
#[derive(Clone)]
struct Case {
    head: Weight,
    x: Vec<f32>,
    targets: Vec<u32>,
    coefficients: Vec<f32>,
}

/// What was made of them.
#[derive(Debug, PartialEq)]
struct Found {
    loss: Vec<u32>,
    correct: Vec<bool>,
    dx: Vec<u32>,
}

impl std::fmt::Debug for Case {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} rows, {:?}", self.targets.len(), self.head)
    }
}

fn products() -> impl Strategy<Value = Products> {
    prop::sample::select(&Products::ALL[..])
}

prop_compose! {
    fn cases(most: usize)(
        format in prop_oneof![Just(Format::F32), Just(Format::F32), Just(Format::Bf16), Just(Format::Q8_0)],
        blocks in 1..4usize,
        odd in 0..20usize,
        vocab in prop_oneof![1..20usize, 90..200usize, 380..900usize],
        rows in 0..=most,
        spread in prop_oneof![Just(0.2f32), Just(3.0f32)],
        seed in any::<u64>(),
    ) -> Case {
        let hidden = if format == Format::F32 { 16 * blocks + odd } else { 32 * blocks };
        Case::new(weight(format, vocab, hidden, seed), rows, spread, seed)
    }
}

impl Case {
    /// Makes rows whose logits are a few times `spread`.
    fn new(head: Weight, rows: usize, spread: f32, seed: u64) -> Self {
        let x = numbers(rows * head.cols(), seed ^ 1);
        let squares: f64 = wide(&head.to_f32()).iter().map(|w| w * w).sum();
        let spread = spread / ((squares / head.rows() as f64).sqrt() as f32).max(1e-3);
        let vocab = u32::try_from(head.rows()).unwrap();
        let target = |row: usize| u32::try_from(seed % 65_537 + 31 * row as u64).unwrap() % vocab;
        Self {
            x: x.iter().map(|x| spread * x).collect(),
            targets: (0..rows).map(target).collect(),
            coefficients: numbers(rows, seed ^ 2),
            head,
        }
    }

    fn rows(&self) -> Rows<'_> {
        Rows {
            x: &self.x,
            targets: &self.targets,
            coefficients: &self.coefficients,
        }
    }

    /// The same with some rows only.
    fn part(&self, rows: Range<usize>) -> Self {
        let hidden = self.head.cols();
        Self {
            head: self.head.clone(),
            x: self.x[rows.start * hidden..rows.end * hidden].to_vec(),
            targets: self.targets[rows.clone()].to_vec(),
            coefficients: self.coefficients[rows].to_vec(),
        }
    }

    fn run(&self, cpu: &Cpu) -> (Vec<f32>, Vec<bool>, Vec<f32>) {
        let rows = self.targets.len();
        let (mut loss, mut correct) = (vec![f32::NAN; rows], vec![false; rows]);
        let mut dx = vec![f32::NAN; self.x.len()];
        loss_and_gradient(
            cpu,
            &self.rows(),
            &self.head,
            &mut loss,
            &mut correct,
            Some(&mut dx),
        );
        (loss, correct, dx)
    }

    fn found(&self, cpu: &Cpu) -> Found {
        let (loss, correct, dx) = self.run(cpu);
        let (loss, dx) = (bits(&loss), bits(&dx));
        Found { loss, correct, dx }
    }

    fn wanted(&self) -> Made {
        let head = Head {
            weight: &wide(&self.head.to_f32()),
            hidden: self.head.cols(),
            a: &[],
            b: &[],
            scale: 0.0,
        };
        head.run(&wide(&self.x), &self.targets, &wide(&self.coefficients))
    }
}

/// Panics when a number is further off than a share of the greatest.
fn near(what: &str, found: &[f32], wanted: &[f64], share: f64) {
    assert_eq!(found.len(), wanted.len(), "{what}");
    let greatest = wanted.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
    for (i, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        let error = (f64::from(*found) - wanted).abs();
        assert!(
            error <= share * greatest + 1e-12,
            "{what}[{i}]: {found} for {wanted}, greatest {greatest}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn losses_and_gradients_are_near_the_reference(
        case in cases(70), threads in 1..3usize, products in products(),
    ) {
        let cpu = Cpu::new(threads).unwrap().with_products(products);
        let (loss, correct, dx) = case.run(&cpu);
        let wanted = case.wanted();
        near("loss", &loss, &wanted.loss, 2e-6);
        near("dx", &dx, &wanted.dx, 4e-6);
        prop_assert_eq!(correct, wanted.correct);
    }

    #[test]
    fn rows_have_the_same_bits_in_any_company(
        case in cases(200),
        cut in any::<prop::sample::Index>(),
        threads in 1..4usize,
        products in products(),
    ) {
        let whole = case.found(&Cpu::new(1).unwrap().with_products(products));
        let rows = case.targets.len();
        let cut = cut.index(rows + 1);
        let hidden = case.head.cols();
        for isa in Isa::available() {
            let cpu = Cpu::with_isa(threads, isa).unwrap().with_products(products);
            for part in [0..cut, cut..rows] {
                let found = case.part(part.clone()).found(&cpu);
                prop_assert_eq!(&found.loss, &whole.loss[part.clone()]);
                prop_assert_eq!(&found.correct, &whole.correct[part.clone()]);
                prop_assert_eq!(&found.dx, &whole.dx[part.start * hidden..part.end * hidden]);
            }
        }
    }

    #[test]
    fn a_sick_row_does_not_touch_its_neighbours(
        case in cases(40), sick in any::<prop::sample::Index>(), products in products(),
    ) {
        let rows = case.targets.len();
        prop_assume!(rows > 0 && case.head.rows() > 1);
        let (sick, hidden) = (sick.index(rows), case.head.cols());
        let cpu = Cpu::new(2).unwrap().with_products(products);
        let clean = case.found(&cpu);
        for poison in [f32::NAN, f32::INFINITY] {
            let mut case = case.clone();
            case.x[sick * hidden..][..hidden].fill(poison);
            let (loss, correct, dx) = case.run(&cpu);
            prop_assert!(!loss[sick].is_finite() && !correct[sick]);
            for row in (0..rows).filter(|&row| row != sick) {
                prop_assert_eq!(loss[row].to_bits(), clean.loss[row]);
                prop_assert_eq!(correct[row], clean.correct[row]);
                let values = row * hidden..(row + 1) * hidden;
                prop_assert_eq!(&bits(&dx[values.clone()]), &clean.dx[values]);
            }
        }
    }
}

#[test]
fn more_rows_than_a_wave_have_the_bits_of_few() {
    let head = weight(Format::Q8_0, 500, 64, 5);
    let case = Case::new(head, WAVE + 100, 2.0, 5);
    let whole = case.found(&Cpu::new(2).unwrap());
    let part = case.part(WAVE - 3..WAVE + 9).found(&Cpu::new(1).unwrap());
    assert_eq!(part.loss, whole.loss[WAVE - 3..WAVE + 9]);
    assert_eq!(part.dx, whole.dx[(WAVE - 3) * 64..(WAVE + 9) * 64]);
}

#[test]
fn evaluation_gives_the_losses_of_training() {
    let case = Case::new(weight(Format::F32, 300, 48, 6), 50, 1.0, 6);
    let cpu = Cpu::new(2).unwrap();
    let (mut loss, mut correct) = (vec![f32::NAN; 50], vec![false; 50]);
    loss_and_gradient(
        &cpu,
        &case.rows(),
        &case.head,
        &mut loss,
        &mut correct,
        None,
    );
    let trained = case.found(&cpu);
    assert_eq!((bits(&loss), correct), (trained.loss, trained.correct));
}

#[test]
fn a_likely_target_loses_no_digits() {
    // The target's logit is ahead by `lead`, so that the loss is far smaller than an ulp of the logits.
    for lead in [8.0f32, 20.0, 40.0, 80.0] {
        let mut values = numbers(600, 7);
        values[137] = lead;
        let case = Case {
            head: Weight::from_f32(600, 1, values),
            x: vec![1.0],
            targets: vec![137],
            coefficients: vec![1.0],
        };
        let (loss, correct, dx) = case.run(&Cpu::new(1).unwrap());
        // The reference would lose them: the sums without the target are exact enough.
        let others: f64 = wide(&case.head.to_f32())
            .iter()
            .enumerate()
            .filter(|(token, _)| *token != 137)
            .map(|(_, logit)| (logit - f64::from(lead)).exp())
            .sum();
        let wanted = others.ln_1p();
        // The distance of two logits is rounded to single precision, like the logits.
        let share = 1e-6 + 6e-8 * f64::from(lead);
        assert!(
            (f64::from(loss[0]) - wanted).abs() <= share * wanted,
            "{} {wanted}",
            loss[0]
        );
        let unlikely = others / (1.0 + others);
        assert!(
            (f64::from(dx[0]) / unlikely + f64::from(lead)).abs() < 1.0,
            "{}",
            dx[0]
        );
        assert!(correct[0]);
    }
}

#[test]
fn an_unlikely_target_has_its_distance_as_loss() {
    let mut values = vec![0.0; 300];
    values[250] = -200.0;
    let case = Case {
        head: Weight::from_f32(300, 1, values),
        x: vec![1.0],
        targets: vec![250],
        coefficients: vec![1.0],
    };
    let (loss, ..) = case.run(&Cpu::new(1).unwrap());
    let wanted = 200.0 + 299f64.ln();
    assert!((f64::from(loss[0]) - wanted).abs() < 2e-5, "{}", loss[0]);
}

#[test]
fn the_first_of_equal_tokens_counts() {
    // Tokens 40 and 290, in different segments, are equally likely.
    let mut values = vec![0.0; 400];
    (values[40], values[290]) = (2.0, 2.0);
    let head = Weight::from_f32(400, 1, values);
    let correct = [40, 290].map(|target| {
        let case = Case {
            head: head.clone(),
            x: vec![1.0],
            targets: vec![target],
            coefficients: vec![1.0],
        };
        case.run(&Cpu::new(1).unwrap()).1[0]
    });
    assert_eq!(correct, [true, false]);
    let all_equal = Weight::from_f32(200, 1, vec![1.0; 200]);
    for target in [0, 1, 150] {
        let case = Case {
            head: all_equal.clone(),
            x: vec![1.0],
            targets: vec![target],
            coefficients: vec![1.0],
        };
        assert_eq!(case.run(&Cpu::new(1).unwrap()).1[0], target == 0);
    }
}

#[test]
#[should_panic(expected = "target 9 of row 1 is not in a vocabulary of 9")]
fn a_target_outside_is_refused() {
    let mut case = Case::new(weight(Format::F32, 9, 8, 1), 2, 1.0, 1);
    case.targets[1] = 9;
    case.run(&Cpu::new(1).unwrap());
}
