//! The head with a low-rank adapter: the adapter lengthens the rows of `x` and of the weight by its rank.

use std::ops::Range;

use super::{Rows, WAVE, check, report};
use crate::cpu::Cpu;
use crate::cpu::disjoint::DisjointMut;
use crate::cpu::head::{Low, Sweep, gradient_of_logits};
use crate::ops::block_sum::{self, Nodes, Outer};
use crate::ops::thin::{self, Part};
use crate::weight::Weight;

/// Rows whose logits are held together, unless a single block has more.
const LOGIT_ROWS: usize = 128;

/// Bytes that are held at most beside those of a sweep: gradients of rows that lie together, logits, and the intermediates
/// with their gradient.
pub(super) fn held(rows: usize, hidden: usize, vocab: usize, rank: usize) -> usize {
    let gradient = rows.min(WAVE) * (hidden + rank);
    let logits = rows.min(LOGIT_ROWS) * vocab;
    size_of::<f32>() * (gradient + logits + 3 * rows * rank)
}

/// A low-rank adapter on the head.
#[derive(Clone, Copy, Debug)]
pub struct HeadAdapter<'a> {
    /// Rank, from 1.
    pub rank: usize,
    /// `A (rank, hidden)`.
    pub a: &'a [f32],
    /// `B^T (rank, vocab)`.
    pub b: &'a [f32],
    /// Factor of the product.
    pub scale: f32,
    /// `(rows, hidden)`: what the adapter reads instead of `x`, as when dropout has been applied to it.
    pub input: Option<&'a [f32]>,
}

/// Blocks that are added to the gradients of an adapter on the head.
#[derive(Debug)]
pub struct AdapterSums<'a> {
    /// Number of the first of the blocks in the job's optimizer step.
    pub first_block: u64,
    /// Labelled rows of each block, consecutive blocks of the step; a block may have none. All rows are in a block.
    pub blocks: &'a [Range<usize>],
    /// Sums of `A` that wait.
    pub nodes_a: &'a mut Nodes,
    /// Sums of `B^T` that wait.
    pub nodes_b: &'a mut Nodes,
    /// `(rank, hidden)`, overwritten: given with the last blocks of the step, and only then.
    pub gradient_a: Option<&'a mut [f32]>,
    /// `(rank, vocab)`, overwritten: given with the last blocks of the step, and only then.
    pub gradient_b: Option<&'a mut [f32]>,
    /// `(rows, hidden)`, overwritten: the gradient of an input of the adapter's own, which `dx` then lacks.
    pub d_input: Option<&'a mut [f32]>,
}

/// Does what [`loss_and_gradient`](super::loss_and_gradient) does with a low-rank adapter on the head, and adds to the adapter's gradients where sums are given.
///
/// # Panics
/// When the shapes do not fit, a target is not in the vocabulary, the blocks do not cover the rows in order, a block
/// comes twice, or a step is finished while blocks are missing; when the gradient of an input of the adapter's own is
/// asked for and there is none.
#[expect(
    clippy::too_many_arguments,
    reason = "the operation and what it writes"
)]
pub fn loss_and_gradient_adapted(
    cpu: &Cpu,
    rows: &Rows<'_>,
    head: &Weight,
    adapter: &HeadAdapter<'_>,
    loss: &mut [f32],
    correct: &mut [bool],
    mut dx: Option<&mut [f32]>,
    mut sums: Option<AdapterSums<'_>>,
) {
    let (hidden, rank, count) = (head.cols(), adapter.rank, loss.len());
    check(rows, head, loss, correct, dx.as_deref());
    assert!(rank > 0, "an adapter on the head has rank 0");
    assert_eq!(
        adapter.a.len(),
        rank * hidden,
        "A of an adapter on the head"
    );
    assert_eq!(
        adapter.b.len(),
        rank * head.rows(),
        "B of an adapter on the head"
    );
    let input = adapter.input.unwrap_or(rows.x);
    assert_eq!(input.len(), rows.x.len(), "input of an adapter on the head");
    let d_input = sums.as_mut().and_then(|sums| sums.d_input.take());
    assert!(
        d_input.is_none() || adapter.input.is_some(),
        "an adapter on the head has no input of its own"
    );
    let mut low = vec![0.0; count * rank];
    let part = Part {
        rows: 0..count,
        rank,
        matrix: adapter.a,
        scale: 1.0,
        low: 0,
    };
    thin::shrink(cpu, std::slice::from_ref(&part), input, hidden, &mut low);
    let scaled: Vec<f32> = low.iter().map(|low| adapter.scale * low).collect();
    let mut job = Adapted {
        rows,
        head,
        adapter,
        input,
        low: &low,
        scaled: &scaled,
        d_low: vec![0.0; count * rank],
    };
    match sums {
        None => {
            for start in (0..count).step_by(WAVE) {
                let wave = start..count.min(start + WAVE);
                job.wave(cpu, wave, loss, correct, dx.as_deref_mut(), None);
            }
        }
        Some(sums) => job.summed(cpu, sums, loss, correct, dx.as_deref_mut()),
    }
    if let Some(d_input) = d_input {
        d_input.fill(0.0);
        thin::grow(cpu, &[part], &job.d_low, d_input, hidden);
    } else if let Some(dx) = dx.filter(|_| adapter.input.is_none()) {
        thin::grow(cpu, &[part], &job.d_low, dx, hidden);
    }
}

