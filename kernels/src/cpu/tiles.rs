//! AMX: the eight tile registers of some processors, and the products of split numbers in them.
//!
//! Two strips of 16 rows meet two of 16 columns in four tiles of sums; the other four hold pieces of left and right. Tiles
//! are set up where a product starts and released where it ends, in one function that calls nothing else: between
//! products a thread has no tile state for the system to save.
#![allow(
    unsafe_code,
    reason = "AMX has instructions only; lengths are checked before"
)]

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use std::arch::asm;

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod kernel;

use super::disjoint::Tile;
use super::pieces::{HEADER, PANEL, SIDE, STEP, STRIP};
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use kernel::{four, two};

/// Proves that this processor has tiles of bf16, and that the system lets this process use them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tiles(());

/// What `ldtilecfg` reads: palette 1, eight tiles of 16 rows of 64 bytes.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[repr(C, align(64))]
struct Shape {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    bytes: [u16; 16],
    rows: [u8; 16],
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
static SHAPE: Shape = Shape {
    palette: 1,
    start_row: 0,
    reserved: [0; 14],
    bytes: [64, 64, 64, 64, 64, 64, 64, 64, 0, 0, 0, 0, 0, 0, 0, 0],
    rows: [16, 16, 16, 16, 16, 16, 16, 16, 0, 0, 0, 0, 0, 0, 0, 0],
};

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
impl Tiles {
    /// Looks for tiles, and asks the system for them, once a process.
    pub(crate) fn detect() -> Option<Self> {
        use std::sync::OnceLock;
        static FOUND: OnceLock<bool> = OnceLock::new();
        FOUND
            .get_or_init(|| has_tiles() && permitted())
            .then_some(Self(()))
    }

    /// Computes `c (m, n) (+)= a b` of packed strips and panels, `steps` steps each.
    ///
    /// # Panics
    /// When a slice is too short for its shape.
    pub(crate) fn product(
        self,
        a: &[u32],
        b: &[u32],
        steps: usize,
        c: &mut Tile<'_, f32>,
        accumulate: bool,
    ) {
        let (m, n) = (c.rows(), c.columns());
        let (of_strip, of_panel) = (HEADER + steps * STEP, steps * STEP);
        assert!(
            steps > 0
                && a.len() >= m.div_ceil(STRIP) * of_strip
                && b.len() >= n.div_ceil(PANEL) * of_panel,
            "{} and {} words are not {m} rows and {n} columns of {steps} steps",
            a.len(),
            b.len()
        );
        if m == 0 || n == 0 {
            return;
        }
        let mut edge = Edge([0.0; STRIP * PANEL]);
        let _set_up = SetUp::new(self);
        // The side with less stays in the second-level cache while the other passes by.
        let (strips, panels) = (m.div_ceil(STRIP), n.div_ceil(PANEL));
        for place in 0..strips * panels {
            let (strip, panel) = match strips < panels {
                true => (place % strips, place / strips),
                false => (place / panels, place % panels),
            };
            let (first, column) = (strip * STRIP, panel * PANEL);
            let (rows, columns) = (STRIP.min(m - first), PANEL.min(n - column));
            let whole = rows == STRIP && columns == PANEL;
            if !whole && accumulate {
                for (i, to) in edge.0.chunks_exact_mut(PANEL).take(rows).enumerate() {
                    to[..columns].copy_from_slice(&c.row(first + i)[column..][..columns]);
                }
            }
            let a = a[strip * of_strip + HEADER..].as_ptr();
            let b = b[panel * of_panel..].as_ptr();
            // SAFETY: the check above covers the steps of this strip and this panel; the rows and columns lie in the
            // tile of the result, which is exclusive, or in `edge`, which has whole rows; tiles are set up.
            unsafe {
                let (to, stride) = match whole {
                    true => (c.pointer().add(first * c.stride() + column), c.stride()),
                    false => (edge.0.as_mut_ptr(), PANEL),
                };
                if rows > SIDE {
                    four(a, b, steps, to, stride, accumulate);
                } else {
                    two(a, b, steps, to, stride, accumulate);
                }
            }
            if !whole {
                for (i, from) in edge.0.chunks_exact(PANEL).take(rows).enumerate() {
                    c.row(first + i)[column..][..columns].copy_from_slice(&from[..columns]);
                }
            }
        }
    }

