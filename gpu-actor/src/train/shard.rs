//! Which sequences of an optimizer step go to which of the replicas that share it: a pure function of their lengths.
//!
//! Shards are runs of sequences, as even in rows as sequences allow. Within an eighth of an even shard, a cut is made
//! where the number of the block behind it has the most factors of two: the sums on both sides are then fewer nodes of
//! the tree over blocks, so that less is exchanged. No cut shows in a result.

use std::ops::Range;

use crate::batch::BLOCK;

/// Cuts the sequences of a step, by their rows, into so many runs. With fewer sequences than shards the last runs are
/// empty; else none is.
///
/// ```
/// use gpu_actor::train::shard::cut;
///
/// assert_eq!(cut(&[64, 64, 64, 64], 2), [0..2, 2..4]);
/// assert_eq!(cut(&[500, 10, 10], 2), [0..1, 1..3]);
/// assert_eq!(cut(&[5], 2), [0..1, 1..1]);
/// ```
///
/// # Panics
/// When there is no shard.
#[must_use]
pub fn cut(rows: &[usize], shards: usize) -> Vec<Range<usize>> {
    assert!(shards > 0, "a step has at least one shard");
    let (count, total) = (rows.len(), rows.iter().sum::<usize>());
    let real = shards.min(count).max(1);
    // Rows and blocks before each cut.
    let mut before = vec![(0, 0)];
    for &row in rows {
        let (sum, blocks) = before[before.len() - 1];
        before.push((sum + row, blocks + row.div_ceil(BLOCK)));
    }
    let slack = total / (8 * real);
    let mut cuts = vec![0];
    for shard in 1..real {
        let (least, most) = (cuts[shard - 1] + 1, count - (real - shard));
        let ideal = total * shard / real;
        let far = |at: usize| before[at].0.abs_diff(ideal);
        let nearest = (least..=most).min_by_key(|&at| far(at)).unwrap_or(least);
        let near = (least..=most).filter(|&at| far(at) <= slack.max(far(nearest)));
        let aligned = near.max_by_key(|&at| {
            let even = before[at].1.trailing_zeros();
            (even, std::cmp::Reverse((far(at), at)))
        });
        cuts.push(aligned.unwrap_or(nearest));
    }
    cuts.push(count);
    cuts.resize(shards + 1, count);
    cuts.windows(2).map(|pair| pair[0]..pair[1]).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn shards_cover_all_sequences_once_and_are_empty_only_for_want_of_sequences(
            rows in prop::collection::vec(1..300usize, 1..40),
            shards in 1..6usize,
        ) {
            let runs = cut(&rows, shards);
            prop_assert_eq!(runs.len(), shards);
            let mut at = 0;
            for (index, run) in runs.iter().enumerate() {
                prop_assert_eq!(run.start, at);
                prop_assert_eq!(run.is_empty(), index >= rows.len());
                at = run.end;
            }
            prop_assert_eq!(at, rows.len());
            // No shard is longer than an even one, the slack and the longest sequence on either side.
            let total: usize = rows.iter().sum();
            let longest = rows.iter().max().copied().unwrap_or(0);
            if rows.len() >= shards {
                let even = total / shards;
                let most = even + even / 4 + shards + longest * shards;
                prop_assert!(runs.iter().all(|run| rows[run.clone()].iter().sum::<usize>() <= most));
            }
        }
    }

    #[test]
    fn a_cut_near_the_middle_is_made_where_the_tree_is() {
        // Fifteen blocks: eight are a node, seven or nine are not.
        let rows = [64; 16];
        assert_eq!(cut(&rows[..15], 2), [0..8, 8..15]);
        assert_eq!(cut(&rows, 4), [0..4, 4..8, 8..12, 12..16]);
    }
}
