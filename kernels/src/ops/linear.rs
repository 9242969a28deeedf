//! Products with a frozen weight `W (out, in)`: `y = x W^T` forward, `dx = dy W` backward.
//!
//! Canonical order: each element is one chain of fused multiply-adds from zero, over the inputs from 0 upward forward
//! and over the outputs from 0 upward backward. The stored weight is expanded panel by panel, never as a whole, so that
//! a weight of any format gives the bits of its numbers.
//!
//! A processor that is set to [`Products::Split`] computes the same products from split numbers, in the order of
//! [`reference::split`](crate::reference::split). A row with a number that is not finite, in one of the runs that the
//! reduction is cut into, is then multiplied by the chain in that run: what is infinite and what is not a number comes
//! out as it does without splitting.

use std::ops::Range;

use crate::cpu::Cpu;
use crate::cpu::disjoint::{DisjointMut, Tile};
use crate::cpu::expand;
use crate::cpu::isa::Isa;
use crate::cpu::micro::{self, Left, PANEL, Packed, Strided};
use crate::cpu::products::Products;
use crate::cpu::scratch;
use crate::cpu::split;
use crate::weight::{BLOCK, Weight};

/// Longest run along the reduction that is expanded at once.
const DEPTH: usize = 768;

/// Most panels that a task works on: they stay in the second-level cache while each strip of rows meets all of them.
const GROUP: usize = 4;

/// The same for split numbers.
const SPLIT_GROUP: usize = 6;

/// Columns of left matrices that are packed at once: with a few hundred rows they stay in the second-level cache.
const PACKED: usize = 1024;

/// The same for split numbers, which take six bytes each.
const SPLIT_PACKED: usize = 768;

/// Numbers a row that packed left matrices of so many columns take at most.
#[must_use]
pub fn packed(columns: usize) -> usize {
    // Three halves of what is packed of split numbers, and as many columns of others.
    columns.min(PACKED.max(SPLIT_PACKED * 3 / 2))
}

/// Tasks wanted for each of several threads.
const TASKS: usize = 3;

/// Computes `y (m, out) = x (m, in) W^T`.
///
/// ```
/// use std::sync::Arc;
///
/// use kernels::cpu::Cpu;
/// use kernels::ops::linear;
/// use kernels::weight::{Format, Weight};
///
/// let bytes: Vec<u8> = [1f32, 2.0, 3.0, 4.0].iter().flat_map(|w| w.to_le_bytes()).collect();
/// let (rows, cols, len) = (2, 2, bytes.len());
/// let w = Weight::new(Format::F32, rows, cols, Arc::new(bytes), 0..len).unwrap();
/// let mut y = [0.0; 2];
/// linear::forward(&Cpu::new(1).unwrap(), &[10.0, 1.0], &w, &mut y);
/// assert_eq!(y, [12.0, 34.0]);
/// ```
///
/// # Panics
/// When the shapes do not fit.
pub fn forward(cpu: &Cpu, x: &[f32], w: &Weight, y: &mut [f32]) {
    forward_many(cpu, x, &mut [(w, y)]);
}

/// Computes `y_i (m, out_i) = x (m, in) W_i^T` for several weights of the same input.
///
/// # Panics
/// When the shapes do not fit.
pub fn forward_many(cpu: &Cpu, x: &[f32], products: &mut [(&Weight, &mut [f32])]) {
    let Some((first, _)) = products.first() else {
        return;
    };
    let inputs = first.cols();
    let rows = rows_of(x, inputs, "x");
    let outputs: Vec<usize> = products.iter().map(|(w, _)| w.rows()).collect();
    let results: Vec<_> = products
        .iter_mut()
        .map(|(w, y)| {
            assert_eq!(w.cols(), inputs, "inputs of the weights");
            assert_eq!(rows_of(y, w.rows(), "y"), rows, "rows of y and x");
            (&**w, DisjointMut::matrix(y, w.rows()))
        })
        .collect();
    let tasks = groups(cpu, &outputs);
    multiply(
        cpu,
        rows,
        &[(x, inputs)],
        tasks.len(),
        |task, blocks, more| {
            let (product, columns) = &tasks[task];
            let (w, y) = &results[*product];
            let mut y = y.tile(0..rows, columns.clone());
            let mut more = more;
            for block in blocks {
                let expand = |columns, panels: &mut [f32]| {
                    expand::transposed(cpu.isa(), w, columns, block.depth.clone(), panels);
                };
                block.multiply(cpu.isa(), columns, expand, None, &mut y, more);
                more = true;
            }
        },
    );
}

