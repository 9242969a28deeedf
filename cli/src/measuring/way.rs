//! The way between two processes of this machine: chunks over QUIC on loopback, long ones for the rate, short ones for
//! the latency.

use std::fs;
use std::path::Path;

use coordinator::plan::profile::Link;
use gpu_actor::link::quic::gauge::{Gauge, Rate};

use crate::clock;
use crate::exit::{Exit, Failure, OrExit};
use crate::machine;

/// Bytes of a long chunk: a micro-batch of 1,024 rows of a width of 1,024.
const LONG: usize = 4 << 20;
/// Bytes of a short one: what it takes is latency.
const SHORT: usize = 1 << 12;

/// Measures it.
///
/// # Errors
/// [`Exit::Internal`] when loopback does not carry them.
pub(crate) fn measure(quick: bool) -> Result<Link, Failure> {
    let folder = tempfile::tempdir().or_exit(Exit::Internal)?;
    let long = rate(
        &folder.path().join("long"),
        LONG,
        if quick { 8 } else { 32 },
        3,
    )?;
    // One there and one back at once, nothing before them on the way.
    let short = rate(&folder.path().join("short"), SHORT, 1, 9)?;
    // Bytes are counted both ways together; a chunk goes one way while another comes.
    let one_way = (long.per_second / 2.0).max(1.0);
    let alone = 2.0 * SHORT as f64 / short.per_second.max(1.0);
    let latency = (alone - SHORT as f64 / one_way).max(0.0);
    Ok(Link {
        name: "between".into(),
        latency_nanos: (latency * 1e9) as u64,
        bytes_per_second: one_way as u64,
    })
}

fn rate(folder: &Path, chunk_bytes: usize, chunks: usize, rounds: usize) -> Result<Rate, Failure> {
    fs::create_dir(folder).or_exit(Exit::Internal)?;
    let gauge = Gauge {
        chunk_bytes,
        chunks,
        rounds,
        folder: folder.to_owned(),
        now: clock::now(),
        clock: clock::since_first_asked,
        processor: || Some(machine::processor_ms()? as f64 / 1e3),
    };
    Ok(gauge.measure().or_exit(Exit::Internal)?.link)
}
