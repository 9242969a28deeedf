//! The two products of a sweep in single precision: a slice of the weight is the left of one and the right of the other.

use super::{PANEL, Slice};
use crate::cpu::isa::Isa;
use crate::cpu::micro::{self, Strided};

/// Computes the logits `(tokens, columns)` of a slice from the panels of `x`.
pub(super) fn logits(isa: Isa, slice: Slice<'_>, x: &[f32], logits: &mut [f32]) {
    let Slice { tokens, depth, .. } = slice;
    let left = Strided {
        slice: slice.numbers,
        row: slice.stride,
        column: 1,
    };
    let columns = logits.len() / tokens;
    for (panel, x) in x.chunks_exact(depth * PANEL).enumerate() {
        let logits = &mut logits[panel * PANEL..];
        micro::tile(
            isa, tokens, PANEL, depth, left, x, PANEL, logits, columns, false,
        );
    }
}

/// Computes `sums (rows, depth) (+)= e W` of a slice, where `e` is what its logits `(tokens, columns)` became.
pub(super) fn gather(isa: Isa, slice: Slice<'_>, raised: &[f32], sums: &mut [f32], more: bool) {
    let Slice { tokens, depth, .. } = slice;
    let left = Strided {
        slice: raised,
        row: 1,
        column: raised.len() / tokens,
    };
    let (rows, weight) = (sums.len() / depth, slice.numbers);
    micro::tile(
        isa,
        rows,
        depth,
        tokens,
        left,
        weight,
        slice.stride,
        sums,
        depth,
        more,
    );
}
