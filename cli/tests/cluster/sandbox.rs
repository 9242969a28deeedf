//! A folder with a tiny model and jobs, and what one process makes of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// Files of adapters, by job and name.
pub(crate) type Adapters = BTreeMap<String, Vec<u8>>;

/// Jobs of as many methods as there are, each long enough to be disturbed.
const EIGHT: &[Method] = &[
    (
        "lora",
        r#"method = "lora", rank = 4, targets = "all-linear""#,
        30,
    ),
    (
        "dora",
        r#"method = "lora", rank = 3, dora = true, targets = ["q_proj", "down_proj"]"#,
        22,
    ),
    ("ia3", r#"method = "ia3""#, 18),
    ("bottleneck", r#"method = "bottleneck", size = 5"#, 25),
    (
        "prefix",
        r#"method = "prefix", tokens = 3, projection = 6"#,
        20,
    ),
    ("prompt", r#"method = "prompt", tokens = 4"#, 28),
    ("bitfit", r#"method = "bitfit""#, 32),
    ("diff", r#"method = "diff", density = 0.01"#, 18),
];

/// Jobs for a slow link.
pub(crate) const SHORT: &[Method] = &[
    (
        "lora",
        r#"method = "lora", rank = 4, targets = "all-linear""#,
        6,
    ),
    ("bottleneck", r#"method = "bottleneck", size = 5"#, 6),
];

/// Name, adapter and steps of a job.
pub(crate) type Method = (&'static str, &'static str, u64);

/// The folder.
pub(crate) struct Sandbox {
    folder: TempDir,
    pub(crate) jobs: Vec<&'static str>,
}

impl Sandbox {
    /// With the first so many of the eight jobs.
    pub(crate) fn new(jobs: usize) -> Self {
        Self::of(&EIGHT[..jobs])
    }

    /// With these jobs.
    pub(crate) fn of(chosen: &[Method]) -> Self {
        Self::sharing(chosen, 1)
    }

    /// With the first so many of the eight jobs, each of whose steps so many replicas share.
    pub(crate) fn shared(jobs: usize, replicas: u32) -> Self {
        Self::sharing(&EIGHT[..jobs], replicas)
    }

    /// With such jobs, each of whose steps so many replicas share.
    pub(crate) fn sharing(chosen: &[Method], replicas: u32) -> Self {
        let sandbox = Self {
            folder: tempfile::tempdir().unwrap(),
            jobs: chosen.iter().map(|(name, ..)| *name).collect(),
        };
        let made = sandbox.spotmux(&["model", "tiny", "model", "--layers", "4"]);
        assert!(made.status.success(), "{made:?}");
        let lines = (0..40).map(|i| {
            let words = "and so on ".repeat(1 + i % 5);
            format!(
                "{{\"text\": \"sample {i} says {words}until {}\"}}\n",
                i * 7 % 11
            )
        });
        sandbox.write("samples.jsonl", &lines.collect::<String>());
        let mut text = "model = \"model\"\noutput = \"alone\"\n".to_owned();
        for (at, (name, adapter, steps)) in chosen.iter().enumerate() {
            let batch = 1 + at % 4 + 3 * (replicas as usize - 1);
            text.push_str(&format!(
                "[[job]]\nname = \"{name}\"\nseed = {at}\nreplicas = {replicas}\nadapter = {{ {adapter} }}\n\
                 data = {{ train = \"samples.jsonl\", eval_split = 0.1 }}\n\
                 train = {{ steps = {steps}, batch_size = {batch}, accumulation = {} }}\n\
                 eval = {{ every_steps = 10 }}\ncheckpoint = {{ every_steps = 1 }}\n",
                1 + at % 2
            ));
        }
        sandbox.write("jobs.toml", &text);
        sandbox
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path().join(name), text).unwrap();
    }

    /// Has no state stored for any reason but that it must be.
    pub(crate) fn without_checkpoints(&self) {
        let text = fs::read_to_string(self.path().join("jobs.toml")).unwrap();
        let (every, never) = ("every_steps = 1 }", "every_steps = 0 }");
        assert!(text.contains(every), "{text}");
        self.write("jobs.toml", &text.replace(every, never));
    }

    /// The command in this folder.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spotmux"));
        command.args(arguments).current_dir(self.path());
        command.env("SPOTMUX_CACHE", self.path().join("cache"));
        command
    }

    pub(crate) fn spotmux(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// What one process makes of the jobs.
    pub(crate) fn alone(&self) -> Adapters {
        let ran = self.spotmux(&["train", "jobs.toml", "--quiet"]);
        assert!(
            ran.status.success(),
            "{}",
            String::from_utf8_lossy(&ran.stderr)
        );
        let folder = |job: &str| self.path().join("alone").join(job).join("adapter");
        self.adapters(folder)
    }

    /// Removes what a cluster before left.
    pub(crate) fn forget_cluster(&self) {
        for folder in [".spotmux", "fetched"] {
            // It may not be there.
            let _ = fs::remove_dir_all(self.path().join(folder));
        }
    }

    pub(crate) fn adapters(&self, folder: impl Fn(&str) -> PathBuf) -> Adapters {
        let mut adapters = Adapters::new();
        for job in &self.jobs {
            for entry in fs::read_dir(folder(job)).unwrap() {
                let path = entry.unwrap().path();
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                if name.ends_with(".safetensors") {
                    adapters.insert(format!("{job}/{name}"), fs::read(path).unwrap());
                }
            }
        }
        assert_eq!(adapters.len(), self.jobs.len(), "an adapter each");
        adapters
    }
}

/// Fails unless all adapters have the same bytes.
#[track_caller]
pub(crate) fn assert_same(found: &Adapters, wanted: &Adapters) {
    assert_eq!(
        found.keys().collect::<Vec<_>>(),
        wanted.keys().collect::<Vec<_>>()
    );
    let differ = wanted
        .iter()
        .filter(|(name, bytes)| found[*name] != **bytes);
    let differ: Vec<&String> = differ.map(|(name, _)| name).collect();
    assert!(differ.is_empty(), "other bytes: {differ:?}");
}
