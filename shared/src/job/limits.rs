//! The largest numbers and the longest texts a job may ask for: far above every real one, small enough that no product of them
//! wraps and that no order is larger than a message may be.

/// Samples of a micro-batch, micro-batches of a step, and samples of a step.
pub(super) const MAX_SAMPLES: usize = 1 << 20;
/// Optimizer steps of a job, and of its warm-up.
pub(super) const MAX_STEPS: u64 = 1_000_000_000;
/// Passes over the data.
pub(super) const MAX_EPOCHS: f64 = 1e6;
/// Tokens of one fused pass.
pub const MAX_TOKENS_PER_PASS: usize = 1 << 24;
/// Compute threads.
pub const MAX_THREADS: usize = 4096;
/// Most jobs of a file.
pub const MAX_JOBS: usize = 10_000;
/// Width of the layer that reparameterises a prefix.
pub(super) const MAX_PROJECTION: usize = 1 << 16;
/// The numerator of LoRA's scale, and its least: its inverse.
pub(super) const MAX_ALPHA: f64 = 1e6;

/// Bytes of a path, as of one that an operating system takes.
pub const MAX_PATH: usize = 4096;
/// Bytes of the text that a prompt starts from.
pub(super) const MAX_INIT_TEXT: usize = 1 << 16;
/// Zones that a job names, and bytes of the name of one.
pub(super) const MAX_ZONES: usize = 64;
/// Bytes of a specification, all defaults written out: it travels in every order for its job.
pub const MAX_SPEC: usize = 1 << 17;

/// Replicas that share a job's steps: more would wait for each other more than they compute.
pub(super) const MAX_REPLICAS: u32 = 64;
