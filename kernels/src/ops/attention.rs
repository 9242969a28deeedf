//! Attention of each sequence over its own keys, with carried keys, a prefix and an optional window.
//!
//! For a row at position p of its sequence and each of its heads: scores s_j = q . k_j / sqrt(head_dim) for keys j <= p
//! and those of the prefix, which has positions -n to -1 (with a window w: only j > p - w, in the prefix too, as the PEFT
//! library does), out = sum_j softmax(s)_j v_j, and log_sum_exp = ln sum_j e^(s_j). Several query heads share a key and
//! value head.
//!
//! Queries and keys are cut into tiles of [`TILE`] counted from the start of the *sequence*; the prefix has tiles of its
//! own, first. Forward takes the key tiles in ascending order with a running maximum; backward computes the weights
//! again from log_sum_exp and adds to a key's gradient over query tiles in *descending* order, heads ascending within.
//! So a row is the same bits alone (with its keys carried) and inside a long chunk, and backward over chunks cut at
//! multiples of [`TILE`], last chunk first, is the same as over the whole.
//!
//! Sequences do not see each other, whatever they hold. Within one, a value that is no number makes none of the rows that
//! see it, and may do so to rows that do not but lie in the same aligned 16 as one that does.

use std::ops::Range;

use crate::cpu::Cpu;
use crate::cpu::attention::{self as fast, Group, Saved, Targets, Task};
use crate::cpu::disjoint::DisjointMut;

#[cfg(test)]
mod tests;

/// Rows of a query or key tile.
pub const TILE: usize = fast::TILE;

/// Numbers and widths of heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// A row sees at most so many keys, its own included; those of the prefix are counted as the first of the sequence.
    pub window: Option<usize>,
}

impl Heads {
    fn width(&self) -> usize {
        self.heads * self.head_dim
    }

    fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }
}

/// Trained keys and values `(tokens, kv_width)` in front of a sequence; never rotated.
#[derive(Clone, Copy, Debug)]
pub struct Prefix<'a> {
    /// Keys.
    pub keys: &'a [f32],
    /// Values.
    pub values: &'a [f32],
}

/// Rows of one sequence and the keys and values they see.
#[derive(Clone, Debug)]
pub struct Sequence<'a> {
    /// Its rows in `q`, `out` and `log_sum_exp`.
    pub rows: Range<usize>,
    /// Position of the first of them in the sequence: so many keys came before.
    pub start: usize,
    /// Keys from the sequence's start to its last row here, `(start + rows, kv_width)`.
    pub keys: &'a [f32],
    /// Values, likewise.
    pub values: &'a [f32],
    /// In front of it.
    pub prefix: Option<Prefix<'a>>,
}

/// Gradient of a prefix by query tile: `(tiles, tokens, kv_width)` each, overwritten.
#[derive(Debug)]
pub struct PrefixGradient<'a> {
    /// Of the keys.
    pub dkeys: &'a mut [f32],
    /// Of the values.
    pub dvalues: &'a mut [f32],
}

/// Where the gradients of one sequence's keys and values go.
#[derive(Debug)]
pub struct SequenceGradient<'a> {
    /// `(start + rows, kv_width)`, added to.
    pub dkeys: &'a mut [f32],
    /// `(start + rows, kv_width)`, added to.
    pub dvalues: &'a mut [f32],
    /// Present when the sequence has a prefix.
    pub prefix: Option<PrefixGradient<'a>>,
}

