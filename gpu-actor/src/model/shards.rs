//! `model.safetensors.index.json`: which shard holds which tensor.
//!
//! Checked: shard names are plain file names; all shards are there (every missing one is listed at once); every
//! tensor of the index is in its shard and every tensor of a shard is in the index, once; the total size is that
//! of the tensors.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use thiserror::Error;

use super::locate::{first_few, optional};

/// Tells what is wrong with an index of shards.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum IndexError {
    /// The text is no index.
    #[error("not an index of shards: {reason}")]
    Syntax {
        /// The parser's reason.
        reason: String,
    },
    /// A shard name that is a path, hidden, or no safetensors file.
    #[error("shard name {name:?} is refused: it must be a plain file name ending in .safetensors")]
    ShardName {
        /// The name.
        name: String,
    },
    /// Shards that are not in the folder.
    #[error("{count} of {total} shards are missing: {missing}")]
    MissingShards {
        /// How many.
        count: usize,
        /// How many there should be.
        total: usize,
        /// Their names.
        missing: String,
    },
    /// Tensors that the index promises and a shard does not hold.
    #[error("{count} tensors are not in the shard that the index names: {missing}")]
    NotInShard {
        /// How many.
        count: usize,
        /// The first of them.
        missing: String,
    },
    /// A tensor that a shard holds and the index does not give to it.
    #[error("tensor {name:?} is in {shard} but the index {instead}")]
    NotInIndex {
        /// The tensor.
        name: String,
        /// The shard that has it.
        shard: String,
        /// What the index says about it.
        instead: String,
    },
    /// A total that is not the sum of the tensors.
    #[error(
        "metadata.total_size is {stated} bytes, the tensors have {actual}: index and shards do not belong together"
    )]
    Total {
        /// What the index states.
        stated: u64,
        /// The sum of the tensors.
        actual: u64,
    },
}

/// A parsed index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Index {
    /// Tensor name to shard name.
    pub(crate) weights: BTreeMap<String, String>,
    /// Sum of the tensors' bytes, when stated.
    pub(crate) total: Option<u64>,
}

impl Index {
    /// Parses the text of an index and checks what can be checked without the shards.
    ///
    /// # Errors
    /// [`IndexError::Syntax`] or [`IndexError::ShardName`].
    pub(crate) fn parse(text: &str) -> Result<Self, IndexError> {
        let file: File = serde_json::from_str(text).map_err(|error| IndexError::Syntax {
            reason: error.to_string(),
        })?;
        for shard in file.weight_map.0.values() {
            if !is_plain(shard) {
                return Err(IndexError::ShardName {
                    name: shard.clone(),
                });
            }
        }
        if file.weight_map.0.is_empty() {
            return Err(IndexError::Syntax {
                reason: "weight_map is empty".into(),
            });
        }
        let total = match file.metadata.and_then(|metadata| metadata.total_size) {
            // Some versions of the library wrote the sum as a float.
            Some(number) => Some(total(&number)?),
            None => None,
        };
        Ok(Self {
            weights: file.weight_map.0,
            total,
        })
    }

    /// Names of the shards, sorted.
    pub(crate) fn shards(&self) -> BTreeSet<&str> {
        self.weights.values().map(String::as_str).collect()
    }

    /// Checks that the folder has all shards.
    ///
    /// # Errors
    /// [`IndexError::MissingShards`] with all that are missing.
    pub(crate) fn check_present(&self, folder: &Path) -> Result<(), IndexError> {
        let shards = self.shards();
        let missing: Vec<_> = shards
            .iter()
            .copied()
            .filter(|shard| matches!(optional(folder, shard), Ok(None)))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(IndexError::MissingShards {
            count: missing.len(),
            total: shards.len(),
            missing: missing.join(", "),
        })
    }

    /// Checks the tensors found in all shards, as (shard, tensor, bytes), against the index.
    ///
    /// # Errors
    /// [`IndexError`] when a tensor is in another shard than stated, in none, or in two, or the total differs.
    pub(crate) fn check_tensors<'a>(
        &self,
        found: impl Iterator<Item = (&'a str, &'a str, u64)>,
    ) -> Result<(), IndexError> {
        let mut open: BTreeMap<&str, &str> = self
            .weights
            .iter()
            .map(|(name, shard)| (name.as_str(), shard.as_str()))
            .collect();
        let mut actual = 0u64;
        for (shard, name, bytes) in found {
            actual = actual.saturating_add(bytes);
            let elsewhere = |instead: String| IndexError::NotInIndex {
                name: name.to_owned(),
                shard: shard.to_owned(),
                instead,
            };
            match self.weights.get(name) {
                Some(stated) if stated == shard => {
                    open.remove(name);
                }
                Some(stated) => return Err(elsewhere(format!("says {stated}"))),
                None => return Err(elsewhere("does not mention it".into())),
            }
        }
        if !open.is_empty() {
            return Err(IndexError::NotInShard {
                count: open.len(),
                missing: first_few(open.keys().copied()),
            });
        }
        match self.total {
            Some(stated) if stated != actual => Err(IndexError::Total { stated, actual }),
            _ => Ok(()),
        }
    }
}

