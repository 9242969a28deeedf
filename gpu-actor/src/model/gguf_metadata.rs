//! Typed, bounded reading of GGUF metadata.

use candle_core::quantized::gguf_file::{Content, Value};

use super::gguf_error::GgufError;

/// Largest number of a key that is no count.
const LARGEST: f64 = 1e12;

/// The metadata of a file, with the prefix of its architecture.
pub(super) struct Metadata<'a> {
    content: &'a Content,
    pub(super) architecture: &'a str,
}

impl<'a> Metadata<'a> {
    /// Wraps what the library read.
    ///
    /// # Errors
    /// When `general.architecture` is absent or no text.
    pub(super) fn new(content: &'a Content) -> Result<Self, GgufError> {
        let mut metadata = Self {
            content,
            architecture: "",
        };
        let key = "general.architecture";
        metadata.architecture = metadata.text(key)?.ok_or_else(|| missing(key))?;
        Ok(metadata)
    }

    /// A text.
    pub(super) fn text(&self, key: &str) -> Result<Option<&'a str>, GgufError> {
        match self.content.metadata.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(value) => Err(wrong_type(key, "a string", value)),
        }
    }

    /// A flag.
    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>, GgufError> {
        match self.content.metadata.get(key) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(value) => Err(wrong_type(key, "a flag", value)),
        }
    }

    /// The elements of an array.
    pub(super) fn array(&self, key: &str) -> Result<Option<&'a [Value]>, GgufError> {
        match self.content.metadata.get(key) {
            None => Ok(None),
            Some(Value::Array(list)) => Ok(Some(list)),
            Some(value) => Err(wrong_type(key, "an array", value)),
        }
    }

    /// An integer that is not negative.
    pub(super) fn integer(&self, key: &str) -> Result<Option<u64>, GgufError> {
        let Some(value) = self.content.metadata.get(key) else {
            return Ok(None);
        };
        let number = match *value {
            Value::U8(n) => Some(u64::from(n)),
            Value::U16(n) => Some(u64::from(n)),
            Value::U32(n) => Some(u64::from(n)),
            Value::U64(n) => Some(n),
            Value::I8(n) => u64::try_from(n).ok(),
            Value::I16(n) => u64::try_from(n).ok(),
            Value::I32(n) => u64::try_from(n).ok(),
            Value::I64(n) => u64::try_from(n).ok(),
            _ => None,
        };
        number
            .map(Some)
            .ok_or_else(|| wrong_type(key, "an integer from 0", value))
    }

    /// A token id below the vocabulary.
    pub(super) fn token(&self, key: &str, vocab: usize) -> Result<Option<u32>, GgufError> {
        match self.integer(key)? {
            None => Ok(None),
            Some(id) if id < vocab as u64 => Ok(Some(id as u32)),
            Some(id) => Err(out_of_range(key, id, 0, vocab as u64 - 1)),
        }
    }

    /// The key of the architecture's own leaf.
    pub(super) fn own(&self, leaf: &str) -> String {
        format!("{}.{leaf}", self.architecture)
    }

    /// A positive size of the architecture, at most `most`.
    pub(super) fn size(&self, leaf: &str, most: u64) -> Result<Option<usize>, GgufError> {
        let key = self.own(leaf);
        match self.integer(&key)? {
            None => Ok(None),
            Some(size) if (1..=most).contains(&size) => Ok(Some(size as usize)),
            Some(size) => Err(out_of_range(&key, size, 1, most)),
        }
    }

    /// A size that must be stated.
    pub(super) fn required(&self, leaf: &str, most: u64) -> Result<usize, GgufError> {
        self.size(leaf, most)?
            .ok_or_else(|| missing(&self.own(leaf)))
    }

    /// A number above zero; the shortest decimal of the stored f32 is what the file's maker wrote.
    pub(super) fn number(&self, leaf: &str) -> Result<Option<f64>, GgufError> {
        self.number_in(leaf, |number| number > 0.0, "numbers above 0")
    }

    /// A number of at least `least`.
    pub(super) fn number_from(&self, leaf: &str, least: f64) -> Result<Option<f64>, GgufError> {
        let allowed = format!("numbers from {least}");
        self.number_in(leaf, |number| number >= least, &allowed)
    }

    fn number_in(
        &self,
        leaf: &str,
        holds: impl Fn(f64) -> bool,
        allowed: &str,
    ) -> Result<Option<f64>, GgufError> {
        let key = self.own(leaf);
        let Some(value) = self.content.metadata.get(&key) else {
            return Ok(None);
        };
        let number = match *value {
            Value::F32(n) => n.to_string().parse().unwrap_or_else(|_| f64::from(n)),
            Value::F64(n) => n,
            _ => return Err(wrong_type(&key, "a number", value)),
        };
        if holds(number) && number <= LARGEST {
            return Ok(Some(number));
        }
        let reason = format!("is {number}, allowed are {allowed} and at most {LARGEST:e}");
        Err(inconsistent(&key, reason))
    }
}

pub(super) fn missing(key: &str) -> GgufError {
    GgufError::Missing {
        key: key.to_owned(),
    }
}

fn wrong_type(key: &str, expected: &'static str, found: &Value) -> GgufError {
    GgufError::WrongType {
        key: key.to_owned(),
        expected,
        found: format!("{:?}", found.value_type()),
    }
}

pub(super) fn out_of_range(key: &str, found: u64, least: u64, most: u64) -> GgufError {
    inconsistent(key, format!("is {found}, allowed is {least} to {most}"))
}

pub(super) fn unsupported(key: &str, found: &str, supported: &str) -> GgufError {
    GgufError::Unsupported {
        key: key.to_owned(),
        found: found.chars().take(80).collect(),
        supported: supported.to_owned(),
    }
}

pub(super) fn inconsistent(key: &str, reason: String) -> GgufError {
    GgufError::Inconsistent {
        key: key.to_owned(),
        reason,
    }
}
