//! GGUF headers that are damaged or lie.

use std::io::Cursor;

use candle_core::quantized::gguf_file::Content;
use proptest::prelude::*;

use super::super::gguf_check::{self, GgufCheckError};
use super::*;

/// A header built field by field.
#[derive(Clone)]
struct Raw(Vec<u8>);

impl Raw {
    /// A file of version 3 that claims so many tensors and metadata keys.
    fn new(tensors: u64, keys: u64) -> Self {
        Self(b"GGUF".to_vec()).u32(3).u64(tensors).u64(keys)
    }

    fn u32(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn text(self, text: &str) -> Self {
        self.u64(text.len() as u64).bytes(text.as_bytes())
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// A tensor header.
    fn tensor(self, name: &str, dims: &[u64], kind: u32, offset: u64) -> Self {
        let head = self.text(name).u32(dims.len() as u32);
        let head = dims.iter().fold(head, |head, &dim| head.u64(dim));
        head.u32(kind).u64(offset)
    }

    /// Padding to the default alignment, then so many bytes of data.
    fn data(mut self, bytes: usize) -> Self {
        let start = self.0.len().next_multiple_of(32);
        self.0.resize(start + bytes, 0);
        self
    }
}

#[test]
fn a_sound_header_passes() {
    let file = Raw::new(2, 1)
        .text("general.alignment")
        .u32(4)
        .u32(64)
        .tensor("a", &[32, 2], 2, 0)
        .tensor("b", &[3], 0, 64);
    let mut file = file.0;
    file.resize(file.len().next_multiple_of(64) + 64 + 12, 0);
    let tensors = gguf_check::check(&file).unwrap();
    assert_eq!(
        (tensors[0].shape.as_slice(), tensors[0].range.len()),
        (&[2, 32][..], 36)
    );
    assert_eq!(tensors[1].range, file.len() - 12..file.len());
}

/// Two to the 60: no count of anything.
const BIG: u64 = 1 << 60;

fn refused(file: Raw, want: &str) {
    let message = gguf_check::check(&file.0).unwrap_err().to_string();
    assert!(message.contains(want), "wanted {want:?} in {message:?}");
}

/// A file of one metadata key of a type.
fn key(kind: u32) -> Raw {
    Raw::new(0, 1).text("k").u32(kind)
}

/// A file of one tensor and 32 bytes of data.
fn one(dims: &[u64], kind: u32, offset: u64) -> Raw {
    Raw::new(1, 0).tensor("t", dims, kind, offset).data(32)
}

#[test]
fn a_wrong_start_is_refused() {
    refused(
        Raw(vec![]),
        "the magic number needs 4 bytes, the file has 0",
    );
    refused(Raw(b"GGML0000".to_vec()), "starts with GGML");
    refused(Raw(b"GGUF".to_vec()).u32(1).u64(0), "its version is 1");
    refused(Raw(b"GGUF".to_vec()).u32(4).u64(0), "its version is 4");
    refused(Raw(b"GGUF".to_vec()).u32(3u32.swap_bytes()), "big-endian");
    refused(
        Raw::new(BIG, 0),
        "the number of tensors is 1152921504606846976, above the limit",
    );
    refused(
        Raw::new(0, u64::MAX),
        "the number of metadata keys is 18446744073709551615",
    );
    refused(
        Raw::new(131_072, 65_536),
        "a metadata key needs 32 bytes, the file has 24",
    );
    refused(
        Raw::new(0, 1).u64(u64::MAX),
        "a metadata key is 18446744073709551615, above the limit",
    );
    refused(
        Raw::new(0, 1).u64(60_000).bytes(b"abc"),
        "a metadata key needs 60032 bytes",
    );
    refused(
        Raw::new(0, 1).u64(2).bytes(b"\xff\xff"),
        "a metadata key at offset 32 is not UTF-8",
    );
}

#[test]
fn wrong_metadata_is_refused() {
    refused(key(8).u64(BIG), "k is 1152921504606846976, above the limit");
    refused(
        key(8).u64(60_000_000),
        "k needs 60000045 bytes, the file has 45",
    );
    refused(
        key(9).u32(8).u64(BIG),
        "the number of array elements up to \"k\"",
    );
    refused(key(9).u32(0).u64(8_000_000), "k needs 8000049 bytes");
    refused(key(9).u32(12).u64(8_000_000), "k needs 64000049 bytes");
    refused(key(9).u32(9).u64(1), "an array of arrays");
    refused(key(9).u32(77).u64(1), "is of unknown type 77");
    refused(key(13).u64(0), "is of unknown type 13");
    refused(key(7).bytes(&[2]), "a flag that is neither 0 nor 1");
    refused(
        key(9).u32(7).u64(2).bytes(&[1, 9]),
        "a flag that is neither 0 nor 1",
    );
    refused(
        Raw::new(0, 2)
            .text("k")
            .u32(0)
            .bytes(&[1])
            .text("k")
            .u32(0)
            .bytes(&[1]),
        "\"k\" appears twice",
    );
    refused(
        Raw::new(0, 1).text("general.alignment").u32(4).u32(0),
        "is 0, expected a power of two",
    );
    refused(
        Raw::new(0, 1).text("general.alignment").u32(4).u32(48),
        "is 48, expected",
    );
    refused(
        Raw::new(0, 1).text("general.alignment").u32(4).u32(1 << 31),
        "is 2147483648, expected",
    );
    refused(
        Raw::new(0, 1).text("general.alignment").u32(0).bytes(&[32]),
        "is of type 0, expected 4",
    );
}

#[test]
fn a_wrong_tensor_is_refused() {
    refused(one(&[], 0, 0), "has 0 dimensions");
    refused(one(&[1; 5], 0, 0), "has 5 dimensions");
    refused(one(&[0], 0, 0), "has a dimension of 0");
    refused(
        one(&[u64::MAX], 0, 0),
        "has a dimension of 18446744073709551615",
    );
    refused(
        one(&[1 << 40, 1 << 40], 0, 0),
        "has a dimension of 1099511627776",
    );
    refused(one(&[16], 12, 0), "is of type 12 (Q4_K), supported are");
    refused(one(&[16], 999, 0), "is of type 999 (unknown)");
    refused(
        one(&[31], 2, 0),
        "has rows of 31 values, not a multiple of the block of 32",
    );
}

#[test]
fn a_wrong_place_is_refused() {
    refused(one(&[8], 0, 32), "starts at offset 32, expected 0");
    refused(
        one(&[8], 0, u64::MAX),
        "starts at offset 18446744073709551615",
    );
    refused(
        one(&[9], 0, 0),
        "tensor \"t\" needs 100 bytes, the file has 96",
    );
    refused(
        one(&[1 << 46], 0, 0),
        "tensor \"t\" needs 281474976710720 bytes",
    );
    refused(
        one(&[8], 0, 0).data(1),
        "is the last, and 1 bytes follow it",
    );
    refused(
        Raw::new(2, 0)
            .tensor("t", &[8], 0, 0)
            .tensor("t", &[8], 0, 32)
            .data(64),
        "\"t\" appears twice",
    );
    refused(
        Raw::new(2, 0)
            .tensor("t", &[8], 0, 0)
            .tensor("u", &[8], 0, 0)
            .data(64),
        "tensor \"u\": starts at offset 0, expected 32",
    );
    refused(
        Raw::new(2, 0)
            .tensor("t", &[8], 0, 0)
            .tensor("u", &[8], 0, 64)
            .data(96),
        "tensor \"u\": starts at offset 64, expected 32",
    );
}

#[test]
fn a_truncated_file_is_refused_wherever_it_is_cut() {
    let scratch = scratch();
    let spec = TinySpec {
        layers: 1,
        ..llama()
    };
    let path = gguf(&scratch, &spec, Format::Q4_0);
    let whole = fs::read(&path).unwrap();
    let tensors = gguf_check::check(&whole).unwrap();
    let data = tensors[0].range.start;
    let last = tensors.last().unwrap().range.end;
    for length in (0..data)
        .step_by(7)
        .chain([data - 1, data, data + 1, last - 1])
    {
        let error = gguf_check::check(&whole[..length]).unwrap_err();
        let GgufCheckError::Truncated {
            expected, actual, ..
        } = error
        else {
            panic!("cut at {length}: {error}");
        };
        assert!(expected > actual && actual == length as u64);
    }
    // The padding after the last tensor may be absent.
    gguf_check::check(&whole[..last]).unwrap();
    fs::write(&path, &whole[..last - 1]).unwrap();
    let message = refusal(&path);
    assert!(
        message.contains(&format!("needs {last} bytes, the file has {}", last - 1)),
        "{message}"
    );
}

proptest! {
    /// Any change of bytes in a header: an error or tensors inside the file; what passes, the library reads.
    #[test]
    fn no_change_of_bytes_panics_or_escapes(
        changes in prop::collection::vec((0usize..400, any::<u8>()), 1..6),
        cut in 0usize..8,
    ) {
        let file = Raw::new(2, 4)
            .text("general.alignment").u32(4).u32(32)
            .text("s").u32(8).text("text")
            .text("a").u32(9).u32(8).u64(2).text("x").text("y")
            .text("n").u32(9).u32(5).u64(3).bytes(&[0; 12])
            .tensor("t", &[32, 2], 3, 0)
            .tensor("u", &[4], 0, 64)
            .data(80);
        let mut bytes = file.0;
        gguf_check::check(&bytes).unwrap();
        for (at, value) in changes {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        bytes.truncate(bytes.len() - cut);
        match gguf_check::check(&bytes) {
            Ok(tensors) => {
                prop_assert!(tensors.iter().all(|tensor| tensor.range.end <= bytes.len()));
                let content = Content::read(&mut Cursor::new(&bytes));
                prop_assert!(content.is_ok(), "{:?}", content.err());
            }
            Err(error) => prop_assert!(error.to_string().len() < 1000),
        }
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let file = Raw::new(1, 2).bytes(&bytes).0;
        let _ = gguf_check::check(&file);
        let _ = gguf_check::check(&bytes);
    }
}
