//! Storage formats of a weight, and how one block of each becomes numbers.
//!
//! Block formats are GGUF's. A block holds 32 neighbours along the input dimension:
//! - `Q4_0`: `d` (f16), 16 bytes; element `i` is the low nibble of byte `i`, element `i + 16` its high nibble;
//!   value `d * (q - 8)`
//! - `Q4_1`: `d`, `m` (f16), 16 bytes as above; value `d * q + m`
//! - `Q8_0`: `d` (f16), 32 signed bytes; value `d * q`
//!
//! `d * q` is exact in `f32` (11 bits times at most 8), so every way to compute these gives the same bits.

use std::fmt;

/// Values in a block of a block format.
pub const BLOCK: usize = 32;

/// Says how the numbers of a weight are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// 32-bit floating point.
    F32,
    /// The upper half of a 32-bit floating point number.
    Bf16,
    /// IEEE half precision.
    F16,
    /// 4 bits and a scale for each 32 values.
    Q4_0,
    /// 4 bits, a scale and a minimum for each 32 values.
    Q4_1,
    /// 8 bits and a scale for each 32 values.
    Q8_0,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 6] = [
        Self::F32,
        Self::Bf16,
        Self::F16,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q8_0,
    ];

    /// Returns how many values share a block: 1 or [`BLOCK`].
    pub fn block_values(self) -> usize {
        match self {
            Self::F32 | Self::Bf16 | Self::F16 => 1,
            Self::Q4_0 | Self::Q4_1 | Self::Q8_0 => BLOCK,
        }
    }

    /// Returns the bytes of one block.
    pub fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 | Self::F16 => 2,
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q8_0 => 34,
        }
    }

    /// Returns the bytes of `values` neighbouring values, `None` when they are not whole blocks or too many to count.
    pub fn bytes_of(self, values: usize) -> Option<usize> {
        if !values.is_multiple_of(self.block_values()) {
            return None;
        }
        (values / self.block_values()).checked_mul(self.block_bytes())
    }

    /// Turns the bytes of whole blocks into numbers.
    ///
    /// # Panics
    /// When `bytes` is not the storage of exactly `out.len()` values.
    pub fn decode(self, bytes: &[u8], out: &mut [f32]) {
        assert_eq!(
            Some(bytes.len()),
            self.bytes_of(out.len()),
            "{} bytes are not the storage of {} values in {self}",
            bytes.len(),
            out.len()
        );
        self.with(Decode { bytes, out });
    }

    /// Runs work that is compiled for each storage by itself.
    #[inline(always)]
    pub(crate) fn with(self, work: impl Work) {
        match self {
            Self::F32 => work.run::<F32>(),
            Self::Bf16 => work.run::<Bf16>(),
            Self::F16 => work.run::<F16>(),
            Self::Q4_0 => work.run::<Q4_0>(),
            Self::Q4_1 => work.run::<Q4_1>(),
            Self::Q8_0 => work.run::<Q8_0>(),
        }
    }
}

/// Work that is the same for each storage.
pub(crate) trait Work {
    /// Does it for one storage.
    fn run<S: Storage>(self);
}

struct Decode<'a> {
    bytes: &'a [u8],
    out: &'a mut [f32],
}

impl Work for Decode<'_> {
    #[inline(always)]
    fn run<S: Storage>(self) {
        decode::<S>(self.bytes, self.out);
    }
}

/// Turns the bytes of whole blocks of one storage into numbers.
#[inline(always)]
pub(crate) fn decode<S: Storage>(bytes: &[u8], out: &mut [f32]) {
    let (runs, rest) = out.as_chunks_mut::<BLOCK>();
    let mut bytes = bytes;
    for run in runs {
        // This split may panic, which keeps the compiler from making vectors across runs (by slow gathers) instead of
        // inside a run.
        let (stored, after) = bytes.split_at(S::BYTES);
        S::run(stored, run);
        bytes = after;
    }
    if !rest.is_empty() {
        let (mut padded, mut run) = ([0; BLOCK * 4], [0.0; BLOCK]);
        padded[..bytes.len()].copy_from_slice(bytes);
        S::run(&padded[..S::BYTES], &mut run);
        rest.copy_from_slice(&run[..rest.len()]);
    }
}

/// How one format stores a run of [`BLOCK`] values.
pub(crate) trait Storage {
    /// Bytes of a run.
    const BYTES: usize;

    /// Turns a run into numbers; `bytes` has [`Storage::BYTES`].
    fn run(bytes: &[u8], out: &mut [f32; BLOCK]);
}

pub(crate) struct F32;
pub(crate) struct Bf16;
pub(crate) struct F16;
pub(crate) struct Q4_0;
pub(crate) struct Q4_1;
pub(crate) struct Q8_0;

impl Storage for F32 {
    const BYTES: usize = 4 * BLOCK;

    #[inline(always)]
    fn run(bytes: &[u8], out: &mut [f32; BLOCK]) {
        let (values, _) = bytes.as_chunks::<4>();
        for i in 0..BLOCK {
            out[i] = f32::from_le_bytes(values[i]);
        }
    }
}

impl Storage for Bf16 {
    const BYTES: usize = 2 * BLOCK;

    #[inline(always)]
    fn run(bytes: &[u8], out: &mut [f32; BLOCK]) {
        let (values, _) = bytes.as_chunks::<2>();
        for i in 0..BLOCK {
            out[i] = f32::from_bits(u32::from(u16::from_le_bytes(values[i])) << 16);
        }
    }
}

impl Storage for F16 {
    const BYTES: usize = 2 * BLOCK;

    #[inline(always)]
    fn run(bytes: &[u8], out: &mut [f32; BLOCK]) {
        let (values, _) = bytes.as_chunks::<2>();
        for i in 0..BLOCK {
            out[i] = half(values[i]);
        }
    }
}

