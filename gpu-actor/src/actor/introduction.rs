//! What a node is: its backbone, its certificate, and what it says of itself when it reaches the coordinator.

use std::net::SocketAddr;

use shared::ids::Term;
use shared::net::credential::Credential;
use shared::wire::notice::Hello;

use super::error::RunError;
use super::opener::Opener;
use super::settings::NodeSettings;
use crate::model::{Model, arithmetic};

/// The backbone as it lies in its file.
pub(super) fn look(opener: &Opener, settings: &NodeSettings) -> Result<Model, RunError> {
    opener.look().map_err(|reason| RunError::Model {
        path: settings.model.clone(),
        reason,
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
pub(super) fn hello(look: &Model, settings: &NodeSettings, listens: SocketAddr) -> Hello {
    let address = settings.advertised.clone();
    Hello {
        node: settings.node.clone(),
        incarnation: settings.incarnation,
        address: address.unwrap_or_else(|| listens.to_string()),
        backbone: look.content_hash(),
        layers: u32::try_from(look.shape.layers).unwrap_or(u32::MAX),
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
