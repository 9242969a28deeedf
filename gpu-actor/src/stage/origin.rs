//! Where a number of a sequence broke: looked up in what a pass left behind, once a loss is not finite.
//!
//! Places are tried in the order in which a block computes them, and rows in theirs: the row whose loss broke, those that it
//! attends to, and those that attention takes together with it.

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use shared::model::{ModelShape, Projection};

use super::tape::LayerTape;
use crate::batch::SequenceSlice;

/// Rows that attention takes together (`kernels::ops::attention`): a number that is none in one reaches the others.
const TOGETHER: usize = 16;

/// The first place in a row that is not finite, or whose squares are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    /// The row's embedding, or its virtual token.
    Embedding,
    /// A stage before that of this block.
    Before(usize),
    /// This block, of which only its input was kept.
    Layer(usize),
    /// The feed-forward half of the last block, or the head.
    End,
    /// The output of this projection of a block, its adapter's part included. Of `o_proj` and `down_proj` their input may
    /// be the one: attention, or the product of gate and up.
    Projection {
        /// The block.
        layer: usize,
        /// The projection.
        projection: Projection,
        /// Row within the sequence: the one whose loss broke, or another that it attends to.
        row: usize,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embedding => write!(f, "first in the embedding"),
            Self::Before(layer) => write!(f, "before layer {layer}"),
            Self::Layer(layer) => write!(f, "first in layer {layer}"),
            Self::End => write!(f, "first at the end of the model"),
            Self::Projection {
                layer,
                projection,
                row,
            } => write!(
                f,
                "first in layer {layer}: {} of row {row}",
                projection.name()
            ),
        }
    }
}

/// What a pass over blocks left of its rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trail<'a> {
    /// Number of the first block.
    pub(super) first: usize,
    /// By block; empty when nothing was kept. A block that recomputes kept its input only.
    pub(super) tape: &'a [LayerTape],
    /// What the last block that recomputes has written.
    pub(super) last: &'a LayerTape,
}

/// The first place that is not finite, or whose squares are not where a norm follows; `row` is one of the batch, in the
/// sequence.
pub(super) fn of(
    trail: Trail<'_>,
    sequence: &SequenceSlice,
    row: usize,
    shape: &ModelShape,
) -> Origin {
    let rows = sequence.rows.start..sequence.rows.end.min(row + TOGETHER);
    let told = |row: usize| sequence.start + row - sequence.rows.start;
    let width = shape.hidden;
    let mut before: Option<Projection> = None;
    for (at, tape) in trail.tape.iter().enumerate() {
        let layer = trail.first + at;
        if let Some(row) = too_large(&tape.residual, (width, width), &rows) {
            return match (at, layer, before) {
                (0, 0, _) => Origin::Embedding,
                (0, ..) => Origin::Before(layer),
                (.., None) => Origin::Layer(layer - 1),
                (.., Some(projection)) => Origin::Projection {
                    layer: layer - 1,
                    projection,
                    row: told(row),
                },
            };
        }
        // Where it was not kept, the input of the next block tells that much; of the last one it is still there.
        let kept = !tape.middle.is_empty();
        let whole = match (kept, at + 1 == trail.tape.len()) {
            (true, _) => tape,
            (false, true) => trail.last,
            (false, false) => {
                before = None;
                continue;
            }
        };
        if let Some((projection, row)) = within(whole, shape, &rows) {
            return Origin::Projection {
                layer,
                projection,
                row: told(row),
            };
        }
        before = Some(Projection::Down);
    }
    Origin::End
}

/// The first projection of a block with such a row, and the row.
fn within(
    tape: &LayerTape,
    shape: &ModelShape,
    rows: &Range<usize>,
) -> Option<(Projection, usize)> {
    let (q, kv, ffn) = (shape.q_width(), shape.kv_width(), shape.intermediate);
    let (raw_q, raw_k) = match shape.qk_norm {
        true => (
            too_large(&tape.q_raw, (q, shape.head_dim), rows),
            too_large(&tape.k_raw, (kv, shape.head_dim), rows),
        ),
        false => (broken(&tape.q, q, rows), broken(&tape.k, kv, rows)),
    };
    let places = [
        (Projection::Q, raw_q),
        (Projection::K, raw_k),
        (Projection::V, broken(&tape.v, kv, rows)),
        (
            Projection::O,
            too_large(&tape.middle, (shape.hidden, shape.hidden), rows),
        ),
        (Projection::Gate, broken(&tape.gate, ffn, rows)),
        (Projection::Up, broken(&tape.up, ffn, rows)),
    ];
    places
        .into_iter()
        .find_map(|(projection, row)| Some((projection, row?)))
}

/// The first of the rows with a cell that is not finite.
fn broken(values: &[f32], width: usize, rows: &Range<usize>) -> Option<usize> {
    let mut rows = rows.clone();
    rows.find(|&row| {
        values[row * width..][..width]
            .iter()
            .any(|cell| !cell.is_finite())
    })
}

/// The first of the rows of which a sum of squares over `norm` cells is not finite: the norm that follows makes no numbers
/// of them.
fn too_large(values: &[f32], (width, norm): (usize, usize), rows: &Range<usize>) -> Option<usize> {
    let mut rows = rows.clone();
    rows.find(|&row| {
        let mut runs = values[row * width..][..width].chunks(norm);
        runs.any(|cells| {
            !cells
                .iter()
                .map(|cell| cell * cell)
                .sum::<f32>()
                .is_finite()
        })
    })
}
