//! Throughput of a link between stages against a bare stream of QUIC with the same bytes, over loopback, both ways at once.
//!
//! `cargo run --release -p gpu-actor --example link [MIB] [CHUNK_KIB]`

use std::error::Error;
use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime};

use gpu_actor::link::quic::gauge::{Gauge, Rates};
use shared::units::Micros;

#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
fn passed() -> Duration {
    static FIRST: LazyLock<Instant> = LazyLock::new(Instant::now);
    FIRST.elapsed()
}

#[expect(
    clippy::disallowed_methods,
    reason = "a measurement reads the clock and its arguments"
)]
fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let mut number = |default: usize| words.next().map_or(Ok(default), |word| word.parse());
    let (total, chunk_bytes) = (number(1024)? << 20, number(4096)? << 10);
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let folder = std::env::temp_dir().join(format!("spotmux-link-{}", std::process::id()));
    let gauge = Gauge {
        chunk_bytes,
        chunks: (total / chunk_bytes / 2).max(1),
        rounds: 3,
        folder: folder.clone(),
        now: Micros(u64::try_from(since.as_micros())?),
        clock: passed,
        processor: processor_seconds,
    };
    let rates = gauge.measure();
    std::fs::remove_dir_all(folder)?;
    let Rates { bare, kept, link } = rates?;
    println!(
        "{} chunks of {} KiB each way, best of three",
        gauge.chunks,
        chunk_bytes >> 10
    );
    let by_time = [link, bare, kept].map(|rate| rate.per_second);
    let by_processor = [link, bare, kept].map(|rate| rate.per_processor_second);
    for (what, [link, bare, kept]) in [("s", by_time), ("CPU-s of both ends", by_processor)] {
        println!("link {:.3} GB per {what}", link / 1e9);
        for (stream, beside) in [("looks at nothing", bare), ("keeps values", kept)] {
            let share = link / beside * 100.0;
            println!(
                "  {share:.0} % of a bare stream that {stream}, {:.3}",
                beside / 1e9
            );
        }
    }
    Ok(())
}

/// Processor seconds that this process used so far; not moved by what else runs.
fn processor_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let fields = stat.rsplit(')').next()?.split_whitespace();
    let ticks = fields
        .skip(11)
        .take(2)
        .map(|field| field.parse::<f64>().ok());
    Some(ticks.sum::<Option<f64>>()? / 100.0)
}
