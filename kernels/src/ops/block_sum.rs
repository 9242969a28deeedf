//! Sums over tokens in canonical order: the gradients of adapters, and losses.
//!
//! The tokens of a job's optimizer step are cut into blocks (at most 64 tokens of one sequence, say), numbered from 0 in
//! the job's own order. A call adds a run of these blocks; runs may come in any order. A block's part is one chain over
//! its rows; the parts are added by a fixed binary tree over the block numbers, so that the sum has the same bits
//! however the step is cut into calls, and on any number of threads.
//!
//! - [`outer`]: `gradient (rank, width) = sum_b scale * sum_t left[t] (rank) right[t] (width)`
//! - [`columns`]: `gradient (width) = sum_b sum_t values[t]`, or `sum_b sum_t values[t] * factors[t]`
//! - [`partials`]: `gradient (width) = sum_b partials[b]`, made elsewhere
//! - [`scalars`]: the same for one `f64` a block: losses
//!
//! Sums that still wait for other blocks live in [`Nodes`]: as many as the number of blocks so far has binary ones (a
//! few more when runs come out of order), and none when a whole step comes in one call.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::cpu::Cpu;
use crate::cpu::block_sum::{Source, Task, run};

mod tree;

pub(crate) use tree::{Action, Node, Program};

/// Holds the sums of one gradient that wait for other blocks of the optimizer step.
#[derive(Clone, Debug)]
pub struct Nodes<T = f32> {
    held: BTreeMap<Node, Vec<T>>,
}

impl<T> Default for Nodes<T> {
    fn default() -> Self {
        let held = BTreeMap::new();
        Self { held }
    }
}

impl<T> Nodes<T> {
    /// Returns storage without any sum: the state before a step, and after it.
    pub fn new() -> Self {
        Self::default()
    }

    /// Says whether no sum waits.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Forgets a step that was begun.
    pub fn clear(&mut self) {
        self.held.clear();
    }

    /// Returns the bytes that the waiting sums take.
    pub fn bytes(&self) -> usize {
        self.held
            .values()
            .map(|sum| sum.len() * size_of::<T>())
            .sum()
    }

    /// Returns how many sums wait after the first `blocks` blocks of an unfinished step, when they come in order.
    pub fn held_after(blocks: u64) -> u32 {
        blocks.count_ones()
    }

    /// Takes out all sums that wait: they may be joined elsewhere with those of other runs.
    pub fn take(&mut self) -> Vec<Waiting<T>> {
        let held = std::mem::take(&mut self.held);
        let waiting = held.into_iter().map(|(node, sum)| Waiting {
            first: node.first,
            level: node.level,
            sum,
        });
        waiting.collect()
    }

    pub(crate) fn held(&self, node: Node) -> &[T] {
        &self.held[&node]
    }

    pub(crate) fn program(&self, first_block: u64, blocks: usize, last: bool) -> Program {
        Program::new(self.held.keys().copied(), first_block, blocks, last)
    }

    fn update(&mut self, program: &Program, new: Vec<Vec<T>>) {
        for node in &program.spent {
            self.held.remove(node);
        }
        self.held.extend(program.new.iter().copied().zip(new));
    }
}

/// A sum that waits: that of the blocks `first .. first + 2^level`.
#[derive(Clone, Debug, PartialEq)]
pub struct Waiting<T> {
    /// Number of its first block, a multiple of `2^level`.
    pub first: u64,
    /// Its height in the tree.
    pub level: u32,
    /// The sum.
    pub sum: Vec<T>,
}

/// More than any step has.
const MOST_LEVELS: u32 = 48;

