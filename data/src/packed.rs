//! Token rows as bytes: what the coordinator stores once a job's samples are checked, and its first stage reads.
//!
//! Little-endian: magic, number of training rows, number of held-out rows, then each row's length and line, then all
//! ids, then all labels. The content hash of the whole is kept beside the key it is stored under.

use thiserror::Error;

use crate::rows::TokenRow;

const MAGIC: &[u8; 8] = b"SMROWS01";
/// Magic and two counts.
const HEAD: usize = 24;
/// A row's length and line.
const ROW: usize = 12;
/// An id and a label.
const TOKEN: usize = 8;

/// Says why bytes are not token rows.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum UnpackError {
    /// Other bytes, or those of another release.
    #[error("these {bytes} bytes do not start as token rows do: store the samples again")]
    Magic {
        /// How many there are.
        bytes: usize,
    },
    /// Cut off, or grown.
    #[error("the token rows should have {wanted} bytes and have {found}: store the samples again")]
    Size {
        /// By what they say of themselves.
        wanted: u64,
        /// As they are.
        found: u64,
    },
}

/// Rows for training and rows held out, as bytes.
#[must_use]
pub fn pack(train: &[TokenRow], eval: &[TokenRow]) -> Vec<u8> {
    let rows = || train.iter().chain(eval);
    let tokens: usize = rows().map(|row| row.ids.len()).sum();
    let count = train.len() + eval.len();
    let mut bytes = Vec::with_capacity(HEAD + count * ROW + tokens * TOKEN);
    bytes.extend(MAGIC);
    bytes.extend((train.len() as u64).to_le_bytes());
    bytes.extend((eval.len() as u64).to_le_bytes());
    for row in rows() {
        let length = u32::try_from(row.ids.len()).expect("a row is no longer than a context");
        bytes.extend(length.to_le_bytes());
        bytes.extend(row.line.to_le_bytes());
    }
    rows().for_each(|row| row.ids.iter().for_each(|id| bytes.extend(id.to_le_bytes())));
    rows().for_each(|row| {
        row.labels
            .iter()
            .for_each(|l| bytes.extend(l.to_le_bytes()))
    });
    bytes
}

/// Rows for training and rows held out, from their bytes.
///
/// # Errors
/// [`UnpackError`] when the bytes are not whole; nothing is allocated before their size is proven.
pub fn unpack(bytes: &[u8]) -> Result<(Vec<TokenRow>, Vec<TokenRow>), UnpackError> {
    let magic = || UnpackError::Magic { bytes: bytes.len() };
    let (head, rest) = bytes.split_at_checked(HEAD).ok_or_else(magic)?;
    if head[..8] != *MAGIC {
        return Err(magic());
    }
    let (train, eval) = (word(head, 8), word(head, 16));
    let count = train.saturating_add(eval);
    let found = bytes.len() as u64;
    let size = |wanted| UnpackError::Size { wanted, found };
    let table_bytes = count.saturating_mul(ROW as u64);
    if (rest.len() as u64) < table_bytes {
        return Err(size(table_bytes.saturating_add(HEAD as u64)));
    }
    let (table, rest) = rest.split_at(table_bytes as usize);
    let lengths: Vec<(usize, u64)> = table
        .chunks_exact(ROW)
        .map(|row| (half(row) as usize, word(row, 4)))
        .collect();
    let tokens: u64 = lengths.iter().map(|&(length, _)| length as u64).sum();
    let body = tokens.saturating_mul(TOKEN as u64);
    if rest.len() as u64 != body {
        return Err(size(body + table_bytes + HEAD as u64));
    }
    let (mut ids, mut labels) = rest.split_at(rest.len() / 2);
    let mut rows = Vec::with_capacity(lengths.len());
    for (length, line) in lengths {
        let (own_ids, more_ids) = ids.split_at(length * 4);
        let (own_labels, more_labels) = labels.split_at(length * 4);
        (ids, labels) = (more_ids, more_labels);
        rows.push(TokenRow {
            ids: own_ids.chunks_exact(4).map(half).collect(),
            labels: own_labels
                .chunks_exact(4)
                .map(|b| half(b).cast_signed())
                .collect(),
            line,
        });
    }
    let eval = rows.split_off(train as usize);
    Ok((rows, eval))
}

fn half(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"))
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn row() -> impl Strategy<Value = TokenRow> {
        (vec((any::<u32>(), any::<i32>()), 0..9), any::<u64>()).prop_map(|(tokens, line)| {
            let (ids, labels) = tokens.into_iter().unzip();
            TokenRow { ids, labels, line }
        })
    }

    proptest! {
        #[test]
        fn what_is_packed_is_unpacked(train in vec(row(), 0..6), eval in vec(row(), 0..4)) {
            let bytes = pack(&train, &eval);
            prop_assert_eq!(unpack(&bytes).unwrap(), (train, eval));
            for cut in 0..bytes.len() {
                prop_assert!(unpack(&bytes[..cut]).is_err());
            }
        }

        #[test]
        fn no_bytes_are_a_danger(start in any::<bool>(), rest in vec(any::<u8>(), 0..200)) {
            let mut bytes = if start { MAGIC.to_vec() } else { Vec::new() };
            bytes.extend(rest);
            let _ = unpack(&bytes);
        }
    }
}
