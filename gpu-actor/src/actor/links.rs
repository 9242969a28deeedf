//! Links a stage to its neighbours: it calls the one behind, and waits for the one before. The same stage of a linked
//! replica is called by the one of the lower number.

use std::collections::BTreeMap;
use std::net::ToSocketAddrs;
use std::sync::Arc;

use shared::ids::NodeName;
use shared::net::endpoint::Endpoint;
use shared::net::identity::Role;
use shared::plan::Seat;
use shared::wire::opening::{LinkOpening, Opening};
use tokio::time::timeout;

use super::hall::{Arrival, Hall};
use super::metered::Metered;
use super::meters::Meters;
use super::settings::NodeSettings;
use crate::duty::Post;
use crate::link::ChunkLink;
use crate::link::bell::Bell;
use crate::link::quic;
use crate::link::transit::Transits;

/// To the stage before and the one behind, and to the same stage of linked replicas.
pub(super) type Links = (
    [Option<Box<dyn ChunkLink>>; 2],
    BTreeMap<u32, Box<dyn ChunkLink>>,
);

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
        // One that is refused ends the wait for the others.
        let (before, behind, peers) = tokio::try_join!(
            self.before(post, bell),
            self.behind(post, bell),
            self.peers(post, bell)
        )?;
        Ok(([before, behind], peers))
    }

    async fn behind(&self, post: &Post, bell: &Bell) -> Result<Option<Box<dyn ChunkLink>>, String> {
        let Some(seat) = post.replica.seats.get(post.stage as usize + 1) else {
            return Ok(None);
        };
        let narrow = self.settings.narrow;
        let opening = self.opening(post, [post.replica.number, post.stage + 1], narrow);
        self.call(seat, opening, bell).await.map(Some)
    }

    async fn before(&self, post: &Post, bell: &Bell) -> Result<Option<Box<dyn ChunkLink>>, String> {
        let Some(number) = post.stage.checked_sub(1) else {
            return Ok(None);
        };
        let node = &post.replica.seats[number as usize].node;
        let from = [post.replica.number, number];
        let narrow = self.settings.narrow;
        let link = self.await_call(post, (from, node), narrow, bell).await;
        link.map(Some)
    }

    /// Gradients are summed by bits: values between replicas are never narrowed.
    async fn peers(
        &self,
        post: &Post,
        bell: &Bell,
    ) -> Result<BTreeMap<u32, Box<dyn ChunkLink>>, String> {
        let mut links = BTreeMap::new();
        for sibling in &post.replica.siblings {
            let Some(seat) = sibling.seats.get(post.stage as usize) else {
                continue;
            };
            let link = if post.replica.number < sibling.number {
                let opening = self.opening(post, [sibling.number, post.stage], false);
                self.call(seat, opening, bell).await?
            } else {
                let from = ([sibling.number, post.stage], &seat.node);
                self.await_call(post, from, false, bell).await?
            };
            links.insert(sibling.number, link);
        }
        Ok(links)
    }

    fn opening(&self, post: &Post, to: [u32; 2], narrow: bool) -> LinkOpening {
        LinkOpening {
            epoch: post.epoch,
            from_replica: post.replica.number,
            replica: to[0],
            from_stage: post.stage,
            to_stage: to[1],
            credits: self.settings.credits,
            narrow,
        }
    }

    /// Calls the node of a seat.
    async fn call(
        &self,
        seat: &Seat,
        opening: LinkOpening,
        bell: &Bell,
    ) -> Result<Box<dyn ChunkLink>, String> {
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
        let (link, carrier) = quic::over(stream, opening, bell.clone(), self.transits());
        tokio::spawn(async move {
            // The link itself tells its stage how it ended.
            let _ = carrier.await;
            drop(peer);
        });
        Ok(self.metered(Box::new(link), opening.narrow))
    }

    /// Waits for the call of a node that holds this replica and stage.
    async fn await_call(
        &self,
        post: &Post,
        (from, node): ([u32; 2], &NodeName),
        narrow: bool,
        bell: &Bell,
    ) -> Result<Box<dyn ChunkLink>, String> {
        let patience = self.settings.link_patience;
        let to = [post.replica.number, post.stage];
        let caller = (from, node);
        let arrival = self.hall.take(post.epoch, to, caller, patience).await;
        let arrival = arrival.ok_or_else(|| {
            let [replica, stage] = from;
            format!(
                "node {node}, stage {stage} of replica {replica}, did not link within {patience:?}"
            )
        })?;
        let opening = arrival.opening;
        if let Some(fault) = fault(&arrival, node, (self.settings.credits, narrow)) {
            return Err(fault);
        }
        let stream = arrival.stream;
        let (link, carrier) = quic::over(stream, opening, bell.clone(), self.transits());
        let done = arrival.done;
        tokio::spawn(async move {
            // The link itself tells its stage how it ended.
            let _ = carrier.await;
            drop(done);
        });
        Ok(self.metered(Box::new(link), opening.narrow))
    }

    fn transits(&self) -> Transits {
        Transits::by(Arc::clone(&self.settings.clock))
    }

    fn metered(&self, link: Box<dyn ChunkLink>, narrow: bool) -> Box<dyn ChunkLink> {
        Box::new(Metered::over(link, narrow, Arc::clone(&self.meters)))
    }
}

/// What is wrong with a link that came for the seat of a node, if anything: a sentence.
fn fault<S>(
    arrival: &Arrival<S>,
    node: &NodeName,
    (credits, narrow): (u32, bool),
) -> Option<String> {
    let (from, opening) = (&arrival.from, &arrival.opening);
    if from != node {
        return Some(format!(
            "node {from} links as stage {} of replica {}, which is the seat of node {node}: is the plan that {from} \
             follows another cluster's or an older one?",
            opening.from_stage, opening.from_replica
        ));
    }
    if (opening.credits, opening.narrow) != (credits, narrow) {
        return Some(format!(
            "node {node} links with {} credits and bf16 {}, here they are {credits} and {narrow}: give all nodes the \
             same settings",
            opening.credits, opening.narrow
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use shared::ids::PlanEpoch;
    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn a_link_is_taken_from_the_node_of_its_seat_only() {
        let opening = LinkOpening {
            epoch: PlanEpoch(3),
            from_replica: 1,
            replica: 1,
            from_stage: 0,
            to_stage: 1,
            credits: 4,
            narrow: false,
        };
        let arrival = |name: &str| Arrival {
            from: NodeName::new(name).unwrap(),
            opening,
            stream: (),
            done: oneshot::channel().0,
        };
        let node = NodeName::new("a").unwrap();
        assert_eq!(fault(&arrival("a"), &node, (4, false)), None);
        let other = fault(&arrival("b"), &node, (4, false)).unwrap();
        let seat = "node b links as stage 0 of replica 1, which is the seat of node a";
        assert!(other.starts_with(seat), "{other}");
        let credits = fault(&arrival("a"), &node, (2, false)).unwrap();
        assert!(credits.contains("4 credits"), "{credits}");
    }
}
