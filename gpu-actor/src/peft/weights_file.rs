//! The tensors of an adapter's safetensors file, read one after another.
//!
//! The header is read and proven first: of a file that is none, however long it is, nothing else is read.

use std::io::{self, Read};
use std::path::Path;

use data::regular;
use kernels::weight::Format;

use super::tensors::{NamedTensor, Tensors};
use crate::model::header::{self, HEADER_LIMIT, HeaderError};

/// Largest weights file read.
const MAX_BYTES: u64 = 16 << 30;

/// Why a file of weights is not read.
#[derive(Debug)]
pub(super) enum Fault {
    /// The system refuses, or it is too long.
    Read(io::Error),
    /// It is not safetensors, or lies about itself.
    Header(HeaderError),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Read(error)
    }
}

/// Reads every tensor of a safetensors file as f32.
pub(super) fn read(path: &Path) -> Result<Tensors, Fault> {
    let file = regular::open(path)?;
    let length = file.metadata()?.len();
    if length > MAX_BYTES {
        let message = format!("has {length} bytes, the limit is {MAX_BYTES}");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message).into());
    }
    tensors_of(file, length)
}

/// The tensors of a file of so many bytes.
fn tensors_of(mut file: impl Read, length: u64) -> Result<Tensors, Fault> {
    let mut head = Vec::new();
    (&mut file).take(8).read_to_end(&mut head)?;
    if let Some(announced) = head.first_chunk::<8>() {
        let announced = u64::from_le_bytes(*announced);
        if announced <= HEADER_LIMIT.min(length) {
            (&mut file).take(announced).read_to_end(&mut head)?;
        }
    }
    let listed = header::of_head(&head, length).map_err(Fault::Header)?;
    let mut tensors = Tensors::new();
    // They are in the order of their data, without gaps.
    for tensor in listed {
        let count = tensor.shape.iter().product();
        let values = values(&mut file, tensor.format, count)?;
        let shape = tensor.shape;
        tensors.insert(tensor.name, NamedTensor { shape, values });
    }
    Ok(tensors)
}

/// The next numbers of a file.
fn values(file: &mut impl Read, format: Format, count: usize) -> io::Result<Vec<f32>> {
    let mut halves = || -> io::Result<Vec<u16>> {
        let mut bits = vec![0; count];
        file.read_exact(bytemuck::cast_slice_mut(&mut bits))?;
        Ok(bits)
    };
    Ok(match format {
        Format::Bf16 => {
            let bits = halves()?.into_iter();
            bits.map(|bits| half::bf16::from_bits(bits).to_f32())
                .collect()
        }
        Format::F16 => {
            let bits = halves()?.into_iter();
            bits.map(|bits| half::f16::from_bits(bits).to_f32())
                .collect()
        }
        _ => {
            let mut values = vec![0.0; count];
            file.read_exact(bytemuck::cast_slice_mut(&mut values))?;
            values
        }
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// A file with this header and so many numbers.
    fn told(header: &str, numbers: usize) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weights");
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        bytes.resize(bytes.len() + 4 * numbers, 0);
        std::fs::write(&path, bytes).unwrap();
        match read(&path) {
            Ok(tensors) => format!("{} read", tensors.len()),
            Err(Fault::Read(error)) => error.to_string(),
            Err(Fault::Header(error)) => error.to_string(),
        }
    }

    #[test]
    fn a_tensor_that_is_named_twice_is_refused() {
        let entry = |name: &str, at: usize| {
            format!(
                r#""{name}":{{"dtype":"F32","shape":[1],"data_offsets":[{at},{}]}}"#,
                at + 4
            )
        };
        let two = |first, second| told(&format!("{{{},{}}}", entry(first, 0), entry(second, 4)), 2);
        assert_eq!(two("a", "b"), "2 read");
        for name in ["a", "\\u0061"] {
            let said = two("a", name);
            assert!(said.contains("tensor \"a\" appears twice"), "{said}");
        }
    }

    /// A name in a file may hold anything, and be as long as the file.
    #[test]
    fn names_of_a_file_command_no_terminal_and_fill_no_page() {
        let name = "\\u001b[2J".repeat(100_000);
        let header = format!(r#"{{"{name}":{{"dtype":"I64","shape":[1],"data_offsets":[0,8]}}}}"#);
        let said = told(&header, 2);
        assert!(
            said.contains("I64") && said.len() < 2000 && !said.contains('\u{1b}'),
            "{said}"
        );
    }

    #[test]
    fn numbers_of_each_format_are_read_in_the_order_of_their_data() {
        let header = r#"{"c":{"dtype":"F16","shape":[2],"data_offsets":[6,10]},
            "a":{"dtype":"BF16","shape":[1],"data_offsets":[4,6]},"b":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]}}"#;
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(&1.5_f32.to_le_bytes());
        bytes.extend_from_slice(&half::bf16::from_f32(-2.0).to_le_bytes());
        for value in [0.25, 3.0] {
            bytes.extend_from_slice(&half::f16::from_f32(value).to_le_bytes());
        }
        let tensors = tensors_of(&bytes[..], bytes.len() as u64).unwrap();
        assert_eq!(tensors["a"].values, [-2.0]);
        assert_eq!(tensors["b"].values, [1.5]);
        assert_eq!(tensors["c"].values, [0.25, 3.0]);
        assert_eq!(tensors["b"].shape, [1, 1]);
        // It became shorter since it was measured.
        let cut = tensors_of(&bytes[..bytes.len() - 1], bytes.len() as u64);
        assert!(matches!(cut, Err(Fault::Read(_))), "{cut:?}");
    }

    /// Sixteen gibibytes were read to say that the first eight bytes are no header.
    #[test]
    fn of_a_file_that_is_none_nothing_but_the_header_is_read() {
        let started = |head: &[u8]| {
            let mut file = head.chain(io::repeat(0)).take(1 << 20);
            let error = tensors_of(&mut file, MAX_BYTES).unwrap_err();
            let read = (1 << 20) - file.limit();
            assert!(matches!(error, Fault::Header(_)), "{error:?}");
            read
        };
        assert_eq!(started(&[]), 8, "a header of no bytes");
        assert_eq!(started(&[0xff; 8]), 8, "one that is too long");
        assert_eq!(started(&[2, 0, 0, 0, 0, 0, 0, 0, b'{', b'}']), 10);
    }
}
