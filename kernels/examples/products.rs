//! Compares the backbone products with the `gemm` crate, in turn within one run.
//!
//! `cargo run --release -p kernels --example products [-- [amx|avx512|avx2|portable] [f32|split] [head] THREADS [ROWS ...]]` prints GFLOP/s of both and their ratio
//! (above 1: ours is faster) for forward `x W^T` and backward `dy W`. The peer multiplies numbers in memory; ours reads
//! the stored format. Rates are of the best of many calls, per second of processor time times the threads, so that other
//! work on the machine disturbs them little; idle threads are not seen. Weights take turns, so that each call finds its
//! weight as a step does: in no cache that is near. With `head`, the fused loss and its gradient is measured, by rows.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use kernels::cpu::{Cpu, Isa, Products};
use kernels::ops::{head, linear};
use kernels::peer;
use kernels::weight::{Format, Weight};

/// `(in, out)` of the products of SmolLM2-135M.
const SHAPES: [(usize, usize); 5] = [
    (576, 576),
    (576, 192),
    (576, 1536),
    (1536, 576),
    (576, 49152),
];

/// Numbers of all weights of a shape and a format.
const TURNS: usize = 12_000_000;

const FORMATS: [Format; 3] = [Format::F32, Format::Bf16, Format::Q4_1];

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<usize> = words.iter().filter_map(|text| text.parse().ok()).collect();
    let sets = Isa::available();
    let named = sets
        .iter()
        .find(|isa| words.iter().any(|word| word == isa.name()));
    let threads = arguments.first().copied().unwrap_or(1);
    let rows = match arguments.get(1..) {
        Some(rows) if !rows.is_empty() => rows.to_vec(),
        _ => vec![64, 256, 512, 768],
    };
    let mut all = Products::ALL.into_iter();
    let products = all.find(|products| words.iter().any(|word| word == products.name()));
    let products = products.unwrap_or_default();
    let cpu = Cpu::with_isa(threads, *named.unwrap_or(&sets[0])).expect("threads start");
    let cpu = cpu.with_products(products);
    println!(
        "{} threads, {}, {}; GFLOP/s ours (ratio to gemm)",
        threads,
        cpu.isa(),
        products
    );
    if words.iter().any(|word| word == "head") {
        rows.iter().for_each(|&rows| end(&cpu, rows));
        return;
    }
    println!(
        "{:>16} {:>5} {:>8} {:>8} {:>16} {:>16} {:>16}",
        "in,out", "rows", "way", "gemm", "F32", "BF16", "Q4_1"
    );
    for (inputs, outputs) in SHAPES {
        let turns = (TURNS / (inputs * outputs)).max(1);
        let weights = FORMATS.map(|format| {
            let weight = || weight(format, outputs, inputs);
            std::iter::repeat_with(weight).take(turns).collect()
        });
        for &rows in &rows {
            compare(&cpu, rows, &weights, true);
            compare(&cpu, rows, &weights, false);
        }
    }
}

/// Measures the loss and its gradient at the end of the model.
fn end(cpu: &Cpu, rows: usize) {
    let (hidden, vocab) = SHAPES[4];
    let weight = weight(Format::F32, vocab, hidden);
    let x: Vec<f32> = numbers(rows * hidden).iter().map(|x| x / 8.0).collect();
    let targets: Vec<u32> = (0..rows)
        .map(|row| u32::try_from(row * 37 % vocab).expect("small"))
        .collect();
    let coefficients = vec![0.01; rows];
    let input = head::Rows {
        x: &x,
        targets: &targets,
        coefficients: &coefficients,
    };
    let (mut loss, mut correct, mut dx) =
        (vec![0.0; rows], vec![false; rows], vec![0.0; rows * hidden]);
    let mut best = Duration::MAX;
    for _ in 0..5 {
        let time = timed(|| {
            head::loss_and_gradient(cpu, &input, &weight, &mut loss, &mut correct, Some(&mut dx));
        });
        best = best.min(time);
    }
    #[expect(clippy::cast_precision_loss, reason = "a rate to print")]
    let work = (4 * rows * hidden * vocab * cpu.threads()) as f64;
    println!(
        "{rows:>5} rows: {:.1}, loss {}",
        work / best.as_secs_f64() / 1e9,
        loss[0]
    );
}