/// Computes `dx (m, in) = dy (m, out) W`, or adds it when accumulating.
///
/// # Panics
/// When the shapes do not fit.
pub fn backward(cpu: &Cpu, dy: &[f32], w: &Weight, dx: &mut [f32], accumulate: bool) {
    backward_many(cpu, &[(dy, w)], dx, accumulate);
}

/// Computes `dx (m, in) = sum_i dy_i (m, out_i) W_i`, or adds it when accumulating; chained in the order of the list.
///
/// # Panics
/// When the shapes do not fit.
pub fn backward_many(cpu: &Cpu, parts: &[(&[f32], &Weight)], dx: &mut [f32], accumulate: bool) {
    let Some((_, first)) = parts.first() else {
        return;
    };
    let inputs = first.cols();
    let rows = rows_of(dx, inputs, "dx");
    for (dy, w) in parts {
        assert_eq!(w.cols(), inputs, "inputs of the weights");
        assert_eq!(rows_of(dy, w.rows(), "dy"), rows, "rows of dy and dx");
    }
    let dx = DisjointMut::matrix(dx, inputs);
    let tasks = groups(cpu, &[inputs]);
    let lefts: Vec<_> = parts.iter().map(|(dy, w)| (*dy, w.rows())).collect();
    multiply(cpu, rows, &lefts, tasks.len(), |task, blocks, more| {
        let (_, columns) = &tasks[task];
        let mut dx = dx.tile(0..rows, columns.clone());
        let mut more = more || accumulate;
        for block in blocks {
            let (_, w) = parts[block.part];
            let expand = |columns, panels: &mut [f32]| {
                expand::rows(cpu.isa(), w, block.depth.clone(), columns, panels);
            };
            let plain = w
                .as_f32()
                .map(|values| &values[block.depth.start * inputs..]);
            let plain = plain.map(|values| (values, inputs));
            block.multiply(cpu.isa(), columns, expand, plain, &mut dx, more);
            more = true;
        }
    });
}

/// Some columns of one of the left matrices.
struct Block<'a> {
    part: usize,
    depth: Range<usize>,
    /// The columns as they lie.
    plain: Strided<'a>,
    form: Form<'a>,
}

/// How the columns of a block are read.
#[derive(Clone, Copy)]
enum Form<'a> {
    /// As they lie, or packed.
    Numbers(Left<'a>),
    Split(split::Left<'a>),
}

impl Block<'_> {
    /// Computes some columns of a result, which `expand` writes to panels: the run of a weight that this block meets.
    ///
    /// Where that lies in memory as it is, `plain` are its rows, and the distance between them.
    fn multiply(
        &self,
        isa: Isa,
        columns: &Range<usize>,
        expand: impl Fn(Range<usize>, &mut [f32]),
        plain: Option<(&[f32], usize)>,
        c: &mut Tile<'_, f32>,
        more: bool,
    ) {
        let depth = self.depth.len();
        let left = match self.form {
            Form::Numbers(left) => {
                return scratch::with(DEPTH * PANEL * GROUP, |panels| {
                    expand(columns.clone(), panels);
                    micro::panels(isa, depth, left, panels, c, more);
                });
            }
            Form::Split(left) => left,
        };
        scratch::words(split::right_words(depth, columns.len()), |words| {
            if let Some((plain, stride)) = plain {
                let plain = &plain[columns.start..];
                split::pack_right(isa, plain, stride, depth, columns.len(), words);
                return split::product(isa, left, words, c, more);
            }
            scratch::with(depth * PANEL, |panel| {
                let words = words.chunks_exact_mut(split::right_words(depth, PANEL));
                for (words, columns) in words.zip(cut(columns.clone(), PANEL)) {
                    expand(columns, panel);
                    split::pack_right(isa, panel, PANEL, depth, PANEL, words);
                }
            });
            split::product(isa, left, words, c, more);
        });
        for row in left.odd_rows() {
            // Rare, and then the job is set aside.
            scratch::with(depth * PANEL, |panel| {
                for part in cut(columns.clone(), PANEL) {
                    expand(part.clone(), panel);
                    let at = part.start - columns.start;
                    let left = Strided {
                        slice: &self.plain.slice[row * self.plain.row..],
                        ..self.plain
                    };
                    let c = &mut c.row(row)[at..at + part.len()];
                    let n = part.len();
                    micro::tile(isa, 1, n, depth, left, panel, PANEL, c, n, more);
                }
            });
        }
    }
}

