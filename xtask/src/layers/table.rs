//! The rules as data: which crate may import which, which folders are pure, where `unsafe` may stand.

/// One crate of the workspace and what it may import.
#[derive(Debug)]
pub struct Floor {
    /// Folder from the root.
    pub folder: &'static str,
    /// Floor number; arrows only go down.
    pub number: u8,
    /// Packages of the workspace that it may import.
    pub imports: &'static [&'static str],
    /// Foreign packages that its code must not know; its tests may.
    pub refuses: &'static [&'static str],
}

/// What no crate below the top needs: errors without a type.
const UNTYPED: &str = "anyhow";

/// The floors of the house. A crate that is missing here fails the check.
pub const FLOORS: &[Floor] = &[
    Floor {
        folder: "shared",
        number: 1,
        imports: &[],
        refuses: &[
            UNTYPED,
            "candle-core",
            "candle-nn",
            "gemm",
            "half",
            "memmap2",
            "rayon",
            "safetensors",
            "tokenizers",
        ],
    },
    Floor {
        folder: "kernels",
        number: 1,
        imports: &[],
        refuses: &[
            UNTYPED,
            "actix",
            "candle-core",
            "candle-nn",
            "memmap2",
            "quinn",
            "safetensors",
            "serde",
            "tokenizers",
            "tokio",
            "tracing",
        ],
    },
    Floor {
        folder: "data",
        number: 2,
        imports: &["shared"],
        refuses: &[
            UNTYPED,
            "actix",
            "candle-core",
            "candle-nn",
            "gemm",
            "half",
            "quinn",
            "safetensors",
            "tokio",
        ],
    },
    Floor {
        folder: "coordinator",
        number: 3,
        imports: &["shared", "data"],
        refuses: &[UNTYPED, "candle-core", "candle-nn", "gemm", "safetensors"],
    },
    Floor {
        folder: "gpu-actor",
        number: 3,
        imports: &["shared", "kernels", "data"],
        refuses: &[UNTYPED, "candle-nn", "clap", "hf-hub", "indicatif"],
    },
    Floor {
        folder: "market-actor",
        number: 3,
        imports: &["shared"],
        refuses: &[UNTYPED, "candle-core", "candle-nn", "gemm", "safetensors"],
    },
    Floor {
        folder: "simulator",
        number: 4,
        imports: &["shared", "coordinator", "gpu-actor", "market-actor"],
        refuses: &[UNTYPED, "actix", "quinn", "tokio"],
    },
    Floor {
        folder: "loadtest",
        number: 4,
        imports: &["shared"],
        refuses: &["candle-core", "candle-nn"],
    },
    Floor {
        folder: "cli",
        number: 5,
        imports: &[
            "shared",
            "kernels",
            "data",
            "coordinator",
            "gpu-actor",
            "market-actor",
            "simulator",
            "loadtest",
        ],
        refuses: &["candle-nn"],
    },
    Floor {
        folder: "tests",
        number: 5,
        imports: &[
            "shared",
            "kernels",
            "data",
            "coordinator",
            "gpu-actor",
            "market-actor",
            "simulator",
            "loadtest",
            "xtask",
        ],
        refuses: &[],
    },
    Floor {
        folder: "xtask",
        number: 5,
        imports: &[],
        refuses: &[],
    },
];

