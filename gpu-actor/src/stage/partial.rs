//! What one replica has of a job's gradient, to be joined with what others have.
//!
//! A replica that computed some sequences of a step holds sums over aligned runs of the job's blocks: nodes of the
//! tree of [`kernels::ops::block_sum`]. They are taken out, told to the other replicas, and put together; since the
//! tree is over the job's own blocks, neither the number of replicas nor the order of arrival shows.

use kernels::ops::block_sum::Waiting;
use serde::{Deserialize, Serialize};

use super::step::Stage;
use super::timing::Operator;

/// What a sum is the gradient of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Of {
    /// The parameters.
    Parameters,
    /// Prefix keys and values, from which those of the parameters follow.
    Prefix,
}

/// Where a sum belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartialHead {
    /// What it is the gradient of.
    pub of: Of,
    /// Start of the parameter in flat storage.
    pub start: usize,
    /// First block.
    pub first: u64,
    /// Height in the tree.
    pub level: u32,
    /// Number of values.
    pub len: usize,
}

/// A sum over a run of blocks.
#[derive(Clone, Debug, PartialEq)]
pub struct Partial {
    /// Where it belongs.
    pub head: PartialHead,
    /// The sum.
    pub values: Vec<f32>,
}

impl Partial {
    fn new(of: Of, start: usize, waiting: Waiting<f32>) -> Self {
        let head = PartialHead {
            of,
            start,
            first: waiting.first,
            level: waiting.level,
            len: waiting.sum.len(),
        };
        Self {
            head,
            values: waiting.sum,
        }
    }
}

/// Most sums that wait of one parameter: two of each height, for fewer than 2^32 blocks.
const MOST_SUMS: usize = 64;

impl Stage {
    /// Whether so large and so many sums can be of a job's step; to be asked before their values are taken.
    #[must_use]
    pub fn may_hold(&self, slot: usize, heads: &[PartialHead]) -> bool {
        let Some(adapter) = self.adapter(slot) else {
            return false;
        };
        let (layout, prefix) = (&adapter.layout, adapter.derived.prefix.len());
        let within = |head: &PartialHead| {
            let space = match head.of {
                Of::Parameters => layout.len,
                Of::Prefix => prefix,
            };
            let end = head.start.checked_add(head.len);
            end.is_some_and(|end| end <= space)
        };
        // Keys and values of each layer have a gradient of their own.
        let places = layout.parameters.len() + 2 * layout.layers.len();
        let total = heads
            .iter()
            .fold(0usize, |sum, head| sum.saturating_add(head.len));
        heads.len() <= MOST_SUMS * places
            && heads.iter().all(within)
            && total <= MOST_SUMS * (layout.len + prefix)
    }

    /// Takes out what waits of a job's gradient; nothing of the step is left.
    ///
    /// # Panics
    /// When the slot is empty.
    pub fn take_partials(&mut self, slot: usize) -> Vec<Partial> {
        let adapter = self
            .adapter_mut(slot)
            .expect("a slot that steps has an adapter");
        let own = adapter.gradient.take().into_iter();
        let prefix = adapter.derived.prefix_gradient.take().into_iter();
        let own = own.map(|(start, waiting)| Partial::new(Of::Parameters, start, waiting));
        let prefix = prefix.map(|(start, waiting)| Partial::new(Of::Prefix, start, waiting));
        own.chain(prefix).collect()
    }

    /// Finishes a job's gradient of a step of so many blocks from sums of all its replicas; whether they fit together
    /// and none is missing.
    ///
    /// # Panics
    /// When the slot is empty.
    pub fn join_partials(&mut self, slot: usize, partials: Vec<Partial>, blocks: u64) -> bool {
        let adapter = self.bank.get_mut(slot).and_then(Option::as_mut);
        let adapter = adapter.expect("a slot that steps has an adapter");
        let shape = &self.model.shape;
        self.meter.time(Operator::GradientSums, || {
            let fits = partials.into_iter().all(|partial| {
                let PartialHead {
                    of,
                    start,
                    first,
                    level,
                    ..
                } = partial.head;
                let waiting = Waiting {
                    first,
                    level,
                    sum: partial.values,
                };
                match of {
                    Of::Parameters => adapter.gradient.put(start, waiting),
                    Of::Prefix => adapter.derived.prefix_gradient.put(start, waiting),
                }
            });
            let whole = fits
                && adapter.gradient.close(blocks)
                && adapter.derived.prefix_gradient.close(blocks);
            if whole {
                adapter.close_gradient(shape);
            } else {
                adapter.clear_gradient();
            }
            whole
        })
    }
}
