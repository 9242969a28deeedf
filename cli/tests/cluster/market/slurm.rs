//! A cluster whose machines are jobs of Slurm: several slurmd on this host, and a job of somebody else that preempts one.
//!
//! Needs slurm-wlm and munge, and to be root; without them this says so and passes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::run::{Cluster, Places, Sandbox, assert_same};
use crate::sandbox::Method;

/// Jobs that live long enough to be preempted.
const JOBS: &[Method] = &[
    (
        "lora",
        r#"method = "lora", rank = 4, targets = "all-linear""#,
        500,
    ),
    ("bitfit", r#"method = "bitfit""#, 500),
];

/// Daemons of a small Slurm; all end with the test.
struct Slurm {
    folder: tempfile::TempDir,
    daemons: Vec<Child>,
}

impl Drop for Slurm {
    fn drop(&mut self) {
        let _ = self.call("scancel", &["--state=RUNNING"]).status();
        for daemon in self.daemons.iter_mut().rev() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

fn on_path(name: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    let own = std::env::split_paths(&folders).chain(["/usr/sbin".into()]);
    own.map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

/// Free ports, one after the other.
fn ports(count: usize) -> Vec<u16> {
    let sockets: Vec<_> = (0..count)
        .map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap())
        .collect();
    let ports = sockets
        .iter()
        .map(|socket| socket.local_addr().unwrap().port());
    ports.collect()
}

impl Slurm {
    /// Three nodes of one processor; a partition that is preempted for the other.
    fn start() -> Result<Self, String> {
        for name in ["munged", "slurmctld", "slurmd", "sbatch"] {
            on_path(name).ok_or_else(|| format!("{name} is not installed (slurm-wlm, munge)"))?;
        }
        let id = Command::new("id").arg("-u").output().unwrap();
        if id.stdout.trim_ascii() != b"0" {
            return Err("slurmd wants to be root".into());
        }
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        let private = |path: &Path, mode: u32| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        private(folder.path(), 0o755);
        let key: Vec<u8> = (0..1024u32).map(|at| (at * 131 % 251) as u8).collect();
        fs::write(at("munge.key"), key).unwrap();
        private(Path::new(&at("munge.key")), 0o400);
        for name in ["munge", "state", "spool0", "spool1", "spool2"] {
            fs::create_dir(at(name)).unwrap();
        }
        let ports = ports(4);
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let host = host.trim();
        let mut text = format!(
            "ClusterName=test\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={}\nSlurmUser=root\nSlurmdUser=root\n\
             AuthType=auth/munge\nAuthInfo=socket={}\nCredType=cred/munge\n\
             StateSaveLocation={}\nSlurmdSpoolDir={}/spool%n\nSlurmctldPidFile={}\nSlurmdPidFile={}/slurmd-%n.pid\n\
             SlurmctldLogFile={}\nSlurmdLogFile={}/slurmd-%n.log\nProctrackType=proctrack/linuxproc\n\
             TaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/none\nAccountingStorageType=accounting_storage/none\n\
             SchedulerType=sched/backfill\nSelectType=select/linear\nSwitchType=switch/none\nMpiDefault=none\n\
             ReturnToService=2\nKillWait=5\nPreemptType=preempt/partition_prio\nPreemptMode=CANCEL\n\
             SlurmctldParameters=preempt_send_user_signal\n",
            ports[0],
            at("munge/socket"),
            at("state"),
            folder.path().display(),
            at("slurmctld.pid"),
            folder.path().display(),
            at("slurmctld.log"),
            folder.path().display(),
        );
        for node in 0..3 {
            text.push_str(&format!(
                "NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={} CPUs=1 State=UNKNOWN\n",
                ports[node + 1]
            ));
        }
        text.push_str(
            "PartitionName=spot Nodes=ALL Default=YES PriorityTier=1 PreemptMode=CANCEL GraceTime=10 MaxTime=INFINITE State=UP\n\
             PartitionName=normal Nodes=ALL PriorityTier=10 PreemptMode=OFF MaxTime=INFINITE State=UP\n",
        );
        fs::write(at("slurm.conf"), text).unwrap();
        let mut slurm = Self {
            folder,
            daemons: Vec::new(),
        };
        let (key, socket) = (slurm.at("munge.key"), slurm.at("munge/socket"));
        let (log, pid, seed) = (
            slurm.at("munged.log"),
            slurm.at("munged.pid"),
            slurm.at("munge.seed"),
        );
        slurm.daemon(
            "munged",
            &[
                "--foreground",
                "--force",
                &format!("--key-file={key}"),
                &format!("--socket={socket}"),
                &format!("--log-file={log}"),
                &format!("--pid-file={pid}"),
                &format!("--seed-file={seed}"),
            ],
        );
        slurm.until("munge answers", |slurm| {
            Path::new(&slurm.at("munge/socket")).exists()
        })?;
        slurm.daemon("slurmctld", &["-D"]);
        for node in 0..3 {
            slurm.daemon("slurmd", &["-D", "-N", &node.to_string()]);
        }
        slurm.until("three nodes are idle", |slurm| {
            let told = slurm.printed(
                "sinfo",
                &["--noheader", "--partition=spot", "--format=%t|%D"],
            );
            told.lines().any(|line| line.trim() == "idle|3")
        })?;
        Ok(slurm)
    }

    fn at(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn call(&self, name: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(on_path(name).unwrap());
        command
            .args(arguments)
            .env("SLURM_CONF", self.at("slurm.conf"));
        command
    }

    fn daemon(&mut self, name: &str, arguments: &[&str]) {
        let log = fs::File::create(self.at(&format!("{name}-{}.out", self.daemons.len()))).unwrap();
        let child = self
            .call(name, arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.daemons.push(child);
    }

    fn ran(&self, name: &str, arguments: &[&str]) -> Output {
        self.call(name, arguments).output().unwrap()
    }

    fn printed(&self, name: &str, arguments: &[&str]) -> String {
        let ran = self.ran(name, arguments);
        String::from_utf8_lossy(&ran.stdout).into_owned()
    }

    /// Waits; why it cannot be, with what the daemons said, when it does not come.
    fn until(&mut self, what: &str, mut look: impl FnMut(&Self) -> bool) -> Result<(), String> {
        let begin = Instant::now();
        while !look(self) {
            let ended = self
                .daemons
                .iter_mut()
                .any(|daemon| daemon.try_wait().unwrap().is_some());
            if ended || begin.elapsed() > Duration::from_secs(60) {
                let mut told = format!("{what}: not here");
                for entry in fs::read_dir(self.folder.path()).unwrap().flatten() {
                    let path = entry.path();
                    let is_log = path
                        .extension()
                        .is_some_and(|own| own == "log" || own == "out");
                    let text = fs::read_to_string(&path).unwrap_or_default();
                    if let Some(last) = text.lines().rfind(|_| is_log) {
                        told.push_str(&format!("; {}: {last}", path.display()));
                    }
                }
                return Err(told);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }
}

#[test]
fn a_job_of_slurm_that_is_preempted_changes_no_bit() {
    let mut slurm = match Slurm::start() {
        Ok(slurm) => slurm,
        Err(why) => {
            println!("SKIPPED: no Slurm on this host: {why}");
            return;
        }
    };
    let sandbox = Sandbox::of(JOBS);
    let wanted = sandbox.alone();
    let market = "[market]\nprovider = \"slurm\"\npolicy = \"maximal\"\nmost = 1\nslot_seconds = 5\ndeadline_minutes = 60\n\
                  boot_seconds = 60\ngrace_seconds = 10\nrest_seconds = 2\nlook_ms = 300\nnotice_ms = 10000\n\
                  [gpu_actor]\nleave_seconds = 8\n";
    sandbox.write("cluster.toml", &(Places::free(0).file(1) + market));
    let conf = slurm.at("slurm.conf");
    let inside = |words: &[&str]| {
        let mut command = sandbox.command(words);
        command.env("SLURM_CONF", &conf);
        command
    };
    let mut cluster =
        Cluster::without_nodes(&sandbox, vec![("up", inside(&["up", "--quiet"]))], inside);
    cluster.patience = Duration::from_secs(600);
    cluster.submit();
    cluster.until_step(40);
    // Somebody else wants all nodes for a while: the machine is told, and its stage must wait or move.
    let ran = slurm.ran(
        "sbatch",
        &[
            "--partition=normal",
            "--nodes=3",
            "--output=/dev/null",
            "--wrap=sleep 15",
        ],
    );
    assert!(ran.status.success(), "{ran:?}");
    slurm
        .until("the job of somebody else runs", |slurm| {
            let told = slurm.printed(
                "squeue",
                &["--noheader", "--partition=normal", "--format=%T"],
            );
            told.contains("RUNNING")
        })
        .unwrap();
    let adapters = cluster.adapters();
    assert_same(&adapters, &wanted);
    cluster.until("all machines are given up", |cluster| {
        let told = cluster.json(&["market", "orphans"])?;
        let none = |key: &str| told[key].as_array().is_some_and(Vec::is_empty);
        (none("held") && none("unclaimed") && told["listed"] == 0).then_some(())
    });
    let left = slurm.printed("squeue", &["--noheader", "--partition=spot"]);
    assert_eq!(left.trim(), "", "no job is left");
}
