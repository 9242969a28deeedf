//! The sweep over the vocabulary: logits, running softmax and the product back, slice by slice.
//!
//! A task takes a block of rows and a segment of the vocabulary. The rows lie transposed in panels, so that a slice of
//! the weight is expanded once, as it lies, and serves both products: `logits^T = W_s x^T` and `sum += e W_s`. Rows are
//! lanes in between, and no sum runs across lanes.
//!
//! From split numbers the products are those of `split`, and all else is the same.
//!
//! Slices and segments depend on the vocabulary alone, so a row's bits do not depend on its company.

use std::ops::Range;

use crate::cpu::Cpu;
use crate::cpu::disjoint::DisjointMut;
use crate::cpu::isa::{Isa, isa_dispatch};
use crate::cpu::micro::PANEL;
use crate::cpu::products::Products;
use crate::cpu::rows;
use crate::cpu::scratch;
use crate::cpu::transpose::transpose;
use crate::weight::Weight;

mod chain;
mod finish;
mod softmax;
mod split;

pub(crate) use finish::{Finished, gradient_of_logits};
use finish::{Tail, combine, finish};
use softmax::{LANES, Lanes};
use split::Space;

/// Segments of the vocabulary with sums of their own: they give tasks when rows are few.
const SEGMENTS: usize = 4;

const SEGMENT_NUMBERS: [usize; SEGMENTS] = [0, 1, 2, 3];

/// Tokens of a slice: its expanded weights stay in the second-level cache.
const SLICE: usize = 96;

/// Most panels of rows in a block: more read the weight less often, fewer keep more threads busy.
const BLOCK_PANELS: usize = 6;

/// Most panels of rows in a block for more than [`FEW_THREADS`].
const SMALL_BLOCK_PANELS: usize = 3;

const FEW_THREADS: usize = 4;

/// Rows of a slice of the weight, `depth` numbers each.
#[derive(Clone, Copy)]
struct Slice<'a> {
    numbers: &'a [f32],
    /// Numbers from row to row.
    stride: usize,
    tokens: usize,
    depth: usize,
}

/// The low-rank part of an adapted head: it lengthens the rows of `x` and of the weight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Low<'a> {
    pub(crate) rank: usize,
    /// `(rows, rank)`, scaled.
    pub(crate) low: &'a [f32],
    /// `(rank, vocab)`.
    pub(crate) b: &'a [f32],
}

/// What is swept.
#[derive(Clone, Copy)]
pub(crate) struct Sweep<'a> {
    pub(crate) head: &'a Weight,
    /// `(rows, hidden)`.
    pub(crate) x: &'a [f32],
    pub(crate) targets: &'a [u32],
    pub(crate) low: Option<Low<'a>>,
}

/// What a sweep makes.
struct Swept<'a> {
    /// `(SEGMENTS, rows)`.
    tails: DisjointMut<'a, Tail>,
    /// `(SEGMENTS * rows, hidden + rank)`: sums of `e W`, not set for empty segments.
    sums: Option<DisjointMut<'a, f32>>,
    /// `(rows, vocab)`.
    logits: Option<DisjointMut<'a, f32>>,
}

/// Returns the bytes that a sweep of so many rows of `depth` holds at most, beside what threads keep.
pub(crate) fn held(rows: usize, depth: usize) -> usize {
    let sums = SEGMENTS * depth * size_of::<f32>();
    rows * (sums + SEGMENTS * size_of::<Tail>() + size_of::<Finished>())
}

/// Returns the tokens of a segment.
fn segment(vocab: usize, segment: usize) -> Range<usize> {
    let slices = vocab.div_ceil(SLICE);
    let edge = |segment: usize| vocab.min(slices * segment / SEGMENTS * SLICE);
    edge(segment)..edge(segment + 1)
}