/// Rows with an adapter, and what is known of them.
struct Adapted<'a> {
    rows: &'a Rows<'a>,
    head: &'a Weight,
    adapter: &'a HeadAdapter<'a>,
    /// What the adapter reads, `(rows, hidden)`.
    input: &'a [f32],
    /// `input A^T (rows, rank)`, and the same times the scale.
    low: &'a [f32],
    scaled: &'a [f32],
    /// Gradient of `low`.
    d_low: Vec<f32>,
}

impl Adapted<'_> {
    /// Sweeps some rows; `logits` become their gradient.
    fn wave(
        &mut self,
        cpu: &Cpu,
        wave: Range<usize>,
        loss: &mut [f32],
        correct: &mut [bool],
        dx: Option<&mut [f32]>,
        logits: Option<&mut [f32]>,
    ) {
        let (hidden, rank) = (self.head.cols(), self.adapter.rank);
        let sweep = Sweep {
            head: self.head,
            x: &self.rows.x[wave.start * hidden..wave.end * hidden],
            targets: &self.rows.targets[wave.clone()],
            low: Some(Low {
                rank,
                low: &self.scaled[wave.start * rank..wave.end * rank],
                b: self.adapter.b,
            }),
        };
        let wanted = dx.is_some() || logits.is_some();
        let mut gradient = vec![
            0.0;
            if wanted {
                wave.len() * sweep.depth()
            } else {
                0
            }
        ];
        let mut logits = logits;
        let finished = sweep.run(
            cpu,
            &self.rows.coefficients[wave.clone()],
            wanted.then_some(&mut gradient),
            logits.as_deref_mut(),
        );
        report(
            &finished,
            sweep.targets,
            &mut loss[wave.clone()],
            &mut correct[wave.clone()],
        );
        let of_low = self.d_low[wave.start * rank..wave.end * rank].chunks_exact_mut(rank);
        for (gradient, d_low) in gradient.chunks_exact(hidden + rank).zip(of_low) {
            for (d_low, gradient) in d_low.iter_mut().zip(&gradient[hidden..]) {
                *d_low = self.adapter.scale * gradient;
            }
        }
        if let Some(dx) = dx {
            let dx = dx[wave.start * hidden..wave.end * hidden].chunks_exact_mut(hidden);
            for (dx, gradient) in dx.zip(gradient.chunks_exact(hidden + rank)) {
                dx.copy_from_slice(&gradient[..hidden]);
            }
        }
        if let Some(logits) = logits {
            let logits = DisjointMut::matrix(logits, self.head.rows());
            cpu.for_each(wave.len(), |row| {
                let (finished, target) = (finished[row], sweep.targets[row]);
                gradient_of_logits(cpu.isa(), finished, target, &mut logits.rows(row..row + 1));
            });
        }
    }

    /// Sweeps all rows, a few blocks at a time, and adds their gradients.
    fn summed(
        &mut self,
        cpu: &Cpu,
        mut sums: AdapterSums<'_>,
        loss: &mut [f32],
        correct: &mut [bool],
        mut dx: Option<&mut [f32]>,
    ) {
        let (hidden, vocab) = (self.head.cols(), self.head.rows());
        let (rank, scale) = (self.adapter.rank, self.adapter.scale);
        let waves = waves(sums.blocks, loss.len());
        let mut logits = Vec::new();
        for (index, blocks) in waves.iter().enumerate() {
            let of_wave = &sums.blocks[blocks.clone()];
            let start = of_wave.first().map_or(0, |rows| rows.start);
            let wave = start..of_wave.last().map_or(start, |rows| rows.end);
            logits.resize(logits.len().max(wave.len() * vocab), 0.0);
            let logits = &mut logits[..wave.len() * vocab];
            self.wave(
                cpu,
                wave.clone(),
                loss,
                correct,
                dx.as_deref_mut(),
                Some(logits),
            );
            let of_wave: Vec<Range<usize>> = of_wave
                .iter()
                .map(|rows| rows.start - start..rows.end - start)
                .collect();
            let last = index + 1 == waves.len();
            let first_block = u64::try_from(blocks.start).expect("blocks are counted in 64 bits");
            let sum = Outer {
                first_block: sums.first_block + first_block,
                blocks: &of_wave,
                left_rows: 0..wave.len(),
                left: &self.low[wave.start * rank..wave.end * rank],
                rank,
                right: logits,
                width: vocab,
                scale,
                nodes: sums.nodes_b,
                gradient: sums.gradient_b.as_deref_mut().filter(|_| last),
            };
            block_sum::outer(cpu, &mut [sum]);
        }
        let sum = Outer {
            first_block: sums.first_block,
            blocks: sums.blocks,
            left_rows: 0..loss.len(),
            left: &self.d_low,
            rank,
            right: self.input,
            width: hidden,
            scale: 1.0,
            nodes: sums.nodes_a,
            gradient: sums.gradient_a,
        };
        block_sum::outer(cpu, &mut [sum]);
    }
}

/// Groups blocks into waves of at most [`LOGIT_ROWS`] rows, at least one block each; there is always a wave.
fn waves(blocks: &[Range<usize>], rows: usize) -> Vec<Range<usize>> {
    let (mut waves, mut first, mut start, mut end) = (Vec::new(), 0, 0, 0);
    for (block, rows) in blocks.iter().enumerate() {
        assert_eq!(rows.start, end, "blocks must follow one another");
        end = rows.end;
        if end - start > LOGIT_ROWS && block > first {
            waves.push(first..block);
            (first, start) = (block, rows.start);
        }
    }
    assert_eq!(end, rows, "blocks must cover the rows");
    waves.push(first..blocks.len());
    waves
}
