//! The header of a safetensors file, proven before anything trusts it.
//!
//! A file is: 8 bytes little-endian header length, the header as JSON (name -> dtype, shape, begin and end
//! offset), then the data. Checked here: the header is bounded and inside the file; every name is there once (a
//! JSON parser alone would keep the last); every dtype is one the engine holds; every shape fits its offsets
//! without overflow; the tensors cover the data without overlap and without gaps, and end where the file ends.

use std::fmt;
use std::ops::Range;

use kernels::weight::Format;
use safetensors::{Dtype, SafeTensors};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use shared::excerpt::excerpt;
use thiserror::Error;

/// Largest header read; a model of a hundred thousand tensors has about 10 MB.
pub(crate) const HEADER_LIMIT: u64 = 100_000_000;

/// Tells what is wrong with the header of a safetensors file.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum HeaderError {
    /// The file ends before its content does.
    #[error("truncated: {what} needs {expected} bytes, the file has {actual}")]
    Truncated {
        /// The part that does not fit.
        what: &'static str,
        /// Bytes that the file should have, at least.
        expected: u64,
        /// Bytes that it has.
        actual: u64,
    },
    /// A header length beyond the limit: no safetensors file, or a lying one.
    #[error("header length {found} is above the limit of {limit} bytes: not a safetensors file")]
    TooLong {
        /// The length found.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// The header is no JSON of the expected form.
    #[error("header is not valid: {reason}")]
    Syntax {
        /// The parser's reason.
        reason: String,
    },
    /// A name twice in one header.
    #[error("tensor \"{}\" appears twice", excerpt(.name))]
    Duplicate {
        /// The name.
        name: String,
    },
    /// A dtype the engine does not hold.
    #[error(
        "tensor \"{}\" has dtype {}, supported are F32, F16 and BF16",
        excerpt(.name),
        excerpt(.found)
    )]
    Dtype {
        /// The tensor.
        name: String,
        /// Its dtype.
        found: String,
    },
    /// Offsets that contradict the shape, or overlap, or leave a gap.
    #[error("tensor \"{}\" claims bytes {begin} to {end}: {reason}", excerpt(.name))]
    Offsets {
        /// The tensor.
        name: String,
        /// First byte claimed, from the start of the data.
        begin: u64,
        /// Byte after the last one claimed.
        end: u64,
        /// What they contradict.
        reason: String,
    },
    /// Data after the last tensor.
    #[error("{extra} bytes follow the last tensor")]
    Trailing {
        /// Number of bytes.
        extra: u64,
    },
}

/// A tensor as its header describes it, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeaderTensor {
    pub(crate) name: String,
    pub(crate) format: Format,
    pub(crate) shape: Vec<usize>,
    /// Bytes from the start of the file.
    pub(crate) range: Range<usize>,
}

/// Reads and proves the header of a whole file in memory (or mapped); tensors come in the order of their data.
///
/// # Errors
/// [`HeaderError`], with what was expected and what is there.
pub(crate) fn read(file: &[u8]) -> Result<Vec<HeaderTensor>, HeaderError> {
    let (start, _) = prove(file, file.len() as u64)?;
    // The library reads what is now known to be sound; its own checks are a second opinion.
    let syntax = |error: safetensors::SafeTensorError| HeaderError::Syntax {
        reason: error.to_string(),
    };
    let (_, metadata) = SafeTensors::read_metadata(file).map_err(syntax)?;
    let mut tensors = Vec::new();
    for name in metadata.offset_keys() {
        let Some(info) = metadata.info(&name) else {
            continue;
        };
        let format = format(info.dtype).ok_or_else(|| HeaderError::Dtype {
            name: name.clone(),
            found: format!("{:?}", info.dtype),
        })?;
        tensors.push(HeaderTensor {
            format,
            shape: info.shape.clone(),
            range: start + info.data_offsets.0..start + info.data_offsets.1,
            name,
        });
    }
    Ok(tensors)
}

/// Reads and proves the header of a file of which only its first bytes, header included, are at hand, and the length;
/// tensors come in the order of their data.
///
/// # Errors
/// As [`read`].
pub(crate) fn of_head(head: &[u8], length: u64) -> Result<Vec<HeaderTensor>, HeaderError> {
    let (start, entries) = prove(head, length)?;
    let tensor = |(name, entry): (String, Entry)| {
        let format = named(&entry.dtype).ok_or_else(|| entry.unknown_dtype(&name))?;
        let (begin, end) = entry.data_offsets;
        Ok(HeaderTensor {
            name,
            format,
            shape: entry.shape.iter().map(|&size| size as usize).collect(),
            range: start + begin as usize..start + end as usize,
        })
    };
    entries.into_iter().map(tensor).collect()
}

