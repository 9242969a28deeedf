//! Typed, bounded reading of the keys of a JSON object; null counts as absent.

use serde_json::{Map, Value};

use super::ConfigError;

/// The keys of one object, with the path that leads to it for messages.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a> {
    map: &'a Map<String, Value>,
    path: &'a str,
}

impl<'a> Fields<'a> {
    pub(super) fn new(map: &'a Map<String, Value>, path: &'a str) -> Self {
        Self { map, path }
    }

    /// The value of a key, unless absent or null.
    pub(super) fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    /// Whether the key is written at all, be it null.
    pub(super) fn mentions(&self, key: &str) -> bool {
        self.map.contains_key(key)
    }

    pub(super) fn missing(&self, key: &str) -> ConfigError {
        ConfigError::Missing { key: self.key(key) }
    }

    pub(super) fn unsupported(&self, key: &str, found: &str, supported: &str) -> ConfigError {
        ConfigError::Unsupported {
            key: self.key(key),
            found: shorten(found),
            supported: supported.to_owned(),
        }
    }

    pub(super) fn inconsistent(&self, key: &str, reason: String) -> ConfigError {
        ConfigError::Inconsistent {
            key: self.key(key),
            reason,
        }
    }

    /// A positive integer up to `most`.
    pub(super) fn size(&self, key: &str, most: u64) -> Result<Option<usize>, ConfigError> {
        self.integer(key, 1, most)
    }

    /// An integer from zero up to `most`.
    pub(super) fn count(&self, key: &str, most: u64) -> Result<Option<usize>, ConfigError> {
        self.integer(key, 0, most)
    }

    pub(super) fn required_size(&self, key: &str, most: u64) -> Result<usize, ConfigError> {
        self.size(key, most)?.ok_or_else(|| self.missing(key))
    }

    /// A number above `above` and at most `most`.
    pub(super) fn number_between(
        &self,
        key: &str,
        above: f64,
        most: f64,
    ) -> Result<Option<f64>, ConfigError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        let number = value
            .as_f64()
            .ok_or_else(|| self.wrong_type(key, "a number", value))?;
        if number > above && number <= most {
            Ok(Some(number))
        } else {
            Err(self.out_of_range(key, value, format!("above {above} and at most {most}")))
        }
    }

    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>, ConfigError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(value) => Err(self.wrong_type(key, "true or false", value)),
        }
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<&'a str>, ConfigError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(value) => Err(self.wrong_type(key, "a string", value)),
        }
    }

    pub(super) fn list(&self, key: &str) -> Result<Option<&'a [Value]>, ConfigError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Array(list)) => Ok(Some(list)),
            Some(value) => Err(self.wrong_type(key, "a list", value)),
        }
    }

    pub(super) fn map(&self, key: &str) -> Result<Option<&'a Map<String, Value>>, ConfigError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(map)),
            Some(value) => Err(self.wrong_type(key, "an object", value)),
        }
    }

    /// A token id or a list of them, each below `vocab`.
    pub(super) fn token_ids(&self, key: &str, vocab: usize) -> Result<Vec<u32>, ConfigError> {
        let one = |value: &Value| {
            let Some(id) = value.as_u64() else {
                return Err(self.wrong_type(key, "a token id or a list of them", value));
            };
            u32::try_from(id)
                .ok()
                .filter(|&id| (id as usize) < vocab)
                .ok_or_else(|| self.out_of_range(key, value, format!("0 to {}", vocab - 1)))
        };
        match self.get(key) {
            None => Ok(Vec::new()),
            Some(Value::Array(list)) => list.iter().map(one).collect(),
            Some(value) => Ok(vec![one(value)?]),
        }
    }

    pub(super) fn wrong_type(
        &self,
        key: &str,
        expected: &'static str,
        found: &Value,
    ) -> ConfigError {
        ConfigError::WrongType {
            key: self.key(key),
            expected,
            found: shorten(&found.to_string()),
        }
    }

    fn integer(&self, key: &str, least: u64, most: u64) -> Result<Option<usize>, ConfigError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        let number = match value {
            Value::Number(number) if !number.is_f64() => number.as_u64(),
            _ => return Err(self.wrong_type(key, "an integer", value)),
        };
        match number {
            Some(number) if (least..=most).contains(&number) => Ok(Some(number as usize)),
            _ => Err(self.out_of_range(key, value, format!("{least} to {most}"))),
        }
    }

    pub(super) fn out_of_range(&self, key: &str, found: &Value, allowed: String) -> ConfigError {
        ConfigError::OutOfRange {
            key: self.key(key),
            found: shorten(&found.to_string()),
            allowed,
        }
    }

    fn key(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }
}

/// Keeps a message readable whatever a file holds.
pub(super) fn shorten(text: &str) -> String {
    const MOST: usize = 80;
    if text.chars().count() <= MOST {
        return text.to_owned();
    }
    let start: String = text.chars().take(MOST).collect();
    format!("{start}...")
}
