//! Memory of a node that grows beyond what the node offers: found out from what its heartbeats tell, and answered by
//! smaller passes. Nothing is ever ended for it.
//!
//! The planner's model says what passes need, and a real process may need more. A node is *strained* when [`BEATS`]
//! heartbeats in a row tell of more memory than it offers and a sixteenth. The next time, only growth by as much again
//! counts: a process seldom gives memory back, so what stays is not worse.
//!
//! Each time is one more level, up to [`MOST`], by which passes are made smaller: hybrid tasks of several jobs are split
//! in two, those of one job have twice the parts, and the bounds on rows are halved, down to a block. The level is the
//! node's: it stays when its jobs or its seat change. A replica has the highest of its nodes, and of those that compute
//! shares of the jobs that it leads. After [`CALM`] beats in a row of at most half of what the node offers the level falls
//! by one: passes of twice the rows need no more than twice as much.

use shared::ids::JobId;
use shared::plan::arrangement::{Arrangement, HybridTask, MOST_PARTS};
use shared::units::Bytes;

use crate::plan::snapshot::BLOCK;

/// Heartbeats in a row that must say so.
pub const BEATS: u32 = 3;
/// Heartbeats in a row after which a level less is tried.
pub const CALM: u32 = 60;
/// Most levels.
pub const MOST: u32 = 6;

/// What is known of a node's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Strain {
    /// Heartbeats in a row above the mark.
    over: u32,
    /// Heartbeats in a row at or below half of what the node offers.
    under: u32,
    /// More than this is too much; 0: what the node offers, and a sixteenth.
    mark: Bytes,
    /// By how much passes are made smaller for it.
    level: u32,
}

/// What a heartbeat changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Passes shall be made smaller.
    Smaller,
    /// Passes may be larger again.
    Larger,
}

impl Strain {
    /// By how much passes are made smaller for this node.
    #[must_use]
    pub fn level(&self) -> u32 {
        self.level
    }

    /// Notes what a heartbeat says; what shall change.
    pub fn beat(&mut self, used: Bytes, offered: Bytes) -> Option<Turn> {
        let slack = Bytes(offered.0 / 16);
        let least = Bytes(offered.0.saturating_add(slack.0));
        let over = used > self.mark.max(least);
        let under = self.level > 0 && used.0 <= offered.0 / 2;
        self.over = if over { self.over + 1 } else { 0 };
        self.under = if under { self.under + 1 } else { 0 };
        if self.under >= CALM {
            (self.under, self.mark) = (0, Bytes(0));
            return Some(Turn::Larger);
        }
        if self.over < BEATS {
            return None;
        }
        self.over = 0;
        self.mark = Bytes(used.0.saturating_add(slack.0));
        Some(Turn::Smaller)
    }

    /// A level more or less than the node has; more is one more than its passes are at by now. Whether there is such a
    /// level.
    pub fn turn(&mut self, turn: Turn, by_now: u32) -> bool {
        let next = match turn {
            Turn::Smaller => by_now.max(self.level).saturating_add(1),
            Turn::Larger => self.level.saturating_sub(1),
        };
        let there_is = next <= MOST && next != self.level;
        if there_is {
            self.level = next;
        }
        there_is
    }
}

/// An arrangement with passes that many levels smaller. `own` is the most rows of a pass that the first stage has by itself.
#[must_use]
pub fn eased(arrangement: &Arrangement, level: u32, own: u64) -> Arrangement {
    let mut eased = arrangement.clone();
    for _ in 0..level.min(MOST) {
        for bucket in &mut eased.buckets {
            *bucket = bucket.drain(..).flat_map(halves).collect();
        }
    }
    if level > 0 {
        let halved = |rows: Option<u64>| {
            let rows = rows.unwrap_or(own).min(own) >> level.min(MOST);
            Some(rows.max(BLOCK))
        };
        eased.pass_rows = halved(eased.pass_rows);
        eased.chunk_rows = halved(eased.chunk_rows);
    }
    eased
}

fn halves(mut task: HybridTask<JobId>) -> Vec<HybridTask<JobId>> {
    if task.jobs.len() < 2 {
        task.parts = (2 * task.parts).min(MOST_PARTS);
        return vec![task];
    }
    let jobs = task.jobs.split_off(task.jobs.len().div_ceil(2));
    let parts = task.parts;
    vec![task, HybridTask { jobs, parts }]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_strained_after_some_beats_and_again_only_when_it_grows() {
        let told = |beats: &[u64]| -> Vec<bool> {
            let mut strain = Strain::default();
            let beat = |used: &u64| strain.beat(Bytes(*used), Bytes(160)).is_some();
            beats.iter().map(beat).collect()
        };
        assert_eq!(told(&[170; 5]), [false; 5], "within a sixteenth");
        assert_eq!(told(&[171, 171, 100, 171, 171]), [false; 5], "not in a row");
        let beats = [171, 172, 173, 173, 183, 183, 183, 184, 184, 184, 184];
        let mut expected = [false; 11];
        // 173 and a sixteenth of 160 is 183.
        (expected[2], expected[9]) = (true, true);
        assert_eq!(told(&beats), expected);
    }

    #[test]
    fn a_level_falls_after_calm_and_the_same_overload_counts_again() {
        let mut strain = Strain::default();
        let mut told = |used: u64, level| {
            let beats = if used > 80 { BEATS } else { CALM };
            let turns = (0..beats).map(|_| strain.beat(Bytes(used), Bytes(160)));
            let turn = turns.last().flatten();
            let turned = turn.filter(|turn| strain.turn(*turn, level));
            (turned, strain.level())
        };
        assert_eq!(told(80, 0), (None, 0), "no level to fall");
        // The replica was at level 2 for another node.
        assert_eq!(told(200, 2), (Some(Turn::Smaller), 3));
        assert_eq!(told(200, 3), (None, 3));
        assert_eq!(told(80, 3), (Some(Turn::Larger), 2));
        assert_eq!(told(200, 2), (Some(Turn::Smaller), 3));
        assert_eq!(told(300, MOST), (None, 3), "there is an end to it");
    }

    #[test]
    fn each_level_makes_passes_smaller() {
        let task = |jobs: &[u64], parts| HybridTask {
            jobs: jobs.iter().copied().map(JobId).collect(),
            parts,
        };
        let arrangement = Arrangement {
            buckets: vec![vec![task(&[1, 2, 3], 4)], vec![task(&[4], 4)]],
            pass_rows: Some(600),
            chunk_rows: None,
            ahead: vec![2, 1],
            turn_rows: None,
        };
        assert_eq!(eased(&arrangement, 0, 512), arrangement);
        let once = eased(&arrangement, 1, 512);
        let tasks = [vec![task(&[1, 2], 4), task(&[3], 4)], vec![task(&[4], 8)]];
        assert_eq!(once.buckets, tasks);
        // The first stage's own bound was the smaller one.
        assert_eq!((once.pass_rows, once.chunk_rows), (Some(256), Some(256)));
        let most = eased(&arrangement, u32::MAX, 512);
        assert_eq!(most, eased(&arrangement, MOST, 512));
        assert_eq!((most.pass_rows, most.fault()), (Some(BLOCK), None));
        assert_eq!(most.hybrid_tasks().count(), 4);
        let none = eased(&Arrangement::default(), 2, 512);
        assert_eq!((none.buckets.len(), none.pass_rows), (0, Some(128)));
    }
}
