//! What a node is: its backbone, its certificate, and what it says of itself when it reaches the coordinator.

use std::net::SocketAddr;
use std::sync::Arc;

use shared::ids::Term;
use shared::net::credential::Credential;
use shared::net::shelf::Shelf;
use shared::wire::notice::Hello;

use super::error::RunError;
use super::fetching::Fetched;
use super::opener::Opener;
use super::settings::NodeSettings;
use crate::model::{Model, arithmetic, files};

/// Files of the backbone handed out at once.
const HANDED_OUT: usize = 1;

/// The backbone as this node has it.
pub(super) struct Backbone {
    /// Opens layers of it.
    pub(super) opener: Arc<Opener>,
    /// As it lies in its file.
    pub(super) look: Model,
    /// Content hash of its identity.
    pub(super) hash: String,
    /// What adapters call their base model.
    pub(super) base: String,
    /// Its files, for members that have not got it.
    pub(super) shelf: Shelf,
}

/// Looks at the backbone: the one that was fetched, which must be the one that was told of, or the node's own.
pub(super) fn backbone(
    settings: &NodeSettings,
    fetched: Option<&Fetched>,
) -> Result<Backbone, RunError> {
    let path = fetched.map_or(&settings.model, |fetched| &fetched.model);
    let refused = |reason: String| RunError::Model {
        path: path.clone(),
        reason,
    };
    let files = files(path).map_err(|error| refused(error.to_string()))?;
    let opener = Opener::new(path.clone(), settings.format, settings.cpu.clone());
    let look = opener.look().map_err(refused)?;
    let known = settings.identity.clone();
    let hash = known.unwrap_or_else(|| look.content_hash());
    let base = match fetched {
        Some(fetched) => {
            same(fetched, &hash)?;
            fetched.base.clone()
        }
        None => look.name.clone().unwrap_or_else(|| look.identity()),
    };
    Ok(Backbone {
        opener: Arc::new(opener),
        look,
        hash,
        base,
        shelf: Shelf::new(files, HANDED_OUT, settings.serve_rate),
    })
}

/// Refuses, and removes, a fetched backbone that is not the one that was told of.
fn same(fetched: &Fetched, hash: &str) -> Result<(), RunError> {
    if fetched.identity == hash {
        return Ok(());
    }
    let removed = match std::fs::remove_dir_all(&fetched.model) {
        Ok(()) => "it was removed, the next start fetches it anew".to_owned(),
        Err(error) => format!("remove it ({error})"),
    };
    Err(RunError::Model {
        path: fetched.model.clone(),
        reason: format!(
            "its content hash is {hash}, and the cluster's backbone has {}: {removed}",
            fetched.identity
        ),
    })
}

/// The node's own certificate.
pub(super) fn credential(settings: &NodeSettings) -> Result<Credential, RunError> {
    let credential = Credential::load(&settings.credential)?;
    if credential.identity.name.as_str() == settings.node.as_str() {
        return Ok(credential);
    }
    Err(RunError::OtherNode {
        path: settings.credential.clone(),
        found: credential.identity.to_string(),
        node: settings.node.to_string(),
    })
}

/// What it says first on every connection; what it holds is filled in then.
pub(super) fn hello(backbone: &Backbone, settings: &NodeSettings, listens: SocketAddr) -> Hello {
    let address = settings.advertised.clone();
    Hello {
        node: settings.node.clone(),
        incarnation: settings.incarnation,
        address: address.unwrap_or_else(|| listens.to_string()),
        backbone: backbone.hash.clone(),
        layers: u32::try_from(backbone.look.shape.layers).unwrap_or(u32::MAX),
        memory: settings.memory,
        threads: u32::try_from(settings.cpu.threads()).unwrap_or(u32::MAX),
        products: arithmetic::of(&settings.cpu),
        device: format!("cpu {}", settings.cpu.isa()),
        term: Term(0),
        held: None,
        unheard: 1,
        clock: (settings.clock)(),
    }
}
