//! A small search beyond runs: jobs are moved to another hybrid task, or swapped, while the step gets shorter.
//!
//! First improvement in a fixed order, so the answer is one; every improvement makes the step shorter by at least a
//! nanosecond, and the tries are counted, so it ends.

use super::{Fusion, TRIES};
use crate::plan::pipeline::Timing;

/// Jobs above which runs are taken as they are.
const JOBS: usize = 64;

struct Search<'a> {
    fusion: &'a Fusion<'a>,
    groups: Vec<Vec<usize>>,
    timings: Vec<Timing>,
    cost: u64,
    tries: usize,
}

impl Search<'_> {
    /// Takes two changed groups when that is better.
    fn take(&mut self, at: [usize; 2], changed: [Vec<usize>; 2]) -> bool {
        self.tries += 1;
        let mut timings = self.timings.clone();
        for (place, group) in at.iter().zip(&changed) {
            let mixes = self.fusion.mixes(group);
            if group.len() > 1 && !self.fusion.fits(&mixes) {
                return false;
            }
            timings[*place] = self.fusion.timing(&mixes);
        }
        let kept = |place: &usize| {
            !(at.contains(place) && changed[usize::from(*place == at[1])].is_empty())
        };
        let counted: Vec<Timing> = (0..timings.len())
            .filter(|place| (at.contains(place) || !self.groups[*place].is_empty()) && kept(place))
            .map(|place| timings[place])
            .collect();
        let cost = self.fusion.step(&counted);
        if cost >= self.cost {
            return false;
        }
        let [first, second] = changed;
        self.groups[at[0]] = first;
        self.groups[at[1]] = second;
        self.timings = timings;
        self.cost = cost;
        true
    }

    fn pair(&mut self, from: usize, to: usize) -> bool {
        for at in 0..self.groups[from].len() {
            let mut source = self.groups[from].clone();
            let job = source.remove(at);
            let mut target = self.groups[to].clone();
            target.push(job);
            if self.take([from, to], [source, target]) {
                return true;
            }
            for other in 0..self.groups[to].len() {
                if from > to || self.tries >= TRIES {
                    break;
                }
                let (mut source, mut target) = (self.groups[from].clone(), self.groups[to].clone());
                std::mem::swap(&mut source[at], &mut target[other]);
                if self.take([from, to], [source, target]) {
                    return true;
                }
            }
            if self.tries >= TRIES {
                return false;
            }
        }
        false
    }

    fn sweep(&mut self) -> bool {
        let count = self.groups.len();
        for from in 0..count {
            for to in (0..count).filter(|to| *to != from) {
                if self.tries >= TRIES {
                    return false;
                }
                if !self.groups[from].is_empty() && self.pair(from, to) {
                    return true;
                }
            }
        }
        false
    }
}

/// Makes the groups better, never worse.
pub(super) fn improve(fusion: &Fusion<'_>, groups: &mut Vec<Vec<usize>>) {
    if fusion.jobs() > JOBS || groups.is_empty() || fusion.jobs() < 3 {
        return;
    }
    let timings = fusion.timings(groups);
    let cost = fusion.step(&timings);
    let mut search = Search {
        fusion,
        groups: groups.clone(),
        timings,
        cost,
        tries: 0,
    };
    // A place for a job to be alone.
    search.groups.push(Vec::new());
    search.timings.push(Timing::default());
    while search.sweep() {}
    *groups = search.groups;
}
