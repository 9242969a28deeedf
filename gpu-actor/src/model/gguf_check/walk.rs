//! A walk over the header of a GGUF file in which no length is believed.

use std::collections::BTreeSet;

use kernels::weight::Format;

use super::{GgufCheckError, tensor};

/// Limits, each far above any model.
const TENSORS: u64 = 1 << 17;
const KEYS: u64 = 1 << 16;
const NAME_BYTES: u64 = 1 << 16;
const STRING_BYTES: u64 = 1 << 26;
/// Elements of all arrays together: the library makes 32 bytes of each.
const ELEMENTS: u64 = 1 << 23;
const ALIGNMENT: u64 = 1 << 16;
const DEFAULT_ALIGNMENT: u64 = 32;

/// What the header says of a tensor, before its place is checked.
pub(super) struct Head {
    pub(super) name: String,
    pub(super) format: Format,
    pub(super) shape: Vec<usize>,
    pub(super) bytes: u64,
    pub(super) offset: u64,
}

/// A position in the file; every step is checked against its end.
pub(super) struct Walk<'a> {
    file: &'a [u8],
    at: usize,
    elements: u64,
}

impl<'a> Walk<'a> {
    pub(super) fn new(file: &'a [u8]) -> Self {
        Self {
            file,
            at: 0,
            elements: 0,
        }
    }

    /// Bytes walked.
    pub(super) fn at(&self) -> u64 {
        self.at as u64
    }

    /// Walks the first fields; gives the numbers of tensors and of metadata keys.
    pub(super) fn counts(&mut self) -> Result<(u64, u64), GgufCheckError> {
        self.magic()?;
        let tensors = self.count("the number of tensors", TENSORS)?;
        let keys = self.count("the number of metadata keys", KEYS)?;
        Ok((tensors, keys))
    }

