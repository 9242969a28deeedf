//! A cluster in a sandbox, and what it makes of the jobs.

use std::collections::BTreeMap;
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

pub(crate) use super::sandbox::{Adapters, Sandbox, assert_same};

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(180);

/// Where processes listen.
pub(crate) struct Places {
    pub(crate) coordinator: SocketAddr,
    pub(crate) metrics: SocketAddr,
    /// Of each node: where it listens, and where its neighbours reach it, when elsewhere.
    pub(crate) nodes: Vec<(SocketAddr, Option<SocketAddr>)>,
    /// A node that is silent for so long is lost.
    pub(crate) bound_ms: u64,
    /// Copies of the backbone.
    pub(crate) replicas: u64,
}

impl Places {
    /// Free ports of this machine.
    pub(crate) fn free(nodes: usize) -> Self {
        // Held all at once, so that no port is given twice.
        let sockets: Vec<UdpSocket> = (0..nodes + 2)
            .map(|_| UdpSocket::bind("127.0.0.1:0").unwrap())
            .collect();
        let mut free = sockets.iter().map(|socket| socket.local_addr().unwrap());
        Self {
            coordinator: free.next().unwrap(),
            metrics: free.next().unwrap(),
            nodes: free.map(|address| (address, None)).collect(),
            bound_ms: 2000,
            replicas: 1,
        }
    }

    /// The cluster's file.
    pub(crate) fn file(&self, stages: usize) -> String {
        let Self {
            coordinator,
            metrics,
            nodes,
            bound_ms,
            replicas,
        } = self;
        let mut text = format!(
            "version = 1\n[model]\npath = \"model\"\n[coordinator]\nlisten = \"{coordinator}\"\n\
             metrics = \"{metrics}\"\nheartbeat_ms = 200\nheartbeat_bound_ms = {bound_ms}\nlease_seconds = 3\n\
             [plan]\nstages = {stages}\nreplicas = {replicas}\n",
        );
        for (at, (listen, advertise)) in nodes.iter().enumerate() {
            let name = at + 1;
            text.push_str(&format!(
                "[[node]]\nname = \"n{name}\"\nlisten = \"{listen}\"\n"
            ));
            if let Some(advertise) = advertise {
                text.push_str(&format!("advertise = \"{advertise}\"\n"));
            }
        }
        text
    }
}

/// Makes a command of these words.
type Inside<'a> = dyn Fn(&[&str]) -> Command + 'a;

/// A cluster at work.
pub(crate) struct Cluster<'a> {
    pub(crate) sandbox: &'a Sandbox,
    /// The one who watches, or the processes themselves.
    processes: Vec<Child>,
    /// Makes a command that reaches the coordinator.
    inside: Box<Inside<'a>>,
    /// Longest wait for anything.
    pub(crate) patience: Duration,
}

impl<'a> Cluster<'a> {
    /// So many nodes, of which so many hold a stage.
    pub(crate) fn start(sandbox: &'a Sandbox, stages: usize, nodes: usize) -> Self {
        Self::up(sandbox, stages, &Places::free(nodes))
    }

    /// With more in its file.
    pub(crate) fn start_with(
        sandbox: &'a Sandbox,
        stages: usize,
        nodes: usize,
        more: &str,
    ) -> Self {
        let text = Places::free(nodes).file(stages) + more;
        Self::of_file(sandbox, &text)
    }

    /// The same, at these places.
    pub(crate) fn up(sandbox: &'a Sandbox, stages: usize, places: &Places) -> Self {
        Self::of_file(sandbox, &places.file(stages))
    }

    /// What `up` starts from a file, when it says that all are ready: before, the end of one is the end of all.
    fn of_file(sandbox: &'a Sandbox, text: &str) -> Self {
        sandbox.write("cluster.toml", text);
        let up = sandbox.command(&["up", "--json"]);
        // One whose nodes are drained is ready without a plan.
        let words = |words: &[&str]| sandbox.command(words);
        let mut cluster = Self::without_nodes(sandbox, vec![("up", up)], words);
        cluster.until("all are ready", |cluster| {
            let told = cluster.sandbox.path().join("up.out");
            let told = fs::read_to_string(told).ok()?;
            told.contains("\"ready\"").then_some(())
        });
        cluster
    }

    /// Of processes that are started by themselves.
    pub(crate) fn of(
        sandbox: &'a Sandbox,
        commands: Vec<(&str, Command)>,
        inside: impl Fn(&[&str]) -> Command + 'a,
    ) -> Self {
        let mut cluster = Self::without_nodes(sandbox, commands, inside);
        cluster.until("the cluster serves", |cluster| {
            let status = cluster.json(&["status"])?;
            let plan = status["plan"]["replicas"].as_array()?.len();
            (plan > 0).then_some(())
        });
        cluster
    }

    /// The same, when its coordinator answers.
    pub(crate) fn without_nodes(
        sandbox: &'a Sandbox,
        commands: Vec<(&str, Command)>,
        inside: impl Fn(&[&str]) -> Command + 'a,
    ) -> Self {
        let mut cluster = Self {
            sandbox,
            processes: Vec::new(),
            inside: Box::new(inside),
            patience: PATIENCE,
        };
        for (name, command) in commands {
            cluster.add(name, command);
        }
        cluster.until("the coordinator answers", |cluster| {
            cluster.json(&["status"]).map(|_| ())
        });
        cluster
    }

