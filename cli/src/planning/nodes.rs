//! The nodes of a plan: from a file, from words, of this machine, or of a running cluster.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use coordinator::plan::bounds;
use coordinator::plan::profile::{Profile, processor};
use coordinator::plan::snapshot::Machine;
use data::regular;
use serde::Deserialize;
use shared::ids::NodeName;
use shared::strict_toml;
use shared::units::{Bytes, MicroUsd};
use shared::wire::view::{NodeHealth, NodeView};

use super::profiles;
use crate::exit::{Exit, Failure, OrExit};
use crate::machine;

/// Largest file of nodes read.
const LIMIT: u64 = 1 << 20;
/// Memory of a processor that says nothing of it.
const MEMORY: u64 = 4 << 30;

/// Nodes and the profiles of their devices.
#[derive(Clone, Debug, Default)]
pub(crate) struct Site {
    /// By name.
    pub(crate) nodes: BTreeMap<NodeName, Machine>,
    /// By the device's name.
    pub(crate) profiles: BTreeMap<String, Profile>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    node: Vec<Written>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: String,
    device: String,
    #[serde(default = "one")]
    count: usize,
    memory_gib: Option<f64>,
    #[serde(default = "one")]
    threads: usize,
    #[serde(default = "here")]
    site: String,
    #[serde(default)]
    price_usd_hour: f64,
    #[serde(default)]
    losses_per_1000_hours: u64,
}

/// Numbers of a node that are within what planning takes.
struct Numbers {
    memory: Option<u64>,
    threads: u32,
    price: MicroUsd,
}

impl Written {
    /// Its numbers, or the key, the number and its bound.
    fn within(&self) -> Result<Numbers, String> {
        let said = |error: bounds::OutOfBounds| error.to_string();
        if let Some(gib) = self.memory_gib {
            bounds::MEMORY_GIB.check_real(gib).map_err(said)?;
        }
        let memory = self
            .memory_gib
            .map(|gib| (gib * (1u64 << 30) as f64) as u64);
        if memory == Some(0) {
            return Err(
                "memory_gib is less than a byte: leave it out for that of the device".into(),
            );
        }
        let threads = bounds::THREADS.check(self.threads as u64).map_err(said)?;
        let price = bounds::PRICE
            .check_real(self.price_usd_hour)
            .map_err(said)?;
        bounds::LOSSES
            .check(self.losses_per_1000_hours)
            .map_err(said)?;
        Ok(Numbers {
            memory,
            threads: u32::try_from(threads).unwrap_or(u32::MAX),
            price: MicroUsd((price * 1e6) as u64),
        })
    }
}

fn one() -> usize {
    1
}

fn here() -> String {
    "here".into()
}

/// Nodes of a file, or of words such as `8xrtx4090,2xa40`.
///
/// # Errors
/// [`Exit::NotFound`] when it is neither, [`Exit::BadInput`] when something in it is wrong.
pub(crate) fn given(text: &str, read: &[Profile]) -> Result<Site, Failure> {
    if let Some(words) = words(text) {
        return site(&words, read);
    }
    let path = Path::new(text);
    let contents = regular::read_text(path, LIMIT)
        .with_context(|| {
            format!("--nodes {text}: neither so many of a device, such as 8xrtx4090, nor a file")
        })
        .or_exit(Exit::BadInput)?;
    let file: File = strict_toml::read(&contents).map_err(|problem| {
        Failure::new(Exit::BadInput, format!("{text}: {}", problem.trim_end()))
    })?;
    site(&file.node, read)
}

/// `8xrtx4090,2xa40` taken apart; nothing when it is none.
fn words(text: &str) -> Option<Vec<Written>> {
    let one = |word: &str| {
        let (count, device) = word.trim().split_once('x')?;
        Some(Written {
            name: device.replace(|letter: char| !letter.is_ascii_alphanumeric(), "-"),
            device: device.to_owned(),
            count: count.parse().ok()?,
            memory_gib: None,
            threads: 1,
            site: here(),
            price_usd_hour: 0.0,
            losses_per_1000_hours: 0,
        })
    };
    text.split(',').map(one).collect()
}

fn site(written: &[Written], read: &[Profile]) -> Result<Site, Failure> {
    let mut site = Site::default();
    let wrong = |node: &Written, problem: String| {
        Failure::new(Exit::BadInput, format!("node {}: {problem}", node.name))
    };
    for node in written {
        let numbers = node.within().map_err(|error| wrong(node, error))?;
        let (memory, threads) = (numbers.memory, numbers.threads);
        let all = site.nodes.len().saturating_add(node.count);
        if node.count == 0 || bounds::NODES.check(all as u64).is_err() {
            let (count, most) = (node.count, bounds::NODES.most);
            let problem = format!("count = {count}: there may be 1 to {most} nodes in all");
            return Err(wrong(node, problem));
        }
        let profile = match node.device.as_str() {
            "cpu" => of_processor("cpu", threads, memory.unwrap_or(MEMORY), read),
            device => {
                profiles::named(device, read, &["cpu"]).map_err(|problem| wrong(node, problem))?
            }
        };
        for number in 1..=node.count {
            let name = match node.count {
                1 => node.name.clone(),
                _ => format!("{}-{number}", node.name),
            };
            let name = NodeName::new(name).map_err(|error| wrong(node, error.to_string()))?;
            let machine = Machine {
                device: profile.device.clone(),
                memory: Bytes(memory.unwrap_or(profile.memory_bytes)),
                site: node.site.clone(),
                price: numbers.price,
                losses_per_kilohour: node.losses_per_1000_hours,
            };
            if site.nodes.insert(name.clone(), machine).is_some() {
                return Err(wrong(node, format!("{name} is there twice")));
            }
        }
        site.profiles.insert(profile.device.clone(), profile);
    }
    Ok(site)
}

