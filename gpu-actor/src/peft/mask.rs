//! Which weights diff pruning may change: a fixed binary mask, drawn once by the job's seed.

use std::collections::BTreeSet;

use kernels::ops::sparse::Pattern;
use shared::model::Projection;
use shared::random::{Domain, Stream};

/// Places in each output row of a pattern: `density` of the inputs, at least one.
#[must_use]
pub fn places_of_output(input: usize, density: f64) -> usize {
    ((density * input as f64).round() as usize).clamp(1, input)
}

/// Bytes that a pattern of so many outputs and places takes: input and output of each place, and where each output begins.
#[must_use]
pub fn bytes(outputs: usize, places: u64) -> u64 {
    let place = 2 * size_of::<u32>() as u64;
    let starts = (outputs as u64 + 1) * size_of::<usize>() as u64;
    places.saturating_mul(place).saturating_add(starts)
}

/// A pattern with the same number of places in every output row: `density` of the inputs, at least one.
///
/// Places of a row are drawn without repeats by Floyd's method and sorted.
#[must_use]
pub fn pattern(
    seed: u64,
    layer: usize,
    projection: Projection,
    out: usize,
    input: usize,
    density: f64,
) -> Pattern {
    let count = places_of_output(input, density);
    let site = (layer * Projection::ALL.len() + projection as usize) as u32;
    let mut columns = Vec::with_capacity(out * count);
    for row in 0..out {
        let stream = Stream::new(seed, Domain::Mask, [site, row as u32, 0]);
        let mut chosen = BTreeSet::new();
        for last in input - count..input {
            let pick = stream.below(last as u32, last as u64 + 1) as u32;
            if !chosen.insert(pick) {
                chosen.insert(last as u32);
            }
        }
        columns.extend(chosen);
    }
    let starts = (0..=out).map(|row| row * count).collect();
    Pattern::new(out, input, starts, columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_distinct_sorted_and_of_the_seed() {
        let one = pattern(1, 0, Projection::Q, 8, 100, 0.05);
        assert_eq!(one.len(), 40);
        assert_eq!(one, pattern(1, 0, Projection::Q, 8, 100, 0.05));
        assert_ne!(one, pattern(2, 0, Projection::Q, 8, 100, 0.05));
        assert_ne!(one, pattern(1, 1, Projection::Q, 8, 100, 0.05));
    }
}
