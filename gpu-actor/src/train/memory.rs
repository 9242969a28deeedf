//! Memory of a session, predicted before anything is allocated.
//!
//! Of a step that is not whole in one pass, sums of the gradient wait for later blocks: of B blocks, at most as many whole
//! copies as a number below B has binary ones, which is floor(log2 B) (`kernels::ops::block_sum`). Jobs whose steps are spread
//! over turns ([`super::spread`]) hold theirs at once; of the others one at a time is between two passes. Of a sequence that is
//! cut, chunks come backwards: a run of its last b blocks is at most 2 log2 b nodes of the tree more.

use serde::Serialize;
use shared::job::{JobSpec, OptimizerKind};
use shared::model::ModelShape;
use shared::recompute::Recompute;

use super::{pack, progress, spread};
use crate::batch::{self, BLOCK};
use crate::peft::layout::{Layout, LinearSite};
use crate::stage::buffers::{self, Passing};
use crate::stage::footprint::Footprint;

const FLOAT: u64 = size_of::<f32>() as u64;

/// Bytes a session will need at its peak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Estimate {
    /// Weights of the backbone.
    pub backbone: u64,
    /// What backward keeps of forward, for one pass, with the tape of one layer that is made again or never comes back.
    pub tape: u64,
    /// What chunks of the longest sequence hand each other, if it is cut: keys and values, and their gradients.
    pub carried: u64,
    /// Buffers of one block, of the head, of positions and of gradients under way.
    pub buffers: u64,
    /// Values, what is derived from them, gradients, sums of gradients that wait, and moments of all jobs.
    pub adapters: u64,
}

impl Estimate {
    /// All together.
    #[must_use]
    pub fn total(&self) -> u64 {
        let parts = [self.tape, self.carried, self.buffers, self.adapters];
        parts.into_iter().fold(self.backbone, u64::saturating_add)
    }
}

/// Rows of passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// Most of a pass of whole sequences.
    pub pass: usize,
    /// Most of a chunk: longer sequences are cut.
    pub chunk: usize,
    /// Of the longest sequence. Longer than a pass and not cut, it gets a pass of its own.
    pub longest: usize,
}

impl Rows {
    /// Of a chunk of a job: it has all virtual rows.
    fn chunk_of(self, layout: &Layout) -> usize {
        let prompt = layout.prompt.as_ref();
        pack::chunk_rows(self.chunk, prompt.map_or(0, |prompt| prompt.tokens))
    }

    /// Of the largest pass.
    fn most(self, jobs: &[Resident<'_>]) -> usize {
        let chunks = jobs.iter().map(|job| self.chunk_of(job.layout));
        let chunk = chunks
            .max()
            .unwrap_or_else(|| pack::chunk_rows(self.chunk, 0));
        self.pass.max(self.longest.min(chunk))
    }

    /// Of the longest sequence, if it is cut.
    fn cut(self, jobs: &[Resident<'_>]) -> usize {
        let chunks = jobs.iter().map(|job| self.chunk_of(job.layout));
        let chunk = chunks
            .min()
            .unwrap_or_else(|| pack::chunk_rows(self.chunk, 0));
        if self.longest > chunk {
            self.longest
        } else {
            0
        }
    }
}

/// How large the steps of a job are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepSize {
    /// Rows of the shortest that its samples allow.
    pub least: usize,
    /// Rows of the longest.
    pub most: usize,
    /// Blocks of the longest.
    pub blocks: u64,
    /// Rows of its longest sequence.
    pub longest: usize,
    /// Rows of its shortest sequence.
    pub shortest: usize,
}

impl StepSize {
    /// Of a job that trains on sequences of so many tokens each, whichever of them come together.
    #[must_use]
    pub fn of(spec: &JobSpec, layout: &Layout, tokens: impl IntoIterator<Item = usize>) -> Self {
        let virtual_rows = layout.prompt.as_ref().map_or(0, |prompt| prompt.tokens);
        let mut tokens: Vec<usize> = tokens.into_iter().collect();
        tokens.sort_unstable();
        let samples = progress::samples_per_step(&spec.train).min(tokens.len());
        // The last step of an epoch takes what is left.
        let fewest = match tokens.len().checked_rem(samples) {
            Some(0) | None => samples,
            Some(left) => left,
        };
        let longest = &tokens[tokens.len() - samples..];
        let rows =
            |tokens: &[usize]| -> usize { tokens.iter().map(|tokens| tokens + virtual_rows).sum() };
        let blocks = longest
            .iter()
            .map(|&tokens| batch::block_count(tokens, virtual_rows));
        Self {
            least: rows(&tokens[..fewest]),
            most: rows(longest),
            blocks: blocks.sum(),
            longest: longest.last().map_or(0, |tokens| tokens + virtual_rows),
            shortest: tokens.first().map_or(0, |tokens| tokens + virtual_rows),
        }
    }
}

/// A job as its memory depends on it.
#[derive(Clone, Copy, Debug)]
pub struct Resident<'a> {
    /// What it asks for.
    pub spec: &'a JobSpec,
    /// Its adapter.
    pub layout: &'a Layout,
    /// Its steps.
    pub step: StepSize,
}

