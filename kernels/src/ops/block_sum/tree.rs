//! What a call must add, and in which order: the fixed binary tree over the block numbers of an optimizer step.
//!
//! Invariants:
//! - BS-1: a node of level `l` covers the blocks `i * 2^l .. (i + 1) * 2^l` and is the sum of its lower and its upper
//!   half, whoever comes first.
//! - BS-2: the sum of a step of `N` blocks folds the nodes of the binary digits of `N` from the last to the first.

use std::collections::BTreeMap;

/// A node of the tree: the blocks `first .. first + 2^level`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Node {
    /// Its first block.
    pub(crate) first: u64,
    /// Its height: a block is a node of level 0.
    pub(crate) level: u32,
}

impl Node {
    /// Returns the block after its last one.
    pub(crate) fn end(self) -> u64 {
        self.first + (1 << self.level)
    }

    pub(super) fn sibling(self) -> u64 {
        self.first ^ (1 << self.level)
    }
}

/// One thing to do; slots are numbered pieces of scratch memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Compute a block of the call, by its place in the call, into a slot.
    Produce { block: usize, slot: usize },
    /// Copy a held node into a slot.
    Load { node: Node, slot: usize },
    /// Fill a slot with zeros.
    Clear { slot: usize },
    /// Add a slot to another one.
    Add { from: usize, slot: usize },
    /// Add a held node to a slot.
    AddHeld { node: Node, slot: usize },
    /// Hold a slot as the given one of the new nodes.
    Hold { slot: usize, new: usize },
    /// The slot is the sum of the step.
    Finish { slot: usize },
}

/// The actions of one call.
#[derive(Debug, Default)]
pub(crate) struct Program {
    /// What to do, in order.
    pub(crate) actions: Vec<Action>,
    /// Slots that the actions use.
    pub(crate) slots: usize,
    /// Held nodes that are part of greater sums now.
    pub(crate) spent: Vec<Node>,
    /// Nodes to hold from now on, by the numbers that [`Action::Hold`] gives.
    pub(crate) new: Vec<Node>,
}

/// Where the value of a node is.
#[derive(Clone, Copy)]
enum Place {
    Held,
    Slot(usize),
}

struct Builder {
    program: Program,
    /// All nodes that are whole, by first block.
    present: BTreeMap<u64, (Node, Place)>,
    free: Vec<usize>,
}

impl Program {
    /// Plans to add the blocks `first .. first + count` to the `held` nodes, and to finish the step when they are its
    /// last ones.
    ///
    /// # Panics
    /// When a block comes twice, or the step is to be finished while blocks are missing.
    pub(crate) fn new(
        held: impl Iterator<Item = Node>,
        first: u64,
        count: usize,
        last: bool,
    ) -> Self {
        let mut builder = Builder {
            program: Self::default(),
            present: held.map(|node| (node.first, (node, Place::Held))).collect(),
            free: Vec::new(),
        };
        for (block, number) in (first..).take(count).enumerate() {
            builder.insert(block, number);
        }
        if last {
            builder.finish();
        } else {
            builder.hold();
        }
        builder.program
    }
}

impl Builder {
    fn insert(&mut self, block: usize, number: u64) {
        let before = self.present.range(..=number).next_back();
        if let Some((_, (node, _))) = before {
            assert!(
                node.end() <= number,
                "block {number} comes twice: blocks {}..{} were added before",
                node.first,
                node.end()
            );
        }
        let mut node = Node {
            first: number,
            level: 0,
        };
        let slot = self.slot();
        self.act(Action::Produce { block, slot });
        while let Some((other, place)) = self.present.get(&node.sibling()).copied() {
            if other.level != node.level {
                break;
            }
            self.present.remove(&other.first);
            self.add(other, place, slot);
            node = Node {
                first: node.first.min(other.first),
                level: node.level + 1,
            };
        }
        self.present.insert(node.first, (node, Place::Slot(slot)));
    }

    /// Adds a node to a slot and forgets the node.
    fn add(&mut self, node: Node, place: Place, slot: usize) {
        match place {
            Place::Held => {
                self.act(Action::AddHeld { node, slot });
                self.program.spent.push(node);
            }
            Place::Slot(from) => {
                self.act(Action::Add { from, slot });
                self.free.push(from);
            }
        }
    }

    fn finish(&mut self) {
        let mut start = 0;
        for (node, _) in self.present.values() {
            assert!(
                node.first == start,
                "the step cannot be finished: blocks {start}..{} never came",
                node.first
            );
            start = node.end();
        }
        let Some((_, (node, place))) = self.present.pop_last() else {
            let slot = self.slot();
            self.act(Action::Clear { slot });
            self.act(Action::Finish { slot });
            return;
        };
        let slot = match place {
            Place::Slot(slot) => slot,
            Place::Held => {
                let slot = self.slot();
                self.act(Action::Load { node, slot });
                self.program.spent.push(node);
                slot
            }
        };
        while let Some((_, (node, place))) = self.present.pop_last() {
            self.add(node, place, slot);
        }
        self.act(Action::Finish { slot });
    }

