//! Where a figure was measured.

use std::fs;

use anyhow::{Context, Result};
use serde::Serialize;

/// The machine, as far as it bears on a figure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// Name of the processor.
    pub processor: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Bytes that programs could take before the measurement.
    pub available_bytes: u64,
    /// Whether the processor multiplies tiles of bf16.
    pub amx: bool,
}

impl Machine {
    /// Reads it from `/proc`.
    ///
    /// # Errors
    /// A machine without `/proc`: the memory figures of both sides need it.
    pub fn read() -> Result<Self> {
        let memory = read("/proc/meminfo")?;
        let cpuinfo = read("/proc/cpuinfo")?;
        Ok(Self {
            processor: processor(&cpuinfo),
            amx: amx(&cpuinfo),
            cores: std::thread::available_parallelism()?.get(),
            available_bytes: available(&memory).context("/proc/meminfo has no MemAvailable")?,
        })
    }

    /// The arithmetic of frozen products that is faster here.
    #[must_use]
    pub fn products(&self) -> &'static str {
        if self.amx { "split" } else { "f32" }
    }
}

/// Load average of the last minute.
pub(super) fn load() -> Result<f64> {
    let text = read("/proc/loadavg")?;
    let first = text
        .split_whitespace()
        .next()
        .context("/proc/loadavg is empty")?;
    Ok(first.parse()?)
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("{path}: bench-peer needs Linux"))
}

fn processor(cpuinfo: &str) -> String {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"));
    let name = line.and_then(|line| line.split_once(':'));
    name.map_or_else(|| "unknown".to_owned(), |(_, name)| name.trim().to_owned())
}

fn amx(cpuinfo: &str) -> bool {
    let mut flags = cpuinfo.lines().filter(|line| line.starts_with("flags"));
    flags.any(|line| line.split_whitespace().any(|flag| flag == "amx_bf16"))
}

fn available(meminfo: &str) -> Option<u64> {
    let rest = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_files_are_read() {
        assert_eq!(processor("a: b\nmodel name\t: Fast CPU\n"), "Fast CPU");
        assert!(amx("a: b\nflags\t\t: fpu amx_tile amx_bf16 amx_int8\n"));
        assert!(!amx("a: amx_bf16\nflags\t\t: fpu avx512_bf16\n"));
        assert_eq!(
            available("MemTotal: 9 kB\nMemAvailable:   2 kB\n"),
            Some(2048)
        );
        assert_eq!(available("MemTotal: 9 kB\n"), None);
    }
}
