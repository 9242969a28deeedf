//! Runs the additions of [`block_sum`](crate::ops::block_sum): panel of columns by panel, the tree in small scratch.

use std::ops::Range;

use crate::cpu::Cpu;
use crate::cpu::disjoint::DisjointMut;
use crate::cpu::isa::{Isa, isa_dispatch};
use crate::cpu::micro::{self, PANEL, Strided};
use crate::cpu::scratch;
use crate::ops::block_sum::{Action, Nodes, Program};
use crate::ops::sparse::pattern::Pattern;

/// Numbers of a panel that stay in the first-level cache with those of a few other slots.
const PANEL_VALUES: usize = 4096;

/// Where the parts of the blocks come from; shapes were checked.
pub(crate) enum Source<'a> {
    /// Outer products of the rows of `left (rows from first_row on, rank)` and `right (tokens, width)`.
    Outer {
        blocks: &'a [Range<usize>],
        first_row: usize,
        left: &'a [f32],
        right: &'a [f32],
        scale: f32,
    },
    /// Sums of the rows of `values`, or of `values * factors` `(tokens, width)`.
    Columns {
        blocks: &'a [Range<usize>],
        values: &'a [f32],
        factors: Option<&'a [f32]>,
    },
    /// Products of the inputs and output gradients of the places of a pattern.
    Places {
        blocks: &'a [Range<usize>],
        pattern: &'a Pattern,
        x: &'a [f32],
        dy: &'a [f32],
    },
    /// Ready parts.
    Parts(&'a [&'a [f32]]),
}

/// One gradient `(rank, width)` and what a call adds to it.
pub(crate) struct Task<'a> {
    pub(crate) program: Program,
    pub(crate) source: Source<'a>,
    pub(crate) rank: usize,
    pub(crate) width: usize,
    pub(crate) nodes: &'a mut Nodes,
    pub(crate) gradient: Option<&'a mut [f32]>,
}

/// A task whose results are open to several threads.
struct Open<'a> {
    program: &'a Program,
    source: &'a Source<'a>,
    rank: usize,
    width: usize,
    nodes: &'a Nodes,
    new: Vec<DisjointMut<'a, f32>>,
    gradient: Option<DisjointMut<'a, f32>>,
}

/// Runs all tasks in one parallel region.
pub(crate) fn run(cpu: &Cpu, mut tasks: Vec<Task<'_>>) {
    let mut new: Vec<Vec<Vec<f32>>> = Vec::with_capacity(tasks.len());
    for task in &tasks {
        let values = task.rank * task.width;
        task.nodes.check(values);
        if let Some(gradient) = &task.gradient {
            assert_eq!(gradient.len(), values, "length of a gradient");
        }
        new.push(vec![vec![0.0; values]; task.program.new.len()]);
    }
    let open: Vec<Open<'_>> = tasks
        .iter_mut()
        .zip(&mut new)
        .map(|(task, new)| Open {
            program: &task.program,
            source: &task.source,
            rank: task.rank,
            width: task.width,
            nodes: task.nodes,
            new: new
                .iter_mut()
                .map(|sum| DisjointMut::matrix(sum, task.width.max(1)))
                .collect(),
            gradient: task
                .gradient
                .as_deref_mut()
                .map(|gradient| DisjointMut::matrix(gradient, task.width.max(1))),
        })
        .collect();
    let panels: Vec<(usize, Range<usize>)> = open
        .iter()
        .enumerate()
        .flat_map(|(task, open)| panels(open).map(move |columns| (task, columns)))
        .collect();
    cpu.for_each(panels.len(), |panel| {
        let (task, columns) = &panels[panel];
        open[*task].panel(cpu.isa(), columns.clone());
    });
    drop(open);
    for (task, new) in tasks.into_iter().zip(new) {
        task.nodes.finish(&task.program, new);
    }
}

/// Cuts the columns of a gradient into even panels.
fn panels(open: &Open<'_>) -> impl Iterator<Item = Range<usize>> + use<> {
    let width = open.width;
    let most = (PANEL_VALUES / open.rank).max(PANEL);
    let even = width.div_ceil(width.div_ceil(most).max(1));
    let columns = even.next_multiple_of(PANEL).max(PANEL);
    (0..width)
        .step_by(columns)
        .map(move |start| start..(start + columns).min(width))
}