/// Folders and files that are pure, tests in them excepted.
pub const PURE: &[&str] = &[
    "shared/src",
    "kernels/src",
    "data/src",
    "gpu-actor/src/artifacts/manifest.rs",
    "gpu-actor/src/artifacts/part.rs",
    "coordinator/src",
    "cli/src/demo/heard.rs",
    "cli/src/demo/shift.rs",
    "cli/src/bench/pipeline/bubble.rs",
    "cli/src/bench/pipeline/history.rs",
    "cli/src/local/watch.rs",
    "cli/src/measuring/rungs.rs",
    "cli/src/planning/shown.rs",
    "cli/src/repl/words.rs",
    "cli/src/timeline.rs",
    "gpu-actor/src/actor/respite.rs",
    "gpu-actor/src/batch.rs",
    "gpu-actor/src/batch",
    "gpu-actor/src/duty.rs",
    "gpu-actor/src/duty",
    "gpu-actor/src/link.rs",
    "gpu-actor/src/link/word.rs",
    "gpu-actor/src/peft",
    "gpu-actor/src/pipeline.rs",
    "gpu-actor/src/pipeline/council.rs",
    "gpu-actor/src/pipeline/micro_batch.rs",
    "gpu-actor/src/reclaim.rs",
    "gpu-actor/src/replica/event.rs",
    "gpu-actor/src/replica/gathering.rs",
    "gpu-actor/src/replica/ledger.rs",
    "gpu-actor/src/sample",
    "gpu-actor/src/stage",
    "gpu-actor/src/train/engine.rs",
    "gpu-actor/src/train/event.rs",
    "gpu-actor/src/train/flat.rs",
    "gpu-actor/src/train/identity.rs",
    "gpu-actor/src/train/job_state.rs",
    "gpu-actor/src/train/local.rs",
    "gpu-actor/src/train/memory.rs",
    "gpu-actor/src/train/pack",
    "gpu-actor/src/train/pack.rs",
    "gpu-actor/src/train/progress.rs",
    "gpu-actor/src/train/proof.rs",
    "gpu-actor/src/train/run.rs",
    "gpu-actor/src/train/seal.rs",
    "gpu-actor/src/train/session.rs",
    "gpu-actor/src/train/session",
    "gpu-actor/src/train/shard.rs",
    "gpu-actor/src/train/spread.rs",
    "gpu-actor/src/train/tally.rs",
    "market-actor/src",
    "simulator/src",
];

/// Files and folders inside pure folders that are shell, each with the reason.
pub const SHELL: &[(&str, &str)] = &[
    (
        "shared/src/config/load.rs",
        "reads the file of a cluster's settings",
    ),
    ("shared/src/config/load", "its tests"),
    (
        "shared/src/process.rs",
        "tells processes of the system apart and ends them",
    ),
    ("data/src/job_data.rs", "opens the files a job names"),
    (
        "data/src/regular.rs",
        "opens files of users, for every crate above",
    ),
    (
        "gpu-actor/src/peft/files.rs",
        "writes and reads adapter folders",
    ),
    (
        "shared/src/artifact",
        "puts and gets files of a folder or a bucket",
    ),
    (
        "shared/src/artifact.rs",
        "puts and gets files of a folder or a bucket",
    ),
    (
        "shared/src/net",
        "speaks with other processes; keeps keys and tokens in files",
    ),
    (
        "shared/src/net.rs",
        "speaks with other processes; keeps keys and tokens in files",
    ),
    ("shared/src/telemetry/registry.rs", "keeps what is measured"),
    (
        "shared/src/telemetry/serve.rs",
        "answers who scrapes, over TCP",
    ),
    (
        "coordinator/src/actor",
        "sockets, threads and the database around the machine",
    ),
    ("coordinator/src/actor.rs", "lists the shell"),
    (
        "coordinator/src/store/sqlite.rs",
        "keeps the journal in a file, by the database's clock",
    ),
    (
        "market-actor/src/actor",
        "sockets, threads, files and the clock around the broker",
    ),
    ("market-actor/src/actor.rs", "lists the shell"),
    (
        "market-actor/src/feed/files.rs",
        "opens the files that hold traces",
    ),
    ("market-actor/src/provider/aws.rs", "calls EC2 over HTTP"),
    (
        "market-actor/src/provider/fixed.rs",
        "keeps in a file which machines of a list are in use",
    ),
    (
        "market-actor/src/provider/local.rs",
        "starts and ends processes of this machine",
    ),
    (
        "market-actor/src/provider/local",
        "keeps in files what was started, and looks for processes",
    ),
    (
        "market-actor/src/provider/replay.rs",
        "acts on processes as a trace says",
    ),
    (
        "market-actor/src/provider/slurm.rs",
        "runs the commands of Slurm",
    ),
    (
        "simulator/src/main.rs",
        "takes seeds from the command line and prints what came of them",
    ),
];

