#![allow(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;

use super::*;
use crate::cpu::Isa;
use crate::reference;
use crate::testing::{bits, check_gradient, numbers, wide};

/// A step of a job: its blocks and their rows in a pass that holds all of them.
#[derive(Debug)]
struct Step {
    rank: usize,
    width: usize,
    scale: f32,
    blocks: Vec<Range<usize>>,
    left: Vec<f32>,
    right: Vec<f32>,
}

prop_compose! {
    fn steps()(
        rank in prop_oneof![1..20usize, Just(64usize), Just(129usize)],
        width in 1..180usize,
        scale in prop_oneof![Just(1.0f32), Just(0.37f32)],
        sizes in prop::collection::vec(0..65usize, 0..14),
        seed in any::<u64>(),
    ) -> Step {
        let mut start = 0;
        let blocks: Vec<Range<usize>> = sizes.iter().map(|size| {
            start += size;
            start - size..start
        }).collect();
        Step {
            rank,
            width,
            scale,
            blocks,
            left: numbers(start * rank, seed),
            right: numbers(start * width, seed ^ 1),
        }
    }
}

impl Step {
    fn rows(&self) -> usize {
        self.left.len() / self.rank
    }

    /// The gradient by the definition, without any cleverness.
    fn defined(&self, first: usize, end: usize) -> Vec<f32> {
        if end - first > 1 {
            let half = (end - first).next_power_of_two() / 2;
            let lower = self.defined(first, first + half);
            let upper = self.defined(first + half, end);
            return lower.iter().zip(&upper).map(|(a, b)| a + b).collect();
        }
        let mut sum = vec![0.0f32; self.rank * self.width];
        for t in self.blocks.get(first).cloned().unwrap_or_default() {
            for p in 0..self.rank {
                for q in 0..self.width {
                    let sum = &mut sum[p * self.width + q];
                    *sum =
                        self.left[t * self.rank + p].mul_add(self.right[t * self.width + q], *sum);
                }
            }
        }
        sum.iter().map(|sum| self.scale * sum).collect()
    }

    /// Adds a run of blocks, in a pass that has `before` rows of others in front.
    fn add(
        &self,
        cpu: &Cpu,
        run: Range<usize>,
        before: usize,
        nodes: &mut Nodes,
        gradient: Option<&mut [f32]>,
    ) {
        let rows = match (
            self.blocks[run.clone()].first(),
            self.blocks[run.clone()].last(),
        ) {
            (Some(first), Some(last)) => first.start..last.end,
            _ => 0..0,
        };
        let mut right = vec![f32::NAN; before * self.width];
        right.extend(&self.right[rows.start * self.width..rows.end * self.width]);
        let moved = |row: usize| row - rows.start + before;
        let blocks: Vec<Range<usize>> = self.blocks[run.clone()]
            .iter()
            .map(|rows| moved(rows.start)..moved(rows.end))
            .collect();
        outer(
            cpu,
            &mut [Outer {
                first_block: u64::try_from(run.start).unwrap(),
                blocks: &blocks,
                left_rows: before..before + rows.len(),
                left: &self.left[rows.start * self.rank..rows.end * self.rank],
                rank: self.rank,
                right: &right,
                width: self.width,
                scale: self.scale,
                nodes,
                gradient,
            }],
        );
    }
}