fn format(dtype: Dtype) -> Option<Format> {
    match dtype {
        Dtype::F32 => Some(Format::F32),
        Dtype::F16 => Some(Format::F16),
        Dtype::BF16 => Some(Format::Bf16),
        _ => None,
    }
}

/// The same by the name in a header.
fn named(dtype: &str) -> Option<Format> {
    match dtype {
        "F32" => Some(Format::F32),
        "F16" => Some(Format::F16),
        "BF16" => Some(Format::Bf16),
        _ => None,
    }
}

/// Bytes of one value of a dtype the engine holds.
fn width(dtype: &str) -> Option<u64> {
    match named(dtype)? {
        Format::F32 => Some(4),
        _ => Some(2),
    }
}

/// Proves a file of so many bytes by the first of them; gives the offset of its data, and its tensors in their order.
fn prove(file: &[u8], actual: u64) -> Result<(usize, Vec<(String, Entry)>), HeaderError> {
    let truncated = |what, expected| HeaderError::Truncated {
        what,
        expected,
        actual,
    };
    let Some((length, rest)) = file.split_first_chunk::<8>() else {
        return Err(truncated("the header length", 8));
    };
    let length = u64::from_le_bytes(*length);
    if length > HEADER_LIMIT {
        return Err(HeaderError::TooLong {
            found: length,
            limit: HEADER_LIMIT,
        });
    }
    let Some(header) = rest.get(..length as usize) else {
        return Err(truncated("the header", 8 + length));
    };
    let mut entries = parse(header)?;
    entries.sort_by_key(|(_, entry)| entry.data_offsets);
    let mut next = 0;
    for (name, entry) in &entries {
        prove_entry(name, entry, next)?;
        next = entry.data_offsets.1;
    }
    let start = 8 + length;
    let expected = start.saturating_add(next);
    if expected > actual {
        return Err(truncated("the data", expected));
    }
    if expected < actual {
        return Err(HeaderError::Trailing {
            extra: actual - expected,
        });
    }
    Ok((start as usize, entries))
}

fn prove_entry(name: &str, entry: &Entry, next: u64) -> Result<(), HeaderError> {
    let (begin, end) = entry.data_offsets;
    let wrong = |reason: String| HeaderError::Offsets {
        name: name.to_owned(),
        begin,
        end,
        reason,
    };
    let width = width(&entry.dtype).ok_or_else(|| entry.unknown_dtype(name))?;
    let size = entry
        .shape
        .iter()
        .try_fold(width, |size, &dim| size.checked_mul(dim))
        .ok_or_else(|| wrong(format!("its shape {:?} overflows", entry.shape)))?;
    if end < begin {
        return Err(wrong("it ends before it begins".into()));
    }
    if end - begin != size {
        return Err(wrong(format!(
            "its shape {:?} of {} needs {size} bytes",
            entry.shape, entry.dtype
        )));
    }
    if begin < next {
        return Err(wrong(format!(
            "it overlaps the tensor before it, which ends at {next}"
        )));
    }
    if begin > next {
        return Err(wrong(format!(
            "a gap after the tensor before it, which ends at {next}"
        )));
    }
    Ok(())
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

impl Entry {
    fn unknown_dtype(&self, name: &str) -> HeaderError {
        HeaderError::Dtype {
            name: name.to_owned(),
            found: self.dtype.clone(),
        }
    }
}

fn parse(header: &[u8]) -> Result<Vec<(String, Entry)>, HeaderError> {
    let Entries { list, duplicate } =
        serde_json::from_slice(header).map_err(|error| HeaderError::Syntax {
            reason: error.to_string(),
        })?;
    match duplicate {
        Some(name) => Err(HeaderError::Duplicate { name }),
        None => Ok(list),
    }
}

/// The header's map, kept as a list so that a name given twice is seen.
struct Entries {
    list: Vec<(String, Entry)>,
    duplicate: Option<String>,
}

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EntriesVisitor)
    }
}

struct EntriesVisitor;

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = Entries;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
        let mut list = Vec::new();
        let mut seen = std::collections::BTreeSet::new();
        let mut duplicate = None;
        while let Some(name) = map.next_key::<String>()? {
            if name == "__metadata__" {
                map.next_value::<IgnoredAny>()?;
            } else {
                let entry = map.next_value::<Entry>()?;
                list.push((name.clone(), entry));
            }
            if !seen.insert(name.clone()) {
                duplicate.get_or_insert(name);
            }
        }
        Ok(Entries { list, duplicate })
    }
}
