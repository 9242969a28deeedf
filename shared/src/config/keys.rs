//! Every key of `cluster.toml`: kind, range, unit and cost, in the order of the file.
//!
//! - `CF-1` The keys here and the fields of [`super::schema`] are the same.

use super::schema::{ClusterConfig, NodeSection};
use crate::ids::NodeName;
use crate::recompute::Recompute;

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

/// Largest memory of a node that is believed, in MiB: 64 TiB.
const MEMORY: u64 = 64 << 20;

/// All of them.
pub const KEYS: &[Key] = &[
    key("version", count(1, 1), "", "form of the file"),
    key(
        "cluster.name",
        Kind::Name,
        "",
        "certificates bear it: another name needs another directory of certificates",
    ),
    key(
        "cluster.state",
        Kind::Text,
        "",
        "folder of process ids and logs; logs grow with telemetry.log",
    ),
    key(
        "model.path",
        Kind::Text,
        "",
        "folder, .gguf file or name of a fetched model: every node opens its own layers of it",
    ),
    key(
        "model.format",
        Kind::Choice(&["as-shipped", "f32", "bf16"]),
        "",
        "f32 and bf16 need 4 and 2 bytes a weight",
    ),
    key(
        "model.products",
        Kind::Choice(&["f32", "split"]),
        "",
        "split is faster on processors with AMX, slower on others; results differ in the last bits; all nodes alike",
    ),
    key(
        "store.url",
        Kind::Text,
        "",
        "folder or s3://bucket/prefix; all nodes must reach it; grows with checkpoints",
    ),
    key(
        "coordinator.listen",
        Kind::Address,
        "UDP",
        "where gpu-actors and the command line reach it",
    ),
    key(
        "coordinator.metrics",
        Kind::Address,
        "TCP",
        "where metrics are read; only for those who may see names of jobs",
    ),
    key(
        "coordinator.journal",
        Kind::Text,
        "",
        "what was accepted survives here; synced for every accepted request",
    ),
    key(
        "coordinator.heartbeat_ms",
        count(10, 60_000),
        "ms",
        "shorter finds losses sooner and costs a message a node",
    ),
    key(
        "coordinator.heartbeat_bound_ms",
        count(20, 600_000),
        "ms",
        "shorter moves work away from nodes that only hesitated",
    ),
    key(
        "coordinator.lease_seconds",
        count(1, 3600),
        "s",
        "a stand-in waits so long before it takes over",
    ),
    key(
        "coordinator.events_kept",
        count(1, 10_000_000),
        "events",
        "about 1 KiB of memory each",
    ),
    key(
        "plan.stages",
        count_or(1024, &["all"]),
        "stages",
        "more need less memory a node, and carry activations between nodes",
    ),
    key(
        "plan.replicas",
        count(1, 1024),
        "copies",
        "each needs plan.stages nodes of its own, and trains other jobs",
    ),
    key(
        "plan.tokens_per_pass",
        count(1, 1 << 24),
        "tokens",
        "more cost memory for activations and gain little above 512",
    ),
    key(
        "plan.rounds_ahead",
        count(0, 64),
        "rounds",
        "more hide the way between nodes and hold more activations",
    ),
    key(
        "plan.activation_budget_mib",
        count(1, MEMORY),
        "MiB",
        "less makes micro-batches wait for one another",
    ),
    key(
        "plan.recompute",
        count_or(Recompute::MOST, Recompute::WORDS),
        "layers",
        "of every stage, whose activations are made again and not kept: less memory, up to a third more time",
    ),
    key(
        "plan.bf16_on_the_wire",
        Kind::Flag,
        "",
        "halves what travels, and results are no longer those of one process",
    ),
    key(
        "gpu_actor.threads",
        count(1, 4096),
        "threads",
        "more than there are cores is slower",
    ),
    key(
        "gpu_actor.memory_mib",
        count(1, MEMORY),
        "MiB",
        "layers, adapters and activations must fit",
    ),
    key(
        "gpu_actor.listen",
        Kind::Address,
        "UDP",
        "where a node listens that names no address of its own",
    ),
    key(
        "gpu_actor.fetch_gib",
        count(0, 1 << 16),
        "GiB",
        "a node without the backbone fetches it from another member, up to this size; 0: never",
    ),
    key(
        "gpu_actor.serve_mib_s",
        count(1, 1 << 20),
        "MiB/s",
        "how fast a node hands its backbone to another; more is taken from training traffic",
    ),
    key("node.name", Kind::Name, "", "its certificate bears it"),
    key(
        "node.listen",
        Kind::Address,
        "UDP",
        "where its neighbours reach it",
    ),
    key(
        "node.advertise",
        Kind::Address,
        "UDP",
        "where its neighbours reach it instead, as behind a forwarded port",
    ),
    key(
        "node.threads",
        count(1, 4096),
        "threads",
        "instead of gpu_actor.threads",
    ),
    key(
        "node.memory_mib",
        count(1, MEMORY),
        "MiB",
        "instead of gpu_actor.memory_mib",
    ),
    key(
        "node.spot",
        Kind::Flag,
        "",
        "it may be taken away: other nodes are preferred for what is slow to move",
    ),
    key(
        "node.metrics",
        Kind::Address,
        "TCP",
        "where its metrics are read; the port of listen on loopback without it",
    ),
    key(
        "security.directory",
        Kind::Text,
        "",
        "authority and certificates; whoever reads it may give orders",
    ),
    key(
        "security.certificate_hours",
        count(1, 24 * 365),
        "hours",
        "one that is stolen is good for so long",
    ),
    key(
        "security.token_minutes",
        count(1, 24 * 60),
        "minutes",
        "a token to join that is stolen is good for so long",
    ),
    key(
        "limits.jobs",
        count(1, 1_000_000),
        "jobs",
        "those that have not ended; about 4 KiB each",
    ),
    key(
        "limits.jobs_per_replica",
        count(1, 4096),
        "jobs",
        "each holds its adapter, its moments and its rows in memory",
    ),
    key(
        "limits.upload_mib",
        count(1, 1 << 20),
        "MiB",
        "disk of the store",
    ),
    key(
        "limits.frame_mib",
        count(1, 1024),
        "MiB",
        "memory for every message under way",
    ),
    key(
        "telemetry.log",
        Kind::Text,
        "",
        "level or filter; debug is many lines a step",
    ),
    key("telemetry.metrics", Kind::Flag, "", "a listening port"),
];

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
        assert_eq!(names_under("store"), ["url"]);
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
