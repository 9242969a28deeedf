#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;

use super::*;
use crate::config::keys::{self, KEYS};
use crate::config::schema::Stages;

fn loaded(text: &str, variables: &[(&str, &str)], flags: &[&str]) -> Result<Loaded, LoadError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cluster.toml");
    fs::write(&path, text).unwrap();
    let variables = variables
        .iter()
        .map(|(name, word)| ((*name).to_owned(), (*word).to_owned()));
    let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
    load(&path, variables, &flags)
}

const NODES: &str =
    "[[node]]\nname = 'a'\nlisten = '127.0.0.1:1'\n[[node]]\nname = 'b'\nlisten = '127.0.0.1:2'\n";

#[test]
fn later_layers_win_and_say_where_they_are() {
    let text = format!("[plan]\nstages = 2\nreplicas = 1\ntokens_per_pass = 100\n{NODES}");
    let variables = [
        ("SPOTMUX__PLAN__TOKENS_PER_PASS", "200"),
        ("SPOTMUX__PLAN__STAGES", "1"),
        ("SPOTMUX_LOG", "debug"),
    ];
    let flags = ["plan.stages=all", "node[1].threads=7", "cluster.name=x"];
    let loaded = loaded(&text, &variables, &flags).unwrap();
    let config = &loaded.config;
    assert_eq!(config.plan.stages, Stages::All);
    assert_eq!(config.plan.tokens_per_pass, 200);
    assert_eq!(config.plan.rounds_ahead, 1);
    assert_eq!(config.cluster.name.as_str(), "x");
    let threads: Vec<u64> = config.nodes().iter().map(|node| node.threads).collect();
    assert_eq!(threads, [1, 7]);
    let origin = |key: &str| loaded.origin(key).to_string();
    assert_eq!(origin("plan.stages"), "--set");
    assert_eq!(
        origin("plan.tokens_per_pass"),
        "SPOTMUX__PLAN__TOKENS_PER_PASS"
    );
    assert!(origin("plan.replicas").ends_with("cluster.toml:3"));
    assert_eq!(origin("plan.rounds_ahead"), "default");
}

#[test]
fn all_layers_are_told_at_once() {
    let flags = ["plan.stages", "plan.stage=2", "node[2].threads=1"];
    let error = loaded(
        &format!("[plan]\nreplica = 1\n{NODES}"),
        &[
            ("SPOTMUX__PLAN__REPLICAS", "many"),
            ("SPOTMUX__NODE__THREADS", "1"),
        ],
        &flags,
    );
    let told = error.unwrap_err().to_string();
    for part in [
        "cluster.toml:2: plan.replica: is no key",
        "SPOTMUX__PLAN__REPLICAS: plan.replicas: \"many\" is not",
        "SPOTMUX__NODE__THREADS: node.threads: which node?",
        "--set: plan.stages: has no value",
        "--set: plan.stage: is no key",
        "--set: node[2].threads: the file lists 2 nodes",
    ] {
        assert!(told.contains(part), "{part:?} is not in:\n{told}");
    }
}

#[test]
fn only_files_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let told = |path: &Path| load(path, [], &[]).unwrap_err().to_string();
    assert!(told(folder.path()).contains("is not a regular file"));
    assert!(told(&folder.path().join("no")).contains("No such file"));
}

const ROOT: &str = include_str!("../../../../cluster.toml");

#[test]
fn the_file_at_the_root_is_sound_and_complete() {
    let loaded = loaded(ROOT, &[], &[]).unwrap();
    assert_eq!(loaded.config.plan.stages, Stages::Count(2));
    assert_eq!(loaded.config.node.len(), 3);
    for key in KEYS {
        let name = key.path.rsplit('.').next().unwrap();
        let lines = ROOT.lines().map(|line| line.trim_start_matches("# "));
        let shown = lines
            .filter(|line| line.starts_with(&format!("{name} = ")))
            .count();
        assert!(shown > 0, "{} is not in cluster.toml", key.path);
    }
}

/// Each value beside which the file says `default` is the default.
#[test]
fn what_it_calls_default_is_the_default() {
    let mut checked = 0;
    let mut section = String::new();
    let defaults = toml::Value::try_from(keys::complete()).unwrap();
    for line in ROOT.lines() {
        let line = line.trim_start_matches("# ");
        if let Some(name) = line
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            name.trim_matches(['[', ']']).clone_into(&mut section);
        }
        let Some((said, remark)) = line.split_once(" # ") else {
            continue;
        };
        if !remark.ends_with("default") {
            continue;
        }
        let said: toml::Table = toml::from_str(said).unwrap();
        let (name, value) = said.iter().next().unwrap();
        let place = if section.is_empty() {
            &defaults
        } else {
            &defaults[section.as_str()]
        };
        assert_eq!(&place[name.as_str()], value, "{section}.{name}");
        checked += 1;
    }
    assert!(checked > 20, "{checked}");
}
