//! Compares norms, rotation, gate and attention with the products of the same layer, in turn within one run.
//!
//! `cargo run --release -p kernels --example elementwise [-- [avx512|avx2|portable] THREADS [LENGTH ...]]` prints, for a
//! pass of about 512 tokens through one layer of SmolLM2-135M made of sequences of each length, nanoseconds of
//! processor time per token for each operation, and their share of the products'. The products are those of the
//! backbone in f32: forward, or the gradient of their inputs. Figures are sums over rounds, taken in turn, so that a busy machine slows all alike.

use std::fs;
use std::ops::Range;
use std::time::Duration;

use kernels::cpu::{Cpu, Isa};
use kernels::ops::attention::{self, Heads, Sequence, SequenceGradient};
use kernels::ops::rope::RopeTable;
use kernels::ops::{elementwise, linear, rms_norm, rope, swiglu};
use kernels::weight::Weight;

const HIDDEN: usize = 576;
const KV: usize = 192;
const FEED_FORWARD: usize = 1536;
const TOKENS: usize = 512;
const ROUNDS: usize = 12;

/// `(in, out)` of the products of a layer: q, k, v, o, gate, up, down.
const PRODUCTS: [(usize, usize); 7] = [
    (HIDDEN, HIDDEN),
    (HIDDEN, KV),
    (HIDDEN, KV),
    (HIDDEN, HIDDEN),
    (HIDDEN, FEED_FORWARD),
    (HIDDEN, FEED_FORWARD),
    (FEED_FORWARD, HIDDEN),
];

const HEADS: Heads = Heads {
    heads: 9,
    kv_heads: 3,
    head_dim: 64,
    window: None,
};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<usize> = words.iter().filter_map(|text| text.parse().ok()).collect();
    let sets = Isa::available();
    let named = sets
        .iter()
        .find(|isa| words.iter().any(|word| word == isa.name()));
    let threads = arguments.first().copied().unwrap_or(1);
    let lengths = match arguments.get(1..) {
        Some(lengths) if !lengths.is_empty() => lengths.to_vec(),
        _ => vec![60, 95, 300, 512],
    };
    let cpu = Cpu::with_isa(threads, *named.unwrap_or(&sets[0])).expect("threads start");
    println!(
        "{threads} threads, {}; ns of processor time per token",
        cpu.isa()
    );
    for length in lengths {
        Layer::new(length).measure(&cpu);
    }
}

/// One operation over the pass, forward or backward.
type Step = fn(&mut Layer, &Cpu, bool);

/// Arrays of one layer's pass.
struct Layer {
    sequences: Vec<Range<usize>>,
    positions: Vec<u32>,
    table: RopeTable,
    weights: Vec<Weight>,
    norm: Vec<f32>,
    root: Vec<f32>,
    /// `(tokens, HIDDEN)` each.
    hidden: [Vec<f32>; 5],
    log_sum_exp: Vec<f32>,
    /// `(tokens, KV)` each.
    kv: [Vec<f32>; 4],
    /// `(tokens, FEED_FORWARD)` each.
    wide: [Vec<f32>; 5],
}

impl Layer {
    fn new(length: usize) -> Self {
        let count = (TOKENS / length).max(1);
        let tokens = count * length;
        let position = |token: usize| u32::try_from(token % length).expect("small");
        let frequencies: Vec<f64> = (0..32).map(|i| 1e5f64.powf(f64::from(-i) / 32.0)).collect();
        let weight = |(seed, (inputs, outputs)): (u64, (usize, usize))| {
            Weight::from_f32(outputs, inputs, numbers(inputs * outputs, seed))
        };
        Self {
            sequences: (0..count).map(|i| i * length..(i + 1) * length).collect(),
            positions: (0..tokens).map(position).collect(),
            table: RopeTable::new(&frequencies, length),
            weights: (10..).zip(PRODUCTS).map(weight).collect(),
            norm: numbers(HIDDEN, 1),
            root: vec![0.0; tokens],
            hidden: [2, 3, 4, 5, 6].map(|seed| numbers(tokens * HIDDEN, seed)),
            log_sum_exp: vec![0.0; tokens * HEADS.heads],
            kv: [7, 8, 9, 10].map(|seed| numbers(tokens * KV, seed)),
            wide: [11, 12, 13, 14, 15].map(|seed| numbers(tokens * FEED_FORWARD, seed)),
        }
    }

    fn measure(&mut self, cpu: &Cpu) {
        let mut times: [(&str, f64, f64); 7] = [
            ("products", 0.0, 0.0),
            ("norms (2)", 0.0, 0.0),
            ("rotation of q, k", 0.0, 0.0),
            ("attention", 0.0, 0.0),
            ("gate", 0.0, 0.0),
            ("sums (2)", 0.0, 0.0),
            ("all but products", 0.0, 0.0),
        ];
        // Calls in a row: the kernel's clock of processor time has ticks of milliseconds.
        let steps: [(Step, u32); 6] = [
            (Self::products, 1),
            (Self::norms, 60),
            (Self::rotation, 60),
            (Self::attention, 6),
            (Self::gate, 40),
            (Self::sums, 60),
        ];
        for round in 0..=ROUNDS {
            for ((step, calls), time) in steps.iter().zip(&mut times) {
                let mut mean = |forward| {
                    let work = || (0..*calls).for_each(|_| step(self, cpu, forward));
                    timed(work) / f64::from(*calls)
                };
                let (forward, backward) = (mean(true), mean(false));
                // The first round faults pages and wakes caches.
                if round > 0 {
                    time.1 += forward;
                    time.2 += backward;
                }
            }
        }
        let (rest, all) = times[1..].split_at_mut(5);
        all[0].1 = rest.iter().map(|time| time.1).sum();
        all[0].2 = rest.iter().map(|time| time.2).sum();
        #[expect(clippy::cast_precision_loss, reason = "a rate to print")]
        let calls = (self.positions.len() * ROUNDS) as f64;
        println!(
            "{} sequences of {}",
            self.sequences.len(),
            self.sequences[0].len()
        );
        for (name, forward, backward) in times {
            println!(
                "{name:>18}: forward {:8.0} ({:5.1} %)   backward {:8.0} ({:5.1} %)",
                forward / calls,
                100.0 * forward / times[0].1,
                backward / calls,
                100.0 * backward / times[0].2,
            );
        }
    }

