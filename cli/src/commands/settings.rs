//! `spotmux config`: what a cluster is set to, and where each value came from.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};

use anyhow::Context;
use serde_json::{Map, Value, json};
use shared::config::keys;
use shared::config::load::Loaded;

use crate::args::{ConfigCheckArgs, ConfigCommand, ConfigInitArgs, ConfigShowArgs};
use crate::cluster_file;
use crate::exit::{Exit, Failure, OrExit};
use crate::health;
use crate::local::cluster;
use crate::render::{self, Align, Output, Table};
use crate::session::Session;

/// The file at the root of the sources: complete, with remarks.
const SAMPLE: &str = include_str!("../../../cluster.toml");

/// One value as it holds.
#[derive(Debug, PartialEq, Eq)]
struct Effective {
    key: String,
    value: String,
    origin: String,
    about: &'static str,
}

/// Runs the command.
pub(crate) fn run(command: &ConfigCommand, session: &Session<'_>) -> Result<Exit, Failure> {
    match command {
        ConfigCommand::Show(args) => show(args, session),
        ConfigCommand::Check(args) => check(args, session),
        ConfigCommand::Init(args) => init(args, session.output),
    }
}

/// Shows every setting.
fn show(args: &ConfigShowArgs, session: &Session<'_>) -> Result<Exit, Failure> {
    let output = session.output;
    let loaded = cluster_file::load(&session.cluster(&args.cluster), session.settings)?;
    let all = effective(&loaded)?;
    let mut table = Table::new(&[
        ("key", Align::Left),
        ("value", Align::Left),
        ("from", Align::Left),
        ("what it is for", Align::Left),
    ]);
    let mut told = Map::new();
    for one in &all {
        table.row([
            one.key.clone(),
            one.value.clone(),
            one.origin.clone(),
            one.about.to_owned(),
        ]);
        let value: Value = serde_json::from_str(&one.value).unwrap_or_default();
        told.insert(
            one.key.clone(),
            json!({ "value": value, "from": one.origin }),
        );
    }
    output.result(
        &json!({ "file": loaded.path, "settings": told }),
        &table.text(),
    )?;
    Ok(Exit::Done)
}

/// Looks for everything that cannot be: what `spotmux up` would refuse is refused here, but for addresses that are taken.
fn check(args: &ConfigCheckArgs, session: &Session<'_>) -> Result<Exit, Failure> {
    let output = session.output;
    let loaded = cluster_file::load(&session.cluster(&args.cluster), session.settings)?;
    cluster::refuse(health::of_settings(&loaded, session.settings))?;
    let nodes = loaded.config.node.len();
    let told = json!({ "file": loaded.path, "ok": true, "nodes": nodes });
    let text = format!("{} can be: {nodes} nodes", loaded.path.display());
    output.result(&told, &text)?;
    output.next(&["spotmux doctor".into(), "spotmux up".into()]);
    Ok(Exit::Done)
}

/// Writes a file to begin with.
fn init(args: &ConfigInitArgs, output: &Output) -> Result<Exit, Failure> {
    let path = &args.file;
    let cannot = || format!("cannot write {}", path.display());
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)
            .with_context(cannot)
            .or_exit(Exit::Internal)?;
    }
    let mut file = File::create_new(path).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => {
            let message = format!(
                "{} is there already: nothing was overwritten",
                path.display()
            );
            Failure::new(Exit::BadInput, message)
        }
        _ => Failure::new(Exit::Internal, format!("{}: {error}", cannot())),
    })?;
    file.write_all(SAMPLE.as_bytes())
        .with_context(cannot)
        .or_exit(Exit::Internal)?;
    output.result(
        &json!({ "file": path }),
        &format!("wrote {}", path.display()),
    )?;
    let word = render::shell_word(&path.display().to_string());
    output.next(&[format!("spotmux config check --config {word}")]);
    Ok(Exit::Done)
}

/// Every key with its value as JSON, in the order of the file.
fn effective(loaded: &Loaded) -> Result<Vec<Effective>, Failure> {
    let whole = serde_json::to_value(&loaded.config)
        .context("the settings cannot be written as JSON")
        .or_exit(Exit::Internal)?;
    let mut all = Vec::new();
    for key in keys::KEYS {
        let (section, name) = key.path.rsplit_once('.').unwrap_or(("", key.path));
        let mut add = |path: String, value: Option<&Value>| {
            if let Some(value) = value {
                all.push(Effective {
                    value: value.to_string(),
                    origin: loaded.origin(&path).to_string(),
                    key: path,
                    about: key.about,
                });
            }
        };
        match section {
            "" => add(key.path.into(), whole.get(name)),
            "node" => {
                let nodes = whole["node"].as_array().into_iter().flatten();
                for (index, node) in nodes.enumerate() {
                    add(format!("node[{index}].{name}"), node.get(name));
                }
            }
            section => add(key.path.into(), whole[section].get(name)),
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use shared::config::load;

    use super::*;

    #[test]
    fn every_key_is_shown_with_its_origin() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cluster.toml");
        let output = Output::new(false, true);
        init(&ConfigInitArgs { file: path.clone() }, &output).unwrap();
        let again = init(&ConfigInitArgs { file: path.clone() }, &output).unwrap_err();
        assert!(again.message().contains("nothing was overwritten"));
        let set = ["plan.stages=all".to_owned()];
        let loaded = load::load(&path, [], &set).unwrap();
        let all = effective(&loaded).unwrap();
        let find = |key: &str| all.iter().find(|one| one.key == key).unwrap();
        assert_eq!(find("plan.stages").value, "\"all\"");
        assert_eq!(find("plan.stages").origin, "--set");
        assert!(find("node[2].spot").origin.contains("cluster.toml:"));
        assert_eq!(find("node[0].spot").origin, "default");
        assert!(all.len() > keys::KEYS.len());
    }
}
