//! Compares the head (loss and gradient) with the two bare products of its shape, in turn within one run.
//!
//! `cargo run --release -p kernels --example head [-- THREADS [ROWS ...]]` prints milliseconds of the two products
//! (`linear::forward` and `linear::backward`), of the head, and their ratio (1: the rest is free). Each figure is the
//! median of a few repeats.

use std::time::{Duration, Instant};

use kernels::cpu::Cpu;
use kernels::ops::head::{self, Rows};
use kernels::ops::linear;
use kernels::weight::{Format, Weight};

/// `(hidden, vocab)` of SmolLM2-135M.
const SHAPE: (usize, usize) = (576, 49152);

fn main() {
    let arguments: Vec<usize> = std::env::args()
        .skip(1)
        .filter_map(|text| text.parse().ok())
        .collect();
    let threads = arguments.first().copied().unwrap_or(1);
    let rows = match arguments.get(1..) {
        Some(rows) if !rows.is_empty() => rows.to_vec(),
        _ => vec![16, 64, 200, 512],
    };
    let cpu = Cpu::new(threads).expect("threads start");
    println!("{threads} threads, {}; milliseconds", cpu.isa());
    let (hidden, vocab) = SHAPE;
    let plain = Weight::from_f32(vocab, hidden, numbers(vocab * hidden, 0.05));
    let narrow = plain.convert(Format::Bf16).expect("can be made");
    for (name, weight) in [
        ("F32", &plain),
        ("BF16", &narrow),
        ("Q8_0", &blocks(vocab, hidden)),
    ] {
        for &rows in &rows {
            compare(&cpu, rows, name, weight);
        }
    }
}

fn compare(cpu: &Cpu, rows: usize, name: &str, weight: &Weight) {
    let (hidden, vocab) = SHAPE;
    let x = numbers(rows * hidden, 1.0);
    let targets: Vec<u32> = (0..rows)
        .map(|row| u32::try_from(row * 97 % vocab).expect("a token"))
        .collect();
    let coefficients = vec![1.0; rows];
    let (mut loss, mut correct) = (vec![0.0; rows], vec![false; rows]);
    let (mut dx, mut logits) = (vec![0.0; rows * hidden], vec![0.0; rows * vocab]);
    let mut times: [Vec<Duration>; 3] = Default::default();
    for _ in 0..(2000 / rows).clamp(5, 21) {
        let products = timed(|| {
            linear::forward(cpu, &x, weight, &mut logits);
            linear::backward(cpu, &logits, weight, &mut dx, false);
        });
        times[0].push(products);
        let input = Rows {
            x: &x,
            targets: &targets,
            coefficients: &coefficients,
        };
        times[1].push(timed(|| {
            head::loss_and_gradient(cpu, &input, weight, &mut loss, &mut correct, Some(&mut dx));
        }));
        times[2].push(timed(|| {
            head::loss_and_gradient(cpu, &input, weight, &mut loss, &mut correct, None);
        }));
    }
    let [products, trained, evaluated] = times.map(|mut times| {
        times.sort();
        times[times.len() / 2].as_secs_f64() * 1e3
    });
    println!(
        "{name:>5} {rows:>4} rows: products {products:>7.1}, head {trained:>7.1} (ratio {:.3}), loss only {evaluated:>7.1}",
        trained / products
    );
}

#[expect(clippy::disallowed_methods, reason = "measures")]
fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

fn blocks(rows: usize, cols: usize) -> Weight {
    let block: Vec<u8> = [0x00, 0x14]
        .into_iter()
        .chain((0..32u8).map(|i| i.wrapping_mul(37)))
        .collect();
    let bytes = block.repeat(rows * cols / 32);
    let range = 0..bytes.len();
    Weight::new(Format::Q8_0, rows, cols, std::sync::Arc::new(bytes), range).expect("whole blocks")
}

fn numbers(len: usize, scale: f32) -> Vec<f32> {
    let mut state = 1u32;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        scale * (f32::from(u16::try_from(state >> 16).expect("16 bits")) / 32768.0 - 1.0)
    };
    std::iter::repeat_with(next).take(len).collect()
}
