//! A frozen matrix `(out, in)` as it lies in its file: read where it is, never changed, cheap to clone.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use half::{bf16, f16};

use crate::cpu::Cpu;

mod format;
mod stored;

pub use format::{BLOCK, Format};
pub(crate) use format::{Storage, Work, decode};
pub(crate) use stored::Stored;

/// Bytes that outlive whoever mapped or read them.
pub type SharedBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// Says why bytes cannot serve as a weight.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum WeightError {
    /// A dimension is 0 or the size overflows.
    #[error(
        "a weight of {rows} x {cols} {format} has no size: give dimensions from 1 on that fit in memory"
    )]
    Size {
        /// Output dimension.
        rows: usize,
        /// Input dimension.
        cols: usize,
        /// Storage format.
        format: Format,
    },
    /// The input dimension is not whole blocks.
    #[error(
        "{format} stores blocks of {BLOCK} inputs, but {cols} inputs are not whole blocks: use an unblocked format"
    )]
    Blocks {
        /// Input dimension.
        cols: usize,
        /// Storage format.
        format: Format,
    },
    /// The byte range has another length than the matrix.
    #[error(
        "a weight of {rows} x {cols} {format} takes {wanted} bytes, but its range has {found}: check the shape or the file"
    )]
    Length {
        /// Output dimension.
        rows: usize,
        /// Input dimension.
        cols: usize,
        /// Storage format.
        format: Format,
        /// Bytes that the shape takes.
        wanted: usize,
        /// Bytes given.
        found: usize,
    },
    /// The range leaves the bytes.
    #[error(
        "bytes {start}..{end} lie outside of {available} bytes: the file is cut short or its header lies"
    )]
    Range {
        /// First byte.
        start: usize,
        /// End of the range.
        end: usize,
        /// Bytes there are.
        available: usize,
    },
    /// 32-bit numbers do not start on a multiple of 4.
    #[error(
        "32-bit weights at byte {start} are not aligned to 4 bytes: copy them into a Vec<f32> first"
    )]
    Misaligned {
        /// First byte.
        start: usize,
    },
    /// No conversion to that format is offered.
    #[error("a weight cannot be converted to {format}: only F32 and BF16 can be made")]
    Conversion {
        /// Format asked for.
        format: Format,
    },
}

/// Holds a matrix `(out, in)`, row-major, in any [`Format`]; clones share the bytes.
#[derive(Clone)]
pub struct Weight {
    rows: usize,
    cols: usize,
    format: Format,
    bytes: SharedBytes,
    range: Range<usize>,
}

/// Numbers and half numbers seen as bytes.
struct Owned<T>(Vec<T>);

impl<T: bytemuck::NoUninit> AsRef<[u8]> for Owned<T> {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

impl Weight {
    /// Makes a weight `(rows, cols)` of a range of shared bytes.
    ///
    /// # Errors
    /// [`WeightError`] when the shape and the range do not fit, blocks would be cut, or 32-bit numbers are not aligned.
    pub fn new(
        format: Format,
        rows: usize,
        cols: usize,
        bytes: SharedBytes,
        range: Range<usize>,
    ) -> Result<Self, WeightError> {
        if !cols.is_multiple_of(format.block_values()) {
            return Err(WeightError::Blocks { cols, format });
        }
        let wanted = rows
            .checked_mul(cols)
            .filter(|&values| values > 0)
            .and_then(|values| format.bytes_of(values))
            .ok_or(WeightError::Size { rows, cols, format })?;
        let available = (*bytes).as_ref().len();
        let (start, end) = (range.start, range.end);
        let Some(slice) = (*bytes).as_ref().get(range.clone()) else {
            return Err(WeightError::Range {
                start,
                end,
                available,
            });
        };
        if slice.len() != wanted {
            let found = slice.len();
            return Err(WeightError::Length {
                rows,
                cols,
                format,
                wanted,
                found,
            });
        }
        if format == Format::F32 && bytemuck::try_cast_slice::<u8, f32>(slice).is_err() {
            return Err(WeightError::Misaligned { start });
        }
        Ok(Self {
            rows,
            cols,
            format,
            bytes,
            range,
        })
    }

    /// Makes a weight `(rows, cols)` of numbers in memory.
    ///
    /// # Panics
    /// When there are not `rows * cols` numbers, or none.
    pub fn from_f32(rows: usize, cols: usize, values: Vec<f32>) -> Self {
        Self::owned(Format::F32, rows, cols, values)
    }