impl<T: Copy + std::ops::AddAssign> Nodes<T> {
    /// Puts a sum that was made elsewhere among those that wait, and joins it with its siblings: in which order sums
    /// come does not show. Returns whether it fits: it is a node of the tree, as long as the others, and none of its
    /// blocks is here.
    #[must_use]
    pub fn put(&mut self, waiting: Waiting<T>) -> bool {
        let Waiting {
            first,
            level,
            mut sum,
        } = waiting;
        let sound =
            level < MOST_LEVELS && first.trailing_zeros() >= level && first >> MOST_LEVELS == 0;
        if !sound || self.held.values().any(|held| held.len() != sum.len()) {
            return false;
        }
        let mut node = Node { first, level };
        if self
            .held
            .keys()
            .any(|held| held.first < node.end() && first < held.end())
        {
            return false;
        }
        loop {
            let sibling = Node {
                first: node.sibling(),
                level: node.level,
            };
            let Some(other) = self.held.remove(&sibling) else {
                break;
            };
            sum.iter_mut()
                .zip(other)
                .for_each(|(sum, part)| *sum += part);
            node = Node {
                first: node.first.min(sibling.first),
                level: node.level + 1,
            };
        }
        self.held.insert(node, sum);
        true
    }

    /// Ends a step of so many blocks whose sums are all here: the sum of the step, by BS-2. None when blocks are
    /// missing or too many; the sums are forgotten either way.
    #[must_use]
    pub fn close(&mut self, blocks: u64) -> Option<Vec<T>> {
        let mut held = std::mem::take(&mut self.held);
        let mut at = 0;
        for node in held.keys() {
            if node.first != at {
                return None;
            }
            at = node.end();
        }
        let (_, mut sum) = held.pop_last().filter(|_| at == blocks)?;
        while let Some((_, part)) = held.pop_last() {
            sum.iter_mut()
                .zip(part)
                .for_each(|(sum, part)| *sum += part);
        }
        Some(sum)
    }
}

/// Adds blocks of outer products to one gradient: that of an adapter's matrix.
#[derive(Debug)]
pub struct Outer<'a> {
    /// Number of the first of the blocks in the job's optimizer step.
    pub first_block: u64,
    /// Rows of each block, consecutive blocks of the step; they lie within `left_rows`.
    pub blocks: &'a [Range<usize>],
    /// Rows of the pass that `left` holds.
    pub left_rows: Range<usize>,
    /// `(left_rows, rank)`.
    pub left: &'a [f32],
    /// Rank of the gradient, from 1.
    pub rank: usize,
    /// `(tokens, width)`: all rows of the pass.
    pub right: &'a [f32],
    /// Width of the gradient.
    pub width: usize,
    /// Factor of each block's part.
    pub scale: f32,
    /// Sums that wait.
    pub nodes: &'a mut Nodes,
    /// `(rank, width)`, overwritten: given with the last blocks of the step, and only then.
    pub gradient: Option<&'a mut [f32]>,
}

/// Adds blocks of column sums to one gradient: that of a bias or of a scaling vector.
#[derive(Debug)]
pub struct Columns<'a> {
    /// Number of the first of the blocks in the job's optimizer step.
    pub first_block: u64,
    /// Rows of each block, consecutive blocks of the step.
    pub blocks: &'a [Range<usize>],
    /// `(tokens, width)`: all rows of the pass.
    pub values: &'a [f32],
    /// `(tokens, width)`, multiplied with the values.
    pub factors: Option<&'a [f32]>,
    /// Width of the gradient.
    pub width: usize,
    /// Sums that wait.
    pub nodes: &'a mut Nodes,
    /// `(width)`, overwritten: given with the last blocks of the step, and only then.
    pub gradient: Option<&'a mut [f32]>,
}

/// Adds the ready parts of blocks to one gradient: that of a prefix or of virtual tokens.
#[derive(Debug)]
pub struct Partials<'a> {
    /// Number of the first of the blocks in the job's optimizer step.
    pub first_block: u64,
    /// Part of each block, `(width)` each.
    pub parts: &'a [&'a [f32]],
    /// Width of the gradient.
    pub width: usize,
    /// Sums that wait.
    pub nodes: &'a mut Nodes,
    /// `(width)`, overwritten: given with the last blocks of the step, and only then.
    pub gradient: Option<&'a mut [f32]>,
}