    fn products(&mut self, cpu: &Cpu, forward: bool) {
        for (weight, (inputs, _)) in self.weights.iter().zip(PRODUCTS) {
            let (narrow, wide) = (&mut self.hidden, &mut self.wide);
            let kv = &mut self.kv[3];
            let (x, y) = match (inputs, weight.rows()) {
                (FEED_FORWARD, _) => (&mut wide[4], &mut narrow[4]),
                (_, FEED_FORWARD) => (&mut narrow[4], &mut wide[4]),
                (_, KV) => (&mut narrow[4], kv),
                _ => {
                    let (x, y) = narrow.split_at_mut(4);
                    (&mut x[3], &mut y[0])
                }
            };
            if forward {
                linear::forward(cpu, x, weight, y);
            } else {
                linear::backward(cpu, y, weight, x, false);
            }
        }
    }

    fn norms(&mut self, cpu: &Cpu, forward: bool) {
        let [x, y, d, ..] = &mut self.hidden;
        for _ in 0..2 {
            if forward {
                rms_norm::forward(cpu, x, &self.norm, 1e-5, HIDDEN, y, &mut self.root);
            } else {
                rms_norm::backward(cpu, y, x, &self.norm, &self.root, HIDDEN, d, true);
            }
        }
    }

    fn rotation(&mut self, cpu: &Cpu, forward: bool) {
        for x in [&mut self.hidden[0], &mut self.kv[0]] {
            rope::rotate(cpu, &self.table, &self.positions, x, 64, !forward);
        }
    }

    fn attention(&mut self, cpu: &Cpu, forward: bool) {
        let [q, out, d_out, d_q, _] = &mut self.hidden;
        let [keys, values, d_keys, d_values] = &mut self.kv;
        let sequence = |rows: &Range<usize>| Sequence {
            rows: rows.clone(),
            start: 0,
            keys: &keys[rows.start * KV..rows.end * KV],
            values: &values[rows.start * KV..rows.end * KV],
            prefix: None,
        };
        let sequences: Vec<Sequence<'_>> = self.sequences.iter().map(sequence).collect();
        let sums = &mut self.log_sum_exp;
        if forward {
            attention::forward(cpu, HEADS, &sequences, q, out, sums);
            return;
        }
        let width = self.sequences[0].len() * KV;
        let mut gradients: Vec<SequenceGradient<'_>> = d_keys
            .chunks_mut(width)
            .zip(d_values.chunks_mut(width))
            .map(|(dkeys, dvalues)| SequenceGradient {
                dkeys,
                dvalues,
                prefix: None,
            })
            .collect();
        attention::backward(
            cpu,
            HEADS,
            &sequences,
            &mut gradients,
            q,
            out,
            sums,
            d_out,
            d_q,
        );
    }

    fn gate(&mut self, cpu: &Cpu, forward: bool) {
        let [gate, up, act, d_gate, d_up] = &mut self.wide;
        if forward {
            swiglu::forward(cpu, gate, up, act);
        } else {
            swiglu::backward(cpu, act, gate, up, d_gate, d_up);
        }
    }

    fn sums(&mut self, cpu: &Cpu, _: bool) {
        let [x, y, ..] = &mut self.hidden;
        for _ in 0..2 {
            elementwise::add(cpu, y, x);
        }
    }
}

/// Returns the processor time of some work, over all threads, in nanoseconds.
fn timed(work: impl FnOnce()) -> f64 {
    let start = processor_time();
    work();
    #[expect(clippy::cast_precision_loss, reason = "a figure to print")]
    let taken = (processor_time() - start).as_nanos() as f64;
    taken
}

/// Returns the time that all threads of this process have run, as Linux tells it.
fn processor_time() -> Duration {
    let tasks = fs::read_dir("/proc/self/task").expect("Linux");
    let nanoseconds = tasks.map(|task| {
        let path = task.expect("a thread").path().join("schedstat");
        let text = fs::read_to_string(path).unwrap_or_default();
        let first = text.split(' ').next();
        first
            .and_then(|first| first.parse::<u64>().ok())
            .unwrap_or(0)
    });
    Duration::from_nanos(nanoseconds.sum())
}

/// Returns numbers in [-1, 1).
fn numbers(len: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        #[expect(clippy::cast_precision_loss, reason = "24 bits are exact")]
        let number = (state >> 40) as f32 / 8_388_608.0 - 1.0;
        number
    };
    (0..len).map(|_| next()).collect()
}
