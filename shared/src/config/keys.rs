//! Every key of `cluster.toml`: kind, range, unit and cost, in the order of the file.
//!
//! - `CF-1` The keys here and the fields of [`super::schema`] are the same.

mod table;

pub use self::table::KEYS;

use super::schema::{ClusterConfig, NodeSection};
use crate::ids::NodeName;

/// What a value may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Words, not empty.
    Text,
    /// A name of 1 to 64 of `a-z A-Z 0-9 . _ -`.
    Name,
    /// A whole number within a range.
    Count {
        /// The smallest.
        least: u64,
        /// The largest.
        most: u64,
    },
    /// A count from 1, or one of these words.
    CountOr {
        /// The largest count.
        most: u64,
        /// The words.
        words: &'static [&'static str],
    },
    /// `true` or `false`.
    Flag,
    /// Address and port, `127.0.0.1:7420`.
    Address,
    /// One of these words.
    Choice(&'static [&'static str]),
}

/// One key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Its path; of a node, `node.NAME`.
    pub path: &'static str,
    /// What its value may be.
    pub kind: Kind,
    /// What it counts; empty where it counts nothing.
    pub unit: &'static str,
    /// What it is for, and what more of it costs.
    pub about: &'static str,
}

const fn key(path: &'static str, kind: Kind, unit: &'static str, about: &'static str) -> Key {
    Key {
        path,
        kind,
        unit,
        about,
    }
}

const fn count(least: u64, most: u64) -> Kind {
    Kind::Count { least, most }
}

const fn count_or(most: u64, words: &'static [&'static str]) -> Kind {
    Kind::CountOr { most, words }
}

/// The key of a path; `node[3].name` is `node.name`.
#[must_use]
pub fn find(path: &str) -> Option<&'static Key> {
    let plain = unindexed(path);
    KEYS.iter().find(|key| key.path == plain)
}

/// A path without the numbers of its lists.
#[must_use]
pub fn unindexed(path: &str) -> String {
    let mut plain = String::new();
    let mut inside = false;
    for c in path.chars() {
        match c {
            '[' => inside = true,
            ']' => inside = false,
            _ if inside => {}
            _ => plain.push(c),
        }
    }
    plain
}

/// The names that may follow a path: of sections and keys under it.
#[must_use]
pub fn names_under(path: &str) -> Vec<&'static str> {
    let plain = unindexed(path);
    let start = if plain.is_empty() { plain } else { plain + "." };
    let mut names: Vec<&str> = Vec::new();
    for key in KEYS {
        let Some(rest) = key.path.strip_prefix(&start) else {
            continue;
        };
        let name = rest.split('.').next().unwrap_or(rest);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// A configuration in which every key has a value.
#[must_use]
pub fn complete() -> ClusterConfig {
    let mut config = ClusterConfig::default();
    config.node.push(NodeSection {
        name: NodeName::new("n1").expect("a plain word is a name"),
        listen: Some(config.gpu_actor.listen),
        advertise: Some(config.gpu_actor.listen),
        threads: Some(config.gpu_actor.threads),
        memory_mib: Some(config.gpu_actor.memory_mib),
        spot: false,
        metrics: Some(config.gpu_actor.listen),
    });
    config
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn paths(value: &toml::Value, path: &str, found: &mut Vec<String>) {
        match value {
            toml::Value::Table(table) => {
                for (name, value) in table {
                    let dot = if path.is_empty() { "" } else { "." };
                    paths(value, &format!("{path}{dot}{name}"), found);
                }
            }
            toml::Value::Array(list) => list.iter().for_each(|value| paths(value, path, found)),
            _ => found.push(path.to_owned()),
        }
    }

    #[test]
    fn cf_1_keys_and_fields_are_the_same() {
        let value = toml::Value::try_from(complete()).unwrap();
        let mut fields = Vec::new();
        paths(&value, "", &mut fields);
        fields.sort();
        let mut keys: Vec<&str> = KEYS.iter().map(|key| key.path).collect();
        keys.sort_unstable();
        assert_eq!(fields, keys);
    }

    #[test]
    fn paths_and_what_follows_them() {
        assert_eq!(find("node[3].threads").unwrap().unit, "threads");
        assert!(find("node").is_none());
        assert_eq!(names_under("store"), ["url", "outage_seconds"]);
        assert_eq!(
            names_under("node[0]"),
            [
                "name",
                "listen",
                "advertise",
                "threads",
                "memory_mib",
                "spot",
                "metrics"
            ]
        );
        assert!(names_under("").contains(&"gpu_actor"));
    }
}
