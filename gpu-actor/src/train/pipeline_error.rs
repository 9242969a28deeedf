//! Why a pipeline could not be made, or stopped.

use thiserror::Error;

use crate::link::{ChunkHeader, LinkError};
use crate::pipeline::{Lack, Unexpected};

/// Says why a pipeline could not be made, or stopped.
#[derive(Debug, Error)]
pub enum PipelineError {
    /// A stage needs a layer.
    #[error(
        "{stages} stages for {layers} layers: a stage holds at least one layer, so ask for 1 to {layers}"
    )]
    Stages {
        /// Stages asked for.
        stages: usize,
        /// Layers of the model that are there.
        layers: usize,
    },
    /// Nothing moved for longer than the patience.
    #[error("stage {stage} stalled: it waits for {lack:?}")]
    Stalled {
        /// The stage.
        stage: usize,
        /// What it lacks.
        lack: Lack,
    },
    /// A message that does not fit.
    #[error("stage {stage}: {source}")]
    Unexpected {
        /// The stage.
        stage: usize,
        /// The message and what is wrong with it.
        source: Unexpected,
    },
    /// A chunk that the plan does not know.
    #[error("stage {stage}: a chunk that is not of this plan: {header:?}")]
    Chunk {
        /// The stage that got it.
        stage: usize,
        /// What it says of itself.
        header: ChunkHeader,
    },
    /// A neighbour cannot be reached.
    #[error("stage {stage}: {source}")]
    Link {
        /// The stage.
        stage: usize,
        /// The link's reason.
        source: LinkError,
    },
    /// Another stage ended early.
    #[error("stage {stage} stopped, for another stage did")]
    Left {
        /// The stage that noticed.
        stage: usize,
    },
    /// A run failed before: jobs may have taken a step on some stages only.
    #[error("this pipeline failed before: restore its jobs from their last saved state")]
    Lost,
}
