//! Buffers that a thread keeps between calls, so that the hot path neither allocates nor faults pages.

use std::cell::RefCell;

use bytemuck::{Pod, Zeroable};

/// One cache line of numbers: makes buffers start on a line.
#[derive(Clone, Copy, Zeroable, Pod)]
#[repr(C, align(64))]
struct Line([f32; 16]);

thread_local! {
    /// Buffers not in use; a nested call takes another one.
    static IDLE: RefCell<Vec<Vec<Line>>> = const { RefCell::new(Vec::new()) };
}

/// Runs `f` with a buffer of `len` numbers that starts on a cache line; its contents are whatever was left there.
pub(crate) fn with<R>(len: usize, f: impl FnOnce(&mut [f32]) -> R) -> R {
    let mut lines = IDLE
        .with(|idle| idle.borrow_mut().pop())
        .unwrap_or_default();
    let needed = len.div_ceil(16);
    if lines.len() < needed {
        lines.resize(needed, Line([0.0; 16]));
    }
    let result = f(&mut bytemuck::cast_slice_mut(&mut lines)[..len]);
    IDLE.with(|idle| idle.borrow_mut().push(lines));
    result
}

/// Runs `f` with a buffer of `len` words, as [`with`] does.
pub(crate) fn words<R>(len: usize, f: impl FnOnce(&mut [u32]) -> R) -> R {
    with(len, |numbers| f(bytemuck::cast_slice_mut(numbers)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_buffers_are_apart_and_aligned() {
        with(100, |outer| {
            outer.fill(1.0);
            with(50, |inner| {
                inner.fill(2.0);
                assert_eq!(inner.as_ptr() as usize % 64, 0);
            });
            assert_eq!(outer.as_ptr() as usize % 64, 0);
            assert!(outer.iter().all(|&x| x == 1.0));
            assert_eq!(outer.len(), 100);
        });
    }
}