impl Storage for Q4_0 {
    const BYTES: usize = 18;

    #[inline(always)]
    fn run(bytes: &[u8], out: &mut [f32; BLOCK]) {
        let scale = half([bytes[0], bytes[1]]);
        let nibbles = &bytes[2..18];
        // One loop for each half: the compiler turns neighbours into vectors.
        let (low, high) = out.split_at_mut(16);
        for i in 0..16 {
            low[i] = scale * (f32::from(nibbles[i] & 15) - 8.0);
        }
        for i in 0..16 {
            high[i] = scale * (f32::from(nibbles[i] >> 4) - 8.0);
        }
    }
}

impl Storage for Q4_1 {
    const BYTES: usize = 20;

    #[inline(always)]
    fn run(bytes: &[u8], out: &mut [f32; BLOCK]) {
        let scale = half([bytes[0], bytes[1]]);
        let minimum = half([bytes[2], bytes[3]]);
        let nibbles = &bytes[4..20];
        let (low, high) = out.split_at_mut(16);
        for i in 0..16 {
            low[i] = scale.mul_add(f32::from(nibbles[i] & 15), minimum);
        }
        for i in 0..16 {
            high[i] = scale.mul_add(f32::from(nibbles[i] >> 4), minimum);
        }
    }
}

impl Storage for Q8_0 {
    const BYTES: usize = 34;

    #[inline(always)]
    fn run(bytes: &[u8], out: &mut [f32; BLOCK]) {
        let scale = half([bytes[0], bytes[1]]);
        let quants = &bytes[2..34];
        for i in 0..BLOCK {
            out[i] = scale * f32::from(quants[i].cast_signed());
        }
    }
}

/// Reads a half-precision number, in operations that vectorise.
#[inline(always)]
fn half(bytes: [u8; 2]) -> f32 {
    /// 2^112: the difference of the two exponent biases.
    const REBIAS: f32 = f32::from_bits(239 << 23);
    let half = u32::from(u16::from_le_bytes(bytes));
    let magnitude = (half & 0x7fff) << 13;
    let finite = (f32::from_bits(magnitude) * REBIAS).to_bits();
    let special = magnitude | 0x7f80_0000;
    let bits = if half & 0x7c00 == 0x7c00 {
        special
    } else {
        finite
    };
    f32::from_bits(bits | ((half & 0x8000) << 16))
}

impl fmt::Display for Format {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::F32 => "F32",
            Self::Bf16 => "BF16",
            Self::F16 => "F16",
            Self::Q4_0 => "Q4_0",
            Self::Q4_1 => "Q4_1",
            Self::Q8_0 => "Q8_0",
        })
    }
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;

    fn stored(x: f32) -> [u8; 2] {
        f16::from_f32(x).to_le_bytes()
    }

    /// Nibbles: element `i` is `i % 16`, element `i + 16` is `15 - i`.
    fn nibbles() -> Vec<u8> {
        (0..16u8).map(|i| i | ((15 - i) << 4)).collect()
    }

    #[test]
    fn q4_0_block_by_hand() {
        let block = [stored(0.5).to_vec(), nibbles()].concat();
        let mut out = [0.0; 32];
        Format::Q4_0.decode(&block, &mut out);
        for i in 0..16u8 {
            assert_eq!(out[usize::from(i)], 0.5 * (f32::from(i) - 8.0));
            assert_eq!(out[usize::from(i) + 16], 0.5 * (f32::from(15 - i) - 8.0));
        }
    }

    #[test]
    fn q4_1_block_by_hand() {
        let block = [stored(0.25).to_vec(), stored(-1.5).to_vec(), nibbles()].concat();
        let mut out = [0.0; 32];
        Format::Q4_1.decode(&block, &mut out);
        for i in 0..16u8 {
            assert_eq!(out[usize::from(i)], 0.25 * f32::from(i) - 1.5);
            assert_eq!(out[usize::from(i) + 16], 0.25 * f32::from(15 - i) - 1.5);
        }
    }

    #[test]
    fn q8_0_block_by_hand() {
        let quants: Vec<i8> = (-16..16).map(|i| i * 8).collect();
        let bytes: Vec<u8> = quants.iter().map(|q| q.cast_unsigned()).collect();
        let block = [stored(-2.0).to_vec(), bytes].concat();
        let mut out = [0.0; 32];
        Format::Q8_0.decode(&block, &mut out);
        for (out, q) in out.iter().zip(quants) {
            assert_eq!(*out, -2.0 * f32::from(q));
        }
    }

    #[test]
    fn half_formats_keep_their_numbers() {
        let mut out = [0.0; 2];
        let bytes = [stored(1.5), stored(-65504.0)].concat();
        Format::F16.decode(&bytes, &mut out);
        assert_eq!(out, [1.5, -65504.0]);
        let bytes = [0x80, 0x3f, 0x80, 0xff];
        Format::Bf16.decode(&bytes, &mut out);
        assert_eq!(out, [1.0, f32::NEG_INFINITY]);
    }

    #[test]
    fn every_half_number_is_read_right() {
        for bits in 0..=u16::MAX {
            let wanted = f16::from_bits(bits).to_f32();
            let found = half(bits.to_le_bytes());
            assert!(
                found.to_bits() == wanted.to_bits() || (found.is_nan() && wanted.is_nan()),
                "{bits:#x}"
            );
        }
    }

    #[test]
    fn sizes_are_those_of_the_file_format() {
        let sizes = Format::ALL.map(|format| format.bytes_of(64));
        assert_eq!(sizes, [256, 128, 128, 36, 40, 68].map(Some));
        assert_eq!(Format::Q4_0.bytes_of(33), None);
    }
}
