//! Where markets come from: recorded traces, a provider's price history, our own recordings, a seeded invention.
//!
//! A reader turns text into [`Observed`]: for one pool, what was seen of prices and capacities, each as a step
//! function in time. [`resample`] cuts that into the equal slots of a [`crate::market::Market`];
//! [`compose`](compose::compose) joins a source of prices with a source of capacities. All of this is pure; only
//! [`files`] opens files.
//!
//! | reader | source |
//! | --- | --- |
//! | [`skypilot`] | SkyPilot spot traces: JSON, a value a tick, with or without `prices` |
//! | [`bamboo`] | Bamboo's and Parcae's clusters: events, sizes by the clock, steps in hours or seconds |
//! | [`price_table`] | AWS price history as CSV, one row a change |
//! | [`price_history`] | answers of DescribeSpotPriceHistory: JSON of the command line, XML of the query API |
//! | [`gpu_market`] | snapshots of a marketplace: prices by quantile, offers |
//! | [`record`] | our own recordings |
//! | [`synthetic`] | markets made from a seed |

use shared::units::{MicroUsd, Micros};

use crate::market::Pool;

pub mod bamboo;
pub mod choice;
pub mod compose;
pub mod digest;
pub mod fault;
pub mod files;
pub mod format;
pub mod gpu_market;
mod instant;
mod money;
pub mod price_history;
pub mod price_table;
pub mod record;
pub mod resample;
pub mod skypilot;
pub mod synthetic;
mod table;

pub use fault::{BadRow, FeedError, RowFault};
pub use format::Format;
pub use instant::{Instant, instant_text};

/// What a source shows of one pool. Each part is there only if the source has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Which.
    pub pool: Pool,
    /// Whether instants are since 1970-01-01 UTC; otherwise they are since the source's begin.
    pub dated: bool,
    /// Of one spot machine, for an hour.
    pub spot_price: Option<Steps<MicroUsd>>,
    /// Spot machines that the pool would give, or that a probe held.
    pub spot_available: Option<Steps<u32>>,
    /// Of one on-demand machine, for an hour.
    pub on_demand_price: Option<Steps<MicroUsd>>,
    /// Most on-demand machines.
    pub on_demand_available: Option<Steps<u32>>,
}

/// Values in time: each holds from its instant until that of the next, the last one until the end.
///
/// FD-1: instants strictly increase and the end is not before the last; there is at least one value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steps<T> {
    changes: Vec<(Micros, T)>,
    end: Micros,
}

impl Observed {
    /// Nothing seen yet of a pool.
    #[must_use]
    pub const fn nothing(pool: Pool, dated: bool) -> Self {
        Self {
            pool,
            dated,
            spot_price: None,
            spot_available: None,
            on_demand_price: None,
            on_demand_available: None,
        }
    }
}

impl<T: Copy> Steps<T> {
    /// From values at instants in any order; of several at one instant the last given counts. They are known to hold
    /// until `end`, or until the last instant if that is later. Nothing without a value.
    #[must_use]
    pub fn new(mut values: Vec<(Micros, T)>, end: Micros) -> Option<Self> {
        values.sort_by_key(|(at, _)| *at);
        let mut changes: Vec<(Micros, T)> = Vec::with_capacity(values.len());
        for (at, value) in values {
            match changes.last_mut() {
                Some(last) if last.0 == at => last.1 = value,
                _ => changes.push((at, value)),
            }
        }
        let last = changes.last()?.0;
        let end = end.max(last);
        let increase = changes.windows(2).all(|two| two[0].0 < two[1].0);
        debug_assert!(increase, "FD-1");
        Some(Self { changes, end })
    }

    /// One value a tick from 0 on, the last one for a whole tick too. Nothing without a value.
    #[must_use]
    pub fn ticks(values: impl IntoIterator<Item = T>, gap: Micros) -> Option<Self> {
        let mut at = Micros(0);
        let mut placed = Vec::new();
        for value in values {
            placed.push((at, value));
            at = at.plus(gap);
        }
        Self::new(placed, at)
    }

    /// Instant and value of each step.
    #[must_use]
    pub fn changes(&self) -> &[(Micros, T)] {
        &self.changes
    }

