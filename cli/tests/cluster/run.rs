//! A folder with a tiny model, jobs and a cluster's file; the cluster in it; what it makes of the jobs.

use std::collections::BTreeMap;
use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(180);

/// Files of adapters, by job and name.
pub(crate) type Adapters = BTreeMap<String, Vec<u8>>;

/// Jobs of as many methods as there are, each long enough to be disturbed.
const EIGHT: &[(&str, &str, u64)] = &[
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

/// The folder.
pub(crate) struct Sandbox {
    folder: TempDir,
    jobs: Vec<&'static str>,
}

impl Sandbox {
    /// With the first so many of the eight jobs.
    pub(crate) fn new(jobs: usize) -> Self {
        let chosen = &EIGHT[..jobs];
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
            let batch = 1 + at % 4;
            text.push_str(&format!(
                "[[job]]\nname = \"{name}\"\nseed = {at}\nadapter = {{ {adapter} }}\n\
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

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path().join(name), text).unwrap();
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

    fn adapters(&self, folder: impl Fn(&str) -> PathBuf) -> Adapters {
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

/// A cluster at work.
pub(crate) struct Cluster<'a> {
    pub(crate) sandbox: &'a Sandbox,
    up: Child,
}

impl<'a> Cluster<'a> {
    /// So many nodes, of which so many hold a stage.
    pub(crate) fn start(sandbox: &'a Sandbox, stages: usize, nodes: usize) -> Self {
        Self::start_with(sandbox, stages, nodes, "")
    }

    /// With more in its file.
    pub(crate) fn start_with(
        sandbox: &'a Sandbox,
        stages: usize,
        nodes: usize,
        more: &str,
    ) -> Self {
        // Held all at once, so that no port is given twice.
        let sockets: Vec<UdpSocket> = (0..nodes + 2)
            .map(|_| UdpSocket::bind("127.0.0.1:0").unwrap())
            .collect();
        let port = |at: usize| sockets[at].local_addr().unwrap().port();
        let mut text = format!(
            "version = 1\n[model]\npath = \"model\"\n[coordinator]\nlisten = \"127.0.0.1:{}\"\n\
             metrics = \"127.0.0.1:{}\"\nheartbeat_ms = 200\nheartbeat_bound_ms = 2000\nlease_seconds = 3\n\
             [plan]\nstages = {stages}\n",
            port(nodes),
            port(nodes + 1)
        );
        for node in 0..nodes {
            let (name, port) = (node + 1, port(node));
            text.push_str(&format!(
                "[[node]]\nname = \"n{name}\"\nlisten = \"127.0.0.1:{port}\"\n"
            ));
        }
        text.push_str(more);
        sandbox.write("cluster.toml", &text);
        drop(sockets);
        let mut up = sandbox.command(&["up", "--quiet"]);
        let log = fs::File::create(sandbox.path().join("up.log")).unwrap();
        let up = up.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let mut cluster = Self { sandbox, up };
        cluster.until("the cluster serves", |cluster| {
            let status = cluster.json(&["status"])?;
            let plan = status["plan"]["replicas"].as_array()?.len();
            (plan > 0).then_some(())
        });
        cluster
    }

    /// One document that a command prints; none when it fails.
    pub(crate) fn json(&self, arguments: &[&str]) -> Option<Value> {
        let mut all = arguments.to_vec();
        all.push("--json");
        let ran = self.sandbox.spotmux(&all);
        let text = String::from_utf8_lossy(&ran.stdout).into_owned();
        let last = text.lines().last()?.to_owned();
        ran.status
            .success()
            .then(|| serde_json::from_str(&last).ok())?
    }

    /// Waits until something is so.
    pub(crate) fn until<T>(&mut self, what: &str, mut look: impl FnMut(&Self) -> Option<T>) -> T {
        let begin = Instant::now();
        loop {
            if let Some(found) = look(self) {
                return found;
            }
            let ended = self.up.try_wait().unwrap();
            if ended.is_some() || begin.elapsed() > PATIENCE {
                panic!(
                    "{what}: not within {:?}, up {ended:?}\n{}",
                    begin.elapsed(),
                    self.logs()
                );
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    pub(crate) fn submit(&self) {
        let ran = self.sandbox.spotmux(&["submit", "jobs.toml", "--json"]);
        assert!(ran.status.success(), "{ran:?}\n{}", self.logs());
    }

    /// Steps taken by all jobs together.
    pub(crate) fn steps(&self) -> Option<u64> {
        let jobs = self.jobs()?;
        jobs.iter().map(|job| job["step"].as_u64()).sum()
    }

    pub(crate) fn jobs(&self) -> Option<Vec<Value>> {
        let listed = self.json(&["jobs", "--all"])?;
        let jobs = listed.get("jobs").unwrap_or(&listed);
        Some(jobs.as_array()?.clone())
    }

    /// Waits until so many steps were taken.
    pub(crate) fn until_step(&mut self, steps: u64) {
        self.until(&format!("step {steps}"), |cluster| {
            cluster.steps().filter(|taken| *taken >= steps)
        });
    }

    /// Waits for the end of all jobs, and fetches their adapters.
    pub(crate) fn adapters(&mut self) -> Adapters {
        self.until("all jobs end", |cluster| {
            let jobs = cluster.jobs()?;
            let states: Vec<&str> = jobs
                .iter()
                .filter_map(|job| job["state"].as_str())
                .collect();
            assert!(!states.contains(&"failed"), "{jobs:#?}\n{}", cluster.logs());
            let done = states.iter().all(|state| *state == "succeeded");
            (done && states.len() == cluster.sandbox.jobs.len()).then_some(())
        });
        for job in &self.sandbox.jobs {
            let folder = format!("fetched/{job}");
            let ran = self.sandbox.spotmux(&["fetch", job, &folder]);
            assert!(ran.status.success(), "{ran:?}");
        }
        self.sandbox
            .adapters(|job| self.sandbox.path().join("fetched").join(job))
    }

    /// Ends a process at once, as a machine that is taken away.
    pub(crate) fn kill(&self, name: &str) -> bool {
        let folder = self.sandbox.path().join(".spotmux/run");
        let Ok(text) = fs::read_to_string(folder.join(format!("{name}.json"))) else {
            return false;
        };
        let process: Value = serde_json::from_str(&text).unwrap_or_default();
        let Some(id) = process["id"].as_u64() else {
            return false;
        };
        let killed = Command::new("kill").args(["-9", &id.to_string()]).status();
        killed.is_ok_and(|status| status.success())
    }

    /// The node that holds a stage.
    pub(crate) fn holder(&self, stage: usize) -> Option<String> {
        let status = self.json(&["status"])?;
        let seat = &status["plan"]["replicas"][0]["seats"][stage]["node"];
        seat.as_str().map(ToOwned::to_owned)
    }

    /// What the processes said last.
    pub(crate) fn logs(&self) -> String {
        let mut text = fs::read_to_string(self.sandbox.path().join("up.log")).unwrap_or_default();
        let folder = self.sandbox.path().join(".spotmux/logs");
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        for entry in entries {
            let log = fs::read_to_string(entry.path()).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let tail = lines[lines.len().saturating_sub(25)..].join("\n");
            text.push_str(&format!("\n== {}\n{tail}", entry.path().display()));
        }
        text
    }
}

impl Drop for Cluster<'_> {
    fn drop(&mut self) {
        let _ = self.sandbox.spotmux(&["down", "--yes"]);
        let _ = self.up.kill();
        let _ = self.up.wait();
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