/// Cuts `0..blocks` at the given places, and puts the pieces into another order when asked.
fn runs(blocks: usize, cuts: &[usize], turned: bool) -> Vec<Range<usize>> {
    let mut edges: Vec<usize> = cuts.iter().map(|cut| cut % (blocks + 1)).collect();
    edges.extend([0, blocks]);
    edges.sort_unstable();
    let mut runs: Vec<Range<usize>> = edges.windows(2).map(|edge| edge[0]..edge[1]).collect();
    if turned {
        runs.reverse();
    }
    runs
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn outer_has_the_defined_bits_however_it_is_cut(
        step in steps(),
        cuts in prop::collection::vec(any::<usize>(), 0..5),
        turned in any::<bool>(),
        threads in 1..4usize,
        before in 0..70usize,
    ) {
        let wanted = bits(&step.defined(0, step.blocks.len()));
        for isa in Isa::available() {
            let cpu = Cpu::with_isa(threads, isa).unwrap();
            let mut nodes = Nodes::new();
            let mut gradient = vec![f32::NAN; step.rank * step.width];
            let runs = runs(step.blocks.len(), &cuts, turned);
            for (call, run) in runs.iter().enumerate() {
                let last = call + 1 == runs.len();
                let place = last.then_some(gradient.as_mut_slice());
                step.add(&cpu, run.clone(), before * call, &mut nodes, place);
                if !turned && !last {
                    let held = Nodes::<f32>::held_after(u64::try_from(run.end).unwrap());
                    prop_assert_eq!(nodes.bytes(), 4 * gradient.len() * usize::try_from(held).unwrap());
                }
            }
            prop_assert!(nodes.is_empty());
            prop_assert_eq!(&bits(&gradient), &wanted);
        }
    }

    #[test]
    fn outer_is_near_the_reference(step in steps()) {
        let cpu = Cpu::new(1).unwrap();
        let mut gradient = vec![f32::NAN; step.rank * step.width];
        step.add(&cpu, 0..step.blocks.len(), 0, &mut Nodes::new(), Some(&mut gradient));
        let (left, right) = (wide(&step.left), wide(&step.right));
        let scale = f64::from(step.scale);
        let wanted = reference::block_sum::outer(&left, step.rank, &right, step.width, scale);
        let bound = 1e-6 * (step.rows() + 1) as f64;
        for (found, wanted) in gradient.iter().zip(wanted) {
            prop_assert!((f64::from(*found) - wanted).abs() <= bound, "{found} {wanted}");
        }
    }

    #[test]
    fn columns_and_partials_agree_with_outer(
        step in steps(),
        cut in any::<usize>(),
        threads in 1..4usize,
    ) {
        let step = Step { left: vec![1.0; step.rows()], rank: 1, scale: 1.0, ..step };
        let wanted = bits(&step.defined(0, step.blocks.len()));
        let cpu = Cpu::new(threads).unwrap();
        let parts: Vec<Vec<f32>> = (0..step.blocks.len()).map(|b| step.defined(b, b + 1)).collect();
        let parts: Vec<&[f32]> = parts.iter().map(Vec::as_slice).collect();
        let ones = vec![1.0; step.right.len()];
        let mut sums = vec![vec![f32::NAN; step.width]; 3];
        let [plain, product, ready] = sums.get_disjoint_mut([0, 1, 2]).unwrap();
        let mut nodes = [Nodes::new(), Nodes::new(), Nodes::new()];
        let runs = runs(step.blocks.len(), &[cut], false);
        for (call, run) in runs.iter().enumerate() {
            let last = call + 1 == runs.len();
            let first_block = u64::try_from(run.start).unwrap();
            let [a, b, c] = &mut nodes;
            for (factors, gradient, nodes) in [(None, &mut *plain, a), (Some(&*ones), &mut *product, b)] {
                columns(&cpu, &mut [Columns {
                    first_block,
                    blocks: &step.blocks[run.clone()],
                    values: &step.right,
                    factors,
                    width: step.width,
                    nodes,
                    gradient: last.then_some(gradient),
                }]);
            }
            partials(&cpu, &mut [Partials {
                first_block,
                parts: &parts[run.clone()],
                width: step.width,
                nodes: c,
                gradient: last.then_some(&mut *ready),
            }]);
        }
        for sum in &sums {
            prop_assert_eq!(&bits(sum), &wanted);
        }
    }

    #[test]
    fn scalars_do_not_notice_cuts(
        parts in prop::collection::vec(-1e9..1e9f64, 0..40),
        cuts in prop::collection::vec(any::<usize>(), 0..6),
        turned in any::<bool>(),
    ) {
        let whole = scalars(0, &parts, &mut Nodes::new(), true).unwrap();
        let mut nodes = Nodes::new();
        let runs = runs(parts.len(), &cuts, turned);
        let mut sum = None;
        for (call, run) in runs.iter().enumerate() {
            let first = u64::try_from(run.start).unwrap();
            sum = scalars(first, &parts[run.clone()], &mut nodes, call + 1 == runs.len());
            prop_assert_eq!(sum.is_some(), call + 1 == runs.len());
        }
        prop_assert_eq!(sum.unwrap().to_bits(), whole.to_bits());
        prop_assert!((whole - parts.iter().sum::<f64>()).abs() <= 1e-3);
    }
}