    fn hold(&mut self) {
        for (node, place) in std::mem::take(&mut self.present).into_values() {
            if let Place::Slot(slot) = place {
                let new = self.program.new.len();
                self.program.new.push(node);
                self.act(Action::Hold { slot, new });
            }
        }
    }

    fn slot(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.program.slots += 1;
            self.program.slots - 1
        })
    }

    fn act(&mut self, action: Action) {
        self.program.actions.push(action);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sum as text, in the order of the definition.
    fn wanted(first: u64, end: u64) -> String {
        match end - first {
            0 => "0".to_owned(),
            1 => first.to_string(),
            blocks => {
                let half = blocks.next_power_of_two() / 2;
                let (lower, upper) = (wanted(first, first + half), wanted(first + half, end));
                format!("({lower}+{upper})")
            }
        }
    }

    /// A sum, and its first block, which says which of two halves is the lower.
    type Sum = (u64, String);

    fn plus(a: &Sum, b: &Sum) -> Sum {
        let (lower, upper) = if a.0 < b.0 { (a, b) } else { (b, a) };
        (lower.0, format!("({}+{})", lower.1, upper.1))
    }

    /// Adds runs of blocks in the order given and returns the finished sum and the most nodes held.
    fn run(runs: &[(u64, usize)]) -> (String, usize) {
        let mut held: BTreeMap<Node, Sum> = BTreeMap::new();
        let mut most = 0;
        for (call, &(first, count)) in runs.iter().enumerate() {
            let last = call + 1 == runs.len();
            let program = Program::new(held.keys().copied(), first, count, last);
            let mut slots = vec![(0, String::new()); program.slots];
            let mut new = vec![(0, String::new()); program.new.len()];
            for action in &program.actions {
                match *action {
                    Action::Produce { block, slot } => {
                        let number = first + u64::try_from(block).expect("few blocks");
                        slots[slot] = (number, number.to_string());
                    }
                    Action::Load { node, slot } => slots[slot] = held[&node].clone(),
                    Action::Clear { slot } => slots[slot] = (0, "0".to_owned()),
                    Action::Add { from, slot } => slots[slot] = plus(&slots[from], &slots[slot]),
                    Action::AddHeld { node, slot } => {
                        slots[slot] = plus(&held[&node], &slots[slot])
                    }
                    Action::Hold { slot, new: at } => new[at] = slots[slot].clone(),
                    Action::Finish { slot } => return (slots[slot].1.clone(), most),
                }
            }
            for node in &program.spent {
                held.remove(node);
            }
            held.extend(program.new.iter().copied().zip(new));
            most = most.max(held.len());
        }
        panic!("no run finished");
    }

    #[test]
    fn bs_1_and_2_hold_for_every_cut_in_two() {
        for blocks in 0..40 {
            let wanted = wanted(0, blocks);
            for cut in 0..=blocks {
                let size = |blocks: u64| usize::try_from(blocks).expect("few blocks");
                let (lower, upper) = ((0, size(cut)), (cut, size(blocks - cut)));
                assert_eq!(run(&[lower, upper]).0, wanted);
                assert_eq!(run(&[upper, lower]).0, wanted);
            }
        }
    }

    #[test]
    fn blocks_one_by_one_in_any_direction_hold_few_nodes() {
        for blocks in 1..70u64 {
            let mut runs: Vec<(u64, usize)> = (0..blocks).map(|block| (block, 1)).collect();
            let (sum, most) = run(&runs);
            assert_eq!(sum, wanted(0, blocks));
            assert!(most <= 6, "{most} nodes");
            runs.reverse();
            let (sum, most) = run(&runs);
            assert_eq!(sum, wanted(0, blocks));
            assert!(most <= 10, "{most} nodes");
        }
    }

    #[test]
    fn a_whole_step_holds_nothing_and_uses_few_slots() {
        let program = Program::new(std::iter::empty(), 0, 1000, true);
        assert!(program.new.is_empty() && program.spent.is_empty());
        assert!(program.slots <= 11, "{} slots", program.slots);
    }

    #[test]
    #[should_panic(expected = "block 1 comes twice")]
    fn a_block_twice_is_refused() {
        run(&[(0, 2), (1, 1)]);
    }

    #[test]
    #[should_panic(expected = "blocks 2..4 never came")]
    fn a_missing_block_is_noticed() {
        run(&[(0, 2), (4, 1)]);
    }
}