    fn take(&mut self, length: u64, what: &str) -> Result<&'a [u8], GgufCheckError> {
        let rest = &self.file[self.at..];
        let taken = usize::try_from(length)
            .ok()
            .and_then(|length| rest.get(..length))
            .ok_or_else(|| GgufCheckError::Truncated {
                what: what.to_owned(),
                expected: (self.at as u64).saturating_add(length),
                actual: self.file.len() as u64,
            })?;
        self.at += taken.len();
        Ok(taken)
    }

    fn u32(&mut self, what: &str) -> Result<u32, GgufCheckError> {
        let bytes = self.take(4, what)?;
        Ok(u32::from_le_bytes(bytes.try_into().expect("four bytes")))
    }

    fn u64(&mut self, what: &str) -> Result<u64, GgufCheckError> {
        let bytes = self.take(8, what)?;
        Ok(u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
    }

    fn count(&mut self, what: &str, limit: u64) -> Result<u64, GgufCheckError> {
        let found = self.u64(what)?;
        if found > limit {
            return Err(GgufCheckError::TooLarge {
                what: what.to_owned(),
                found,
                limit,
            });
        }
        Ok(found)
    }

    fn text(&mut self, what: &str, limit: u64) -> Result<&'a str, GgufCheckError> {
        let length = self.count(what, limit)?;
        let offset = self.at as u64;
        let bytes = self.take(length, what)?;
        std::str::from_utf8(bytes).map_err(|_| GgufCheckError::NotUtf8 {
            what: what.to_owned(),
            offset,
        })
    }

    fn magic(&mut self) -> Result<(), GgufCheckError> {
        let magic = self.take(4, "the magic number")?;
        let kind = |found: String| Err(GgufCheckError::Kind { found });
        if magic != b"GGUF" {
            return kind(format!("it starts with {}", magic.escape_ascii()));
        }
        match self.u32("the version")? {
            2 | 3 => Ok(()),
            version if matches!(version.swap_bytes(), 1..=3) => {
                kind("it is big-endian, convert it to little-endian".into())
            }
            version => kind(format!("its version is {version}")),
        }
    }

    /// Walks the metadata; gives the alignment of tensor data.
    pub(super) fn metadata(&mut self, keys: u64) -> Result<u64, GgufCheckError> {
        let mut seen = BTreeSet::new();
        let mut alignment = DEFAULT_ALIGNMENT;
        for _ in 0..keys {
            let key = self.text("a metadata key", NAME_BYTES)?;
            if !seen.insert(key) {
                return Err(GgufCheckError::Duplicate {
                    what: "metadata key",
                    name: key.to_owned(),
                });
            }
            let kind = self.u32(key)?;
            if key == "general.alignment" {
                alignment = self.alignment(kind)?;
            } else {
                self.value(key, kind)?;
            }
        }
        Ok(alignment)
    }

    fn alignment(&mut self, kind: u32) -> Result<u64, GgufCheckError> {
        let key = "general.alignment";
        let wrong = |reason: String| GgufCheckError::Value {
            key: key.into(),
            reason,
        };
        if kind != 4 {
            return Err(wrong(format!("is of type {kind}, expected 4 (u32)")));
        }
        let found = u64::from(self.u32(key)?);
        if !found.is_power_of_two() || !(8..=ALIGNMENT).contains(&found) {
            return Err(wrong(format!(
                "is {found}, expected a power of two from 8 to {ALIGNMENT}"
            )));
        }
        Ok(found)
    }

    fn value(&mut self, key: &str, kind: u32) -> Result<(), GgufCheckError> {
        const BOOL: u32 = 7;
        const STRING: u32 = 8;
        const ARRAY: u32 = 9;
        match kind {
            BOOL => self.flags(key, 1),
            STRING => self.text(key, STRING_BYTES).map(|_| ()),
            ARRAY => {
                let kind = self.u32(key)?;
                let length = self.u64(key)?;
                self.elements = self.elements.saturating_add(length);
                if self.elements > ELEMENTS {
                    return Err(GgufCheckError::TooLarge {
                        what: format!("the number of array elements up to {key:?}"),
                        found: self.elements,
                        limit: ELEMENTS,
                    });
                }
                match kind {
                    BOOL => self.flags(key, length),
                    STRING => {
                        (0..length).try_for_each(|_| self.text(key, STRING_BYTES).map(|_| ()))
                    }
                    ARRAY => Err(value(key, "is an array of arrays, which no model uses")),
                    _ => self.take(width(key, kind)? * length, key).map(|_| ()),
                }
            }
            _ => self.take(width(key, kind)?, key).map(|_| ()),
        }
    }

    fn flags(&mut self, key: &str, count: u64) -> Result<(), GgufCheckError> {
        if self.take(count, key)?.iter().any(|&flag| flag > 1) {
            return Err(value(key, "has a flag that is neither 0 nor 1"));
        }
        Ok(())
    }

    /// Walks the tensor headers.
    pub(super) fn tensors(&mut self, count: u64) -> Result<Vec<Head>, GgufCheckError> {
        let mut heads = Vec::new();
        let mut seen = BTreeSet::new();
        for _ in 0..count {
            let name = self.text("a tensor name", NAME_BYTES)?;
            if !seen.insert(name) {
                return Err(GgufCheckError::Duplicate {
                    what: "tensor",
                    name: name.to_owned(),
                });
            }
            heads.push(self.head(name)?);
        }
        Ok(heads)
    }

    fn head(&mut self, name: &str) -> Result<Head, GgufCheckError> {
        let wrong = |reason: String| tensor(name, reason);
        let rank = self.u32(name)?;
        if !(1..=4).contains(&rank) {
            return Err(wrong(format!("has {rank} dimensions, expected 1 to 4")));
        }
        let mut shape = Vec::new();
        let mut values = 1u64;
        for _ in 0..rank {
            let dim = self.u64(name)?;
            values = values
                .checked_mul(dim)
                .filter(|&values| values > 0 && values < 1 << 48)
                .ok_or_else(|| wrong(format!("has a dimension of {dim}: no such size fits")))?;
            shape.push(dim as usize);
        }
        let kind = self.u32(name)?;
        let offset = self.u64(name)?;
        let (format, block, block_bytes) = storage(kind).map_err(&wrong)?;
        if !shape[0].is_multiple_of(block) {
            return Err(wrong(format!(
                "has rows of {} values, not a multiple of the block of {block}",
                shape[0]
            )));
        }
        shape.reverse();
        Ok(Head {
            name: name.to_owned(),
            format,
            shape,
            bytes: values / block as u64 * block_bytes,
            offset,
        })
    }
}

/// Format, values a block and bytes a block of a tensor type.
fn storage(kind: u32) -> Result<(Format, usize, u64), String> {
    match kind {
        0 => Ok((Format::F32, 1, 4)),
        1 => Ok((Format::F16, 1, 2)),
        2 => Ok((Format::Q4_0, 32, 18)),
        3 => Ok((Format::Q4_1, 32, 20)),
        8 => Ok((Format::Q8_0, 32, 34)),
        30 => Ok((Format::Bf16, 1, 2)),
        _ => {
            let name = match kind {
                6 => "Q5_0",
                7 => "Q5_1",
                10 => "Q2_K",
                11 => "Q3_K",
                12 => "Q4_K",
                13 => "Q5_K",
                14 => "Q6_K",
                _ => "unknown",
            };
            Err(format!(
                "is of type {kind} ({name}), supported are F32, F16, BF16, Q4_0, Q4_1 and Q8_0"
            ))
        }
    }
}

/// Bytes of a value that has a fixed size.
fn width(key: &str, kind: u32) -> Result<u64, GgufCheckError> {
    match kind {
        0 | 1 => Ok(1),
        2 | 3 => Ok(2),
        4..=6 => Ok(4),
        10..=12 => Ok(8),
        _ => Err(value(key, &format!("is of unknown type {kind}"))),
    }
}

fn value(key: &str, reason: &str) -> GgufCheckError {
    GgufCheckError::Value {
        key: key.to_owned(),
        reason: reason.to_owned(),
    }
}
