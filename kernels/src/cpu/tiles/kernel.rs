//! The innermost loops: two strips of 16 rows, or one, and two panels of 16 columns, in tiles along the reduction.
//!
//! The order of partial products is that of [`PAIRS`](crate::reference::split::PAIRS); a step is read once but for the high
//! piece of the right, which opens and ends it.

use std::arch::asm;

use crate::cpu::pieces::SIDE;

/// Four products of two tiles of the left and two of the right; what the next step reads of the right is asked for.
macro_rules! meet {
    ($ahead:literal) => {
        concat!(
            "tdpbf16ps tmm0, tmm4, tmm6\n",
            fetch!($ahead, "0"),
            "tdpbf16ps tmm1, tmm4, tmm7\n",
            fetch!($ahead, "256"),
            "tdpbf16ps tmm2, tmm5, tmm6\n",
            fetch!($ahead, "512"),
            "tdpbf16ps tmm3, tmm5, tmm7\n",
            fetch!($ahead, "768"),
        )
    };
}

/// Asks for four lines of the right.
macro_rules! fetch {
    ($ahead:literal, $place:literal) => {
        concat!(
            "prefetcht0 [{b} + ",
            $ahead,
            " + ",
            $place,
            "]\n",
            "prefetcht0 [{b} + ",
            $ahead,
            " + ",
            $place,
            " + 64]\n",
            "prefetcht0 [{b} + ",
            $ahead,
            " + ",
            $place,
            " + 128]\n",
            "prefetcht0 [{b} + ",
            $ahead,
            " + ",
            $place,
            " + 192]\n",
        )
    };
}

/// Computes 32 rows and 32 columns, all six partial products of a step after another.
///
/// # Safety
/// Tiles are set up; a strip and a panel of `steps` steps, from 1, are readable; 32 rows of 32 numbers at a distance of
/// `stride` at `c` are readable, writable and used by no one else.
pub(super) unsafe fn four(
    a: *const u32,
    b: *const u32,
    steps: usize,
    c: *mut f32,
    stride: usize,
    accumulate: bool,
) {
    // SAFETY: the caller's promise; the block names all registers that it changes.
    unsafe {
        asm!(
            "test {start:e}, {start:e}",
            "jnz 2f",
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            "jmp 3f",
            "2:",
            "tileloadd tmm0, [{c} + {stride}*1]",
            "tileloadd tmm1, [{c} + {stride}*1 + 64]",
            "tileloadd tmm2, [{lower} + {stride}*1]",
            "tileloadd tmm3, [{lower} + {stride}*1 + 64]",
            "3:",
            // low * high
            "tileloadd tmm4, [{a} + {line}*1 + 4096]",
            "tileloadd tmm5, [{a} + {line}*1 + 5120]",
            "tileloadd tmm6, [{b} + {line}*1]",
            "tileloadd tmm7, [{b} + {line}*1 + 1024]",
            meet!("6144"),
            // middle * high
            "tileloadd tmm4, [{a} + {line}*1 + 2048]",
            "tileloadd tmm5, [{a} + {line}*1 + 3072]",
            meet!("7168"),
            // middle * middle
            "tileloadd tmm6, [{b} + {line}*1 + 2048]",
            "tileloadd tmm7, [{b} + {line}*1 + 3072]",
            meet!("8192"),
            // high * middle
            "tileloadd tmm4, [{a} + {line}*1]",
            "tileloadd tmm5, [{a} + {line}*1 + 1024]",
            meet!("9216"),
            // high * low
            "tileloadd tmm6, [{b} + {line}*1 + 4096]",
            "tileloadd tmm7, [{b} + {line}*1 + 5120]",
            meet!("10240"),
            // high * high
            "tileloadd tmm6, [{b} + {line}*1]",
            "tileloadd tmm7, [{b} + {line}*1 + 1024]",
            meet!("11264"),
            "add {a}, 6144",
            "add {b}, 6144",
            "dec {steps}",
            "jnz 3b",
            "tilestored [{c} + {stride}*1], tmm0",
            "tilestored [{c} + {stride}*1 + 64], tmm1",
            "tilestored [{lower} + {stride}*1], tmm2",
            "tilestored [{lower} + {stride}*1 + 64], tmm3",
            a = inout(reg) a => _,
            b = inout(reg) b => _,
            steps = inout(reg) steps => _,
            c = in(reg) c,
            lower = in(reg) c.add(SIDE * stride),
            stride = in(reg) stride * size_of::<f32>(),
            line = in(reg) 64usize,
            start = in(reg) u32::from(accumulate),
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        );
    }
}

/// Computes the first 16 rows of a strip and 32 columns.
///
/// # Safety
/// As [`four`], with 16 rows of the result.
pub(super) unsafe fn two(
    a: *const u32,
    b: *const u32,
    steps: usize,
    c: *mut f32,
    stride: usize,
    accumulate: bool,
) {
    // SAFETY: the caller's promise; the block names all registers that it changes.
    unsafe {
        asm!(
            "test {start:e}, {start:e}",
            "jnz 2f",
            "tilezero tmm0",
            "tilezero tmm1",
            "jmp 3f",
            "2:",
            "tileloadd tmm0, [{c} + {stride}*1]",
            "tileloadd tmm1, [{c} + {stride}*1 + 64]",
            "3:",
            "tileloadd tmm2, [{a} + {line}*1]",
            "tileloadd tmm3, [{a} + {line}*1 + 2048]",
            "tileloadd tmm4, [{a} + {line}*1 + 4096]",
            "tileloadd tmm6, [{b} + {line}*1]",
            "tileloadd tmm7, [{b} + {line}*1 + 1024]",
            // low * high, middle * high
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tdpbf16ps tmm0, tmm3, tmm6",
            "tdpbf16ps tmm1, tmm3, tmm7",
            // middle * middle, high * middle
            "tileloadd tmm4, [{b} + {line}*1 + 2048]",
            "tileloadd tmm5, [{b} + {line}*1 + 3072]",
            "tdpbf16ps tmm0, tmm3, tmm4",
            "tdpbf16ps tmm1, tmm3, tmm5",
            "tdpbf16ps tmm0, tmm2, tmm4",
            "tdpbf16ps tmm1, tmm2, tmm5",
            // high * low
            "tileloadd tmm4, [{b} + {line}*1 + 4096]",
            "tileloadd tmm5, [{b} + {line}*1 + 5120]",
            "tdpbf16ps tmm0, tmm2, tmm4",
            "tdpbf16ps tmm1, tmm2, tmm5",
            // high * high
            "tdpbf16ps tmm0, tmm2, tmm6",
            "tdpbf16ps tmm1, tmm2, tmm7",
            "add {a}, 6144",
            "add {b}, 6144",
            "dec {steps}",
            "jnz 3b",
            "tilestored [{c} + {stride}*1], tmm0",
            "tilestored [{c} + {stride}*1 + 64], tmm1",
            a = inout(reg) a => _,
            b = inout(reg) b => _,
            steps = inout(reg) steps => _,
            c = in(reg) c,
            stride = in(reg) stride * size_of::<f32>(),
            line = in(reg) 64usize,
            start = in(reg) u32::from(accumulate),
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        );
    }
}