/// Runs `f(task, blocks, more)` for each task with all blocks of the left matrices `(rows, width)` in order, in one call
/// or in several: then `more` is set in all but the first. Where it pays, a few blocks are packed, multiplied by all
/// tasks while they are in the cache, and replaced by the next ones.
fn multiply(
    cpu: &Cpu,
    rows: usize,
    lefts: &[(&[f32], usize)],
    tasks: usize,
    f: impl Fn(usize, &[Block<'_>], bool) + Sync,
) {
    let plain = lefts.iter().enumerate().flat_map(|(part, &(x, width))| {
        depths(width).map(move |depth| {
            let plain = Strided {
                slice: if x.is_empty() { x } else { &x[depth.start..] },
                row: width,
                column: 1,
            };
            Block {
                part,
                depth,
                plain,
                form: Form::Numbers(Left::Strided(plain)),
            }
        })
    });
    let mut blocks: Vec<Block<'_>> = plain.collect();
    let splits = cpu.products() == Products::Split && rows > 0;
    if !splits && !Packed::pays(cpu.isa(), rows) {
        cpu.for_each(tasks, |task| f(task, &blocks, false));
        return;
    }
    let most = if splits { SPLIT_PACKED } else { PACKED };
    let space_of = |depth: usize| match splits {
        true => split::left_words(rows, depth),
        false => rows * depth,
    };
    let mut more = false;
    while !blocks.is_empty() {
        let mut depth = 0;
        let fits = blocks.iter().take_while(|block| {
            depth += block.depth.len();
            depth <= most
        });
        let rest = blocks.split_off(fits.count().max(1));
        let space = blocks.iter().map(|block| space_of(block.depth.len())).sum();
        scratch::with(space, |mut space| {
            let mut packed = Vec::with_capacity(blocks.len());
            for block in blocks {
                let (part, rest) = space.split_at_mut(space_of(block.depth.len()));
                let (x, width) = lefts[block.part];
                let depth = block.depth.clone();
                let form = if splits {
                    let words = bytemuck::cast_slice_mut(part);
                    Form::Split(split::Left::new(cpu, x, width, depth, words))
                } else {
                    Form::Numbers(Left::Packed(Packed::new(cpu, x, width, depth, part)))
                };
                packed.push(Block { form, ..block });
                space = rest;
            }
            cpu.for_each(tasks, |task| f(task, &packed, more));
        });
        (blocks, more) = (rest, true);
    }
}

/// Cuts a reduction of `length` into even runs of at most [`DEPTH`], whole blocks but for the last.
fn depths(length: usize) -> impl Iterator<Item = Range<usize>> {
    let run = length
        .div_ceil(length.div_ceil(DEPTH))
        .next_multiple_of(BLOCK);
    cut(0..length, run)
}

/// Cuts a range into runs of `run`, the last one shorter.
fn cut(range: Range<usize>, run: usize) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range
        .step_by(run)
        .map(move |start| start..(start + run).min(end))
}

/// Shares the columns of several results out to tasks: `(result, columns)`, each up to [`GROUP`] panels
/// ([`SPLIT_GROUP`] for split numbers), of nearly one size, and fewer panels where that leaves too few tasks to keep all threads busy.
fn groups(cpu: &Cpu, widths: &[usize]) -> Vec<(usize, Range<usize>)> {
    let most = match cpu.products() {
        Products::F32 => GROUP,
        Products::Split => SPLIT_GROUP,
    };
    let panels: usize = widths.iter().map(|width| width.div_ceil(PANEL)).sum();
    let wanted = match cpu.threads() {
        1 => 1,
        threads => TASKS * threads,
    };
    let tasks = panels.div_ceil(most).max(wanted);
    let group = panels.div_ceil(tasks.next_multiple_of(cpu.threads()));
    let of_width = |(result, &width): (usize, &usize)| {
        let panels = width.div_ceil(PANEL);
        let pieces = panels.div_ceil(group);
        let edge = move |piece: usize| width.min(panels * piece / pieces * PANEL);
        (0..pieces).map(move |piece| (result, edge(piece)..edge(piece + 1)))
    };
    widths.iter().enumerate().flat_map(of_width).collect()
}

/// Returns how many rows of `width` a slice holds.
fn rows_of(slice: &[f32], width: usize, name: &str) -> usize {
    assert!(
        slice.len().is_multiple_of(width),
        "{name} has {} values, not a whole number of rows of {width}",
        slice.len()
    );
    slice.len() / width
}

#[cfg(test)]
mod tests;