proptest! {
    #[test]
    fn sums_made_apart_are_joined_to_the_same_bits(
        parts in prop::collection::vec(-1e3f64..1e3, 1..70),
        cuts in prop::collection::vec(any::<usize>(), 0..4),
        turned in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let whole = scalars(0, &parts, &mut Nodes::new(), true).unwrap();
        let mut apart: Vec<Waiting<f64>> = Vec::new();
        for run in runs(parts.len(), &cuts, turned) {
            let mut nodes = Nodes::new();
            scalars(run.start as u64, &parts[run], &mut nodes, false);
            apart.extend(nodes.take());
            prop_assert!(nodes.is_empty());
        }
        // In any order of arrival.
        apart.sort_by_key(|waiting| (waiting.first + 1).wrapping_mul(seed | 1));
        let mut nodes = Nodes::new();
        for waiting in apart {
            prop_assert!(nodes.put(waiting.clone()));
            prop_assert!(!nodes.put(waiting), "it came twice");
        }
        let blocks = parts.len() as u64;
        prop_assert!(nodes.clone().close(blocks + 1).is_none(), "a block is missing");
        let sum = nodes.close(blocks).unwrap();
        prop_assert_eq!(sum[0].to_bits(), whole.to_bits());
        let crooked = Waiting { first: 1, level: 1, sum: vec![0.0] };
        prop_assert!(!Nodes::new().put(crooked));
    }
}

#[test]
fn the_reference_has_the_gradient_of_a_low_rank_product() {
    let (rank, width, scale) = (3, 5, 0.7);
    let (x, dy) = (wide(&numbers(4 * width, 1)), wide(&numbers(4 * rank, 2)));
    let a = wide(&numbers(rank * width, 3));
    let value = |a: &[f64]| -> f64 {
        let low = reference::thin::shrink(&x, a, width, scale);
        low.iter().zip(&dy).map(|(low, dy)| low * dy).sum()
    };
    let gradient = reference::block_sum::outer(&dy, rank, &x, width, scale);
    check_gradient("a", &a, &gradient, value);
    let scaling = wide(&numbers(width, 4));
    let of_columns = |scaling: &[f64]| -> f64 {
        let scaled = x
            .iter()
            .zip(scaling.iter().cycle())
            .map(|(x, factor)| x * factor);
        scaled.zip(dy.iter().cycle()).map(|(y, dy)| y * dy).sum()
    };
    let dy: Vec<f64> = dy.iter().copied().cycle().take(x.len()).collect();
    let gradient = reference::block_sum::columns(&dy, &x, width);
    check_gradient("scaling", &scaling, &gradient, of_columns);
}

#[test]
fn a_job_with_nan_does_not_touch_its_neighbour() {
    let cpu = Cpu::new(2).unwrap();
    let right = numbers(80 * 100, 3);
    let (clean, sick) = (numbers(40 * 4, 1), vec![f32::NAN; 40 * 4]);
    let blocks = [0..40, 40..80];
    let sum = |left: [&[f32]; 2]| {
        let mut gradients = [vec![0.0; 400], vec![0.0; 400]];
        let mut nodes = [Nodes::new(), Nodes::new()];
        let mut sums: Vec<Outer<'_>> = (0..2)
            .zip(&mut gradients)
            .zip(&mut nodes)
            .map(|((job, gradient), nodes)| Outer {
                first_block: 0,
                blocks: std::slice::from_ref(&blocks[job]),
                left_rows: blocks[job].clone(),
                left: left[job],
                rank: 4,
                right: &right,
                width: 100,
                scale: 2.0,
                nodes,
                gradient: Some(gradient),
            })
            .collect();
        outer(&cpu, &mut sums);
        gradients
    };
    let alone = sum([&clean, &clean]);
    let beside = sum([&clean, &sick]);
    assert_eq!(bits(&alone[0]), bits(&beside[0]));
    assert!(beside[1].iter().all(|x| x.is_nan()));
}