    fn owned<T>(format: Format, rows: usize, cols: usize, values: Vec<T>) -> Self
    where
        T: bytemuck::NoUninit + Send + Sync,
    {
        assert!(
            !values.is_empty() && values.len() == rows * cols,
            "{} values do not make a weight of {rows} x {cols}",
            values.len()
        );
        let range = 0..values.len() * size_of::<T>();
        Self {
            rows,
            cols,
            format,
            bytes: Arc::new(Owned(values)),
            range,
        }
    }

    /// Returns the output dimension.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the input dimension.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Returns the storage format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Returns the stored bytes.
    pub fn bytes(&self) -> &[u8] {
        &(*self.bytes).as_ref()[self.range.clone()]
    }

    /// Returns the number of stored bytes.
    pub fn byte_len(&self) -> usize {
        self.range.len()
    }

    /// Returns the stored bytes of row `row`.
    fn row_bytes(&self, row: usize) -> &[u8] {
        let bytes = self.byte_len() / self.rows;
        &self.bytes()[row * bytes..(row + 1) * bytes]
    }

    /// Writes row `row` as numbers to `out` (in).
    ///
    /// # Panics
    /// When there is no such row or `out` has another length than a row.
    pub fn row(&self, row: usize, out: &mut [f32]) {
        assert!(row < self.rows, "row {row} of a weight of {}", self.rows);
        self.format.decode(self.row_bytes(row), out);
    }

    /// Returns all numbers `(out, in)`.
    pub fn to_f32(&self) -> Vec<f32> {
        let mut values = vec![0.0; self.rows * self.cols];
        self.format.decode(self.bytes(), &mut values);
        values
    }

    /// Returns the numbers in place when they are stored as 32-bit numbers.
    pub(crate) fn as_f32(&self) -> Option<&[f32]> {
        (self.format == Format::F32).then(|| bytemuck::cast_slice(self.bytes()))
    }

    /// Returns the bytes and their distances.
    pub(crate) fn stored(&self) -> Stored<'_> {
        Stored {
            format: self.format,
            bytes: self.bytes(),
            row: self.byte_len() / self.rows,
        }
    }

    /// Returns the weight in another format, sharing the bytes when it is that already.
    ///
    /// # Errors
    /// [`WeightError::Conversion`] when the format is neither F32 nor BF16.
    pub fn convert(&self, format: Format) -> Result<Self, WeightError> {
        if format == self.format {
            return Ok(self.clone());
        }
        match format {
            Format::F32 => Ok(Self::from_f32(self.rows, self.cols, self.to_f32())),
            Format::Bf16 => {
                let values = self.to_f32();
                let narrow: Vec<bf16> = values.iter().map(|&x| bf16::from_f32(x)).collect();
                Ok(Self::owned(format, self.rows, self.cols, narrow))
            }
            Format::F16 | Format::Q4_0 | Format::Q4_1 | Format::Q8_0 => {
                Err(WeightError::Conversion { format })
            }
        }
    }

    /// Says whether no number is infinite or not a number.
    pub fn all_finite(&self, cpu: &Cpu) -> bool {
        use std::sync::atomic::{AtomicBool, Ordering};
        let finite = AtomicBool::new(true);
        cpu.for_each(self.rows, |row| {
            if finite.load(Ordering::Relaxed) && !row_is_finite(self.format, self.row_bytes(row)) {
                finite.store(false, Ordering::Relaxed);
            }
        });
        finite.into_inner()
    }
}

/// Looks only at what can be non-finite: the numbers themselves or the scales of blocks.
fn row_is_finite(format: Format, bytes: &[u8]) -> bool {
    let half = |bytes: &[u8], at: usize| f16::from_le_bytes([bytes[at], bytes[at + 1]]).is_finite();
    let mut blocks = bytes.chunks_exact(format.block_bytes());
    match format {
        Format::F32 => blocks.all(|x| f32::from_le_bytes([x[0], x[1], x[2], x[3]]).is_finite()),
        Format::Bf16 => blocks.all(|x| bf16::from_le_bytes([x[0], x[1]]).is_finite()),
        Format::F16 | Format::Q4_0 | Format::Q8_0 => blocks.all(|x| half(x, 0)),
        Format::Q4_1 => blocks.all(|x| half(x, 0) && half(x, 2)),
    }
}

impl fmt::Debug for Weight {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Weight")
            .field("rows", &self.rows)
            .field("cols", &self.cols)
            .field("format", &self.format)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
