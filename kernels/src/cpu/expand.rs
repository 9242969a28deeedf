//! Turns stored weights into `f32` panels that the micro-kernel reads.

use std::ops::Range;

use crate::cpu::isa::Isa;
use crate::cpu::micro::PANEL;
use crate::weight::Weight;

/// Writes `weight[outputs][inputs]` transposed: `panel[k][j]` is output `outputs.start + j`, input `inputs.start + k`.
///
/// Columns past the last output are filled with zeros. `inputs` cuts at multiples of 32.
pub(crate) fn transposed(
    _isa: Isa,
    weight: &Weight,
    outputs: Range<usize>,
    inputs: Range<usize>,
    panel: &mut [f32],
) {
    let depth = inputs.len();
    assert!(outputs.len() <= PANEL && panel.len() >= depth * PANEL);
    let mut row = vec![0.0; weight.cols()];
    panel[..depth * PANEL].fill(0.0);
    for (j, output) in outputs.enumerate() {
        weight.row(output, &mut row);
        for (k, x) in row[inputs.clone()].iter().enumerate() {
            panel[k * PANEL + j] = *x;
        }
    }
}

/// Writes `weight[outputs][inputs]` as rows: `panel[k][j]` is output `outputs.start + k`, input `inputs.start + j`.
///
/// Columns past the last input are filled with zeros.
pub(crate) fn rows(
    _isa: Isa,
    weight: &Weight,
    outputs: Range<usize>,
    inputs: Range<usize>,
    panel: &mut [f32],
) {
    assert!(inputs.len() <= PANEL && panel.len() >= outputs.len() * PANEL);
    let mut row = vec![0.0; weight.cols()];
    for (out, output) in panel.chunks_exact_mut(PANEL).zip(outputs) {
        weight.row(output, &mut row);
        out[..inputs.len()].copy_from_slice(&row[inputs.clone()]);
        out[inputs.len()..].fill(0.0);
    }
}