impl Sweep<'_> {
    /// Returns the length of a row with its low-rank part.
    pub(crate) fn depth(&self) -> usize {
        self.head.cols() + self.low.map_or(0, |low| low.rank)
    }

    /// Runs over the vocabulary for all rows, and returns what is known of each row then.
    ///
    /// `gradient (rows, depth)` becomes that of the rows of `x`, each with its low-rank part; `logits (rows, vocab)`
    /// stay what they are.
    pub(crate) fn run(
        &self,
        cpu: &Cpu,
        coefficients: &[f32],
        gradient: Option<&mut [f32]>,
        logits: Option<&mut [f32]>,
    ) -> Vec<Finished> {
        let (rows, depth, vocab) = (self.targets.len(), self.depth(), self.head.rows());
        let mut tails = vec![Tail::NONE; SEGMENTS * rows];
        let mut sums = vec![0.0; gradient.as_ref().map_or(0, |_| SEGMENTS * rows * depth)];
        self.sweep(
            cpu,
            &Swept {
                tails: DisjointMut::new(&mut tails),
                sums: (gradient.is_some()).then(|| DisjointMut::matrix(&mut sums, depth)),
                logits: logits.map(|logits| DisjointMut::matrix(logits, vocab)),
            },
        );
        let finished: Vec<Finished> = (0..rows)
            .map(|row| {
                let tails = std::array::from_fn(|segment| tails[segment * rows + row]);
                finish(tails, coefficients[row])
            })
            .collect();
        if let Some(gradient) = gradient {
            self.combine(cpu, &finished, &sums, gradient);
        }
        finished
    }

    /// Puts the sums of the segments together.
    fn combine(&self, cpu: &Cpu, finished: &[Finished], sums: &[f32], gradient: &mut [f32]) {
        let (rows, depth) = (self.targets.len(), self.depth());
        let parts = SEGMENT_NUMBERS.map(|number| {
            let part = &sums[number * rows * depth..(number + 1) * rows * depth];
            let empty = segment(self.head.rows(), number).is_empty();
            if empty { &[] } else { part }
        });
        let gradient = DisjointMut::matrix(gradient, depth);
        cpu.for_each(rows, |row| {
            let mut gradient = gradient.rows(row..row + 1);
            let token = self.targets[row] as usize;
            scratch::with(depth, |space| {
                let (weight, _) = self.slice(cpu.isa(), token..token + 1, space, depth);
                let parts = parts.map(|part| part.get(row * depth..(row + 1) * depth));
                let parts = parts.map(Option::unwrap_or_default);
                combine(cpu.isa(), parts, finished[row], weight, &mut gradient);
            });
        });
    }

    fn sweep(&self, cpu: &Cpu, swept: &Swept<'_>) {
        let most = match cpu.threads() {
            ..=FEW_THREADS => BLOCK_PANELS,
            _ => SMALL_BLOCK_PANELS,
        };
        let blocks = blocks(self.targets.len(), most);
        cpu.for_each(blocks.len() * SEGMENTS, |task| {
            let rows = blocks[task / SEGMENTS].clone();
            match cpu.products() {
                Products::F32 => self.task(cpu.isa(), rows, task % SEGMENTS, swept, None),
                Products::Split => {
                    let columns = rows.len().next_multiple_of(PANEL);
                    scratch::words(Space::words(self.depth(), columns), |words| {
                        self.task(cpu.isa(), rows, task % SEGMENTS, swept, Some(words));
                    });
                }
            }
        });
    }

    /// Sweeps a segment for some rows; with `words` for packed operands from split numbers.
    fn task(
        &self,
        isa: Isa,
        rows: Range<usize>,
        number: usize,
        swept: &Swept<'_>,
        words: Option<&mut [u32]>,
    ) {
        let (depth, all) = (self.depth(), self.targets.len());
        let columns = rows.len().next_multiple_of(PANEL);
        let tokens = segment(self.head.rows(), number);
        let mut lanes = self.lanes(&rows, columns);
        let mut sums = swept
            .sums
            .as_ref()
            .map(|sums| sums.rows(number * all + rows.start..number * all + rows.end));
        let stride = slice_stride(depth);
        scratch::with(columns * (depth + SLICE + 1) + SLICE * stride, |scratch| {
            let (x, scratch) = scratch.split_at_mut(columns * depth);
            let (logits, scratch) = scratch.split_at_mut(columns * SLICE);
            let (rescale, space) = scratch.split_at_mut(columns);
            self.pack(isa, &rows, x);
            let mut split = words.map(|words| Space::new(isa, x, depth, words));
            for first in tokens.clone().step_by(SLICE) {
                let slice = first..tokens.end.min(first + SLICE);
                let logits = &mut logits[..columns * slice.len()];
                let (weight, stride) = self.slice(isa, slice.clone(), space, stride);
                let part = Slice {
                    numbers: weight,
                    stride,
                    tokens: slice.len(),
                    depth,
                };
                match &mut split {
                    Some(split) => split.logits(isa, part, logits),
                    None => chain::logits(isa, part, x, logits),
                }
                if let Some(all) = &swept.logits {
                    store(isa, all, &rows, slice.clone(), logits, columns);
                }
                let token = u32::try_from(first).expect("tokens are counted in 32 bits");
                softmax::slice(isa, logits, columns, token, &mut lanes, rescale);
                let Some(sums) = &mut sums else { continue };
                if first > tokens.start {
                    scale_rows(isa, sums, rescale, depth);
                }
                let more = first > tokens.start;
                match &mut split {
                    Some(split) => split.gather(isa, part, logits, sums, more),
                    None => chain::gather(isa, part, logits, sums, more),
                }
            }
        });
        let mut tails = swept
            .tails
            .part(number * all + rows.start..number * all + rows.end);
        for (row, tail) in tails.iter_mut().enumerate() {
            let (lanes, j) = (&lanes[row / LANES], row % LANES);
            *tail = Tail {
                best: lanes.best[j],
                argmax: lanes.argmax[j],
                others: lanes.others[j],
                target: lanes.target[j],
            };
        }
    }

    fn lanes(&self, rows: &Range<usize>, columns: usize) -> Vec<Lanes> {
        let of = |place: usize| {
            Lanes::new(std::array::from_fn(|j| {
                let targets = &self.targets[rows.clone()];
                targets.get(place * LANES + j).copied().unwrap_or(u32::MAX)
            }))
        };
        (0..columns / LANES).map(of).collect()
    }

    /// Writes rows transposed to panels, each `(depth, PANEL)`.
    fn pack(&self, isa: Isa, rows: &Range<usize>, panels: &mut [f32]) {
        let (hidden, depth) = (self.head.cols(), self.depth());
        let panels = panels.chunks_exact_mut(depth * PANEL);
        for (panel, first) in panels.zip(rows.clone().step_by(PANEL)) {
            let width = PANEL.min(rows.end - first);
            if width < PANEL {
                panel.fill(0.0);
            }
            transpose(
                isa,
                width,
                hidden,
                &self.x[first * hidden..],
                hidden,
                panel,
                PANEL,
            );
            if let Some(Low { rank, low, .. }) = self.low {
                let panel = &mut panel[hidden * PANEL..];
                transpose(isa, width, rank, &low[first * rank..], rank, panel, PANEL);
            }
        }
    }

    /// Returns rows of the weight with their low-rank part, and the distance between them: as stored where that serves,
    /// else expanded to `space`.
    fn slice<'s>(
        &'s self,
        isa: Isa,
        tokens: Range<usize>,
        space: &'s mut [f32],
        stride: usize,
    ) -> (&'s [f32], usize) {
        let (hidden, depth) = (self.head.cols(), self.depth());
        if let (Some(values), true) = (self.head.as_f32(), stride == hidden) {
            return (&values[tokens.start * hidden..tokens.end * hidden], hidden);
        }
        rows::expand(
            isa,
            self.head.stored(),
            tokens.clone(),
            hidden,
            space,
            stride,
        );
        if let Some(Low { b, .. }) = self.low {
            for (to, token) in space.chunks_exact_mut(stride).zip(tokens) {
                let column = b[token..].iter().step_by(self.head.rows());
                for (to, b) in to[hidden..depth].iter_mut().zip(column) {
                    *to = *b;
                }
            }
        }
        (space, stride)
    }
}

