#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::cpu::Isa;
use crate::reference::attention::{self as reference, Inputs};

/// Arrays of one sequence.
#[derive(Clone)]
struct Case {
    heads: Heads,
    rows: usize,
    q: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
    prefix_keys: Vec<f32>,
    prefix_values: Vec<f32>,
    d_out: Vec<f32>,
}

fn numbers(n: usize, salt: usize) -> Vec<f32> {
    (0..n).map(|i| (((i + 31 * salt) * 7919 % 1013) as f32 - 506.0) * 0.002).collect()
}

fn case(heads: usize, kv_heads: usize, head_dim: usize, rows: usize, prefix: usize) -> Case {
    let heads = Heads { heads, kv_heads, head_dim, window: None };
    let kv = heads.kv_width();
    Case {
        heads,
        rows,
        q: numbers(rows * heads.width(), 1),
        keys: numbers(rows * kv, 2),
        values: numbers(rows * kv, 3),
        prefix_keys: numbers(prefix * kv, 4),
        prefix_values: numbers(prefix * kv, 5),
        d_out: numbers(rows * heads.width(), 6),
    }
}

impl Case {
    fn sequence(&self, rows: Range<usize>, start: usize) -> Sequence<'_> {
        let seen = (start + rows.len()) * self.heads.kv_width();
        let prefix = Prefix { keys: &self.prefix_keys, values: &self.prefix_values };
        Sequence {
            rows,
            start,
            keys: &self.keys[..seen],
            values: &self.values[..seen],
            prefix: (!self.prefix_keys.is_empty()).then_some(prefix),
        }
    }

    /// Outputs and log-sum-exp of rows `from..to`, the earlier keys carried.
    fn forward(&self, cpu: &Cpu, from: usize, to: usize) -> (Vec<f32>, Vec<f32>) {
        let (width, n) = (self.heads.width(), to - from);
        let (mut out, mut sums) = (vec![0.0; n * width], vec![0.0; n * self.heads.heads]);
        let q = &self.q[from * width..to * width];
        forward(cpu, self.heads, &[self.sequence(0..n, from)], q, &mut out, &mut sums);
        (out, sums)
    }

    /// dq, dk, dv, and prefix gradients by tile, computed over chunks from the last to the first.
    fn backward(&self, cpu: &Cpu, cuts: &[usize]) -> [Vec<f32>; 5] {
        let (width, kv) = (self.heads.width(), self.heads.kv_width());
        let tiles = self.rows.div_ceil(TILE);
        let mut dq = vec![0.0; self.q.len()];
        let (mut dk, mut dv) = (vec![0.0; self.keys.len()], vec![0.0; self.keys.len()]);
        let size = self.prefix_keys.len();
        let (mut pk, mut pv) = (vec![0.0; tiles * size], vec![0.0; tiles * size]);
        for pair in cuts.windows(2).rev() {
            let (from, to) = (pair[0], pair[1]);
            let (out, sums) = self.forward(cpu, from, to);
            let cells = from * width..to * width;
            let part = from / TILE * size..to.div_ceil(TILE) * size;
            let prefix = (size > 0).then(|| PrefixGradient {
                dkeys: &mut pk[part.clone()],
                dvalues: &mut pv[part],
            });
            let gradient =
                SequenceGradient { dkeys: &mut dk[..to * kv], dvalues: &mut dv[..to * kv], prefix };
            let sequence = self.sequence(0..to - from, from);
            let (q, d_out) = (&self.q[cells.clone()], &self.d_out[cells.clone()]);
            let dq = &mut dq[cells];
            backward(cpu, self.heads, &[sequence], &mut [gradient], q, &out, &sums, d_out, dq);
        }
        [dq, dk, dv, pk, pv]
    }

    fn wide(&self) -> Inputs {
        let wide = |v: &[f32]| v.iter().map(|&x| f64::from(x)).collect();
        Inputs {
            q: wide(&self.q),
            keys: wide(&self.keys),
            values: wide(&self.values),
            prefix_keys: wide(&self.prefix_keys),
            prefix_values: wide(&self.prefix_values),
        }
    }
}