    /// Runs the instruction once: `c (16, 16) += a (16, 32) b (32, 16)`.
    #[cfg(test)]
    pub(crate) fn once(self, a: &[u32; 256], b: &[u32; 256], c: &mut [f32; 256]) {
        let _set_up = SetUp::new(self);
        // SAFETY: each array is a tile; tiles are set up.
        unsafe {
            asm!(
                "tileloadd tmm0, [{c} + {line}*1]",
                "tileloadd tmm4, [{a} + {line}*1]",
                "tileloadd tmm6, [{b} + {line}*1]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tilestored [{c} + {line}*1], tmm0",
                a = in(reg) a.as_ptr(),
                b = in(reg) b.as_ptr(),
                c = in(reg) c.as_mut_ptr(),
                line = in(reg) 64usize,
                out("tmm0") _, out("tmm4") _, out("tmm6") _,
                options(nostack, preserves_flags),
            );
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
impl Tiles {
    /// There are none here.
    pub(crate) fn detect() -> Option<Self> {
        None
    }

    /// Is never called: there is no proof.
    pub(crate) fn product(self, _: &[u32], _: &[u32], _: usize, _: &mut Tile<'_, f32>, _: bool) {
        unreachable!("tiles that were not detected: {self:?}")
    }
}

/// Sums at the edge of a result, in whole tiles.
#[repr(align(64))]
struct Edge([f32; STRIP * PANEL]);

/// Says whether processor and system know tiles of bf16: the bits that Intel's manual lists for detection.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn has_tiles() -> bool {
    use std::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};
    const XSAVE_IN_USE: u32 = 1 << 27;
    const BF16: u32 = 1 << 22;
    const TILE: u32 = 1 << 24;
    const TILE_STATE: u64 = 0b11 << 17;
    let leaves = __cpuid(0).eax;
    if leaves < 0x1d || __cpuid(1).ecx & XSAVE_IN_USE == 0 {
        return false;
    }
    if __cpuid_count(7, 0).edx & (BF16 | TILE) != BF16 | TILE {
        return false;
    }
    // SAFETY: the system uses XSAVE, so the register can be read.
    let state = unsafe { _xgetbv(0) };
    // Palette 1: 64 bytes a row, at least 8 tiles of at least 16 rows.
    let palette = __cpuid_count(0x1d, 1);
    state & TILE_STATE == TILE_STATE
        && palette.ebx & 0xffff == 64
        && palette.ebx >> 16 >= 8
        && palette.ecx & 0xffff >= 16
}

/// Asks Linux for the state of tile registers: without it their first use ends the process.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn permitted() -> bool {
    const ARCH_PRCTL: i64 = 158;
    const REQUEST_PERMISSION: i64 = 0x1023;
    const TILE_DATA: i64 = 18;
    let mut result = ARCH_PRCTL;
    // SAFETY: the call takes two numbers, and touches no memory of this process. It clobbers two registers.
    unsafe {
        asm!(
            "syscall",
            inout("rax") result,
            in("rdi") REQUEST_PERMISSION,
            in("rsi") TILE_DATA,
            out("rcx") _,
            out("r11") _,
            options(nostack),
        );
    }
    result == 0
}

/// Tiles are set up while this lives.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
struct SetUp;

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
impl SetUp {
    fn new(_proof: Tiles) -> Self {
        // SAFETY: the proof: the processor has the instruction, and the shape is one that its palette allows.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) &raw const SHAPE, options(nostack, preserves_flags, readonly));
        }
        Self
    }
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
impl Drop for SetUp {
    fn drop(&mut self) {
        // SAFETY: tiles were set up on this thread.
        unsafe {
            asm!("tilerelease", options(nostack, preserves_flags, nomem));
        }
    }
}
