//! Attention of each sequence over its own keys, with carried keys, a prefix and an optional window.
//!
//! For a row at position p of its sequence and each of its heads: scores s_j = q . k_j / sqrt(head_dim) for the
//! prefix and for keys j <= p (with a window w: j > p - w), out = sum_j softmax(s)_j v_j, and
//! log_sum_exp = ln sum_j e^(s_j). Several query heads share a key and value head.
//!
//! Queries and keys are cut into tiles of [`TILE`] counted from the start of the *sequence*; the prefix has tiles of its
//! own, first. Forward takes the key tiles in ascending order with a running maximum; backward computes the weights
//! again from log_sum_exp and adds to a key's gradient over query tiles in *descending* order, heads ascending within.
//! So a row is the same bits alone (with its keys carried) and inside a long chunk, and backward over chunks cut at
//! multiples of [`TILE`], last chunk first, is the same as over the whole.

use std::ops::Range;

use crate::cpu::Cpu;
use crate::cpu::disjoint::DisjointMut;

mod backward;
mod forward;
mod head;
#[cfg(test)]
mod tests;

use head::Head;

/// Rows of a query or key tile.
pub const TILE: usize = 64;

/// Numbers and widths of heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// A row sees at most so many keys, its own included; the prefix does not count.
    pub window: Option<usize>,
}

impl Heads {
    fn width(&self) -> usize {
        self.heads * self.head_dim
    }

    fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    fn group(&self) -> usize {
        self.heads / self.kv_heads
    }
}

/// Trained keys and values `(tokens, kv_width)` in front of a sequence; never rotated, seen by every row.
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
        assert!(sequence.rows.start <= sequence.rows.end, "rows {:?}", sequence.rows);
        assert!(sequence.rows.end <= rows, "rows {:?} of {rows}", sequence.rows);
        let keys = sequence.start + sequence.rows.len();
        assert_eq!(sequence.keys.len(), keys * kv, "keys of a sequence");
        assert_eq!(sequence.values.len(), keys * kv, "values of a sequence");
        if let Some(prefix) = &sequence.prefix {
            assert_eq!(prefix.keys.len(), prefix.values.len(), "keys and values of a prefix");
            assert!(prefix.keys.len().is_multiple_of(kv), "keys of a prefix");
        }
    }
}

/// `out` `(rows, heads * head_dim)` and `log_sum_exp` `(rows, heads)` from `q` `(rows, heads * head_dim)`.
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
    cpu.for_each(sequences.len() * heads.kv_heads, |task| {
        let sequence = &sequences[task / heads.kv_heads];
        let kv_head = task % heads.kv_heads;
        if sequence.rows.is_empty() {
            return;
        }
        let group = kv_head * heads.group()..(kv_head + 1) * heads.group();
        let columns = group.start * heads.head_dim..group.end * heads.head_dim;
        let mut out = out.tile(sequence.rows.clone(), columns);
        let mut sums = sums.tile(sequence.rows.clone(), group);
        let head = Head::new(cpu.isa(), heads, sequence, kv_head, false);
        forward::group(&head, q, &mut out, &mut sums);
    });
}

/// Gradients of queries `(rows, heads * head_dim)`, overwritten, and of keys, values and prefixes.
///
/// # Panics
/// When shapes do not fit, two sequences share rows, or a sequence does not start at a multiple of [`TILE`].
#[expect(clippy::too_many_arguments, reason = "a reverse needs what forward saw")]
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
    for values in [q.len(), out.len(), d_out.len(), dq.len()] {
        assert_eq!(values, rows * heads.width(), "queries, outputs and their gradients");
    }
    assert_eq!(sequences.len(), gradients.len(), "one gradient a sequence");
    let dq = DisjointMut::matrix(dq, heads.width());
    let targets: Vec<_> = sequences
        .iter()
        .zip(gradients)
        .map(|(sequence, gradient)| backward::Targets::new(&heads, sequence, gradient))
        .collect();
    let saved = backward::Saved { q, out, log_sum_exp, d_out };
    cpu.for_each(sequences.len() * heads.kv_heads, |task| {
        let (index, kv_head) = (task / heads.kv_heads, task % heads.kv_heads);
        let sequence = &sequences[index];
        if sequence.rows.is_empty() {
            return;
        }
        let first = kv_head * heads.group() * heads.head_dim;
        let columns = first..first + heads.group() * heads.head_dim;
        let mut dq = dq.tile(sequence.rows.clone(), columns);
        let head = Head::new(cpu.isa(), heads, sequence, kv_head, true);
        backward::group(&head, &saved, &targets[index], &mut dq);
    });
}