/// Cuts rows into even blocks of at most `most` whole panels, but for the last.
fn blocks(rows: usize, most: usize) -> Vec<Range<usize>> {
    let panels = rows.div_ceil(PANEL);
    let count = panels.div_ceil(most);
    let edge = |block: usize| rows.min(panels * block / count * PANEL);
    (0..count)
        .map(|block| edge(block)..edge(block + 1))
        .collect()
}

/// Returns the distance between rows of a slice: away from multiples of 1 KiB, which would meet in few sets of the
/// first-level cache.
fn slice_stride(depth: usize) -> usize {
    if depth.is_multiple_of(256) {
        depth + 16
    } else {
        depth
    }
}

/// Keeps the logits of a slice as rows.
fn store(
    isa: Isa,
    all: &DisjointMut<'_, f32>,
    rows: &Range<usize>,
    tokens: Range<usize>,
    logits: &[f32],
    columns: usize,
) {
    let width = tokens.len();
    let mut tile = all.tile(rows.clone(), tokens);
    scratch::with(rows.len() * width, |turned| {
        transpose(isa, width, rows.len(), logits, columns, turned, width);
        for (row, turned) in turned.chunks_exact(width).enumerate() {
            tile.row(row).copy_from_slice(turned);
        }
    });
}

isa_dispatch! {
    /// Multiplies the rows of `sums` that need it.
    fn scale_rows(sums: &mut [f32], factors: &[f32], depth: usize) = scale_rows_body;
}

#[inline(always)]
fn scale_rows_body(sums: &mut [f32], factors: &[f32], depth: usize) {
    for (sums, factor) in sums.chunks_exact_mut(depth).zip(factors) {
        // One times a number is that number.
        if factor.to_bits() != 1.0f32.to_bits() {
            for sum in sums {
                *sum *= factor;
            }
        }
    }
}
