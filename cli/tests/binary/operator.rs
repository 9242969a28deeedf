//! An operator's commands where no cluster is up: settings, certificates, health, lines from a pipe.

use std::io::Write;
use std::net::UdpSocket;
use std::process::Stdio;

use crate::sandbox::{Ran, Sandbox};

/// A small cluster on ports that were just free.
fn prepared() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.tiny_model();
    let sockets: Vec<UdpSocket> = (0..3)
        .map(|_| UdpSocket::bind("127.0.0.1:0").unwrap())
        .collect();
    let ports: Vec<u16> = sockets
        .iter()
        .map(|socket| socket.local_addr().unwrap().port())
        .collect();
    sandbox.write(
        "cluster.toml",
        format!(
            "[model]\npath = 'tiny'\n[coordinator]\nlisten = '127.0.0.1:{}'\n[telemetry]\nmetrics = false\n\
             [[node]]\nname = 'n1'\nlisten = '127.0.0.1:{}'\n[[node]]\nname = 'n2'\nlisten = '127.0.0.1:{}'\n",
            ports[0], ports[1], ports[2]
        ),
    );
    sandbox
}

#[test]
fn settings_are_shown_with_where_they_come_from() {
    let sandbox = prepared();
    let mut command = sandbox.command(&["config", "show", "--json", "--set", "plan.stages=2"]);
    command.env("SPOTMUX__LIMITS__JOBS", "7");
    let told = Ran::of(&command.output().unwrap()).ended_with(0).last();
    let settings = &told["settings"];
    assert_eq!(settings["plan.stages"]["value"], 2);
    assert_eq!(settings["plan.stages"]["from"], "--set");
    assert_eq!(settings["limits.jobs"]["from"], "SPOTMUX__LIMITS__JOBS");
    assert_eq!(settings["model.path"]["from"], "cluster.toml:2");
    assert_eq!(settings["plan.replicas"]["from"], "default");
    sandbox.run(&["config", "check"]).ended_with(0);
    sandbox
        .run(&[
            "config",
            "check",
            "--set",
            "plan.stages=3",
            "--set",
            "plan.stagse=1",
        ])
        .ended_with(3)
        .said(&["--set: plan.stagse: is no key", "did you mean `stages`?"]);
    sandbox
        .run(&["config", "check", "--set", "plan.stages=3"])
        .ended_with(3)
        .said(&["plan.stages: 3 stages need 3 nodes, and 2 are listed"]);
    sandbox
        .run(&["config", "init", "cluster.toml"])
        .ended_with(3)
        .said(&["nothing was overwritten"]);
    sandbox
        .run(&["config", "init", "new/cluster.toml"])
        .ended_with(0);
    // Nobody fetched its model: it is what `up` would say.
    sandbox
        .run(&["config", "check", "--config", "new/cluster.toml"])
        .ended_with(3)
        .said(&["smollm2-135m-instruct", "model.path"]);
    let tiny = ["--set", "model.path=../tiny"];
    let check = ["config", "check", "--config", "new/cluster.toml"];
    sandbox.run(&[&check[..], &tiny].concat()).ended_with(0);
    let none = Sandbox::new();
    none.run(&["config", "show"])
        .ended_with(4)
        .said(&["spotmux config init"]);
}

#[test]
fn nothing_is_started_when_anything_is_wrong() {
    let sandbox = prepared();
    sandbox
        .run(&["up", "--set", "plan.stages=5"])
        .ended_with(3)
        .said(&["plan.stages: 5 stages need 5 nodes"]);
    sandbox
        .run(&["up", "--set", "model.path=absent"])
        .ended_with(3)
        .said(&["the cluster cannot start", "absent", "nothing was started"]);
    // What a process would end for at its start is refused before, and by `config check` alike.
    sandbox.write("journal", "a letter, and not a journal");
    sandbox.write("profile.json", "{}");
    let wrong: [(&[&str], &str); 5] = [
        (&["coordinator.journal=journal"], "the journal"),
        (&["plan.profile=profile.json"], "profile"),
        (&["plan.tenants=a=none"], "plan.tenants"),
        (
            &["market.provider=local", "market.policy=nonsense"],
            "market.policy",
        ),
        (
            &["market.provider=replay", "market.trace=absent.json"],
            "market.trace",
        ),
    ];
    for (set, told) in wrong {
        let set: Vec<&str> = set.iter().flat_map(|key| ["--set", key]).collect();
        for command in [&["up"][..], &["config", "check"]] {
            let refused = [command, &set].concat();
            sandbox.run(&refused).ended_with(3).said(&[told]);
        }
    }
    sandbox.run(&["ca", "init"]).ended_with(0);
    for command in [&["up"][..], &["config", "check"]] {
        let other = [command, &["--set", "cluster.name=other"]].concat();
        sandbox
            .run(&other)
            .ended_with(3)
            .said(&["is the authority of cluster local"]);
    }
    let text = sandbox.read("cluster.toml");
    let port = text
        .split("listen = '")
        .nth(1)
        .unwrap()
        .split('\'')
        .next()
        .unwrap()
        .to_owned();
    let taken = UdpSocket::bind(&port).unwrap();
    sandbox
        .run(&["up"])
        .ended_with(3)
        .said(&[&port, "coordinator.listen is in use"]);
    drop(taken);
    let logs = sandbox.names(".spotmux/logs");
    assert!(logs.is_empty(), "{logs:?}");
    sandbox.run(&["down"]).ended_with(0);
}

#[test]
fn certificates_are_made_once_and_health_is_told() {
    let sandbox = prepared();
    sandbox
        .run(&["status"])
        .ended_with(4)
        .said(&["operator.pem is absent", "spotmux ca init"]);
    let told = sandbox.run(&["ca", "init", "--json"]).ended_with(0).last();
    let states: Vec<&str> = told["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| file["state"].as_str().unwrap())
        .collect();
    assert_eq!(states, ["made"; 5]);
    let again = sandbox.run(&["ca", "init", "--json"]).ended_with(0).last();
    assert_eq!(again["files"][0]["state"], "kept");
    let told = sandbox.run(&["doctor", "--json"]).ended_with(0).last();
    assert_eq!(told["ok"], true, "{told}");
    sandbox
        .run(&["doctor", "--set", "model.path=absent"])
        .ended_with(1);
    sandbox
        .run(&["status"])
        .ended_with(7)
        .said(&["cannot reach the coordinator", "cluster.toml:4"]);
    let token = sandbox.run(&["ca", "token", "n9"]).ended_with(0);
    assert_eq!(token.out.trim().split('.').count(), 4);
}

#[test]
fn lines_from_a_pipe_are_done_and_errors_do_not_end_them() {
    let sandbox = prepared();
    let mut child = sandbox
        .command(&["repl"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = "stats\nconfig check --json\nsample 'open\nexit\nconfig show\n";
    child
        .stdin
        .take()
        .unwrap()
        .write_all(lines.as_bytes())
        .unwrap();
    let ran = Ran::of(&child.wait_with_output().unwrap()).ended_with(2);
    assert!(ran.err.contains("status"), "{}", ran.err);
    assert!(ran.err.contains("is not closed"), "{}", ran.err);
    assert_eq!(ran.last()["ok"], true);
}
