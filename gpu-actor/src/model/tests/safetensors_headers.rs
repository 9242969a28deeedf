//! Safetensors headers that lie.

use proptest::prelude::*;

use super::super::header::{self, HeaderError};

/// A file of a header and so many bytes of data.
fn file(text: &str, data: usize) -> Vec<u8> {
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(text.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    bytes
}

fn entry(name: &str, dtype: &str, shape: &str, begin: u64, end: u64) -> String {
    format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{begin},{end}]}}"#)
}

fn message(file: &[u8]) -> String {
    header::read(file).unwrap_err().to_string()
}

fn sound() -> Vec<u8> {
    let text = format!(
        r#"{{"__metadata__":{{"format":"pt"}},{},{}}}"#,
        entry("a", "F32", "[2,2]", 0, 16),
        entry("b", "BF16", "[3]", 16, 22),
    );
    file(&text, 22)
}

#[test]
fn a_sound_header_is_read() {
    let bytes = sound();
    let tensors = header::read(&bytes).unwrap();
    let names: Vec<_> = tensors.iter().map(|tensor| tensor.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(tensors[0].shape, [2, 2]);
    assert_eq!(tensors[1].range, bytes.len() - 6..bytes.len());
}

fn refused(file: Vec<u8>, want: &str) {
    let message = message(&file);
    assert!(message.contains(want), "wanted {want:?} in {message:?}");
    assert!(message.len() < 300, "{message}");
}

/// A file of these entries and so many bytes of data.
fn one(entries: String, data: usize) -> Vec<u8> {
    file(&format!("{{{entries}}}"), data)
}

fn two(first: String, second: String, data: usize) -> Vec<u8> {
    one(format!("{first},{second}"), data)
}

#[test]
fn what_is_no_header_is_refused() {
    refused(vec![], "the header length needs 8 bytes, the file has 0");
    refused(
        u64::MAX.to_le_bytes().to_vec(),
        "above the limit of 100000000",
    );
    refused((1u64 << 40).to_le_bytes().to_vec(), "above the limit");
    refused(
        99_999_999u64.to_le_bytes().to_vec(),
        "the header needs 100000007 bytes, the file has 8",
    );
    refused(file("", 0), "header is not valid");
    refused(file("[]", 0), "header is not valid");
    refused(file("{", 0), "header is not valid");
    refused(file("{\"a\":1}", 0), "header is not valid");
    refused(file(&"[".repeat(200_000), 0), "header is not valid");
    refused(
        file("{\"a\":{\"dtype\":\"F32\"}}", 0),
        "header is not valid",
    );
    refused(
        one(entry("a", "F32", "[-1]", 0, 4), 4),
        "header is not valid",
    );
    refused(
        one(entry("a", "F32", "[1.5]", 0, 4), 4),
        "header is not valid",
    );
    refused(
        one(entry("a", "F64", "[1]", 0, 8), 8),
        "\"a\" has dtype F64",
    );
    refused(
        one(entry("a", "I64", "[1]", 0, 8), 8),
        "\"a\" has dtype I64",
    );
    refused(
        one(entry("a", "pickle", "[1]", 0, 8), 8),
        "\"a\" has dtype pickle",
    );
}

#[test]
fn tensors_that_contradict_the_file_are_refused() {
    refused(one(entry("a", "F32", "[2]", 0, 4), 4), "needs 8 bytes");
    refused(
        one(entry("a", "F32", "[4294967296,4294967296]", 0, 4), 4),
        "overflows",
    );
    refused(
        one(entry("a", "F32", "[18446744073709551615]", 0, 4), 4),
        "overflows",
    );
    refused(
        one(entry("a", "F32", "[1]", 8, 4), 4),
        "ends before it begins",
    );
    refused(one(entry("a", "F32", "[1]", 4, 8), 8), "a gap");
    refused(
        one(entry("a", "F32", "[1]", 0, 4), 5),
        "1 bytes follow the last tensor",
    );
    refused(
        one(entry("a", "F32", "[1024]", 0, 4096), 5),
        "the file has ",
    );
    refused(
        one(
            entry("a", "F32", "[2305843009213693951]", 0, (1 << 63) - 4),
            9,
        ),
        "truncated: the data",
    );
    refused(
        two(
            entry("a", "F32", "[1]", 0, 4),
            entry("a", "F32", "[1]", 4, 8),
            8,
        ),
        "\"a\" appears twice",
    );
    refused(
        two(
            entry("a", "F32", "[2]", 0, 8),
            entry("b", "F32", "[1]", 4, 8),
            8,
        ),
        "overlaps",
    );
    refused(
        two(
            entry("a", "F32", "[1]", 0, 4),
            entry("b", "F32", "[1]", 0, 4),
            4,
        ),
        "overlaps",
    );
}

#[test]
fn a_truncated_file_is_refused_wherever_it_is_cut() {
    let whole = sound();
    for length in 0..whole.len() {
        let error = header::read(&whole[..length]).unwrap_err();
        let HeaderError::Truncated {
            expected, actual, ..
        } = error
        else {
            panic!("cut at {length}: {error}");
        };
        assert!(expected > actual && actual == length as u64 && expected <= whole.len() as u64);
    }
}

proptest! {
    /// Any change of bytes: an error, or tensors that lie inside the file.
    #[test]
    fn no_change_of_bytes_panics_or_escapes(
        changes in prop::collection::vec((0usize..400, any::<u8>()), 1..6),
        cut in 0usize..40,
    ) {
        let mut bytes = sound();
        for (at, value) in changes {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        bytes.truncate(bytes.len() - cut);
        match header::read(&bytes) {
            Ok(tensors) => prop_assert!(tensors.iter().all(|t| t.range.end <= bytes.len())),
            Err(error) => prop_assert!(error.to_string().len() < 1000),
        }
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..64), length in 0u64..80) {
        let mut file = length.to_le_bytes().to_vec();
        file.extend_from_slice(&bytes);
        let empty = bytes.starts_with(b"{}");
        prop_assert!(header::read(&file).is_err() || empty);
    }
}
