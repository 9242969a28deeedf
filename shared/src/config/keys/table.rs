//! The keys, in the order of the file.

use super::{Key, Kind, count, count_or, key};
use crate::recompute::Recompute;

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
        "store.outage_seconds",
        count(0, 24 * 3600),
        "s",
        "jobs wait for a store that does not answer, and fail after so long",
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
        "coordinator.device_patience_seconds",
        count(1, 24 * 3600),
        "s",
        "a device at one piece of work for so long is lost; slower ones are given ten times their longest",
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
    key(
        "gpu_actor.leave_seconds",
        count(0, 24 * 3600),
        "s",
        "a node that is asked to end stays so long for its stage to move; less costs steps that are not durable",
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