fn check(heads: &Heads, sequences: &[Sequence<'_>], rows: usize) {
    assert!(
        heads.kv_heads > 0 && heads.head_dim > 0 && heads.heads.is_multiple_of(heads.kv_heads),
        "{heads:?}: query heads are not a multiple of key heads"
    );
    assert!(heads.window != Some(0), "a window of 0 tokens sees nothing");
    let kv = heads.kv_width();
    for sequence in sequences {
        assert!(
            sequence.rows.start <= sequence.rows.end,
            "rows {:?}",
            sequence.rows
        );
        assert!(
            sequence.rows.end <= rows,
            "rows {:?} of {rows}",
            sequence.rows
        );
        let keys = sequence.start + sequence.rows.len();
        assert_eq!(sequence.keys.len(), keys * kv, "keys of a sequence");
        assert_eq!(sequence.values.len(), keys * kv, "values of a sequence");
        if let Some(prefix) = &sequence.prefix {
            assert_eq!(
                prefix.keys.len(),
                prefix.values.len(),
                "keys and values of a prefix"
            );
            assert!(prefix.keys.len().is_multiple_of(kv), "keys of a prefix");
        }
    }
}

/// Lists the groups of a call: one for each key head of each sequence that has rows.
fn groups<'a>(cpu: &Cpu, heads: Heads, sequences: &'a [Sequence<'a>]) -> Vec<Task<'a>> {
    let mut list = Vec::with_capacity(sequences.len() * heads.kv_heads);
    for (index, sequence) in sequences.iter().enumerate() {
        if sequence.rows.is_empty() {
            continue;
        }
        for kv_head in 0..heads.kv_heads {
            let isa = cpu.isa();
            let group = Group {
                isa,
                heads,
                sequence,
                kv_head,
            };
            list.push(Task::whole(group, index));
        }
    }
    list
}

/// Computes `out (rows, heads * head_dim)` and `log_sum_exp (rows, heads)` from `q (rows, heads * head_dim)`.
///
/// Rows that belong to no sequence are left as they are.
///
/// # Panics
/// When shapes do not fit or two sequences share rows.
pub fn forward(
    cpu: &Cpu,
    heads: Heads,
    sequences: &[Sequence<'_>],
    q: &[f32],
    out: &mut [f32],
    log_sum_exp: &mut [f32],
) {
    let rows = log_sum_exp.len() / heads.heads;
    check(&heads, sequences, rows);
    assert_eq!(q.len(), rows * heads.width(), "queries");
    assert_eq!(out.len(), q.len(), "outputs");
    let out = DisjointMut::matrix(out, heads.width());
    let sums = DisjointMut::matrix(log_sum_exp, heads.heads);
    let groups = groups(cpu, heads, sequences);
    let tasks = groups.iter().flat_map(Task::by_queries).collect();
    fast::run(cpu, tasks, |task| {
        fast::forward(&task.group, task.tiles.clone(), q, &out, &sums);
    });
}

/// Computes the gradients of queries `(rows, heads * head_dim)`, overwritten, and of keys, values and prefixes.
///
/// Rows that belong to no sequence are left as they are.
///
/// # Panics
/// When shapes do not fit, two sequences share rows, or a sequence does not start at a multiple of [`TILE`].
#[expect(
    clippy::too_many_arguments,
    reason = "a reverse needs what forward saw"
)]
pub fn backward(
    cpu: &Cpu,
    heads: Heads,
    sequences: &[Sequence<'_>],
    gradients: &mut [SequenceGradient<'_>],
    q: &[f32],
    out: &[f32],
    log_sum_exp: &[f32],
    d_out: &[f32],
    dq: &mut [f32],
) {
    let rows = log_sum_exp.len() / heads.heads;
    check(&heads, sequences, rows);
    for len in [q.len(), out.len(), d_out.len(), dq.len()] {
        assert_eq!(len, rows * heads.width(), "queries, outputs or gradients");
    }
    assert_eq!(sequences.len(), gradients.len(), "one gradient a sequence");
    let targets: Vec<Targets<'_>> = sequences
        .iter()
        .zip(gradients)
        .map(|(sequence, gradient)| targets(&heads, sequence, gradient))
        .collect();
    let saved = Saved {
        q,
        out,
        log_sum_exp,
        d_out,
    };
    let dq = DisjointMut::matrix(dq, heads.width());
    let groups = groups(cpu, heads, sequences);
    let (total, threads) = (Task::total(&groups), cpu.threads());
    let tasks = groups.iter().flat_map(|group| group.split(total, threads));
    fast::run(cpu, tasks.collect(), |task| {
        fast::backward(task, &saved, &targets[task.sequence], &dq);
    });
}

/// Checks the shapes of one sequence's gradients and shares them among tasks.
fn targets<'a>(
    heads: &Heads,
    sequence: &Sequence<'_>,
    gradient: &'a mut SequenceGradient<'_>,
) -> Targets<'a> {
    let kv = heads.kv_width();
    assert!(
        sequence.start.is_multiple_of(TILE),
        "backward over a chunk that starts at position {}: cut at multiples of {TILE}",
        sequence.start
    );
    let len = sequence.keys.len();
    assert_eq!(gradient.dkeys.len(), len, "gradient of keys");
    assert_eq!(gradient.dvalues.len(), len, "gradient of values");
    let prefix = match (&sequence.prefix, &mut gradient.prefix) {
        (Some(prefix), Some(gradient)) => {
            let len = sequence.rows.len().div_ceil(TILE) * prefix.keys.len();
            assert_eq!(gradient.dkeys.len(), len, "gradient of a prefix's keys");
            assert_eq!(gradient.dvalues.len(), len, "gradient of a prefix's values");
            Some((
                DisjointMut::matrix(&mut *gradient.dkeys, kv),
                DisjointMut::matrix(&mut *gradient.dvalues, kv),
            ))
        }
        (None, None) => None,
        _ => panic!("a prefix without a gradient, or a gradient without a prefix"),
    };
    Targets {
        keys: DisjointMut::matrix(&mut *gradient.dkeys, kv),
        values: DisjointMut::matrix(&mut *gradient.dvalues, kv),
        prefix,
    }
}
