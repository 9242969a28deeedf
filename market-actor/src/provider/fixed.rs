//! A fixed list of machines that somebody else keeps running: a machine that is acquired is one of them that is not in use.
//!
//! Each is known by the name of its node. What is in use stands in a file, so that a market actor that comes back knows it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use shared::ids::NodeName;
use shared::units::{MicroUsd, Micros};

use super::{Answer, Kind, Machine, MachineState, Provider, ProviderError, Sighting, Signal, Want};
use crate::market::Pool;

/// Its name.
const STATIC: &str = "static";

/// A machine of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Name of its node.
    pub node: NodeName,
    /// Whether it may be taken away.
    pub kind: Kind,
}

/// The provider.
#[derive(Debug)]
pub struct Static {
    list: Vec<Listed>,
    price: MicroUsd,
    file: PathBuf,
    /// Requests by the node that serves them.
    used: BTreeMap<NodeName, Want>,
}

#[derive(Serialize, Deserialize)]
struct Used {
    node: NodeName,
    want: Want,
}

impl Static {
    /// These machines, each at a price for an hour; `file` keeps what is in use.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn new(list: Vec<Listed>, price: MicroUsd, file: PathBuf) -> io::Result<Self> {
        let kept: Vec<Used> = match fs::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let used = kept.into_iter().map(|one| (one.node, one.want)).collect();
        Ok(Self {
            list,
            price,
            file,
            used,
        })
    }

    fn keep(&self) -> Result<(), ProviderError> {
        let used: Vec<Used> = self
            .used
            .iter()
            .map(|(node, want)| Used {
                node: node.clone(),
                want: want.clone(),
            })
            .collect();
        let written = serde_json::to_vec(&used).map_err(io::Error::from);
        let written = written.and_then(|bytes| {
            let beside = self.file.with_extension("part");
            fs::write(&beside, bytes)?;
            fs::rename(&beside, &self.file)
        });
        written.map_err(|error| ProviderError::Unsure {
            provider: STATIC.into(),
            call: "keep".into(),
            why: error.to_string(),
        })
    }

    fn count(&self, kind: Kind) -> u32 {
        self.list.iter().filter(|one| one.kind == kind).count() as u32
    }

    fn machine(&self, node: &NodeName, want: &Want) -> Machine {
        Machine {
            id: node.to_string(),
            token: Some(want.token.clone()),
            kind: want.kind,
            state: MachineState::Running,
            node: Some(node.clone()),
        }
    }
}

impl Provider for Static {
    fn name(&self) -> &str {
        STATIC
    }

    fn notice(&self) -> Micros {
        Micros(0)
    }

    fn offers(&mut self) -> Answer<'_, Vec<Sighting>> {
        let offer = Sighting {
            pool: Pool {
                provider: STATIC.into(),
                region: String::new(),
                zone: STATIC.into(),
                machine: "listed".into(),
            },
            spot_price: Some(self.price),
            spot_available: Some(self.count(Kind::Spot)),
            on_demand_price: Some(self.price),
            on_demand_available: Some(self.count(Kind::OnDemand)),
        };
        Box::pin(async { Ok(vec![offer]) })
    }

    fn acquire<'a>(&'a mut self, want: &'a Want) -> Answer<'a, Machine> {
        Box::pin(async move {
            let known = self.used.iter().find(|(_, own)| own.token == want.token);
            if let Some((node, own)) = known {
                return Ok(self.machine(node, own));
            }
            let mut free = self
                .list
                .iter()
                .filter(|one| one.kind == want.kind && !self.used.contains_key(&one.node));
            let Some(found) = free.next() else {
                return Err(ProviderError::NoCapacity {
                    provider: STATIC.into(),
                    why: format!(
                        "all {} machines of this kind are in use",
                        self.count(want.kind)
                    ),
                });
            };
            let node = found.node.clone();
            self.used.insert(node.clone(), want.clone());
            self.keep()?;
            Ok(self.machine(&node, want))
        })
    }

    fn release<'a>(&'a mut self, id: &'a str) -> Answer<'a, ()> {
        Box::pin(async move {
            self.used.retain(|node, _| node.as_str() != id);
            self.keep()
        })
    }

    fn list(&mut self) -> Answer<'_, Vec<Machine>> {
        let all = self.used.iter();
        let all: Vec<Machine> = all.map(|(node, want)| self.machine(node, want)).collect();
        Box::pin(async { Ok(all) })
    }

    fn signals(&mut self) -> Answer<'_, Vec<Signal>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_of_the_list_is_given_once_and_known_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let open = || {
            let listed = |node: &str, kind| Listed {
                node: NodeName::new(node).unwrap(),
                kind,
            };
            let list = vec![listed("n1", Kind::OnDemand), listed("n2", Kind::Spot)];
            Static::new(list, MicroUsd(0), folder.path().join("static.json")).unwrap()
        };
        let want = |token: &str| Want {
            token: NodeName::new(token).unwrap(),
            pool: Pool {
                provider: STATIC.into(),
                region: String::new(),
                zone: String::new(),
                machine: String::new(),
            },
            kind: Kind::Spot,
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut fixed = open();
            let first = fixed.acquire(&want("a")).await.unwrap();
            assert_eq!(first.id, "n2");
            assert_eq!(fixed.acquire(&want("a")).await.unwrap(), first);
            assert!(fixed.acquire(&want("b")).await.unwrap_err().is_certain());
            let mut again = open();
            assert_eq!(again.list().await.unwrap(), [first]);
            again.release("n2").await.unwrap();
            again.release("n2").await.unwrap();
            assert_eq!(open().list().await.unwrap(), []);
        });
    }
}
