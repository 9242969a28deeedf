//! What a machine that joins is told of a cluster's settings, and the file that it makes of them.

use core::net::SocketAddr;

use thiserror::Error;
use toml::{Table, Value};

use super::schema::ClusterConfig;
use crate::ids::NodeName;

/// Keys that all members of a cluster have the same.
pub const SHARED: &[&str] = &[
    "cluster.name",
    "model.path",
    "model.format",
    "model.products",
    "store.url",
    "coordinator.heartbeat_ms",
    "coordinator.heartbeat_bound_ms",
    "plan.tokens_per_pass",
    "plan.chunk_tokens",
    "plan.rounds_ahead",
    "plan.activation_budget_mib",
    "plan.bf16_on_the_wire",
    "gpu_actor.fetch_gib",
    "gpu_actor.serve_mib_s",
    "limits.frame_mib",
    "telemetry.log",
    "telemetry.metrics",
];

/// Says why what was told makes no file.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum JoiningError {
    /// Not one value.
    #[error(
        "the coordinator tells {key} = {value:?}, which is not one value: is it of another version?"
    )]
    Value {
        /// The key.
        key: String,
        /// As told.
        value: String,
    },
    /// It cannot be written.
    #[error("the settings cannot be written: {0}")]
    Unwritable(String),
}

/// What the machine says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    /// Where it reaches the coordinator.
    pub coordinator: SocketAddr,
    /// What describes it as a node; none for an operator's machine.
    pub node: Option<OwnNode>,
}

/// A node's own settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnNode {
    /// Its name.
    pub name: NodeName,
    /// Where it listens.
    pub listen: SocketAddr,
    /// Where its neighbours reach it, when not where it listens.
    pub advertise: Option<SocketAddr>,
    /// Compute threads.
    pub threads: Option<u64>,
    /// Memory offered.
    pub memory_mib: Option<u64>,
}

/// The shared settings of a cluster, each with its value as TOML writes it; places as the joiner can name them.
///
/// # Errors
/// [`JoiningError::Unwritable`].
pub fn told(
    config: &ClusterConfig,
    model: &str,
    store: &str,
) -> Result<Vec<(String, String)>, JoiningError> {
    let whole =
        Value::try_from(config).map_err(|error| JoiningError::Unwritable(error.to_string()))?;
    let mut told = Vec::new();
    for key in SHARED {
        let value = match *key {
            "model.path" => Value::String(model.to_owned()),
            "store.url" => Value::String(store.to_owned()),
            key => {
                let (section, name) = key.split_once('.').unwrap_or((key, ""));
                let found = whole.get(section).and_then(|section| section.get(name));
                let Some(value) = found else { continue };
                value.clone()
            }
        };
        told.push(((*key).to_owned(), value.to_string()));
    }
    Ok(told)
}

/// The file of a machine that joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinedFile {
    /// What is written.
    pub text: String,
    /// Keys that were told and are no settings that members share, as this version knows them: they are not in it.
    pub left_out: Vec<String>,
}

/// Makes the file of a machine that joined. A key that is not shared is left out: the token is used up by now, and
/// whoever joins must not be left without a file for what a coordinator of another version tells besides.
///
/// # Errors
/// [`JoiningError`] when a shared key has no value that can be written.
pub fn file(told: &[(String, String)], own: &Own) -> Result<JoinedFile, JoiningError> {
    let mut table = Table::new();
    table.insert("version".into(), Value::Integer(1));
    let mut left_out = Vec::new();
    for (key, value) in told {
        if !SHARED.contains(&key.as_str()) {
            left_out.push(key.clone());
            continue;
        }
        set(&mut table, key, one_value(key, value)?);
    }
    let text = |address: SocketAddr| Value::String(address.to_string());
    set(&mut table, "coordinator.listen", text(own.coordinator));
    if let Some(node) = &own.node {
        let mut own = Table::new();
        own.insert("name".into(), Value::String(node.name.to_string()));
        own.insert("listen".into(), text(node.listen));
        if let Some(advertise) = node.advertise {
            own.insert("advertise".into(), text(advertise));
        }
        for (name, count) in [("threads", node.threads), ("memory_mib", node.memory_mib)] {
            if let Some(count) = count.and_then(|count| i64::try_from(count).ok()) {
                own.insert(name.into(), Value::Integer(count));
            }
        }
        table.insert("node".into(), Value::Array(vec![Value::Table(own)]));
    }
    let text =
        toml::to_string(&table).map_err(|error| JoiningError::Unwritable(error.to_string()))?;
    let text = format!(
        "# Written by `spotmux join`: what the members of the cluster share, and what is this machine's own.\n{text}"
    );
    Ok(JoinedFile { text, left_out })
}

/// The value of a text that must be one word, number or flag.
fn one_value(key: &str, text: &str) -> Result<Value, JoiningError> {
    let wrong = || JoiningError::Value {
        key: key.to_owned(),
        value: text.to_owned(),
    };
    let parsed: Table = toml::from_str(&format!("value = {text}")).map_err(|_| wrong())?;
    match parsed.into_iter().collect::<Vec<_>>().as_slice() {
        [(_, value @ (Value::String(_) | Value::Integer(_) | Value::Boolean(_)))] => {
            Ok(value.clone())
        }
        _ => Err(wrong()),
    }
}

fn set(table: &mut Table, key: &str, value: Value) {
    let (section, name) = key.split_once('.').unwrap_or(("", key));
    let section = table
        .entry(section.to_owned())
        .or_insert_with(|| Value::Table(Table::new()));
    if let Value::Table(section) = section {
        section.insert(name.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn own() -> Own {
        Own {
            coordinator: "10.0.0.1:7420".parse().unwrap(),
            node: Some(OwnNode {
                name: "n3".parse().unwrap(),
                listen: "10.0.0.3:7430".parse().unwrap(),
                advertise: None,
                threads: Some(2),
                memory_mib: None,
            }),
        }
    }

    #[test]
    fn what_is_told_makes_a_file_that_says_the_same() {
        let mut config = ClusterConfig::default();
        config.cluster.name = "c".parse().unwrap();
        config.plan.tokens_per_pass = 99;
        let told = told(&config, "a \"model\"", "s3://bucket/it").unwrap();
        assert_eq!(told.len(), SHARED.len());
        let made = file(&told, &own()).unwrap();
        assert!(made.left_out.is_empty());
        let read: ClusterConfig = toml::from_str(&made.text).unwrap();
        assert_eq!(read.cluster.name, config.cluster.name);
        assert_eq!(read.plan.tokens_per_pass, 99);
        assert_eq!(read.model.path, "a \"model\"");
        assert_eq!(read.store.url, "s3://bucket/it");
        assert_eq!(read.coordinator.listen, own().coordinator);
        assert_eq!(read.node[0].threads, Some(2));
        assert_eq!(read.plan.stages, ClusterConfig::default().plan.stages);
        let problems = super::super::check::problems(&read, &Default::default(), None);
        assert_eq!(problems, []);
    }

    #[test]
    fn what_is_no_shared_setting_is_not_written() {
        let one = |key: &str, value: &str| file(&[(key.into(), value.into())], &own());
        for key in ["security.directory", "plan.of_a_later_version"] {
            let made = one(key, "\"/\"").unwrap();
            assert_eq!(made.left_out, [key]);
            assert_eq!(made.text, file(&[], &own()).unwrap().text);
        }
        for value in ["\"a\"\n[security]\ndirectory = \"/\"", "[1]", "1.5", ""] {
            let refused = one("cluster.name", value);
            assert!(
                matches!(refused, Err(JoiningError::Value { .. })),
                "{value}"
            );
        }
    }
}
