//! Machines of a provider that a cluster leaves behind when it ends: they are no processes of this machine, so nothing ends them but
//! their provider, and they cost on.

use market_actor::actor::{RECORD, journal};
use market_actor::custody::record;
use serde_json::{Value, json};
use shared::config::load::Loaded;
use shared::config::market::Provider;
use shared::ids::NodeName;

use crate::process;
use crate::render::Output;

/// Machines on record, or why that cannot be read.
pub(crate) struct Left {
    provider: Provider,
    machines: Result<Vec<(NodeName, Option<String>)>, String>,
}

/// What a cluster that has ended has on record; nothing where its machines are processes here, which ended with it.
pub(crate) fn open(loaded: &Loaded) -> Left {
    let provider = loaded.config.market.provider;
    let machines = match provider {
        Provider::Aws | Provider::Slurm => {
            let path = process::market::folder(loaded).join(RECORD);
            let entries = journal::look(&path).map_err(|error| error.to_string());
            entries.map(|entries| {
                let open = record::open(&entries).into_iter();
                open.map(|(token, own)| (token, own.id)).collect()
            })
        }
        _ => Ok(Vec::new()),
    };
    Left { provider, machines }
}

impl Left {
    /// For programs.
    pub(crate) fn told(&self) -> Value {
        let machines = self.machines.as_deref().unwrap_or_default().iter();
        machines
            .map(|(token, id)| json!({ "name": token, "id": id }))
            .collect()
    }

    /// Says what runs on, and what ends it.
    pub(crate) fn say(&self, output: &Output) {
        let machines = match &self.machines {
            Ok(machines) if machines.is_empty() => return,
            Ok(machines) => machines,
            Err(why) => {
                output.note(format!(
                    "machines of the market may run on, and cost money: {why}"
                ));
                output.next(&["spotmux market orphans".into()]);
                return;
            }
        };
        let name = |(token, id): &(NodeName, Option<String>)| {
            id.clone().unwrap_or_else(|| token.to_string())
        };
        let names: Vec<String> = machines.iter().map(name).collect();
        output.note(format!(
            "{} of {} on record run on, and cost money: {}",
            machines.len(),
            self.provider,
            names.join(", ")
        ));
        output.next(&[
            "spotmux market orphans --release   # ends them".into(),
            "spotmux up   # goes on with them".into(),
        ]);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::fs;

    use market_actor::custody::record::{Entry, head, line};
    use market_actor::market::Pool;
    use market_actor::provider::{Kind, Want};
    use shared::units::Micros;

    use super::*;
    use crate::args::ClusterArgs;
    use crate::cluster_file;
    use crate::settings::Settings;

    #[test]
    fn what_a_market_holds_of_others_is_named_and_processes_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cluster.toml");
        let asked = Entry::Asked {
            at: Micros(1),
            want: Want {
                token: NodeName::new("m-1").unwrap(),
                pool: Pool {
                    provider: String::new(),
                    region: String::new(),
                    zone: String::new(),
                    machine: String::new(),
                },
                kind: Kind::Spot,
            },
        };
        for (provider, left) in [("aws", 1), ("replay", 0)] {
            fs::write(&path, format!("[market]\nprovider = \"{provider}\"\n")).unwrap();
            let cluster = ClusterArgs {
                config: Some(path.clone()),
                set: Vec::new(),
            };
            let loaded = cluster_file::load(&cluster, &Settings::default()).unwrap();
            let record = process::market::folder(&loaded).join(RECORD);
            assert_eq!(open(&loaded).told().as_array().unwrap().len(), 0);
            fs::create_dir_all(record.parent().unwrap()).unwrap();
            fs::write(&record, head() + &line(&asked)).unwrap();
            assert_eq!(open(&loaded).told().as_array().unwrap().len(), left);
            fs::remove_file(&record).unwrap();
        }
    }
}
