//! What a node does for others: it takes the links of its neighbours, and hands out files of the backbone.

use std::sync::Arc;

use shared::net::endpoint::Peer;
use shared::net::fault::NetError;
use shared::net::router::{Service, Stop};
use shared::net::shelf::Shelf;
use shared::net::stream::Stream;
use shared::wire::opening::Opening;
use shared::wire::request::{Refusal, RefusalCode, Reply, Request};
use tokio::sync::oneshot;

use super::hall::{Arrival, Hall};

/// The doorkeeper.
pub(super) struct NodeService {
    pub(super) hall: Arc<Hall>,
    pub(super) shelf: Shelf,
}

impl Service for NodeService {
    async fn request(
        &self,
        _: &Peer,
        request: Request,
        stream: &mut Stream,
        _: Stop,
    ) -> Result<(), NetError> {
        if let Request::BackboneFile { file, from } = request {
            return self.shelf.serve(&file, from, stream).await;
        }
        let refusal = Refusal {
            code: RefusalCode::Forbidden,
            message: "a gpu-actor answers for its backbone only: ask the coordinator".into(),
        };
        stream.sender.send(&Reply::Refused(refusal)).await
    }

    async fn stream(
        &self,
        peer: Peer,
        opening: Opening,
        stream: Stream,
        mut stop: Stop,
    ) -> Result<(), NetError> {
        let Opening::Link(opening) = opening else {
            return Ok(());
        };
        let (done, ended) = oneshot::channel();
        self.hall.bring(Arrival {
            from: peer.identity.name.clone(),
            opening,
            stream,
            done,
        });
        // The stream belongs to the stage now; the router keeps the connection for as long as it is used.
        tokio::select! {
            _ = ended => {}
            () = stop.wait() => {}
        }
        Ok(())
    }
}