    /// Starts one more process.
    pub(crate) fn add(&mut self, name: &str, mut command: Command) {
        let file = |ending| {
            let path = self.sandbox.path().join(format!("{name}.{ending}"));
            fs::File::create(path).unwrap()
        };
        let (told, log) = (file("out"), file("log"));
        let process = command.stdout(told).stderr(log).spawn().unwrap();
        self.processes.push(process);
    }

    /// One document that a command prints; none when it fails.
    pub(crate) fn json(&self, arguments: &[&str]) -> Option<Value> {
        let mut all = arguments.to_vec();
        all.push("--json");
        let ran = (self.inside)(&all).output().unwrap();
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
            let mut processes = self.processes.iter_mut();
            let ended = processes.find_map(|process| process.try_wait().unwrap());
            if ended.is_some() || begin.elapsed() > self.patience {
                panic!(
                    "{what}: not within {:?}, ended {ended:?}\n{}",
                    begin.elapsed(),
                    self.logs()
                );
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    pub(crate) fn submit(&self) {
        let ran = (self.inside)(&["submit", "jobs.toml", "--json"])
            .output()
            .unwrap();
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
            let ran = (self.inside)(&["fetch", job, &folder]).output().unwrap();
            assert!(ran.status.success(), "{ran:?}");
        }
        self.sandbox
            .adapters(|job| self.sandbox.path().join("fetched").join(job))
    }

    /// Ends a process at once, as a machine that is taken away.
    pub(crate) fn kill(&self, name: &str) -> bool {
        self.signal(name, "-KILL")
    }

    /// Sends a signal to a process.
    pub(crate) fn signal(&self, name: &str, signal: &str) -> bool {
        let Some(id) = self.process(name) else {
            return false;
        };
        let sent = Command::new("kill")
            .args([signal, &id.to_string()])
            .status();
        sent.is_ok_and(|status| status.success())
    }

    /// The id of a process.
    pub(crate) fn process(&self, name: &str) -> Option<u64> {
        let folder = self.sandbox.path().join(".spotmux/run");
        let text = fs::read_to_string(folder.join(format!("{name}.json"))).ok()?;
        let process: Value = serde_json::from_str(&text).ok()?;
        process["id"].as_u64()
    }

    /// All that happened.
    pub(crate) fn events(&self) -> Vec<Value> {
        let ran = (self.inside)(&["events", "--json"]).output().unwrap();
        let text = String::from_utf8_lossy(&ran.stdout).into_owned();
        let lines = text.lines().filter(|line| !line.is_empty());
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Whether something of this kind happened to a node.
    pub(crate) fn happened(&self, kind: &str, node: &str) -> bool {
        let mut events = self.events().into_iter();
        events.any(|event| event["event"] == kind && event["data"]["node"] == node)
    }

    /// Each job's steps in the order in which they were told, and how often one followed that was not the next.
    pub(crate) fn steps_told(&self) -> (BTreeMap<String, Vec<u64>>, usize) {
        let mut told: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for event in self.events() {
            if let ("step", Some(job), Some(step)) = (
                event["event"].as_str().unwrap_or_default(),
                event["job"].as_str(),
                event["data"]["step"].as_u64(),
            ) {
                told.entry(job.to_owned()).or_default().push(step);
            }
        }
        let pairs = told.values().flat_map(|steps| steps.windows(2));
        let breaks = pairs.filter(|pair| pair[1] != pair[0] + 1).count();
        (told, breaks)
    }

    /// All of so many jobs told of their steps, and none took one twice or left one out.
    pub(crate) fn assert_no_step_twice(&self, jobs: usize) {
        let (told, breaks) = self.steps_told();
        assert_eq!(
            (told.len(), breaks),
            (jobs, 0),
            "no step was taken twice: {told:?}"
        );
    }

    /// The node that holds a stage.
    pub(crate) fn holder(&self, stage: usize) -> Option<String> {
        self.holder_in(0, stage)
    }

    /// The node that holds a stage of the replica at this place in the plan.
    pub(crate) fn holder_in(&self, replica: usize, stage: usize) -> Option<String> {
        let status = self.json(&["status"])?;
        let seat = &status["plan"]["replicas"][replica]["seats"][stage]["node"];
        seat.as_str().map(ToOwned::to_owned)
    }

    /// What the processes said last.
    pub(crate) fn logs(&self) -> String {
        let folders = [
            self.sandbox.path().to_path_buf(),
            self.sandbox.path().join(".spotmux/logs"),
        ];
        let entries = folders.iter().flat_map(fs::read_dir).flatten().flatten();
        let is_log = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "log");
        let mut text = String::new();
        for path in entries.map(|entry| entry.path()).filter(is_log) {
            let log = fs::read_to_string(&path).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let tail = lines[lines.len().saturating_sub(25)..].join("\n");
            text.push_str(&format!("\n== {}\n{tail}", path.display()));
        }
        text
    }
}

impl Drop for Cluster<'_> {
    fn drop(&mut self) {
        let _ = self.sandbox.spotmux(&["down", "--yes"]);
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
