//! Turns stored weights into `f32` panels of [`PANEL`] columns that the micro-kernel reads.
//!
//! Panels lie one after another, each `(depth, PANEL)`; the last one is filled up with zeros.

use std::ops::Range;

use crate::cpu::isa::{Isa, isa_dispatch};
use crate::cpu::micro::PANEL;
use crate::cpu::scratch;
use crate::cpu::transpose::{fetch, transpose};
use crate::weight::{BLOCK, Storage, Stored, Weight, Work, decode};

// A row of a panel is a run of a storage.
const _: () = assert!(PANEL == BLOCK);

/// Inputs of a row that are decoded before they are transposed: few enough to stay in the first-level cache.
const RUN: usize = 128;

/// Rows from the one that is decoded to the one that is asked for: a row is read in short pieces, which the processor
/// does not foresee.
const AHEAD: usize = 16;

/// Bytes of a cache line.
const LINE: usize = 64;

/// Writes part of `W (out, in)` transposed: in its panel, element `(k, j)` is output `outputs.start + j` (counted on
/// over the panels), input `inputs.start + k`. The inputs are whole blocks.
///
/// # Panics
/// When the ranges leave the weight, cut a block, or the panels are too short.
pub(crate) fn transposed(
    isa: Isa,
    w: &Weight,
    outputs: Range<usize>,
    inputs: Range<usize>,
    panels: &mut [f32],
) {
    let depth = inputs.len();
    check(w, &outputs, &inputs);
    let stored = w.stored();
    let panels =
        panels[..outputs.len().div_ceil(PANEL) * depth * PANEL].chunks_exact_mut(depth * PANEL);
    for (panel, first) in panels.zip(outputs.clone().step_by(PANEL)) {
        let width = PANEL.min(outputs.end - first);
        if width < PANEL {
            panel.fill(0.0);
        }
        if let Some(values) = w.as_f32() {
            let from = &values[first * w.cols() + inputs.start..];
            transpose(isa, width, depth, from, w.cols(), panel, PANEL);
            continue;
        }
        scratch::with(PANEL * RUN, |rows| {
            for start in (0..depth).step_by(RUN) {
                let run = RUN.min(depth - start);
                let from = inputs.start + start..inputs.start + start + run;
                decode_rows(isa, stored, first..first + width, from, rows);
                transpose(
                    isa,
                    width,
                    run,
                    rows,
                    RUN,
                    &mut panel[start * PANEL..],
                    PANEL,
                );
            }
        });
    }
}

/// Writes part of `W (out, in)` as it lies: in its panel, element `(k, j)` is output `outputs.start + k`, input
/// `inputs.start + j` (counted on over the panels). The inputs are whole blocks.
///
/// # Panics
/// When the ranges leave the weight, cut a block, or the panels are too short.
pub(crate) fn rows(
    isa: Isa,
    w: &Weight,
    outputs: Range<usize>,
    inputs: Range<usize>,
    panels: &mut [f32],
) {
    check(w, &outputs, &inputs);
    let panels = &mut panels[..inputs.len().div_ceil(PANEL) * outputs.len() * PANEL];
    decode_panels(isa, w.stored(), outputs, inputs, panels);
}

fn check(w: &Weight, outputs: &Range<usize>, inputs: &Range<usize>) {
    let block = w.format().block_values();
    assert!(
        outputs.end <= w.rows() && inputs.end <= w.cols() && !inputs.is_empty(),
        "outputs {outputs:?} and inputs {inputs:?} of {w:?}"
    );
    assert!(
        inputs.start.is_multiple_of(block) && inputs.end.is_multiple_of(block),
        "inputs {inputs:?} cut a block of {w:?}"
    );
}

isa_dispatch! {
    /// Writes `(outputs, inputs)` to `out`, with [`RUN`] from row to row.
    fn decode_rows(stored: Stored<'_>, outputs: Range<usize>, inputs: Range<usize>, out: &mut [f32]) = decode_rows_body;
}

#[inline(always)]
fn decode_rows_body(
    stored: Stored<'_>,
    outputs: Range<usize>,
    inputs: Range<usize>,
    out: &mut [f32],
) {
    struct Rows<'a>(Stored<'a>, Range<usize>, Range<usize>, &'a mut [f32]);
    impl Work for Rows<'_> {
        #[inline(always)]
        fn run<S: Storage>(self) {
            let Self(stored, outputs, inputs, out) = self;
            for (out, output) in out.chunks_exact_mut(RUN).zip(outputs) {
                decode::<S>(
                    stored.run_of::<S>(output, &inputs),
                    &mut out[..inputs.len()],
                );
            }
        }
    }
    stored.format.with(Rows(stored, outputs, inputs, out));
}

isa_dispatch! {
    /// Writes `(outputs, inputs)` to panels.
    fn decode_panels(stored: Stored<'_>, outputs: Range<usize>, inputs: Range<usize>, out: &mut [f32]) =
        decode_panels_body;
}

#[inline(always)]
fn decode_panels_body(
    stored: Stored<'_>,
    outputs: Range<usize>,
    inputs: Range<usize>,
    out: &mut [f32],
) {
    struct Panels<'a>(Stored<'a>, Range<usize>, Range<usize>, &'a mut [f32]);
    impl Work for Panels<'_> {
        #[inline(always)]
        fn run<S: Storage>(self) {
            let Self(stored, outputs, inputs, out) = self;
            let panel = outputs.len() * PANEL;
            let (whole, rest) = (inputs.len() / PANEL, inputs.len() % PANEL);
            for (k, output) in outputs.enumerate() {
                let bytes = stored.run_of::<S>(output, &inputs);
                for line in (0..bytes.len()).step_by(LINE) {
                    fetch(bytes.as_ptr().wrapping_add(AHEAD * stored.row + line));
                }
                for (place, bytes) in bytes.chunks_exact(S::BYTES).enumerate() {
                    let out = &mut out[place * panel + k * PANEL..][..PANEL];
                    S::run(bytes, out.try_into().expect("a row of a panel is a run"));
                }
                if rest > 0 {
                    let out = &mut out[whole * panel + k * PANEL..][..PANEL];
                    let (out, filling) = out.split_at_mut(rest);
                    decode::<S>(&bytes[whole * S::BYTES..], out);
                    filling.fill(0.0);
                }
            }
        }
    }
    stored.format.with(Panels(stored, outputs, inputs, out));
}

#[cfg(test)]
mod tests;