/// Whether a shard's name is a file name and nothing more, on any system.
fn is_plain(name: &str) -> bool {
    name.len() <= 255
        && name.ends_with(".safetensors")
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
}

fn total(number: &serde_json::Number) -> Result<u64, IndexError> {
    let whole = |number: f64| {
        (number >= 0.0 && number.fract() == 0.0 && number < 9e15).then_some(number as u64)
    };
    number
        .as_u64()
        .or_else(|| number.as_f64().and_then(whole))
        .ok_or_else(|| IndexError::Syntax {
            reason: format!("metadata.total_size is {number}, expected a number of bytes"),
        })
}

#[derive(serde::Deserialize)]
struct File {
    #[serde(default)]
    metadata: Option<Metadata>,
    weight_map: WeightMap,
}

#[derive(serde::Deserialize)]
struct Metadata {
    #[serde(default)]
    total_size: Option<serde_json::Number>,
}

/// A map that refuses a name given twice, where a plain one would keep the last.
struct WeightMap(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for WeightMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(WeightMapVisitor)
    }
}

struct WeightMapVisitor;

impl<'de> Visitor<'de> for WeightMapVisitor {
    type Value = WeightMap;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensor names and shard names")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<WeightMap, A::Error> {
        let mut weights = BTreeMap::new();
        while let Some((name, shard)) = map.next_entry::<String, String>()? {
            if weights.contains_key(&name) {
                return Err(A::Error::custom(format!("tensor {name:?} appears twice")));
            }
            weights.insert(name, shard);
        }
        Ok(WeightMap(weights))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn message(text: &str) -> String {
        Index::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn a_shard_name_is_a_file_name() {
        for bad in [
            "../model.safetensors",
            "/etc/model.safetensors",
            "a/model.safetensors",
            "a\\\\model.safetensors",
            "..safetensors",
            ".model.safetensors",
            "model.bin",
            "",
            "C:model.safetensors",
            "model\\u0000.safetensors",
        ] {
            let text = format!(r#"{{"weight_map": {{"a": "{bad}"}}}}"#);
            assert!(message(&text).contains("shard name"), "{bad}");
        }
    }

    #[test]
    fn what_is_no_index_is_refused() {
        for (text, want) in [
            ("", "EOF"),
            ("[]", "expected"),
            ("{}", "weight_map"),
            (r#"{"weight_map": {}}"#, "empty"),
            (r#"{"weight_map": {"a": 1}}"#, "expected a string"),
            (
                r#"{"weight_map": {"a": "x.safetensors", "a": "x.safetensors"}}"#,
                "twice",
            ),
            (
                r#"{"metadata": {"total_size": -1}, "weight_map": {"a": "x.safetensors"}}"#,
                "total_size",
            ),
            (
                r#"{"metadata": {"total_size": 0.5}, "weight_map": {"a": "x.safetensors"}}"#,
                "total_size",
            ),
        ] {
            assert!(message(text).contains(want), "{text}: {}", message(text));
        }
    }

    #[test]
    fn tensors_and_index_must_match_exactly() {
        let index = Index::parse(
            r#"{"metadata": {"total_size": 12.0},
                "weight_map": {"a": "x.safetensors", "b": "y.safetensors"}}"#,
        )
        .unwrap();
        let check = |found: &[(&str, &str, u64)]| {
            index
                .check_tensors(found.iter().copied())
                .map_err(|error| error.to_string())
        };
        assert_eq!(
            check(&[("x.safetensors", "a", 4), ("y.safetensors", "b", 8)]),
            Ok(())
        );
        let total = check(&[("x.safetensors", "a", 4), ("y.safetensors", "b", 4)]).unwrap_err();
        assert!(total.contains("12 bytes, the tensors have 8"), "{total}");
        let missing = check(&[("x.safetensors", "a", 12)]).unwrap_err();
        assert!(
            missing.contains("1 tensors") && missing.contains('b'),
            "{missing}"
        );
        let other = check(&[("y.safetensors", "a", 4)]).unwrap_err();
        assert!(other.contains("says x.safetensors"), "{other}");
        let unknown = check(&[("x.safetensors", "c", 4)]).unwrap_err();
        assert!(unknown.contains("does not mention"), "{unknown}");
    }
}
