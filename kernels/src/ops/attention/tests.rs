#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::cpu::Isa;
use crate::reference::attention::{self as reference, Inputs};
use crate::testing::{Operation, assert_close, bits, numbers, wide};

mod company;
mod lonely;

/// Arrays of one sequence.
#[derive(Clone, Debug)]
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

/// Gradients of one sequence; those of the prefix by query tile.
#[derive(Clone, Debug, PartialEq)]
struct Gradients {
    q: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
    prefix_keys: Vec<f32>,
    prefix_values: Vec<f32>,
}

impl Gradients {
    fn bits(&self) -> [Vec<u32>; 5] {
        [
            bits(&self.q),
            bits(&self.keys),
            bits(&self.values),
            bits(&self.prefix_keys),
            bits(&self.prefix_values),
        ]
    }
}

impl Case {
    fn new(heads: Heads, rows: usize, prefix: usize, seed: u64) -> Self {
        let (width, kv) = (heads.width(), heads.kv_width());
        // Scores of some size, so that the softmax is neither flat nor a single key.
        let louder = |x: Vec<f32>| x.into_iter().map(|x| 3.0 * x).collect();
        Self {
            heads,
            rows,
            q: louder(numbers(rows * width, seed)),
            keys: numbers(rows * kv, seed + 1),
            values: numbers(rows * kv, seed + 2),
            prefix_keys: numbers(prefix * kv, seed + 3),
            prefix_values: numbers(prefix * kv, seed + 4),
            d_out: numbers(rows * width, seed + 5),
        }
    }

    /// The sequence as `rows` of a call, its first row there at position `start`.
    fn sequence(&self, rows: Range<usize>, start: usize) -> Sequence<'_> {
        let seen = (start + rows.len()) * self.heads.kv_width();
        let prefix = Prefix {
            keys: &self.prefix_keys,
            values: &self.prefix_values,
        };
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
        let sequences = [self.sequence(0..n, from)];
        forward(cpu, self.heads, &sequences, q, &mut out, &mut sums);
        (out, sums)
    }

    /// Gradients, with room for those of the whole sequence.
    fn room(&self) -> Gradients {
        let prefix = self.rows.div_ceil(TILE) * self.prefix_keys.len();
        Gradients {
            q: vec![0.0; self.q.len()],
            keys: vec![0.0; self.keys.len()],
            values: vec![0.0; self.keys.len()],
            // Anything: it is overwritten.
            prefix_keys: vec![f32::NAN; prefix],
            prefix_values: vec![f32::NAN; prefix],
        }
    }

    /// Gradients, computed over chunks from the last to the first.
    fn backward(&self, cpu: &Cpu, cuts: &[usize]) -> Gradients {
        let (width, kv) = (self.heads.width(), self.heads.kv_width());
        let size = self.prefix_keys.len();
        let mut all = self.room();
        for pair in cuts.windows(2).rev() {
            let (from, to) = (pair[0], pair[1]);
            let (out, sums) = self.forward(cpu, from, to);
            let cells = from * width..to * width;
            let part = from / TILE * size..to.div_ceil(TILE) * size;
            let prefix = (size > 0).then(|| PrefixGradient {
                dkeys: &mut all.prefix_keys[part.clone()],
                dvalues: &mut all.prefix_values[part],
            });
            let mut gradients = [SequenceGradient {
                dkeys: &mut all.keys[..to * kv],
                dvalues: &mut all.values[..to * kv],
                prefix,
            }];
            let sequences = [self.sequence(0..to - from, from)];
            let (q, d_out) = (&self.q[cells.clone()], &self.d_out[cells.clone()]);
            let (heads, dq) = (self.heads, &mut all.q[cells]);
            backward(
                cpu,
                heads,
                &sequences,
                &mut gradients,
                q,
                &out,
                &sums,
                d_out,
                dq,
            );
        }
        all
    }

    fn wide(&self) -> Inputs {
        Inputs {
            q: wide(&self.q),
            keys: wide(&self.keys),
            values: wide(&self.values),
            prefix_keys: wide(&self.prefix_keys),
            prefix_values: wide(&self.prefix_values),
        }
    }
}

fn heads(heads: usize, kv_heads: usize, head_dim: usize, window: Option<usize>) -> Heads {
    Heads {
        heads,
        kv_heads,
        head_dim,
        window,
    }
}

fn cases() -> Vec<Case> {
    let list = [
        (heads(4, 2, 16, None), 2, 0),
        (heads(4, 4, 8, None), 70, 0),
        (heads(3, 1, 64, None), 130, 3),
        (heads(9, 3, 64, None), 97, 0),
        (heads(2, 1, 80, None), 65, 70),
        (heads(6, 2, 16, Some(50)), 200, 0),
        (heads(2, 2, 96, Some(2)), 90, 2),
        (heads(1, 1, 128, Some(64)), 129, 0),
        (heads(2, 1, 1, Some(130)), 300, 65),
        (heads(1, 1, 12, None), 700, 0),
    ];
    let case = |(seed, (heads, rows, prefix))| Case::new(heads, rows, prefix, 10 * seed);
    (1u64..).zip(list).map(case).collect()
}

/// Sums over query tiles.
fn over_tiles(parts: &[f32], size: usize) -> Vec<f32> {
    let mut sum = vec![0.0; size];
    for part in parts.chunks(size.max(1)) {
        sum.iter_mut().zip(part).for_each(|(sum, x)| *sum += x);
    }
    sum
}

#[test]
fn outputs_and_gradients_are_those_of_the_reference() {
    let cpu = Cpu::new(2).unwrap();
    for case in cases() {
        let what = |name: &str| format!("{name} {:?}", case.heads);
        let (out, _) = case.forward(&cpu, 0, case.rows);
        let want = reference::forward(&case.heads, &case.wide());
        assert_close(Operation::Attention, &what("out"), &out, &want);
        let got = case.backward(&cpu, &[0, case.rows]);
        let want = reference::backward(&case.heads, &case.wide(), &wide(&case.d_out));
        let size = case.prefix_keys.len();
        for (name, got, want) in [
            ("dq", got.q, want.q),
            ("dk", got.keys, want.keys),
            ("dv", got.values, want.values),
            (
                "prefix dk",
                over_tiles(&got.prefix_keys, size),
                want.prefix_keys,
            ),
            (
                "prefix dv",
                over_tiles(&got.prefix_values, size),
                want.prefix_values,
            ),
        ] {
            assert_close(Operation::AttentionGradient, &what(name), &got, &want);
        }
    }
}

#[test]
fn the_log_sum_exp_is_that_of_the_scores() {
    // One head of one number: score j is q k_j.
    let case = Case::new(heads(1, 1, 1, None), 100, 3, 7);
    let (_, sums) = case.forward(&Cpu::new(1).unwrap(), 0, 100);
    for (row, sum) in sums.iter().enumerate() {
        let keys = case.prefix_keys.iter().chain(&case.keys[..=row]);
        let total: f64 = keys.map(|k| f64::from(k * case.q[row]).exp()).sum();
        assert!((f64::from(*sum) - total.ln()).abs() < 1e-6, "row {row}");
    }
}
