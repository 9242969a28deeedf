//! The gradient of one adapter over one optimizer step, summed over blocks by a fixed tree.
//!
//! A pass adds a run of the job's blocks. Between passes of one step the tree's waiting sums are kept, each as
//! large as its parameter; when a whole step fits one pass, as it usually does, there is none.

use std::collections::BTreeMap;
use std::ops::Range;

use kernels::ops::block_sum::{Nodes, Waiting};

/// Gradient storage of one adapter.
#[derive(Clone, Debug, Default)]
pub(super) struct GradientTree {
    /// The finished gradient, valid after the step's last block.
    pub(super) total: Vec<f32>,
    /// Waiting sums by the start of their parameter's range.
    nodes: BTreeMap<usize, Nodes>,
}

/// Where one parameter's sums go.
#[derive(Debug)]
pub(super) struct Slot<'a> {
    pub(super) nodes: &'a mut Nodes,
    /// The finished gradient's place, given with the step's last blocks.
    pub(super) gradient: Option<&'a mut [f32]>,
}

impl GradientTree {
    /// Storage for so many values.
    pub(super) fn new(len: usize) -> Self {
        Self {
            total: vec![0.0; len],
            nodes: BTreeMap::new(),
        }
    }

    /// Where the sums of the parameter at `range` go; `last` when the step ends with this pass.
    pub(super) fn slot(&mut self, range: &Range<usize>, last: bool) -> Slot<'_> {
        let gradient = last.then(|| &mut self.total[range.clone()]);
        Slot {
            nodes: self.nodes.entry(range.start).or_default(),
            gradient,
        }
    }

    /// The same for two parameters of which the first lies before the second.
    pub(super) fn slots(
        &mut self,
        first: &Range<usize>,
        second: &Range<usize>,
        last: bool,
    ) -> (Slot<'_>, Slot<'_>) {
        for range in [first, second] {
            self.nodes.entry(range.start).or_default();
        }
        let mut both = self.nodes.range_mut(first.start..=second.start);
        let (nodes_a, nodes_b) = (both.next(), both.next_back());
        let nodes_a = nodes_a.expect("made above").1;
        let nodes_b = nodes_b.expect("the second lies behind the first").1;
        let (before, after) = self.total.split_at_mut(second.start);
        let gradient_a = last.then(|| &mut before[first.clone()]);
        let gradient_b = last.then(|| &mut after[..second.len()]);
        let a = Slot {
            nodes: nodes_a,
            gradient: gradient_a,
        };
        (
            a,
            Slot {
                nodes: nodes_b,
                gradient: gradient_b,
            },
        )
    }

    /// Takes out all sums that wait, each with the start of its parameter's range.
    pub(super) fn take(&mut self) -> Vec<(usize, Waiting<f32>)> {
        let mut all = Vec::new();
        for (start, mut nodes) in std::mem::take(&mut self.nodes) {
            all.extend(nodes.take().into_iter().map(|waiting| (start, waiting)));
        }
        all
    }

    /// Puts a sum that was made elsewhere among those that wait; whether it fits.
    pub(super) fn put(&mut self, start: usize, waiting: Waiting<f32>) -> bool {
        let end = start.checked_add(waiting.sum.len());
        if end.is_none_or(|end| end > self.total.len()) {
            return false;
        }
        self.nodes.entry(start).or_default().put(waiting)
    }

    /// Finishes a step of so many blocks from the sums that wait; whether none was missing. A parameter that nobody has
    /// a sum of has no gradient.
    pub(super) fn close(&mut self, blocks: u64) -> bool {
        self.total.fill(0.0);
        for (start, mut nodes) in std::mem::take(&mut self.nodes) {
            let Some(sum) = nodes.close(blocks) else {
                return false;
            };
            self.total[start..start + sum.len()].copy_from_slice(&sum);
        }
        true
    }

    /// Forgets a step that was begun and is not to be finished.
    pub(super) fn clear(&mut self) {
        self.nodes.clear();
    }

    /// Bytes held now.
    pub(super) fn bytes(&self) -> u64 {
        let waiting: usize = self.nodes.values().map(Nodes::bytes).sum();
        (self.total.len() * size_of::<f32>() + waiting) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_without_sums_keeps_nothing_of_the_step_before() {
        let waiting = |value| Waiting {
            first: 0,
            level: 0,
            sum: vec![value; 2],
        };
        let mut tree = GradientTree::new(4);
        assert!(tree.put(0, waiting(1.0)) && tree.put(2, waiting(2.0)) && tree.close(1));
        assert_eq!(tree.total, [1.0, 1.0, 2.0, 2.0]);
        assert!(tree.put(2, waiting(3.0)) && tree.close(1));
        assert_eq!(tree.total, [0.0, 0.0, 3.0, 3.0]);
    }
}