impl<'a> Resident<'a> {
    fn passing(&self) -> Passing<'a> {
        Passing {
            layout: self.layout,
            shortest: self.step.shortest,
            blocks: self.step.blocks,
        }
    }
}

/// Predicts the peak for these jobs on one stage. Layers that recompute keep less.
#[must_use]
pub fn predict(
    shape: &ModelShape,
    backbone: u64,
    jobs: &[Resident<'_>],
    sizes: Rows,
    recompute: Recompute,
) -> Estimate {
    let (rows, cut) = (sizes.most(jobs), sizes.cut(jobs));
    let holds_out = |job: &Resident<'_>| {
        let data = &job.spec.data;
        data.eval.is_some() || data.eval_split > 0.0
    };
    let evaluates = jobs.iter().any(holds_out);
    let row = |adapter: Option<&Layout>| {
        let (layers, recomputed) = (0..shape.layers, recompute.of(shape.layers));
        // A pass of held-out rows writes each layer into the place that layers which recompute share.
        match cut > 0 || evaluates {
            false => Footprint::of_row(shape, layers, recomputed, adapter).total(),
            true => Footprint::of_chunk_row(shape, layers, recomputed, adapter),
        }
    };
    let adapted = jobs.iter().map(|job| row(Some(job.layout)));
    let row = adapted.max().unwrap_or_else(|| row(None));
    let summed = jobs.iter().map(|job| summed(job.layout, shape));
    let under_way = 2 * summed.max().unwrap_or(0) * FLOAT;
    let prefixes = jobs.iter().filter_map(|job| job.layout.prefix.as_ref());
    let prefix = prefixes.map(|site| site.tokens).max().unwrap_or(0);
    let passing: Vec<Passing<'_>> = jobs.iter().map(Resident::passing).collect();
    let reach = sizes.longest.saturating_add(prefix);
    Estimate {
        backbone,
        tape: (rows as u64).saturating_mul(row),
        carried: Footprint::of_cut_row(shape, shape.layers, true, true).saturating_mul(cut as u64),
        buffers: buffers::of_pass(shape, rows, reach, &passing).saturating_add(under_way),
        adapters: jobs
            .iter()
            .map(|job| adapter_bytes(job.spec, job.layout, shape))
            .fold(waiting(shape, jobs, sizes), u64::saturating_add),
    }
}

/// Most bytes of sums that wait for other blocks of steps.
fn waiting(shape: &ModelShape, jobs: &[Resident<'_>], sizes: Rows) -> u64 {
    let bytes = |job: &Resident<'_>| {
        let behind = match job.step.longest > sizes.chunk_of(job.layout) {
            true => 2 * job.step.longest.div_ceil(BLOCK).ilog2(),
            false => 0,
        };
        let copies = u64::from(job.step.blocks.max(1).ilog2() + behind);
        (summed(job.layout, shape) * FLOAT).saturating_mul(copies)
    };
    if let [job] = jobs
        && job.step.most <= sizes.most(jobs)
        && sizes.cut(jobs) == 0
    {
        return 0;
    }
    let bound = sizes.pass.saturating_mul(spread::PASSES);
    let least = jobs.iter().map(|job| job.step.least);
    let uneven = jobs.len() > 1 && {
        let most = spread::most(bound, least);
        jobs.iter().any(|job| job.step.most > most)
    };
    let spread = |job: &&Resident<'_>| uneven && job.step.most > bound;
    let held = jobs.iter().filter(spread).map(bytes);
    let open = jobs.iter().filter(|job| !spread(job)).map(bytes).max();
    held.fold(open.unwrap_or(0), u64::saturating_add)
}

/// Bytes of one job: values, places of sparse ones, what is derived from them, gradients of both, and one or two moments.
#[must_use]
pub fn adapter_bytes(spec: &JobSpec, layout: &Layout, shape: &ModelShape) -> u64 {
    let copies = match spec.optimizer.kind {
        OptimizerKind::AdamW => 4,
        OptimizerKind::Sgd => 3,
    };
    let linear = layout.layers.iter().flat_map(|sites| &sites.linear);
    // The inverse norm of each row of a weight, and its factor.
    let norms = linear.flatten().map(|site| match site {
        LinearSite::LowRank {
            magnitude: Some(magnitude),
            ..
        } => 2 * magnitude.len(),
        _ => 0,
    });
    let derived = norms.sum::<usize>() as u64 + 2 * prefix_values(layout, shape);
    ((layout.len as u64 * copies + derived) * FLOAT).saturating_add(layout.place_bytes())
}

/// Keys and values of a prefix, which are trained as they are or made from what is.
fn prefix_values(layout: &Layout, shape: &ModelShape) -> u64 {
    let prefix = layout.prefix.as_ref();
    let values = prefix.map(|site| 2 * site.layers.len() * site.tokens * shape.kv_width());
    values.unwrap_or(0) as u64
}

/// Values whose gradients are sums over blocks.
fn summed(layout: &Layout, shape: &ModelShape) -> u64 {
    (layout.len as u64).max(prefix_values(layout, shape))
}