impl Open<'_> {
    fn panel(&self, isa: Isa, columns: Range<usize>) {
        let values = self.rank * columns.len();
        scratch::with(self.program.slots * values, |slots| {
            let place = |slot: usize| slot * values..(slot + 1) * values;
            for action in &self.program.actions {
                match *action {
                    Action::Produce { block, slot } => {
                        self.produce(isa, block, columns.clone(), &mut slots[place(slot)]);
                    }
                    Action::Load { node, slot } => {
                        self.rows(self.nodes.held(node), &columns, &mut slots[place(slot)])
                            .for_each(|(from, slot)| slot.copy_from_slice(from));
                    }
                    Action::Clear { slot } => slots[place(slot)].fill(0.0),
                    Action::Add { from, slot } => {
                        let [from, slot] = slots
                            .get_disjoint_mut([place(from), place(slot)])
                            .expect("two slots of the program");
                        add(isa, slot, from);
                    }
                    Action::AddHeld { node, slot } => {
                        self.rows(self.nodes.held(node), &columns, &mut slots[place(slot)])
                            .for_each(|(from, slot)| add(isa, slot, from));
                    }
                    Action::Hold { slot, new } => {
                        store(&self.new[new], self.rank, &columns, &slots[place(slot)]);
                    }
                    Action::Finish { slot } => {
                        let gradient = self.gradient.as_ref().expect("finishes with a gradient");
                        store(gradient, self.rank, &columns, &slots[place(slot)]);
                    }
                }
            }
        });
    }

    /// Pairs the rows of the columns of a whole sum with those of a slot.
    fn rows<'r>(
        &self,
        sum: &'r [f32],
        columns: &Range<usize>,
        slot: &'r mut [f32],
    ) -> impl Iterator<Item = (&'r [f32], &'r mut [f32])> {
        let columns = columns.clone();
        let slot = slot.chunks_exact_mut(columns.len());
        sum.chunks_exact(self.width)
            .map(move |row| &row[columns.clone()])
            .zip(slot)
    }

    fn produce(&self, isa: Isa, block: usize, columns: Range<usize>, slot: &mut [f32]) {
        let width = self.width;
        match self.source {
            Source::Outer {
                blocks,
                first_row,
                left,
                right,
                scale,
            } => {
                let rows = &blocks[block];
                let left = Strided {
                    slice: &left[(rows.start - first_row) * self.rank..],
                    row: 1,
                    column: self.rank,
                };
                let right = right.get(rows.start * width + columns.start..);
                micro::tile(
                    isa,
                    self.rank,
                    columns.len(),
                    rows.len(),
                    left,
                    right.unwrap_or_default(),
                    width,
                    slot,
                    columns.len(),
                    false,
                );
                if scale.to_bits() != 1.0f32.to_bits() {
                    multiply(isa, slot, *scale);
                }
            }
            Source::Columns {
                blocks,
                values,
                factors,
            } => {
                slot.fill(0.0);
                for row in blocks[block].clone() {
                    let row = row * width + columns.start..row * width + columns.end;
                    match factors {
                        Some(factors) => {
                            add_products(isa, slot, &values[row.clone()], &factors[row])
                        }
                        None => add(isa, slot, &values[row]),
                    }
                }
            }
            Source::Places {
                blocks,
                pattern,
                x,
                dy,
            } => {
                slot.fill(0.0);
                let (inputs, outputs) = (pattern.inputs(), pattern.outputs());
                for row in blocks[block].clone() {
                    add_places(
                        isa,
                        slot,
                        (
                            &pattern.columns()[columns.clone()],
                            &x[row * inputs..][..inputs],
                        ),
                        (
                            &pattern.rows()[columns.clone()],
                            &dy[row * outputs..][..outputs],
                        ),
                    );
                }
            }
            Source::Parts(parts) => slot.copy_from_slice(&parts[block][columns]),
        }
    }
}

/// Writes a slot to its columns of a whole sum.
fn store(sum: &DisjointMut<'_, f32>, rank: usize, columns: &Range<usize>, slot: &[f32]) {
    let mut tile = sum.tile(0..rank, columns.clone());
    for (row, slot) in slot.chunks_exact(columns.len()).enumerate() {
        tile.row(row).copy_from_slice(slot);
    }
}

isa_dispatch! {
    fn add(sum: &mut [f32], other: &[f32]) = add_body;
}

#[inline(always)]
fn add_body(sum: &mut [f32], other: &[f32]) {
    for (sum, other) in sum.iter_mut().zip(other) {
        *sum += other;
    }
}

isa_dispatch! {
    fn add_products(sum: &mut [f32], x: &[f32], y: &[f32]) = add_products_body;
}

#[inline(always)]
fn add_products_body(sum: &mut [f32], x: &[f32], y: &[f32]) {
    for ((sum, x), y) in sum.iter_mut().zip(x).zip(y) {
        *sum = x.mul_add(*y, *sum);
    }
}

isa_dispatch! {
    fn add_places(sum: &mut [f32], x: (&[u32], &[f32]), dy: (&[u32], &[f32])) = add_places_body;
}

#[inline(always)]
fn add_places_body(sum: &mut [f32], (columns, x): (&[u32], &[f32]), (rows, dy): (&[u32], &[f32])) {
    for ((sum, column), row) in sum.iter_mut().zip(columns).zip(rows) {
        *sum = x[*column as usize].mul_add(dy[*row as usize], *sum);
    }
}

isa_dispatch! {
    fn multiply(values: &mut [f32], factor: f32) = multiply_body;
}

#[inline(always)]
fn multiply_body(values: &mut [f32], factor: f32) {
    for value in values {
        *value *= factor;
    }
}