/// Adds the outer products of each of `sums`.
///
/// # Panics
/// When shapes do not fit, a block comes twice, or a step is finished while blocks are missing.
pub fn outer(cpu: &Cpu, sums: &mut [Outer<'_>]) {
    let tasks = sums.iter_mut().map(|sum| {
        let Range { start, end } = sum.left_rows;
        assert!(sum.rank > 0, "an outer product has rank 0");
        assert_eq!(
            sum.left.len(),
            (end - start) * sum.rank,
            "left of an outer product"
        );
        for rows in sum.blocks {
            assert!(
                start <= rows.start && rows.end <= end && rows.end * sum.width <= sum.right.len(),
                "block of rows {rows:?} outside of rows {start}..{end} or of the pass"
            );
        }
        let source = Source::Outer {
            blocks: sum.blocks,
            first_row: start,
            left: sum.left,
            right: sum.right,
            scale: sum.scale,
        };
        let last = sum.gradient.is_some();
        let program = sum.nodes.program(sum.first_block, sum.blocks.len(), last);
        Task {
            program,
            source,
            rank: sum.rank,
            width: sum.width,
            nodes: sum.nodes,
            gradient: sum.gradient.as_deref_mut(),
        }
    });
    run(cpu, tasks.collect());
}

/// Adds the column sums of each of `sums`.
///
/// # Panics
/// When shapes do not fit, a block comes twice, or a step is finished while blocks are missing.
pub fn columns(cpu: &Cpu, sums: &mut [Columns<'_>]) {
    let tasks = sums.iter_mut().map(|sum| {
        for rows in sum.blocks {
            let end = rows.end * sum.width;
            assert!(
                end <= sum.values.len() && sum.factors.is_none_or(|factors| end <= factors.len()),
                "block of rows {rows:?} outside of the pass"
            );
        }
        let source = Source::Columns {
            blocks: sum.blocks,
            values: sum.values,
            factors: sum.factors,
        };
        let last = sum.gradient.is_some();
        let program = sum.nodes.program(sum.first_block, sum.blocks.len(), last);
        Task {
            program,
            source,
            rank: 1,
            width: sum.width,
            nodes: sum.nodes,
            gradient: sum.gradient.as_deref_mut(),
        }
    });
    run(cpu, tasks.collect());
}

/// Adds the ready parts of each of `sums`.
///
/// # Panics
/// When shapes do not fit, a block comes twice, or a step is finished while blocks are missing.
pub fn partials(cpu: &Cpu, sums: &mut [Partials<'_>]) {
    let tasks = sums.iter_mut().map(|sum| {
        for part in sum.parts {
            assert_eq!(part.len(), sum.width, "width of a block's part");
        }
        let last = sum.gradient.is_some();
        let program = sum.nodes.program(sum.first_block, sum.parts.len(), last);
        Task {
            program,
            source: Source::Parts(sum.parts),
            rank: 1,
            width: sum.width,
            nodes: sum.nodes,
            gradient: sum.gradient.as_deref_mut(),
        }
    });
    run(cpu, tasks.collect());
}

/// Adds one number a block, and returns the sum of the step when these are its last blocks.
///
/// # Panics
/// When a block comes twice, or the step is finished while blocks are missing.
pub fn scalars(first_block: u64, parts: &[f64], nodes: &mut Nodes<f64>, last: bool) -> Option<f64> {
    let program = nodes.program(first_block, parts.len(), last);
    let mut slots = vec![0.0; program.slots];
    let mut new = vec![Vec::new(); program.new.len()];
    let mut sum = None;
    for action in &program.actions {
        match *action {
            Action::Produce { block, slot } => slots[slot] = parts[block],
            Action::Load { node, slot } => slots[slot] = nodes.held(node)[0],
            Action::Clear { slot } => slots[slot] = 0.0,
            Action::Add { from, slot } => slots[slot] += slots[from],
            Action::AddHeld { node, slot } => slots[slot] += nodes.held(node)[0],
            Action::Hold { slot, new: at } => new[at] = vec![slots[slot]],
            Action::Finish { slot } => sum = Some(slots[slot]),
        }
    }
    nodes.update(&program, new);
    sum
}

impl Nodes {
    /// Panics unless all sums that wait have that length.
    pub(crate) fn check(&self, values: usize) {
        for (node, sum) in &self.held {
            assert_eq!(sum.len(), values, "length of the sum of {node:?}");
        }
    }

    /// Takes what a call has made of these sums.
    pub(crate) fn finish(&mut self, program: &Program, new: Vec<Vec<f32>>) {
        self.update(program, new);
    }
}

#[cfg(test)]
mod tests;