    /// From when on a value is known.
    #[must_use]
    pub fn start(&self) -> Micros {
        self.changes[0].0
    }

    /// Until when the last value is known to hold.
    #[must_use]
    pub const fn end(&self) -> Micros {
        self.end
    }

    /// The same from an instant on, which the first step then has; nothing when none of it is after that.
    #[must_use]
    pub fn from(&self, start: Micros) -> Option<Self> {
        let skipped = self.changes.partition_point(|(at, _)| *at <= start);
        if self.end <= start {
            return None;
        }
        let mut changes = self.changes[skipped.saturating_sub(1)..].to_vec();
        changes[0].0 = changes[0].0.max(start);
        let increase = changes.windows(2).all(|two| two[0].0 < two[1].0);
        debug_assert!(increase, "FD-1");
        Some(Self {
            changes,
            end: self.end,
        })
    }

    /// The same steps, all instants moved so that the first is at `start`, with other values.
    #[must_use]
    pub(crate) fn moved<U>(&self, start: Micros, mut value: impl FnMut(T) -> U) -> Steps<U> {
        let first = self.start();
        let place = |at: Micros| start.plus(at.since(first));
        let changes = self.changes.iter();
        Steps {
            changes: changes.map(|(at, v)| (place(*at), value(*v))).collect(),
            end: place(self.end),
        }
    }
}

/// The region of a zone: `us-east-1` of `us-east-1a`, `us-central1` of `us-central1-a`; empty where there is no such.
#[must_use]
pub fn region_of(zone: &str) -> String {
    let is_letter = |c: char| c.is_ascii_lowercase();
    let Some(stem) = zone.strip_suffix(is_letter) else {
        return String::new();
    };
    let region = stem.strip_suffix('-').unwrap_or(stem);
    if region.ends_with(|c: char| c.is_ascii_digit()) {
        region.to_owned()
    } else {
        String::new()
    }
}

/// The name of a file without folders and without its extension.
fn stem(source: &str) -> &str {
    let name = source.rsplit(['/', '\\']).next().unwrap_or(source);
    name.rsplit_once('.').map_or(name, |(stem, _)| stem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fd_1_of_values_at_one_instant_the_last_counts_in_any_order() {
        let steps = Steps::new(
            vec![(Micros(9), 1), (Micros(3), 2), (Micros(9), 7)],
            Micros(5),
        );
        let steps = steps.unwrap();
        assert_eq!(steps.changes(), [(Micros(3), 2), (Micros(9), 7)]);
        assert_eq!((steps.start(), steps.end()), (Micros(3), Micros(9)));
        assert_eq!(Steps::<u32>::new(vec![], Micros(5)), None);
    }

    #[test]
    fn fd_1_a_later_part_begins_where_it_is_cut() {
        let steps = Steps::ticks([4, 5, 6], Micros(10)).unwrap();
        let part = |at| steps.from(Micros(at)).map(|part| part.changes().to_vec());
        let (five, six) = ((Micros(10), 5), (Micros(20), 6));
        assert_eq!(part(0), Some(vec![(Micros(0), 4), five, six]));
        assert_eq!(part(10), Some(vec![five, six]));
        assert_eq!(part(13), Some(vec![(Micros(13), 5), six]));
        assert_eq!(part(29), Some(vec![(Micros(29), 6)]));
        assert_eq!(part(30), None);
    }

    #[test]
    fn ticks_hold_for_a_whole_tick() {
        let steps = Steps::ticks([4, 4, 5], Micros(10)).unwrap();
        assert_eq!(steps.end(), Micros(30));
        assert_eq!(steps.changes()[2], (Micros(20), 5));
    }

    #[test]
    fn regions_of_zones() {
        assert_eq!(region_of("us-east-1a"), "us-east-1");
        assert_eq!(region_of("us-central1-a"), "us-central1");
        assert_eq!(region_of("rack"), "");
        assert_eq!(region_of(""), "");
    }

    #[test]
    fn stems_of_paths() {
        assert_eq!(stem("traces/us-west-2a_v100_1.json"), "us-west-2a_v100_1");
        assert_eq!(stem("p3"), "p3");
    }
}
