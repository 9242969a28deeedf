//! Expands whole rows of a stored weight, one after another.

use std::ops::Range;

use crate::cpu::isa::isa_dispatch;
use crate::weight::{Storage, Stored, Work, decode};

isa_dispatch! {
    /// Writes the first `cols` inputs (all of them) of `outputs` to `to`, with `stride` numbers from row to row.
    pub(crate) fn expand(stored: Stored<'_>, outputs: Range<usize>, cols: usize, to: &mut [f32], stride: usize) =
        expand_body;
}

#[inline(always)]
pub(crate) fn expand_body(
    stored: Stored<'_>,
    outputs: Range<usize>,
    cols: usize,
    to: &mut [f32],
    stride: usize,
) {
    struct Rows<'a>(Stored<'a>, Range<usize>, usize, &'a mut [f32], usize);
    impl Work for Rows<'_> {
        #[inline(always)]
        fn run<S: Storage>(self) {
            let Self(stored, outputs, cols, to, stride) = self;
            let bytes = &stored.bytes[outputs.start * stored.row..outputs.end * stored.row];
            for (bytes, to) in bytes.chunks_exact(stored.row).zip(to.chunks_mut(stride)) {
                decode::<S>(bytes, &mut to[..cols]);
            }
        }
    }
    stored.format.with(Rows(stored, outputs, cols, to, stride));
}
