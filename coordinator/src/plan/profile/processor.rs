//! Processors as devices: their names, a profile for another number of threads, and one for those never measured.
//!
//! A node says `cpu avx2` of itself and how many threads it has; both make the name of its profile, `cpu avx2 x4`.
//!
//! **Other threads.** Times are taken as inversely proportional to threads, as products are; nothing was measured, and
//! the note says so.
//!
//! **Never measured.** Conservative figures of a core: 16 GFLOP/s in 32 bits (a quarter of an AVX2 core of 2 GHz), 4 GB/s
//! of memory, 20 us to begin a kernel; a link of 1 GB/s and 200 us.

use super::super::bounds;
use super::{Compute, FORMAT, Link, Origin, Profile, Reconfiguration, Roofline, VERSION};

/// Operations of a core in a second.
const FLOPS: u64 = 16_000_000_000;
/// Bytes of a core in a second.
const BYTES: u64 = 4_000_000_000;
/// To begin a kernel.
const LAUNCH: u64 = 20_000;
/// What program and libraries take.
const WORKSPACE: u64 = 64 << 20;

/// Threads as a node says them, brought to what can be.
fn within(threads: u32) -> u32 {
    let most = u32::try_from(bounds::THREADS.most).unwrap_or(u32::MAX);
    threads.clamp(1, most)
}

/// The name of the profile of a processor with so many threads.
#[must_use]
pub fn name(device: &str, threads: u32) -> String {
    format!("{device} x{}", within(threads))
}

/// A name taken apart again: the device, and its threads where it says so.
#[must_use]
pub fn parts(name: &str) -> (&str, Option<u32>) {
    let found = name.rsplit_once(" x").and_then(|(device, threads)| {
        let threads = threads.parse().ok().filter(|threads| *threads > 0)?;
        Some((device, Some(threads)))
    });
    found.unwrap_or((name, None))
}

/// Conservative figures of a processor that was never measured; `memory` is what it offers.
#[must_use]
pub fn unmeasured(device: &str, threads: u32, memory: u64) -> Profile {
    let threads = within(threads);
    Profile {
        format: FORMAT.to_owned(),
        version: VERSION,
        device: name(device, threads),
        compute: Compute::F32,
        origin: Origin::Computed,
        note: "conservative figures of a core; `spotmux profile` measures".into(),
        memory_bytes: bounds::MEMORY.nearest(memory).max(WORKSPACE + 1),
        workspace_bytes: WORKSPACE,
        roofline: Some(Roofline {
            flops_per_second: FLOPS * u64::from(threads),
            bytes_per_second: BYTES * u64::from(threads),
            compute_permille: 1000,
            memory_permille: 1000,
            launch_nanos: LAUNCH,
        }),
        linear: Vec::new(),
        attention: Vec::new(),
        adapters: Vec::new(),
        stream: Vec::new(),
        links: vec![Link {
            name: "between".into(),
            latency_nanos: 200_000,
            bytes_per_second: 1_000_000_000,
        }],
        reconfiguration: Reconfiguration {
            attach_nanos: 50_000_000,
            switch_nanos: 2_000_000_000,
            load_bytes_per_second: 200_000_000,
        },
    }
}

impl Profile {
    /// The same processor with another number of threads; the same profile where its name does not tell its threads.
    #[must_use]
    pub fn with_threads(&self, threads: u32) -> Self {
        let (device, Some(measured)) = parts(&self.device) else {
            return self.clone();
        };
        let threads = within(threads);
        if measured == threads {
            return self.clone();
        }
        let scaled = |points: &mut super::Points| {
            for (_, nanos) in points {
                let time = u128::from(*nanos) * u128::from(measured);
                *nanos = u64::try_from(time.div_ceil(u128::from(threads))).unwrap_or(u64::MAX);
            }
        };
        let mut other = self.clone();
        other.device = name(device, threads);
        other.note = format!(
            "{}; scaled from {measured} to {threads} threads, not measured",
            self.note
        );
        for entry in &mut other.linear {
            scaled(&mut entry.forward);
            scaled(&mut entry.backward);
        }
        for entry in &mut other.attention {
            scaled(&mut entry.forward);
            scaled(&mut entry.backward);
        }
        for entry in &mut other.adapters {
            scaled(&mut entry.forward);
            scaled(&mut entry.backward);
        }
        scaled(&mut other.stream);
        if let Some(roofline) = &mut other.roofline {
            let more = |rate: u64| {
                let rate = u128::from(rate) * u128::from(threads) / u128::from(measured);
                u64::try_from(rate).unwrap_or(u64::MAX).max(1)
            };
            roofline.flops_per_second = more(roofline.flops_per_second);
            roofline.bytes_per_second = more(roofline.bytes_per_second);
        }
        other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart_as_they_were_made() {
        assert_eq!(parts(&name("cpu avx2", 4)), ("cpu avx2", Some(4)));
        assert_eq!(parts("NVIDIA A40"), ("NVIDIA A40", None));
        assert_eq!(parts("cpu x0"), ("cpu x0", None));
    }

    #[test]
    fn twice_the_threads_take_half_the_time() {
        let mut profile = unmeasured("cpu avx2", 2, 1 << 30);
        profile.stream = vec![(1024, 1_000), (4096, 3_001)];
        let other = profile.with_threads(4);
        assert_eq!(other.device, "cpu avx2 x4");
        assert_eq!(other.stream, [(1024, 500), (4096, 1_501)]);
        assert_eq!(other.roofline.map(|r| r.flops_per_second), Some(4 * FLOPS));
        assert!(other.note.contains("not measured"));
        assert_eq!(profile.with_threads(2), profile);
        other.check().expect("a sound profile");
    }
}
