//! Cuts the groups of a call into tasks and runs them, the dearest first.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::group::Group;
use crate::cpu::Cpu;

/// Query tiles times heads that a forward task keeps between key tiles: bounds its scratch.
const SLOTS: usize = 12;

/// Key tiles of a task that makes no sums of queries.
const KEY_RUN: usize = 4;

/// Which sums a task makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Those of queries, keys and values.
    All,
    /// Those of queries.
    Queries,
    /// Those of keys and values.
    Keys,
}

/// Some query tiles and key tiles of a group.
#[derive(Clone, Debug)]
pub(crate) struct Task<'a> {
    pub(crate) group: Group<'a>,
    /// Which of the sequences of the call.
    pub(crate) sequence: usize,
    pub(crate) tiles: Range<usize>,
    pub(crate) key_tiles: Range<usize>,
    pub(crate) part: Part,
}

impl<'a> Task<'a> {
    /// All tiles of a group.
    pub(crate) fn whole(group: Group<'a>, sequence: usize) -> Self {
        Self {
            tiles: 0..group.query_tiles(),
            key_tiles: 0..group.key_tiles(),
            part: Part::All,
            group,
            sequence,
        }
    }

    /// Returns the pairs of tiles, times heads: what the task costs.
    fn cost(&self) -> usize {
        self.group.members() * self.group.pairs(self.tiles.clone(), self.key_tiles.clone())
    }

    /// Cuts into runs of query tiles.
    pub(crate) fn by_queries(&self) -> Vec<Self> {
        let run = (SLOTS / self.group.members()).max(1);
        let cut = |tiles| Self {
            tiles,
            ..self.clone()
        };
        runs(&self.tiles, run).map(cut).collect()
    }

    /// Cuts into tasks that make the sums of queries and others that make those of keys, when the group is so large
    /// that some of `threads` would wait for it: seven products instead of five are then the lesser evil. The bits are
    /// the same.
    pub(crate) fn split(&self, total: usize, threads: usize) -> Vec<Self> {
        if 5 * self.cost() * threads <= 7 * total {
            return vec![self.clone()];
        }
        let queries = self.by_queries().into_iter();
        let queries = queries.map(|task| Self {
            part: Part::Queries,
            ..task
        });
        let cut = |key_tiles| Self {
            key_tiles,
            part: Part::Keys,
            ..self.clone()
        };
        queries
            .chain(runs(&self.key_tiles, KEY_RUN).map(cut))
            .collect()
    }

    /// Returns the sum of the costs.
    pub(crate) fn total(tasks: &[Self]) -> usize {
        tasks.iter().map(Self::cost).sum()
    }
}

fn runs(range: &Range<usize>, run: usize) -> impl Iterator<Item = Range<usize>> + use<> {
    let end = range.end;
    range
        .clone()
        .step_by(run)
        .map(move |first| first..(first + run).min(end))
}

/// Runs the tasks, the dearest first; a thread that is done takes the next.
pub(crate) fn run(cpu: &Cpu, mut tasks: Vec<Task<'_>>, f: impl Fn(&Task<'_>) + Sync) {
    tasks.sort_by_key(|task| std::cmp::Reverse(task.cost()));
    let next = AtomicUsize::new(0);
    cpu.for_each(cpu.threads().min(tasks.len()), |_| {
        while let Some(task) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
            f(task);
        }
    });
}
