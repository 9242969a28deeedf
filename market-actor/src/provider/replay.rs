//! A recorded market on this machine: local processes whose life follows a trace in scaled time.
//!
//! A spot machine can be had while fewer run than the trace shows; when it shows fewer than run, as many are taken: most with a
//! notice and killed at its end, some at once ([`Script::abrupt_per_mille`], drawn by a seed). What and whom is [`course`]'s to
//! say; this file asks it and acts.

pub mod course;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shared::units::Micros;

use super::local::{Local, pool};
use super::{Answer, Certainty, Kind, Machine, Provider, ProviderError, Sighting, Signal, Want};
use crate::market::Pool;
use course::{Act, Course, Script};

/// Largest file of what was taken.
const MOST_BYTES: u64 = 8 << 20;

/// Its name.
const REPLAY: &str = "replay";

/// Tells the time since 1970.
pub type Clock = Arc<dyn Fn() -> Micros + Send + Sync>;

/// The provider.
pub struct Replay {
    local: Local,
    course: Course,
    /// File of what was taken, a line each.
    reclaims: PathBuf,
    pool: Pool,
    clock: Clock,
}

impl std::fmt::Debug for Replay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replay")
            .field("course", &self.course)
            .finish_non_exhaustive()
    }
}

impl Replay {
    /// One over processes of this machine. The instant at which the trace began stands in a file of `folder`: a replay that comes
    /// back goes on in it.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub fn new(local: Local, script: Script, folder: &Path, clock: Clock) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let path = folder.join("replay.json");
        let begun = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let now = clock();
                // A process that ends meanwhile leaves all of it or nothing.
                let beside = path.with_extension("part");
                fs::write(&beside, serde_json::to_vec(&now)?)?;
                fs::rename(&beside, &path)?;
                now
            }
            Err(error) => return Err(error),
        };
        let pool = Pool {
            provider: REPLAY.into(),
            ..pool()
        };
        let pool = match script.market.pool.zone.is_empty() {
            true => pool,
            false => Pool {
                zone: script.market.pool.zone.clone(),
                ..pool
            },
        };
        Ok(Self {
            local,
            course: Course::new(script, begun),
            reclaims: folder.join("reclaims.jsonl"),
            pool,
            clock,
        })
    }

    /// Keeps what was taken, for who wants to know how much was borne.
    fn note(&self, id: &str, told: bool, now: Micros) {
        let line = serde_json::json!({ "at": now, "machine": id, "told": told });
        let file = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.reclaims);
        let written = file.and_then(|mut file| {
            // What was borne by then is known well enough.
            match file.metadata()?.len() < MOST_BYTES {
                true => writeln!(file, "{line}"),
                false => Ok(()),
            }
        });
        if let Err(error) = written {
            tracing::warn!(%error, "a reclaim is not kept");
        }
    }

    fn spots(&mut self) -> Result<Vec<String>, ProviderError> {
        let machines = self.local.machines()?;
        let spots = machines.into_iter().filter(|one| one.kind == Kind::Spot);
        Ok(spots.map(|one| one.id).collect())
    }
}

impl Provider for Replay {
    fn name(&self) -> &str {
        REPLAY
    }

    fn notice(&self) -> Micros {
        self.course.notice()
    }

    fn offers(&mut self) -> Answer<'_, Vec<Sighting>> {
        let slot = self.course.slot((self.clock)());
        let pool = self.pool.clone();
        Box::pin(async move {
            Ok(vec![Sighting {
                pool,
                spot_price: Some(slot.spot_price),
                spot_available: Some(slot.spot_available),
                on_demand_price: Some(slot.on_demand_price),
                on_demand_available: slot.on_demand_available,
            }])
        })
    }

    fn acquire<'a>(&'a mut self, want: &'a Want) -> Answer<'a, Machine> {
        Box::pin(async move {
            let now = (self.clock)();
            let spots = self.spots()?;
            let known = spots.iter().any(|id| *id == want.token.as_str());
            let free = self.course.free(&spots, now);
            if want.kind == Kind::Spot && !known && free == 0 {
                return Err(ProviderError::NoCapacity {
                    provider: REPLAY.into(),
                    why: format!("the trace shows none beyond the {} that run", spots.len()),
                });
            }
            self.local.acquire(want).await
        })
    }

    fn release<'a>(&'a mut self, id: &'a str) -> Answer<'a, ()> {
        self.local.release(id)
    }

    fn list(&mut self) -> Answer<'_, Vec<Machine>> {
        self.local.list()
    }

    fn signals(&mut self) -> Answer<'_, Vec<Signal>> {
        Box::pin(async move {
            let now = (self.clock)();
            let spots = self.spots()?;
            let mut signals = Vec::new();
            for act in self.course.step(&spots, now) {
                match act {
                    Act::Tell(signal) => {
                        if signal.certainty == Certainty::Notice {
                            self.note(&signal.id, true, now);
                        }
                        signals.push(signal);
                    }
                    Act::Take { id, told } => {
                        if !told {
                            self.note(&id, false, now);
                        }
                        tracing::info!(machine = %id, "the trace takes a machine");
                        self.local.take_away(&id);
                    }
                }
            }
            Ok(signals)
        })
    }
}
