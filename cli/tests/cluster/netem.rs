//! Nodes in two network namespaces, with `tc netem` on the wire between them: a fifth of all packets lost, 50 ms each way.
//!
//! Coordinator and first node are in one namespace, the second node in the other; so signs of life go by the bad wire
//! too. Needs root, `ip`, `tc` and a kernel that has netem; says aloud where it is skipped, and why.

use std::io::Write;
use std::process::{self, Command};

use super::run::{Cluster, Places, Sandbox, assert_same};
use super::sandbox::SHORT;

/// Name of the wire's ends, each in its namespace.
const WIRE: &str = "spotmux0";

/// Two namespaces and the wire; gone when dropped.
struct Namespaces([String; 2]);

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in &self.0 {
            // One that was not made cannot be removed.
            let _ = Command::new("ip").args(["netns", "del", name]).output();
        }
    }
}

/// Runs a tool of the system.
fn tool(line: &str) -> Result<(), String> {
    let mut words = line.split_whitespace();
    let name = words.next().unwrap();
    match Command::new(name).args(words).output() {
        Ok(ran) if ran.status.success() => Ok(()),
        Ok(ran) => Err(format!(
            "{line}: {}",
            String::from_utf8_lossy(&ran.stderr).trim()
        )),
        Err(error) => Err(format!("{name} cannot be run: {error}")),
    }
}

impl Namespaces {
    /// # Errors
    /// What this machine does not allow.
    fn make() -> Result<Self, String> {
        let made = Self(["a", "b"].map(|end| format!("spotmux-{}-{end}", process::id())));
        let [a, b] = &made.0;
        tool(&format!("ip netns add {a}"))?;
        tool(&format!("ip netns add {b}"))?;
        tool(&format!(
            "ip -n {a} link add {WIRE} type veth peer name {WIRE} netns {b}"
        ))?;
        for (name, address) in [(a, "10.213.0.1"), (b, "10.213.0.2")] {
            tool(&format!("ip -n {name} addr add {address}/24 dev {WIRE}"))?;
            tool(&format!("ip -n {name} link set lo up"))?;
            tool(&format!("ip -n {name} link set {WIRE} up"))?;
            let netem = "netem loss 20% delay 50ms";
            tool(&format!(
                "ip netns exec {name} tc qdisc add dev {WIRE} root {netem}"
            ))?;
        }
        Ok(made)
    }

    /// A command in one of them.
    fn exec(&self, at: usize, command: &Command) -> Command {
        let mut inside = Command::new("ip");
        inside.args(["netns", "exec", &self.0[at]]);
        inside.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            value.map(|value| inside.env(name, value));
        }
        command
            .get_current_dir()
            .map(|folder| inside.current_dir(folder));
        inside
    }
}

#[test]
fn a_bad_wire_between_namespaces_changes_no_bit() {
    let namespaces = match Namespaces::make() {
        Ok(namespaces) => namespaces,
        Err(reason) => {
            // Not by a macro of the test harness, which would keep it to itself.
            writeln!(
                std::io::stderr(),
                "SKIPPED: a bad wire between namespaces: {reason}"
            )
            .unwrap();
            return;
        }
    };
    let sandbox = Sandbox::of(SHORT);
    let wanted = sandbox.alone();
    let at = |text: &str| text.parse().unwrap();
    let places = Places {
        coordinator: at("10.213.0.1:7420"),
        metrics: at("10.213.0.1:7421"),
        nodes: vec![(at("10.213.0.1:7431"), None), (at("10.213.0.2:7432"), None)],
        bound_ms: 10_000,
        replicas: 1,
    };
    sandbox.write("cluster.toml", &places.file(2));
    let made = sandbox.spotmux(&["ca", "init"]);
    assert!(made.status.success(), "{made:?}");
    let exec = |at: usize, words: &[&str]| namespaces.exec(at, &sandbox.command(words));
    let processes = vec![
        ("coordinator", exec(0, &["coordinator"])),
        ("n1", exec(0, &["gpu-actor", "--name", "n1"])),
        ("n2", exec(1, &["gpu-actor", "--name", "n2"])),
    ];
    let mut cluster = Cluster::of(&sandbox, processes, |words| exec(0, words));
    cluster.submit();
    assert_same(&cluster.adapters(), &wanted);
}
