//! Steps that change nothing: whether all that a step would write is finite.
//!
//! A step that is not to be half taken is tried first. The arithmetic is that of the step, element by element, so
//! the answer is exact.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{AdamFactors, AdamW, Sgd, SgdFactors, TASK};
use crate::cpu::Cpu;
use crate::cpu::isa::{Isa, isa_dispatch};

/// Bits of infinity; those of a number that is not finite are no less, without the sign.
const INFINITE: u32 = 0x7f80_0000;

/// Index of the first element for which [`super::adamw`] would write a number that is not finite.
///
/// # Panics
/// When the lengths differ or the step is 0.
pub fn adamw(
    cpu: &Cpu,
    values: &[f32],
    gradient: &[f32],
    first: &[f32],
    second: &[f32],
    rule: &AdamW,
) -> Option<usize> {
    assert!(rule.step > 0, "steps count from 1");
    let lengths = [gradient.len(), first.len(), second.len()];
    assert_eq!(lengths, [values.len(); 3], "gradient and moments");
    let by = AdamFactors::new(rule);
    let worst = |isa: Isa, at: Range<usize>| {
        let (p, g) = (&values[at.clone()], &gradient[at.clone()]);
        adamw_worst(isa, p, g, &first[at.clone()], &second[at], by)
    };
    first_bad(cpu, values.len(), worst)
}

/// Index of the first element for which [`super::sgd`] would write a number that is not finite.
///
/// # Panics
/// When the lengths differ.
pub fn sgd(
    cpu: &Cpu,
    values: &[f32],
    gradient: &[f32],
    first: &[f32],
    rule: &Sgd,
) -> Option<usize> {
    let lengths = [gradient.len(), first.len()];
    assert_eq!(lengths, [values.len(); 2], "gradient and momentum");
    let by = SgdFactors::new(rule);
    let worst = |isa: Isa, at: Range<usize>| {
        let (p, g) = (&values[at.clone()], &gradient[at.clone()]);
        sgd_worst(isa, p, g, &first[at], by)
    };
    first_bad(cpu, values.len(), worst)
}

/// Finds the first index at which `worst` over a range holds no finite number.
fn first_bad(
    cpu: &Cpu,
    len: usize,
    worst: impl Fn(Isa, Range<usize>) -> u32 + Sync,
) -> Option<usize> {
    let bad_task = AtomicUsize::new(usize::MAX);
    cpu.for_each(len.div_ceil(TASK), |task| {
        let range = task * TASK..len.min((task + 1) * TASK);
        if worst(cpu.isa(), range) >= INFINITE {
            bad_task.fetch_min(task, Ordering::Relaxed);
        }
    });
    let task = bad_task.into_inner();
    let mut indices = task.checked_mul(TASK)?..len;
    indices.find(|&index| worst(cpu.isa(), index..index + 1) >= INFINITE)
}

fn magnitude(value: f32) -> u32 {
    value.to_bits() & !(1 << 31)
}

isa_dispatch! {
    fn adamw_worst(p: &[f32], g: &[f32], m: &[f32], v: &[f32], by: AdamFactors) -> u32 = adamw_body;
}

/// The largest magnitude, as bits, of what the step would write.
#[inline(always)]
fn adamw_body(p: &[f32], g: &[f32], m: &[f32], v: &[f32], by: AdamFactors) -> u32 {
    let mut worst = 0;
    for (((p, g), m), v) in p.iter().zip(g).zip(m).zip(v) {
        let (p, m, v) = by.next(*p, *g, *m, *v);
        worst = worst.max(magnitude(p)).max(magnitude(m)).max(magnitude(v));
    }
    worst
}

isa_dispatch! {
    fn sgd_worst(p: &[f32], g: &[f32], m: &[f32], by: SgdFactors) -> u32 = sgd_body;
}

#[inline(always)]
fn sgd_body(p: &[f32], g: &[f32], m: &[f32], by: SgdFactors) -> u32 {
    let mut worst = 0;
    for ((p, g), m) in p.iter().zip(g).zip(m) {
        let (p, m) = by.next(*p, *g, *m);
        worst = worst.max(magnitude(p)).max(magnitude(m));
    }
    worst
}
