//! A machine without a certificate and without the backbone joins by a token, fetches the backbone and takes a stage.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use shared::config::places;
use shared::ids::NodeName;
use shared::net::authority::Authority;
use shared::net::credential::Credential;
use shared::units::Micros;

use super::run::{Cluster, Places, Sandbox, assert_same};

/// A machine of its own: a folder beside the cluster's, and a command that runs there.
struct Machine<'a> {
    sandbox: &'a Sandbox,
    folder: PathBuf,
}

impl<'a> Machine<'a> {
    fn new(sandbox: &'a Sandbox, name: &str) -> Self {
        let folder = sandbox.path().join(name);
        fs::create_dir(&folder).unwrap();
        Self { sandbox, folder }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.sandbox.command(arguments);
        command.current_dir(&self.folder);
        command.env("SPOTMUX_CACHE", self.folder.join("cache"));
        command
    }

    /// Its exit code, and what it said.
    fn run(&self, arguments: &[&str]) -> (i32, String) {
        let ran = self.command(arguments).output().unwrap();
        let text = [ran.stdout, ran.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        (ran.status.code().unwrap(), text.concat())
    }
}

fn now() -> Micros {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Micros(u64::try_from(since.unwrap().as_micros()).unwrap())
}

fn token(cluster: &Cluster<'_>, words: &[&str]) -> String {
    let mut arguments = vec!["ca", "token"];
    arguments.extend(words);
    let told: Value = cluster.json(&arguments).unwrap();
    told["token"].as_str().unwrap().to_owned()
}

#[test]
#[expect(clippy::too_many_lines, reason = "one journey, told in its order")]
fn a_node_without_certificate_or_backbone_joins_fetches_and_takes_a_stage() {
    let sandbox = Sandbox::new(2);
    let alone = sandbox.alone();
    let mut places = Places::free(3);
    // The third is not of the cluster's file: it joins.
    let (third, _) = places.nodes.pop().unwrap();
    let mut cluster = Cluster::up(&sandbox, 2, &places);
    let machine = Machine::new(&sandbox, "elsewhere");
    let (coordinator, listen) = (places.coordinator.to_string(), third.to_string());
    let n3 = token(&cluster, &["n3"]);
    let join = |token: &str, name: &str| {
        machine.run(&[
            "join",
            "--coordinator",
            &coordinator,
            "--token",
            token,
            "--role",
            "gpu-actor",
            "--name",
            name,
            "--listen",
            &listen,
        ])
    };

    // Every refusal says why, and uses nothing up.
    let (exit, told) = join("spotmux-join-1.00.11.22", "n3");
    assert!(exit == 3 && told.contains("this is no token"), "{told}");
    let (exit, told) = join(&n3, "n4");
    assert!(exit == 3 && told.contains("gpu-actor/n3"), "{told}");
    let mut foreign = n3.clone();
    foreign.replace_range(n3.len() - 64.., &"0".repeat(64));
    let (exit, told) = join(&foreign, "n3");
    assert!(exit == 7 && told.contains("authority"), "{told}");
    let (exit, told) = join(&n3, "n3");
    assert!(exit == 0 && told.contains("gpu-actor/n3"), "{told}");
    // Once.
    let certificate = machine.folder.join(".spotmux/security/node-n3.pem");
    let (exit, told) = join(&n3, "n3");
    assert!(exit == 8 && told.contains("is there already"), "{told}");
    fs::rename(&certificate, machine.folder.join("kept.pem")).unwrap();
    let (exit, told) = join(&n3, "n3");
    assert!(exit == 9 && told.contains("lets in once"), "{told}");
    fs::rename(machine.folder.join("kept.pem"), &certificate).unwrap();
    // A join that was cut off before it wrote the settings is done again with another token.
    fs::remove_file(machine.folder.join("cluster.toml")).unwrap();
    let (exit, told) = join(&token(&cluster, &["n3"]), "n3");
    assert!(exit == 0 && told.contains("(written)"), "{told}");

    // The model's folder is hidden from it: what it has, it has from a peer.
    let text = fs::read_to_string(machine.folder.join("cluster.toml")).unwrap();
    let model = sandbox.path().join("model").display().to_string();
    assert!(text.contains(&model), "{text}");
    fs::write(
        machine.folder.join("cluster.toml"),
        text.replace(&model, "nowhere"),
    )
    .unwrap();
    let small = ["--set", "gpu_actor.fetch_gib=0"];
    let (exit, told) = machine.run(&[&["gpu-actor", "--name", "n3"], &small[..]].concat());
    assert!(exit == 4 && told.contains("nowhere"), "{told}");
    cluster.add("n3", machine.command(&["gpu-actor", "--name", "n3"]));
    cluster.until("n3 is there", |cluster| {
        let nodes = cluster.json(&["nodes"])?.to_string();
        nodes.contains("\"n3\"").then_some(())
    });
    // It has the second stage from the first step to the last.
    let second = cluster.holder(1).unwrap();
    let ran = sandbox.spotmux(&["migrate", &second, "--to", "n3", "--yes", "--wait"]);
    assert!(ran.status.success(), "{ran:?}\n{}", cluster.logs());
    assert_eq!(cluster.holder(1).as_deref(), Some("n3"));
    cluster.submit();
    assert_same(&cluster.adapters(), &alone);
    let log = fs::read_to_string(sandbox.path().join("n3.log")).unwrap();
    assert!(log.contains("fetched"), "{log}");
    let fetched = machine.folder.join(".spotmux/backbones");
    let folders: Vec<_> = fs::read_dir(&fetched).unwrap().flatten().collect();
    assert_eq!(folders.len(), 1);
    for file in ["config.json", "model.safetensors"] {
        let same = fs::read(folders[0].path().join(file)).unwrap()
            == fs::read(sandbox.path().join("model").join(file)).unwrap();
        assert!(same, "{file}");
    }

    // An operator joins too, and renews its certificate over the wire.
    let desk = Machine::new(&sandbox, "desk");
    let alice = token(&cluster, &["alice", "--operator"]);
    let words = ["--role", "operator", "--name", "alice"];
    let place = ["join", "--coordinator", &coordinator, "--token", &alice];
    let (exit, told) = desk.run(&[&place[..], &words[..]].concat());
    assert_eq!(exit, 0, "{told}");
    let own = desk.folder.join(".spotmux/security").join(places::OPERATOR);
    let before = Credential::load(&own).unwrap();
    assert_eq!(desk.run(&["ca", "renew"]).0, 0);
    let renewed = Credential::load(&own).unwrap();
    assert_ne!(renewed.chain[0], before.chain[0]);
    // One that is past two thirds of its life is renewed by any command; one that expired is not shown.
    let authority = sandbox.path().join(".spotmux/security/authority.pem");
    let authority = Authority::load(&authority).unwrap();
    let hour = Micros(3_600_000_000);
    let old = now().since(Micros(hour.0 / 10 * 9));
    let late = authority.issue(&before.identity, hour, old).unwrap();
    late.save(&own).unwrap();
    let (exit, told) = desk.run(&["status"]);
    assert_eq!(exit, 0, "{told}");
    let fresh = Credential::load(&own).unwrap();
    assert!(fresh.life.end > late.life.end.plus(hour), "it was renewed");
    let gone = now().since(Micros(hour.0 * 2));
    let expired = authority.issue(&before.identity, hour, gone).unwrap();
    expired.save(&own).unwrap();
    let (exit, told) = desk.run(&["status"]);
    assert!(exit == 9 && told.contains("ca token alice"), "{told}");
}

#[test]
fn a_nodes_certificate_is_renewed_while_it_trains() {
    let sandbox = Sandbox::new(1);
    let places = Places::free(1);
    sandbox.write("cluster.toml", &places.file(1));
    assert!(sandbox.spotmux(&["ca", "init"]).status.success());
    let folder = sandbox.path().join(".spotmux/security");
    let authority = Authority::load(&folder.join(places::AUTHORITY)).unwrap();
    let file = folder.join(places::node(&NodeName::new("n1").unwrap()));
    let first = Credential::load(&file).unwrap();
    // Past two thirds of its life as soon as it is shown.
    let short = authority
        .issue(&first.identity, Micros(45_000_000), now())
        .unwrap();
    short.save(&file).unwrap();
    let processes = vec![
        ("coordinator", sandbox.command(&["coordinator"])),
        ("n1", sandbox.command(&["gpu-actor", "--name", "n1"])),
    ];
    let mut cluster = Cluster::of(&sandbox, processes, |words| sandbox.command(words));
    cluster.submit();
    let hour = Micros(3_600_000_000);
    cluster.until("the certificate is renewed", |_| {
        let held = Credential::load(&file).ok()?;
        (held.life.end > short.life.end.plus(hour)).then_some(())
    });
    // The connection made with the old one ends with it, and nothing is lost.
    let left = short.life.end.since(now());
    thread::sleep(Duration::from_micros(left.0) + Duration::from_secs(2));
    cluster.adapters();
}
