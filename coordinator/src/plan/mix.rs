//! Predicted time of a hybrid task: jobs whose rows share a pass.
//!
//! A stage of `n` blocks takes, forward and backward alike (after Eq 3 of the MuxTune paper):
//!
//! ```text
//! n x ( block(sum of rows) + attention floor + sum of attention
//!       + for each kind of site: max( sum of u t, longest t ) )
//! + embedding(rows) on the first stage + head(rows that count) on the last
//! ```
//!
//! with t the time of a job's adapter and u the share of the device it keeps busy. Backward is predicted by itself: the
//! backbone has no weight gradient, but attention and adapters take longer backward.
//!
//! A step of a job has C micro-batches; those of a job are alike: a C-th of its rows, of its attention.

use super::adapter::{SITES, Site};
use super::device::{Both, Device, SiteTime};
use super::snapshot::{BLOCK, Task};

/// What one job adds to a pass, on one kind of device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// Rows, on average over the micro-batches.
    pub tokens: u64,
    /// Rows of the largest micro-batch.
    pub peak: u64,
    /// Rows that count in the loss.
    pub counted: u64,
    /// Sequences begun.
    pub sequences: u64,
    /// Rows of the longest sequence.
    pub longest: u64,
    /// Attention of one block, beside the floor.
    pub attention: Both<u64>,
    /// Adapter of one block, by kind of site.
    pub sites: [SiteTime; SITES],
    /// Adapter at the head.
    pub head: SiteTime,
    /// Bytes of one block that backward needs of the adapter.
    pub kept: u64,
}

impl Load {
    /// Of a job whose step has so many micro-batches, cut at blocks or between sequences only.
    #[must_use]
    pub fn new(device: &Device, task: &Task, micro_batches: u64, cut: bool) -> Self {
        let model = device.model();
        let parts = micro_batches.max(1);
        let tokens = task.tokens().div_ceil(parts);
        // See `align`: a chunk is at most a block longer than even, or a sequence where that is shorter or is not cut.
        let grain = if cut {
            BLOCK.min(task.longest())
        } else {
            task.longest()
        };
        let peak = if parts == 1 {
            tokens
        } else {
            (tokens + grain).min(task.tokens())
        };
        // A real step is not the typical one: the first stage lets a pass have an eighth more.
        let peak = peak + peak / 8;
        let counted = (tokens * task.counted_permille.min(1000)).div_ceil(1000);
        let mut attention = Both::default();
        let mut lengths = task.lengths.clone();
        lengths.sort_unstable();
        for alike in lengths.chunk_by(|a, b| a == b) {
            let rows = u64::from(alike[0]) + task.adapter.prompt_rows();
            // Carried or virtual keys lengthen the way that a row looks back.
            let length = rows + 2 * task.adapter.prefix_keys();
            let whole = device.attention(length, rows * alike.len() as u64);
            attention = attention.plus(whole);
        }
        attention.forward = attention.forward.div_ceil(parts);
        attention.backward = attention.backward.div_ceil(parts);
        let mut load = Self {
            tokens,
            peak,
            counted,
            sequences: (task.lengths.len() as u64).div_ceil(parts),
            longest: task.longest(),
            attention,
            sites: [SiteTime::default(); SITES],
            head: SiteTime::default(),
            kept: peak
                .saturating_mul(task.adapter.kept_per_row(model))
                .saturating_mul(device.profile().compute.width()),
        };
        for site in &task.adapter.sites {
            match site.index() {
                Some(index) => load.sites[index] = device.adapter(&task.adapter, *site, tokens),
                None => load.head = device.adapter(&task.adapter, Site::Head, counted),
            }
        }
        load
    }
}

/// The jobs of a pass taken together, on one kind of device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mix {
    /// Jobs.
    pub jobs: usize,
    /// Rows, pads not counted.
    pub tokens: u64,
    /// Rows of the largest micro-batches together.
    pub peak: u64,
    /// Rows that count in the loss.
    pub counted: u64,
    /// Sequences begun.
    pub sequences: u64,
    /// Rows of the longest sequence.
    pub longest: u64,
    attention: Both<u64>,
    busy: [Both<u64>; SITES],
    slowest: [Both<u64>; SITES],
    head_busy: Both<u64>,
    head_slowest: Both<u64>,
    /// Bytes of one block that backward needs of adapters.
    pub kept: u64,
}

fn slower(a: Both<u64>, b: Both<u64>) -> Both<u64> {
    Both {
        forward: a.forward.max(b.forward),
        backward: a.backward.max(b.backward),
    }
}

impl Mix {
    /// Of these jobs.
    pub fn of<'a>(loads: impl IntoIterator<Item = &'a Load>) -> Self {
        let mut mix = Self::default();
        for load in loads {
            mix.push(load);
        }
        mix
    }

    /// One job more.
    pub fn push(&mut self, load: &Load) {
        self.jobs += 1;
        self.tokens += load.tokens;
        self.peak += load.peak;
        self.counted += load.counted;
        self.sequences += load.sequences;
        self.longest = self.longest.max(load.longest);
        self.attention = self.attention.plus(load.attention);
        for (index, site) in load.sites.iter().enumerate() {
            self.busy[index] = self.busy[index].plus(site.busy);
            self.slowest[index] = slower(self.slowest[index], site.time);
        }
        self.head_busy = self.head_busy.plus(load.head.busy);
        self.head_slowest = slower(self.head_slowest, load.head.time);
        self.kept = self.kept.saturating_add(load.kept);
    }

    /// Rows that are computed: with pads, every sequence is as long as the longest.
    #[must_use]
    pub fn rows(&self, padded: bool) -> u64 {
        if padded {
            self.tokens.max(self.sequences * self.longest)
        } else {
            self.tokens
        }
    }

    /// Most rows that lie in memory for one pass.
    #[must_use]
    pub fn peak_rows(&self, padded: bool) -> u64 {
        self.rows(padded).max(self.peak)
    }

    /// The adapters of one block.
    #[must_use]
    pub fn adapters(&self) -> Both<u64> {
        let sites = self.busy.iter().zip(&self.slowest);
        sites.fold(Both::default(), |sum, (busy, slowest)| {
            sum.plus(slower(*busy, *slowest))
        })
    }

    /// One block.
    #[must_use]
    pub fn block(&self, device: &Device, padded: bool) -> Both<u64> {
        let rows = self.rows(padded);
        let products = Both {
            forward: device.block.forward.at(rows),
            backward: device.block.backward.at(rows),
        };
        products
            .plus(device.attention_floor)
            .plus(self.attention)
            .plus(self.adapters())
    }

    /// The embedding.
    #[must_use]
    pub fn embedding(&self, device: &Device, padded: bool) -> Both<u64> {
        Both {
            forward: device.embedding.forward.at(self.rows(padded)),
            backward: device.embedding.backward.at(self.rows(padded)),
        }
    }

    /// Last norm, head and loss.
    #[must_use]
    pub fn head(&self, device: &Device) -> Both<u64> {
        let head = Both {
            forward: device.head.forward.at(self.counted),
            backward: device.head.backward.at(self.counted),
        };
        head.plus(slower(self.head_busy, self.head_slowest))
    }
}
