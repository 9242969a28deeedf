//! What the provider shows, recorded in our own format: `spotmux market backtest --trace` reads it.
//!
//! A pool is written when it shows something else, and once a slot, so that it is known to hold. It is not synced: nothing rests on it.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use shared::units::Micros;

use super::files;
use crate::feed::record::{self, Recorder};
use crate::market::Pool;
use crate::provider::Sighting;

/// Largest recording: then it is put aside, and the one that was aside before is gone.
const MOST_BYTES: u64 = 32 << 20;

/// A recording under way.
#[derive(Debug)]
pub(super) struct Recording {
    path: PathBuf,
    every: Micros,
    recorder: Recorder,
    last: BTreeMap<Pool, (Micros, Sighting)>,
    /// Whether the file is known to end with a whole line.
    whole: bool,
}

impl Recording {
    /// One in a file, each pool at least `every` so long.
    pub(super) fn new(path: PathBuf, every: Micros) -> Self {
        Self {
            path,
            every,
            recorder: Recorder::default(),
            last: BTreeMap::new(),
            whole: false,
        }
    }

    /// The pools were looked at, at an instant since 1970.
    ///
    /// # Errors
    /// When the system refuses.
    pub(super) fn see(&mut self, seen: &[Sighting], at: Micros) -> io::Result<()> {
        let mut text = String::new();
        for one in seen {
            let known = self.last.get(&one.pool);
            let same =
                known.is_some_and(|(since, before)| before == one && at.since(*since) < self.every);
            if same {
                continue;
            }
            text.push_str(&self.recorder.write(&record::Sighting {
                at,
                pool: one.pool.clone(),
                spot_price: one.spot_price,
                spot_available: one.spot_available,
                on_demand_price: one.on_demand_price,
                on_demand_available: one.on_demand_available,
            }));
            self.last.insert(one.pool.clone(), (at, one.clone()));
        }
        // What is not shown any more is forgotten.
        let shown: Vec<&Pool> = seen.iter().map(|one| &one.pool).collect();
        self.last.retain(|pool, _| shown.contains(&pool));
        if text.is_empty() {
            return Ok(());
        }
        let written = self.append(text.as_bytes());
        if !matches!(written, Ok(false)) {
            // The next lines name their pools again.
            self.recorder = Recorder::default();
            self.last.clear();
        }
        written.map(|_| ())
    }

    /// Appends after a whole line: one that was torn, by a crash or a full disk, is cut off first.
    fn append(&mut self, lines: &[u8]) -> io::Result<bool> {
        if !self.whole {
            files::cut_torn_line(&self.path)?;
        }
        let written = files::append(&self.path, lines, MOST_BYTES);
        self.whole = written.is_ok();
        written
    }
}

#[cfg(test)]
mod tests {
    use shared::units::MicroUsd;

    use super::*;

    #[test]
    fn what_changes_is_written_and_read_back_as_a_trace() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sightings.jsonl");
        let seen = |available| Sighting {
            pool: Pool {
                provider: "test".into(),
                region: String::new(),
                zone: "a".into(),
                machine: "m".into(),
            },
            spot_price: Some(MicroUsd(300_000)),
            spot_available: Some(available),
            on_demand_price: None,
            on_demand_available: None,
        };
        let mut recording = Recording::new(path.clone(), Micros(100));
        for (at, available) in [(1, 4), (2, 4), (50, 4), (60, 3), (70, 3), (200, 3)] {
            recording.see(&[seen(available)], Micros(at)).unwrap();
        }
        // A process that comes back begins anew in the same file.
        let mut again = Recording::new(path.clone(), Micros(100));
        again.see(&[seen(2)], Micros(300)).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let read = record::parse("sightings.jsonl", &text).unwrap();
        let told: Vec<(u64, Option<u32>)> = read
            .sightings
            .iter()
            .map(|one| (one.at.0, one.spot_available))
            .collect();
        assert_eq!(
            told,
            [(1, Some(4)), (60, Some(3)), (200, Some(3)), (300, Some(2))]
        );
        // A line that was torn does not take the next ones with it.
        files::append(&path, b"{\"at\":301,\"of", u64::MAX).unwrap();
        let mut third = Recording::new(path.clone(), Micros(100));
        third.see(&[seen(1)], Micros(400)).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let read = record::parse("sightings.jsonl", &text).unwrap();
        assert_eq!((read.sightings.len(), read.cut), (5, false));
        // What could not be written is written with its pool later.
        let aside = folder.path().join("aside");
        std::fs::rename(&path, &aside).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(third.see(&[seen(3)], Micros(500)).is_err());
        std::fs::remove_dir(&path).unwrap();
        third.see(&[seen(3)], Micros(501)).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(
            record::parse("sightings.jsonl", &text)
                .unwrap()
                .sightings
                .len(),
            1
        );
    }
}