fn cases() -> Vec<Case> {
    let mut list = vec![
        case(4, 2, 16, 1, 0),
        case(4, 4, 8, 70, 0),
        case(3, 1, 64, 130, 3),
        case(2, 1, 80, 65, 70),
        case(6, 2, 16, 200, 0),
    ];
    list[4].heads.window = Some(50);
    list
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

#[test]
fn outputs_are_those_of_the_reference() {
    let cpu = Cpu::new(2).unwrap();
    for case in cases() {
        let (out, _) = case.forward(&cpu, 0, case.rows);
        let want = reference::forward(&case.heads, &case.wide());
        for (i, (got, want)) in out.iter().zip(&want).enumerate() {
            assert!((f64::from(*got) - want).abs() < 2e-6, "{:?} out[{i}]: {got} {want}", case.heads);
        }
    }
}

/// An input of the reference, to shift.
type Pick = fn(&mut Inputs) -> &mut Vec<f64>;

#[test]
fn gradients_are_the_differences_of_the_reference() {
    let cpu = Cpu::new(2).unwrap();
    for case in cases() {
        let [dq, dk, dv, pk, pv] = case.backward(&cpu, &[0, case.rows]);
        let over_tiles = |parts: &[f32]| -> Vec<f32> {
            let size = case.prefix_keys.len().max(1);
            (0..case.prefix_keys.len())
                .map(|i| parts.iter().skip(i).step_by(size).sum())
                .collect()
        };
        let picks: [(Vec<f32>, Pick); 5] = [
            (dq, |x| &mut x.q),
            (dk, |x| &mut x.keys),
            (dv, |x| &mut x.values),
            (over_tiles(&pk), |x| &mut x.prefix_keys),
            (over_tiles(&pv), |x| &mut x.prefix_values),
        ];
        let d_out: Vec<f64> = case.d_out.iter().map(|&d| f64::from(d)).collect();
        let value = |x: &Inputs| {
            reference::forward(&case.heads, x).iter().zip(&d_out).map(|(o, d)| o * d).sum::<f64>()
        };
        for (which, (got, pick)) in picks.into_iter().enumerate() {
            for step in 0..6 {
                if got.is_empty() {
                    break;
                }
                let at = (step * 1_000_003 + which) % got.len();
                let shifted = |h: f64| {
                    let mut x = case.wide();
                    pick(&mut x)[at] += h;
                    value(&x)
                };
                let want = (shifted(1e-5) - shifted(-1e-5)) / 2e-5;
                let error = (f64::from(got[at]) - want).abs();
                assert!(error < 2e-5, "{:?} input {which} at {at}: {} {want}", case.heads, got[at]);
            }
        }
    }
}

#[test]
fn a_row_alone_has_the_bits_it_has_in_company() {
    let plain = Cpu::with_isa(1, Isa::portable()).unwrap();
    for case in cases() {
        let (out, sums) = case.forward(&plain, 0, case.rows);
        let (width, heads) = (case.heads.width(), case.heads.heads);
        for isa in Isa::available() {
            let cpu = Cpu::with_isa(2, isa).unwrap();
            let (again, _) = case.forward(&cpu, 0, case.rows);
            assert!(bits(&again) == bits(&out), "{isa:?} {:?}", case.heads);
            for row in [0, case.rows / 2, case.rows - 1] {
                let (one, sum) = case.forward(&cpu, row, row + 1);
                assert!(bits(&one) == bits(&out[row * width..][..width]), "{isa:?} row {row}");
                assert!(bits(&sum) == bits(&sums[row * heads..][..heads]), "{isa:?} row {row}");
            }
        }
    }
}

#[test]
fn chunks_from_the_last_to_the_first_are_the_whole() {
    for case in cases() {
        let whole = case.backward(&Cpu::with_isa(1, Isa::portable()).unwrap(), &[0, case.rows]);
        let cuts: Vec<usize> = (0..case.rows).step_by(TILE).chain([case.rows]).collect();
        for isa in Isa::available() {
            let chunked = case.backward(&Cpu::with_isa(2, isa).unwrap(), &cuts);
            for (which, (a, b)) in whole.iter().zip(&chunked).enumerate() {
                assert!(bits(a) == bits(b), "{isa:?} {:?} gradient {which}", case.heads);
            }
        }
    }
}

#[test]
fn a_broken_sequence_does_not_touch_its_neighbour() {
    let cpu = Cpu::new(2).unwrap();
    let case = case(4, 2, 16, 60, 0);
    let (width, kv) = (case.heads.width(), case.heads.kv_width());
    let run = |poison: bool| {
        let mut both = case.clone();
        if poison {
            both.q[..30 * width].fill(f32::NAN);
            both.keys[..30 * kv].fill(f32::INFINITY);
            both.values[..30 * kv].fill(f32::NAN);
        }
        let sequence = |rows: Range<usize>| Sequence {
            keys: &both.keys[rows.start * kv..rows.end * kv],
            values: &both.values[rows.start * kv..rows.end * kv],
            rows,
            start: 0,
            prefix: None,
        };
        let (mut out, mut sums) = (vec![0.0; 60 * width], vec![0.0; 60 * 4]);
        forward(&cpu, both.heads, &[sequence(0..30), sequence(30..60)], &both.q, &mut out, &mut sums);
        assert_eq!(out[0].is_nan(), poison);
        bits(&out[30 * width..])
    };
    assert!(run(false) == run(true));
}
