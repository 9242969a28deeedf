//! Times the low-rank products of adapters beside a backbone product of the same width.
//!
//! `cargo run --release -p kernels --example thin [-- ROWS]` prints, for several ranks and for rows that belong to one
//! job or to many, GFLOP/s and the time as a share of the backbone product `(width, width)`, one thread. As a LoRA of
//! rank `r` adds a shrink and a grow, its forward share is the sum of the two columns.

use std::fs;
use std::time::Duration;

use kernels::cpu::Cpu;
use kernels::ops::linear;
use kernels::ops::thin::{self, Part};
use kernels::weight::Weight;

fn main() {
    let rows = std::env::args()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(512);
    let cpu = Cpu::new(1).expect("a thread");
    println!(
        "{rows} rows, {}: GFLOP/s (share of the backbone product)",
        cpu.isa()
    );
    println!(
        "{:>6} {:>5} {:>6} {:>18} {:>18}",
        "width", "rank", "jobs", "shrink", "grow"
    );
    for width in [576, 1536] {
        for rank in [1, 2, 4, 8, 16, 64] {
            for jobs in [1, rows] {
                compare(&cpu, rows, width, rank, jobs);
            }
        }
    }
}

fn compare(cpu: &Cpu, rows: usize, width: usize, rank: usize, jobs: usize) {
    let weight = Weight::from_f32(width, width, vec![0.01; width * width]);
    let matrix = vec![0.01; rank * width];
    let x = vec![0.5; rows * width];
    let mut y = vec![0.0; rows * width];
    let mut low = vec![0.0; rows * rank];
    let of_job = rows / jobs;
    let part = |job: usize| Part {
        rows: job * of_job..(job + 1) * of_job,
        rank,
        matrix: &matrix,
        scale: 1.0,
        low: job * of_job * rank,
    };
    let parts: Vec<Part<'_>> = (0..jobs).map(part).collect();
    let mut times = [Duration::ZERO; 3];
    let calls = [4, 100, 100];
    for _ in 0..10 {
        times[0] += timed(calls[0], &mut || linear::forward(cpu, &x, &weight, &mut y));
        times[1] += timed(calls[1], &mut || {
            thin::shrink(cpu, &parts, &x, width, &mut low)
        });
        times[2] += timed(calls[2], &mut || {
            thin::grow(cpu, &parts, &low, &mut y, width)
        });
    }
    let one = |i: usize| times[i].as_secs_f64() / f64::from(calls[i]) / 10.0;
    #[expect(clippy::cast_precision_loss, reason = "a rate to print")]
    let flops = (2 * rows * rank * width) as f64;
    let show = |i: usize| {
        format!(
            "{:.1} ({:.2} %)",
            flops / one(i) / 1e9,
            100.0 * one(i) / one(0)
        )
    };
    println!(
        "{width:>6} {rank:>5} {jobs:>6} {:>18} {:>18}",
        show(1),
        show(2)
    );
}

/// Returns the processor time of some calls of this thread, as Linux tells it.
fn timed(calls: u32, work: &mut impl FnMut()) -> Duration {
    let start = processor_time();
    (0..calls).for_each(|_| work());
    processor_time() - start
}

fn processor_time() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    let nanoseconds = text.split(' ').next().and_then(|first| first.parse().ok());
    Duration::from_nanos(nanoseconds.expect("a number"))
}
