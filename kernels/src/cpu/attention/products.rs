//! The four kinds of products between a query tile and a key tile, hidden strips left out.
//!
//! The rows of a strip meet the same keys, those that some row of it sees, and the others of them with weight 0. Zero times
//! a number is nothing; zero times what is no number is none. So a key, value or gradient that is not finite reaches, beside
//! the rows that see it, rows of their strips: of the same sequence and head, fewer than [`STRIP`](super::STRIP) rows away,
//! and the same ones however the sequence is cut. To mask it would cost every product of every sound sequence.

use super::TILE;
use super::group::Group;
use super::sight::Sight;
use crate::cpu::micro::{self, PANEL, Strided};
use crate::cpu::transpose::transpose;

/// Writes the transposed rows of a tile, `(head_dim, TILE)`; columns beyond its rows are left as they are.
pub(super) fn turn(group: &Group<'_>, rows: usize, from: &[f32], to: &mut [f32]) {
    let dim = group.heads.head_dim;
    transpose(group.isa, rows, dim, from, group.kv_width(), to, TILE);
}

/// Writes `left (rows, head_dim)` times `turned (head_dim, TILE)` to `to (rows, TILE)`, where it is seen and around it.
pub(super) fn against(
    group: &Group<'_>,
    sight: &Sight,
    left: Strided<'_>,
    turned: &[f32],
    to: &mut [f32],
) {
    let dim = group.heads.head_dim;
    for rows in sight.row_strips() {
        let seen = sight.columns_of(&rows);
        // Whole panels: a cut one would cost as much.
        let first = seen.start - seen.start % PANEL;
        let columns = seen.end.next_multiple_of(PANEL) - first;
        let left = Strided {
            slice: &left.slice[rows.start * left.row..],
            ..left
        };
        let to = &mut to[rows.start * TILE + first..];
        let (isa, right) = (group.isa, &turned[first..]);
        micro::tile(
            isa,
            rows.len(),
            columns,
            dim,
            left,
            right,
            TILE,
            to,
            TILE,
            false,
        );
    }
}

/// Writes `weights (rows, TILE)` times the rows of a tile to `to (rows, head_dim)`, or adds it.
pub(super) fn gather(
    group: &Group<'_>,
    sight: &Sight,
    weights: &[f32],
    from: &[f32],
    to: &mut [f32],
    accumulate: bool,
) {
    let (dim, width) = (group.heads.head_dim, group.kv_width());
    for rows in sight.row_strips() {
        let seen = sight.columns_of(&rows);
        let slice = &weights[rows.start * TILE + seen.start..];
        let left = Strided {
            slice,
            row: TILE,
            column: 1,
        };
        let to = &mut to[rows.start * dim..];
        let (isa, right) = (group.isa, &from[seen.start * width..]);
        let (m, k) = (rows.len(), seen.len());
        micro::tile(isa, m, dim, k, left, right, width, to, dim, accumulate);
    }
}

/// Adds the transposed `weights (rows, TILE)` times rows of queries or gradients to `to (keys, head_dim)`.
pub(super) fn scatter(
    group: &Group<'_>,
    sight: &Sight,
    weights: &[f32],
    from: Strided<'_>,
    to: &mut [f32],
) {
    let dim = group.heads.head_dim;
    for columns in sight.column_strips() {
        let rows = sight.rows_of(&columns);
        let slice = &weights[rows.start * TILE + columns.start..];
        let left = Strided {
            slice,
            row: 1,
            column: TILE,
        };
        let to = &mut to[columns.start * dim..];
        let (isa, right) = (group.isa, &from.slice[rows.start * from.row..]);
        let (m, k) = (columns.len(), rows.len());
        micro::tile(isa, m, dim, k, left, right, from.row, to, dim, true);
    }
}
