//! The number formats of merged weights.

use std::fmt;

use half::{bf16, f16};
use serde::Serialize;

/// How a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Numbers {
    /// 8 bits of mantissa, range of f32.
    Bf16,
    /// 11 bits of mantissa, largest 65504.
    F16,
    /// As it was computed.
    F32,
}

impl Numbers {
    /// In the header of a safetensors file.
    pub(super) fn in_file(self) -> &'static str {
        match self {
            Self::Bf16 => "BF16",
            Self::F16 => "F16",
            Self::F32 => "F32",
        }
    }

    /// In `config.json`.
    pub(super) fn in_config(self) -> &'static str {
        match self {
            Self::Bf16 => "bfloat16",
            Self::F16 => "float16",
            Self::F32 => "float32",
        }
    }

    /// Bytes of a value.
    pub(super) fn width(self) -> usize {
        match self {
            Self::Bf16 | Self::F16 => 2,
            Self::F32 => 4,
        }
    }

    /// What is read back of a value; not finite where it is out of range.
    pub(super) fn rounded(self, value: f32) -> f32 {
        match self {
            Self::Bf16 => bf16::from_f32(value).to_f32(),
            Self::F16 => f16::from_f32(value).to_f32(),
            Self::F32 => value,
        }
    }

    /// Values as they are written.
    pub(super) fn bytes(self, values: &[f32]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.width() * values.len());
        for value in values {
            match self {
                Self::Bf16 => bytes.extend(bf16::from_f32(*value).to_bits().to_le_bytes()),
                Self::F16 => bytes.extend(f16::from_f32(*value).to_bits().to_le_bytes()),
                Self::F32 => bytes.extend(value.to_le_bytes()),
            }
        }
        bytes
    }
}

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
            Self::F32 => "f32",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_is_measured() {
        for numbers in [Numbers::Bf16, Numbers::F16, Numbers::F32] {
            let values = [1.000_1, -0.3, 7e-8];
            let bytes = numbers.bytes(&values);
            assert_eq!(bytes.len(), 3 * numbers.width());
            let read = |bytes: &[u8]| match *bytes {
                [a, b] if numbers == Numbers::Bf16 => bf16::from_le_bytes([a, b]).to_f32(),
                [a, b] => f16::from_le_bytes([a, b]).to_f32(),
                [a, b, c, d] => f32::from_le_bytes([a, b, c, d]),
                _ => f32::NAN,
            };
            let found: Vec<f32> = bytes.chunks(numbers.width()).map(read).collect();
            assert_eq!(found, values.map(|value| numbers.rounded(value)));
        }
        assert_eq!(Numbers::F32.rounded(1.000_1), 1.000_1);
        assert!(Numbers::F16.rounded(65_520.0).is_infinite());
        assert!(Numbers::Bf16.rounded(65_520.0).is_finite());
    }
}
