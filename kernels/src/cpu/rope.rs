//! Rotation of a run of rows by their positions.

use crate::cpu::isa::isa_dispatch;

isa_dispatch! {
    /// Turns the heads of each row of `x` by the row of `table` that its position names: `head_dim / 2` cosines, then as
    /// many sines.
    pub(crate) fn rotate(
        x: &mut [f32],
        positions: &[u32],
        table: &[f32],
        head_dim: usize,
        inverse: bool,
    ) = rotate_body;
}

#[inline(always)]
fn rotate_body(x: &mut [f32], positions: &[u32], table: &[f32], head_dim: usize, inverse: bool) {
    let half = head_dim / 2;
    let sign = if inverse { -1.0f32 } else { 1.0 };
    let width = x.len() / positions.len();
    for (row, &position) in x.chunks_exact_mut(width).zip(positions) {
        let angles = &table[position as usize * head_dim..][..head_dim];
        let (cosines, sines) = angles.split_at(half);
        for head in row.chunks_exact_mut(head_dim) {
            let (left, right) = head.split_at_mut(half);
            for (((u, v), cosine), sine) in left.iter_mut().zip(right).zip(cosines).zip(sines) {
                let sine = sign * sine;
                let (a, b) = (*u, *v);
                *u = a.mul_add(*cosine, -(b * sine));
                *v = b.mul_add(*cosine, a * sine);
            }
        }
    }
}