/// Paths that pure code does not name, each with what to do instead.
pub const IMPURE: &[(&str, &str)] = &[
    (
        "std::fs",
        "take the bytes or a reader, and open the file in the shell",
    ),
    ("std::net", "take the message, and receive it in the shell"),
    ("std::env", "take the setting as an argument"),
    (
        "std::time",
        "take the time as an argument; std::time::Duration is fine",
    ),
    (
        "std::process",
        "return an error, and end the process in the shell",
    ),
    ("std::thread::sleep", "take an event"),
    ("std::io::stdin", "take a reader"),
    ("std::io::stdout", "take a writer or return the value"),
    ("std::io::stderr", "take a writer or return the value"),
    ("actix", "keep the actor thin and the step pure"),
    ("config", "take the setting as an argument"),
    ("hf_hub", "fetch in the shell"),
    ("indicatif", "return progress as data"),
    ("memmap2", "take the bytes, and map the file in the shell"),
    ("quinn", "take the message, and receive it in the shell"),
    ("rand", "take keyed randomness from shared::random"),
    ("tempfile", "take the folder as an argument"),
    ("tokio", "keep the step pure, and wait in the shell"),
];

/// Paths that a rule of [`IMPURE`] covers by its prefix but that are values only.
pub const PURE_ALL_THE_SAME: &[&str] = &[
    "std::time::Duration",
    "core::net::Ipv4Addr",
    "core::net::SocketAddr",
];

/// Macros that print or read the environment: shell only.
pub const IMPURE_MACROS: &[&str] = &[
    "print",
    "println",
    "eprint",
    "eprintln",
    "dbg",
    "option_env",
];

/// Files and folders where `unsafe` may stand, each with the reason.
pub const UNSAFE: &[(&str, &str)] = &[
    (
        "kernels/src/cpu/isa.rs",
        "calls code built for an instruction set that was detected",
    ),
    ("kernels/src/cpu/micro.rs", "micro-kernels with intrinsics"),
    ("kernels/src/cpu/micro", "micro-kernels with intrinsics"),
    (
        "kernels/src/cpu/expand.rs",
        "expands quantised blocks with intrinsics",
    ),
    (
        "kernels/src/cpu/transpose.rs",
        "transposes blocks in registers",
    ),
    (
        "kernels/src/cpu/tiles.rs",
        "sets up tile registers and multiplies in them, by instructions alone",
    ),
    ("kernels/src/cpu/tiles", "multiplies in tile registers"),
    (
        "kernels/src/peer.rs",
        "calls the library product that ours is measured against",
    ),
    (
        "kernels/src/cpu/disjoint.rs",
        "hands out parts of a slice that do not overlap",
    ),
    ("gpu-actor/src/model/mapping.rs", "maps files into memory"),
    (
        "gpu-actor/tests/forecast.rs",
        "counts what is allocated, against what was foreseen",
    ),
];

/// Folders of one crate where files of the same name are halves of one thing and may know each other.
#[derive(Debug)]
pub struct Halves {
    /// Folder of the crate.
    pub folder: &'static str,
    /// The two folders of modules.
    pub between: [&'static str; 2],
    /// Why.
    pub reason: &'static str,
}

/// All of them.
pub const HALVES: &[Halves] = &[Halves {
    folder: "kernels",
    between: ["ops", "cpu"],
    reason: "the entry of an operation names its arguments, the fast version reads them",
}];

/// Words that name no thing.
pub const EMPTY_NAMES: &[&str] = &[
    "common", "helper", "helpers", "manager", "misc", "util", "utils",
];

/// Whether `path` is `place` or lies in it.
#[must_use]
pub fn lies_in(path: &str, place: &str) -> bool {
    path == place
        || path
            .strip_prefix(place)
            .is_some_and(|rest| rest.starts_with('/'))
}
