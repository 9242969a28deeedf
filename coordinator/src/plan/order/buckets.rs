//! Buckets: hybrid tasks that run inside one clock of the pipeline (Eq 7 of the paper).
//!
//! For each number P of buckets the grouping with the least variance of summed first-stage latency is sought: multiway
//! number partitioning, by the longest-first rule (LPT) and, for up to [`DIFFERENCING`] hybrid tasks, by the differencing
//! of Karmarkar and Karp; the better of the two is taken. The P whose template takes the shortest time is kept, and of
//! equals the largest: smaller units start and end a step sooner.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Hybrid tasks above which only the longest-first rule is used.
pub const DIFFERENCING: usize = 16;

/// Sum of squares of the buckets' sums: with a fixed total, least where the variance is least.
#[must_use]
pub fn spread(sizes: &[u64], buckets: &[Vec<usize>]) -> u128 {
    let sum = |bucket: &Vec<usize>| {
        bucket
            .iter()
            .map(|item| u128::from(sizes[*item]))
            .sum::<u128>()
    };
    buckets.iter().map(|bucket| sum(bucket).pow(2)).sum()
}

/// Each item, the largest first, to the bucket with the smallest sum.
#[must_use]
pub fn longest_first(sizes: &[u64], parts: usize) -> Vec<Vec<usize>> {
    let mut items: Vec<usize> = (0..sizes.len()).collect();
    items.sort_by_key(|item| (Reverse(sizes[*item]), *item));
    let mut heap: BinaryHeap<Reverse<(u128, usize)>> =
        (0..parts).map(|part| Reverse((0, part))).collect();
    let mut buckets = vec![Vec::new(); parts];
    for item in items {
        if let Some(Reverse((sum, part))) = heap.pop() {
            buckets[part].push(item);
            heap.push(Reverse((sum + u128::from(sizes[item]), part)));
        }
    }
    tidy(buckets)
}

/// The differencing method: the two most uneven partial partitions are combined, the largest sums of the one with the
/// smallest of the other.
#[must_use]
pub fn differencing(sizes: &[u64], parts: usize) -> Vec<Vec<usize>> {
    type Partial = Vec<(u64, Vec<usize>)>;
    // (difference, age, sums from largest to smallest)
    let mut heap: BinaryHeap<(u64, Reverse<usize>, Partial)> = BinaryHeap::new();
    for (item, size) in sizes.iter().enumerate() {
        let mut partial: Partial = vec![(0, Vec::new()); parts];
        partial[0] = (*size, vec![item]);
        let difference = if parts > 1 { *size } else { 0 };
        heap.push((difference, Reverse(item), partial));
    }
    let mut age = sizes.len();
    while heap.len() > 1 {
        let (Some((_, _, a)), Some((_, _, b))) = (heap.pop(), heap.pop()) else {
            break;
        };
        let pairs = a.into_iter().zip(b.into_iter().rev());
        let mut joined: Partial = pairs
            .map(|((sum, mut items), (more, others))| {
                items.extend(others);
                (sum + more, items)
            })
            .collect();
        joined.sort_by(|x, y| y.0.cmp(&x.0).then_with(|| x.1.cmp(&y.1)));
        let largest = joined.first().map_or(0, |part| part.0);
        let smallest = joined.last().map_or(0, |part| part.0);
        heap.push((largest - smallest, Reverse(age), joined));
        age += 1;
    }
    let last = heap
        .pop()
        .map(|(_, _, partial)| partial)
        .unwrap_or_default();
    tidy(last.into_iter().map(|part| part.1).collect())
}

fn tidy(mut buckets: Vec<Vec<usize>>) -> Vec<Vec<usize>> {
    buckets.retain(|bucket| !bucket.is_empty());
    for bucket in &mut buckets {
        bucket.sort_unstable();
    }
    buckets.sort_unstable();
    buckets
}

/// The most even grouping found into so many buckets.
#[must_use]
pub fn even(sizes: &[u64], parts: usize) -> Vec<Vec<usize>> {
    let greedy = longest_first(sizes, parts);
    if sizes.len() > DIFFERENCING || parts < 2 {
        return greedy;
    }
    let other = differencing(sizes, parts);
    if spread(sizes, &other) < spread(sizes, &greedy) {
        other
    } else {
        greedy
    }
}

/// Numbers of buckets worth a try: all of few; of many, powers of two and all.
pub fn numbers(items: usize) -> impl Iterator<Item = usize> {
    (1..=items)
        .filter(move |parts| items <= DIFFERENCING || parts.is_power_of_two() || *parts == items)
}
