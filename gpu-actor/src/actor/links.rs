//! Links a stage to its neighbours: it calls the one behind, and waits for the one before.

use std::net::ToSocketAddrs;
use std::sync::Arc;

use shared::net::endpoint::Endpoint;
use shared::net::identity::Role;
use shared::wire::opening::{LinkOpening, Opening};
use tokio::time::timeout;

use super::hall::Hall;
use super::metered::Metered;
use super::meters::Meters;
use super::settings::NodeSettings;
use crate::duty::Post;
use crate::link::ChunkLink;
use crate::link::bell::Bell;
use crate::link::quic;

/// To the stage before and the one behind.
pub(super) type Links = [Option<Box<dyn ChunkLink>>; 2];

/// What links are made with.
#[derive(Debug)]
pub(super) struct Linker {
    pub(super) settings: NodeSettings,
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) hall: Arc<Hall>,
    pub(super) meters: Arc<Meters>,
}

impl Linker {
    /// Links a post to its neighbours.
    ///
    /// # Errors
    /// A sentence that names the neighbour.
    pub(super) async fn link(&self, post: &Post, bell: &Bell) -> Result<Links, String> {
        let (before, behind) = tokio::join!(self.before(post, bell), self.behind(post, bell));
        Ok([before?, behind?])
    }

    async fn behind(&self, post: &Post, bell: &Bell) -> Result<Option<Box<dyn ChunkLink>>, String> {
        let Some(seat) = post.replica.seats.get(post.stage as usize + 1) else {
            return Ok(None);
        };
        let failed = |reason: &dyn std::fmt::Display| {
            format!(
                "node {} at {} cannot be linked: {reason}",
                seat.node, seat.address
            )
        };
        let mut addresses = seat
            .address
            .to_socket_addrs()
            .map_err(|error| failed(&error))?;
        let address = addresses
            .next()
            .ok_or_else(|| failed(&"its address names no machine"))?;
        let opening = LinkOpening {
            epoch: post.epoch,
            replica: post.replica.number,
            from_stage: post.stage,
            to_stage: post.stage + 1,
            credits: self.settings.credits,
            narrow: self.settings.narrow,
        };
        let call = async {
            let peer = self.endpoint.connect(address, Role::GpuActor).await?;
            let stream = peer.open(Opening::Link(opening)).await?;
            Ok::<_, shared::net::fault::NetError>((peer, stream))
        };
        let patience = self.settings.link_patience;
        let called = timeout(patience, call)
            .await
            .map_err(|_| failed(&format!("no answer within {patience:?}")))?;
        let (peer, stream) = called.map_err(|error| failed(&error))?;
        if peer.identity.name.as_str() != seat.node.as_str() {
            return Err(failed(&format!(
                "node {} answers there",
                peer.identity.name
            )));
        }
        let (link, carrier) = quic::over(stream, opening, bell.clone());
        tokio::spawn(async move {
            // The link itself tells its stage how it ended.
            let _ = carrier.await;
            drop(peer);
        });
        Ok(Some(self.metered(Box::new(link), opening.narrow)))
    }

    async fn before(&self, post: &Post, bell: &Bell) -> Result<Option<Box<dyn ChunkLink>>, String> {
        let Some(number) = post.stage.checked_sub(1) else {
            return Ok(None);
        };
        let patience = self.settings.link_patience;
        let arrival = self
            .hall
            .take(post.epoch, post.replica.number, post.stage, patience)
            .await;
        let arrival = arrival.ok_or_else(|| {
            let node = &post.replica.seats[number as usize].node;
            format!("node {node}, the stage before, did not link within {patience:?}")
        })?;
        let opening = arrival.opening;
        if (opening.credits, opening.narrow) != (self.settings.credits, self.settings.narrow) {
            return Err(format!(
                "the stage before links with {} credits and bf16 {}, here they are {} and {}: give all nodes the same \
                 settings",
                opening.credits, opening.narrow, self.settings.credits, self.settings.narrow
            ));
        }
        let (link, carrier) = quic::over(arrival.stream, opening, bell.clone());
        let done = arrival.done;
        tokio::spawn(async move {
            // The link itself tells its stage how it ended.
            let _ = carrier.await;
            drop(done);
        });
        Ok(Some(self.metered(Box::new(link), opening.narrow)))
    }

    fn metered(&self, link: Box<dyn ChunkLink>, narrow: bool) -> Box<dyn ChunkLink> {
        Box::new(Metered::over(link, narrow, Arc::clone(&self.meters)))
    }
}