fn compare(cpu: &Cpu, rows: usize, weights: &[Vec<Weight>; 3], forward: bool) {
    let (outputs, inputs) = (weights[0][0].rows(), weights[0][0].cols());
    let (from, to) = if forward {
        (inputs, outputs)
    } else {
        (outputs, inputs)
    };
    let x = numbers(rows * from);
    let mut y = vec![0.0; rows * to];
    let flops = 2 * rows * inputs * outputs;
    let mut times = [Duration::MAX; 4];
    for turn in 0..(40_000_000_000 / flops).clamp(4, 200) {
        let of = |format: usize| &weights[format][turn % weights[format].len()];
        let mut keep = |place: usize, time: Duration| times[place] = times[place].min(time);
        keep(
            0,
            timed(|| match forward {
                true => peer::forward(cpu, &x, of(0), &mut y),
                false => peer::backward(cpu, &x, of(0), &mut y, false),
            }),
        );
        for format in 0..FORMATS.len() {
            let time = timed(|| match forward {
                true => linear::forward(cpu, &x, of(format), &mut y),
                false => linear::backward(cpu, &x, of(format), &mut y, false),
            });
            keep(format + 1, time);
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "a rate to print")]
    let work = (flops * cpu.threads()) as f64;
    let rates = times.map(|time| work / time.as_secs_f64() / 1e9);
    let ours = |i: usize| format!("{:.1} ({:.2})", rates[i], rates[i] / rates[0]);
    let way = if forward { "forward" } else { "backward" };
    println!(
        "{:>16} {:>5} {:>8} {:>8.1} {:>16} {:>16} {:>16}",
        format!("{inputs},{outputs}"),
        rows,
        way,
        rates[0],
        ours(1),
        ours(2),
        ours(3)
    );
}

/// Returns the processor time of a call, over all threads.
fn timed(mut work: impl FnMut()) -> Duration {
    let start = processor_time();
    work();
    processor_time() - start
}

/// Returns the time that all threads of this process have run, as Linux tells it.
fn processor_time() -> Duration {
    // Linux brings the time of a running thread up to date when it offers to pause.
    std::thread::yield_now();
    let tasks = fs::read_dir("/proc/self/task").expect("Linux");
    let nanoseconds = tasks.map(|task| {
        let path = task.expect("a thread").path().join("schedstat");
        let text = fs::read_to_string(path).unwrap_or_default();
        text.split(' ')
            .next()
            .and_then(|first| first.parse::<u64>().ok())
            .unwrap_or(0)
    });
    Duration::from_nanos(nanoseconds.sum())
}

/// A weight of random numbers or random blocks.
fn weight(format: Format, rows: usize, cols: usize) -> Weight {
    if format == Format::Q4_1 {
        let block: Vec<u8> = [0x00, 0x2c, 0x00, 0xb0]
            .into_iter()
            .chain((0..16).map(|i| i * 37 + 11))
            .collect();
        let bytes = block.repeat(rows * cols / 32);
        let range = 0..bytes.len();
        return Weight::new(format, rows, cols, Arc::new(bytes), range).expect("whole blocks");
    }
    let plain = Weight::from_f32(rows, cols, numbers(rows * cols));
    plain.convert(format).expect("can be made")
}

fn numbers(len: usize) -> Vec<f32> {
    let mut state = 1u32;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f32::from(u16::try_from(state >> 16).expect("16 bits")) / 32768.0 - 1.0
    };
    std::iter::repeat_with(next).take(len).collect()
}
