//! Compares the gradient sums of LoRA with the bare products of the same site, in turn within one run.
//!
//! `cargo run --release -p kernels --example gradients [-- THREADS [RANK ...]]` prints milliseconds of the two products
//! of each site of SmolLM2-135M for 512 rows, of `dA` and `dB` by [`kernels::ops::block_sum::outer`], and their share.

use std::ops::Range;
use std::time::{Duration, Instant};

use kernels::cpu::Cpu;
use kernels::ops::block_sum::{self, Nodes, Outer};
use kernels::ops::linear;
use kernels::weight::Weight;

const ROWS: usize = 512;

/// `(in, out)` of the sites.
const SITES: [(usize, usize); 4] = [(576, 576), (576, 192), (576, 1536), (1536, 576)];

fn main() {
    let arguments: Vec<usize> = std::env::args()
        .skip(1)
        .filter_map(|text| text.parse().ok())
        .collect();
    let threads = arguments.first().copied().unwrap_or(1);
    let ranks = match arguments.get(1..) {
        Some(ranks) if !ranks.is_empty() => ranks.to_vec(),
        _ => vec![1, 8, 64],
    };
    let cpu = Cpu::new(threads).expect("threads start");
    println!(
        "{threads} threads, {}; {ROWS} rows, milliseconds",
        cpu.isa()
    );
    for (inputs, outputs) in SITES {
        for &rank in &ranks {
            for block in [64, 16] {
                compare(&cpu, inputs, outputs, rank, block);
            }
        }
    }
}

fn compare(cpu: &Cpu, inputs: usize, outputs: usize, rank: usize, block: usize) {
    let weight = Weight::from_f32(outputs, inputs, numbers(outputs * inputs));
    let (x, dy) = (numbers(ROWS * inputs), numbers(ROWS * outputs));
    let (low, d_low) = (numbers(ROWS * rank), numbers(ROWS * rank));
    let (mut y, mut dx) = (vec![0.0; dy.len()], vec![0.0; x.len()]);
    let (mut da, mut db) = (vec![0.0; rank * inputs], vec![0.0; rank * outputs]);
    let blocks: Vec<Range<usize>> = (0..ROWS).step_by(block).map(|t| t..t + block).collect();
    let mut times: [Vec<Duration>; 2] = Default::default();
    for _ in 0..31 {
        times[0].push(timed(|| {
            linear::forward(cpu, &x, &weight, &mut y);
            linear::backward(cpu, &dy, &weight, &mut dx, false);
        }));
        times[1].push(timed(|| {
            for (left, right, width, gradient) in
                [(&d_low, &x, inputs, &mut da), (&low, &dy, outputs, &mut db)]
            {
                let sum = Outer {
                    first_block: 0,
                    blocks: &blocks,
                    left_rows: 0..ROWS,
                    left,
                    rank,
                    right,
                    width,
                    scale: 1.0,
                    nodes: &mut Nodes::new(),
                    gradient: Some(gradient),
                };
                block_sum::outer(cpu, &mut [sum]);
            }
        }));
    }
    let [products, sums] = times.map(|mut times| {
        times.sort();
        times[times.len() / 2].as_secs_f64() * 1e3
    });
    println!(
        "{inputs:>5} -> {outputs:>4}, rank {rank:>3}, blocks of {block}: products {products:>7.3}, sums {sums:>7.3} (share {:.3}, arithmetic {:.3})",
        sums / products,
        share(rank * (inputs + outputs), 2 * inputs * outputs),
    );
}

#[expect(clippy::cast_precision_loss, reason = "a share to print")]
fn share(part: usize, whole: usize) -> f64 {
    part as f64 / whole as f64
}

#[expect(clippy::disallowed_methods, reason = "measures")]
fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

fn numbers(len: usize) -> Vec<f32> {
    let mut state = 1u32;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f32::from(u16::try_from(state >> 16).expect("16 bits")) / 32768.0 - 1.0
    };
    std::iter::repeat_with(next).take(len).collect()
}
