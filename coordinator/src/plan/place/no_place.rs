//! Why there is no layout.

use shared::ids::NodeName;
use shared::units::Bytes;
use thiserror::Error;

use super::Fleet;
use crate::plan::bounds::OutOfBounds;
use crate::plan::profile::BadProfile;
use crate::plan::snapshot::{BLOCK, Snapshot};

/// Why there is no layout.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum NoPlace {
    /// A node names a device that nobody measured.
    #[error(
        "node {node} is a {device}, of which there is no profile: measure it or give its peaks"
    )]
    Unknown {
        /// The node.
        node: NodeName,
        /// Its device.
        device: String,
    },
    /// A profile lacks something.
    #[error(transparent)]
    Profile(#[from] BadProfile),
    /// A number that no machine, model or job has.
    #[error(transparent)]
    Bounds(#[from] OutOfBounds),
    /// No node.
    #[error("no node can have work: start one, or undo a drain")]
    NoNode,
    /// More stages than blocks or nodes.
    #[error(
        "{stages} stages were asked for, and there are {blocks} blocks and {nodes} nodes: ask for 1 to {}",
        blocks.min(nodes)
    )]
    TooManyStages {
        /// Asked for.
        stages: u32,
        /// Of the backbone.
        blocks: usize,
        /// That may have work.
        nodes: usize,
    },
    /// More replicas than nodes.
    #[error(
        "{replicas} replicas of {stages} stage(s) or more were asked for, and there are {nodes} nodes: ask for 1 to {}",
        nodes / (*stages).max(1)
    )]
    TooManyReplicas {
        /// Asked for.
        replicas: u32,
        /// The fewest that a replica has.
        stages: usize,
        /// That may have work.
        nodes: usize,
    },
    /// Not enough memory in any cut.
    #[error(
        "the backbone takes {backbone} and the least that a pass and an adapter take with it come to {needed} over \
         {nodes} nodes, which offer {offered} in all, cut by whole blocks: add nodes or memory, keep the weights \
         narrower, or shorten the sequences"
    )]
    TooBig {
        /// Weights alone.
        backbone: Bytes,
        /// With driver, libraries and one pass.
        needed: Bytes,
        /// Nodes.
        nodes: usize,
        /// Their memory.
        offered: Bytes,
    },
}

/// The least that there would have to be.
pub(super) fn too_big(snapshot: &Snapshot, fleet: &Fleet) -> NoPlace {
    let sizes = &fleet.sizes[0];
    let backbone = sizes.backbone(snapshot.model.layers as u64, true, true);
    let nodes = snapshot.nodes.len();
    let each = fleet.devices[0].profile().workspace_bytes;
    let workspace = each.saturating_mul(nodes as u64);
    let pass = sizes
        .under_way(BLOCK, 0, snapshot.model.layers as u64)
        .saturating_add(sizes.buffers(BLOCK).saturating_mul(nodes as u64));
    NoPlace::TooBig {
        backbone: Bytes(backbone),
        needed: Bytes(backbone.saturating_add(workspace).saturating_add(pass)),
        nodes,
        offered: Bytes(snapshot.nodes.values().map(|node| node.memory.0).sum()),
    }
}