/// The profile of a processor: one that was read of the same device, brought to its threads; else conservative figures.
fn of_processor(device: &str, threads: u32, memory: u64, read: &[Profile]) -> Profile {
    let alike = |profile: &&Profile| {
        let (known, _) = processor::parts(&profile.device);
        known == device || (device == "cpu" && known.starts_with("cpu "))
    };
    match read.iter().find(alike) {
        Some(profile) => profile.with_threads(threads),
        None => processor::unmeasured(device, threads, memory),
    }
}

/// This machine, as one node.
///
/// # Errors
/// [`Exit::Internal`] when it has no name for a node; it has.
pub(crate) fn this_machine(read: &[Profile]) -> Result<Site, Failure> {
    let cpu = crate::backbone::cpu(None)?;
    let threads = u32::try_from(cpu.threads()).unwrap_or(u32::MAX);
    let memory = machine::available().map_or(MEMORY, |available| available.bytes);
    let profile = match read {
        [only] => only.clone(),
        _ => of_processor(&format!("cpu {}", cpu.isa()), threads, memory, read),
    };
    let name = NodeName::new("here").or_exit(Exit::Internal)?;
    let machine = Machine {
        device: profile.device.clone(),
        memory: Bytes(memory),
        site: here(),
        price: MicroUsd(0),
        losses_per_kilohour: 0,
    };
    Ok(Site {
        nodes: BTreeMap::from([(name, machine)]),
        profiles: BTreeMap::from([(profile.device.clone(), profile)]),
    })
}

/// The nodes of a cluster that may have work.
pub(crate) fn of_cluster(nodes: &[NodeView], read: &[Profile]) -> Site {
    let mut site = Site::default();
    for node in nodes.iter().filter(|node| node.health == NodeHealth::Alive) {
        let profile = of_processor(&node.device, node.threads, node.memory.0, read);
        // What a node offers is for layers, adapters and activations alone.
        let profile = Profile {
            workspace_bytes: 0,
            ..profile
        };
        let machine = Machine {
            device: profile.device.clone(),
            memory: Bytes(bounds::MEMORY.nearest(node.memory.0)),
            site: here(),
            price: MicroUsd(0),
            losses_per_kilohour: 0,
        };
        site.nodes.insert(node.name.clone(), machine);
        site.profiles.insert(profile.device.clone(), profile);
    }
    site
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_files_make_nodes() {
        let site = given("8xrtx4090,1xa40", &[]).expect("nodes");
        assert_eq!((site.nodes.len(), site.profiles.len()), (9, 2));
        let name = NodeName::new("rtx4090-8").expect("a name");
        assert_eq!(site.nodes[&name].memory, Bytes(24 << 30));
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("nodes.toml");
        let text = "[[node]]\nname = \"a\"\ndevice = \"cpu\"\nthreads = 4\nmemory_gib = 2\nprice_usd_hour = 0.25\n";
        std::fs::write(&path, text).expect("written");
        let site = given(&path.display().to_string(), &[]).expect("nodes");
        let machine = site.nodes.values().next().expect("a node");
        assert_eq!(
            (machine.device.as_str(), machine.price),
            ("cpu x4", MicroUsd(250_000))
        );
        std::fs::write(&path, "").expect("written");
        assert!(
            given(&path.display().to_string(), &[])
                .expect("none")
                .nodes
                .is_empty()
        );
    }

    #[test]
    fn what_is_wrong_is_told() {
        let said = |text: &str| given(text, &[]).expect_err("wrong").message();
        assert!(said("3xvoodoo").contains("no known device"));
        assert!(said("0xa40").contains("count = 0"));
        assert!(said("no/such.toml").contains("8xrtx4090"));
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("nodes.toml");
        std::fs::write(&path, "[[node]]\nname = \"a\"\ndevise = \"a40\"\n").expect("written");
        let told = said(&path.display().to_string());
        assert!(told.contains("devise") && told.contains("device"), "{told}");
    }

    #[test]
    fn a_measured_processor_is_brought_to_a_nodes_threads() {
        let measured = processor::unmeasured("cpu avx2", 2, 1 << 30);
        let profile = of_processor("cpu avx2", 8, 1 << 30, &[measured]);
        assert_eq!(profile.device, "cpu avx2 x8");
        assert!(profile.note.contains("scaled from 2 to 8"));
    }
}
