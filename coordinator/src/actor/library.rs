//! The backbone's files as the coordinator has them: what they are, for a node that has not got them, and the files
//! themselves when no node can hand them out.

use std::sync::Arc;

use shared::ids::NodeName;
use shared::net::fault::NetError;
use shared::net::shelf::Shelf;
use shared::net::stream::Stream;
use shared::units::Bytes;
use shared::wire::request::{BackboneView, FileRef, Refusal, RefusalCode, Reply};
use shared::wire::view::NodeView;
use tokio::sync::OnceCell;

use super::files::refusal;
use super::settings::BackboneFiles;

/// Files handed out at once.
const HANDED_OUT: usize = 2;

/// The files, and their hashes once somebody asked.
pub(super) struct Library {
    identity: String,
    base: String,
    shelf: Arc<Shelf>,
    hashed: OnceCell<Vec<FileRef>>,
}

impl Library {
    pub(super) fn new(identity: String, backbone: BackboneFiles) -> Self {
        let shelf = Shelf::new(backbone.files, HANDED_OUT, backbone.serve_rate);
        Self {
            identity,
            base: backbone.base,
            shelf: Arc::new(shelf),
            hashed: OnceCell::new(),
        }
    }

    /// What the backbone is made of, and which of these nodes have it. Files are hashed for the first who asks.
    pub(super) async fn tell(&self, nodes: Vec<NodeView>) -> Result<Reply, Refusal> {
        let hash = || async {
            let shelf = Arc::clone(&self.shelf);
            let hashed = tokio::task::spawn_blocking(move || shelf.references());
            let hashed = hashed.await.map_err(|error| error.to_string())?;
            hashed.map_err(|error| error.to_string())
        };
        let files = self.hashed.get_or_try_init(hash).await;
        let files = files.map_err(|reason| {
            let message = format!("the coordinator's own backbone cannot be read: {reason}");
            refusal(RefusalCode::Internal, message)
        })?;
        let alive = nodes.into_iter().filter(|node| node.health.is_here());
        let nodes: Vec<(NodeName, String)> = alive.map(|node| (node.name, node.address)).collect();
        Ok(Reply::Backbone(BackboneView {
            identity: self.identity.clone(),
            base: self.base.clone(),
            files: files.clone(),
            nodes,
        }))
    }

    /// One of the files, from an offset on.
    pub(super) async fn serve(
        &self,
        file: &FileRef,
        from: Bytes,
        stream: &mut Stream,
    ) -> Result<(), NetError> {
        self.shelf.serve(file, from, stream).await
    }
}
