//! How much of a job's step a turn takes, so that jobs of short steps need not wait for long ones (ADR 18): pure functions of
//! rows.
//!
//! A turn takes of each job the rest of its step, at most so many rows of it: [`most`]. What a turn adds to a neighbour's
//! step is then bounded, however long a step is, but not by less than one sequence, which stays whole.
//!
//! - `SP-1` A turn ends at least one step: no job waits for turns that bring nobody forward.
//! - `SP-2` A step that has no more rows left than half as many again as the shortest is not spread: jobs of about equal
//!   steps, and a job that is alone, take one step a turn.
//! - `SP-3` A turn takes at least one sequence of a step, and of several no more rows than it may.

/// Passes that a job's step may fill in a turn beside shorter ones, where nothing else is told.
pub const PASSES: usize = 2;

/// Most rows of one job's step in a turn, by what the steps of all jobs in it have left. `bound` holds where some have
/// less. SP-1, SP-2
#[must_use]
pub fn most(bound: usize, rests: impl Iterator<Item = usize>) -> usize {
    let least = rests.min().unwrap_or(0);
    bound.max(least.saturating_add(least / 2)).max(1)
}

/// How many of the sequences that a step has left pass in a turn of at most so many rows of it: about as many in each of
/// the fewest turns. SP-3
///
/// ```
/// use gpu_actor::train::spread::part;
///
/// assert_eq!(part(&[100; 8], 300), 3);
/// assert_eq!(part(&[100; 4], 300), 2);
/// assert_eq!(part(&[2000; 8], 300), 1);
/// assert_eq!(part(&[100; 3], 300), 3);
/// ```
#[must_use]
pub fn part(lengths: &[usize], most: usize) -> usize {
    let total: usize = lengths.iter().sum();
    let turns = total.div_ceil(most.max(1)).max(1);
    let even = total.div_ceil(turns);
    let mut rows = 0;
    let fits = |length: &&usize| {
        let taken = rows == 0 || (rows < even && rows + **length <= most);
        rows += **length;
        taken
    };
    lengths.iter().take_while(fits).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn steps_of_any_lengths_pass_whole_in_turns_that_are_bounded_and_bring_one_to_its_end(
            steps in prop::collection::vec(prop::collection::vec(1..400usize, 1..20), 1..6),
            bound in 0..2_000usize,
        ) {
            let mut begun = vec![0; steps.len()];
            let rest = |step: &[usize], begun: usize| step[begun..].iter().sum::<usize>();
            let mut open: Vec<usize> = (0..steps.len()).collect();
            while !open.is_empty() {
                let rests = || open.iter().map(|job| rest(&steps[*job], begun[*job]));
                let (least, most) = (rests().min().unwrap_or(0), most(bound, rests()));
                prop_assert!(most <= bound.max(least + least / 2).max(1));
                let before = open.len();
                for job in open.clone() {
                    let left = &steps[job][begun[job]..];
                    let taken = part(left, most);
                    // SP-3
                    prop_assert!(taken >= 1 && taken <= left.len());
                    prop_assert!(taken == 1 || left[..taken].iter().sum::<usize>() <= most);
                    // SP-2
                    let short = left.iter().sum::<usize>() <= least + least / 2;
                    prop_assert!(!short || taken == left.len());
                    begun[job] += taken;
                }
                open.retain(|job| begun[*job] < steps[*job].len());
                // SP-1
                prop_assert!(open.len() < before);
            }
        }

        #[test]
        fn sequences_of_one_length_need_the_fewest_turns(
            (length, count) in (1..300usize, 1..60usize),
            most in 300..2_000usize,
        ) {
            let lengths = vec![length; count];
            let (mut from, mut turns) = (0, 0);
            while from < count {
                from += part(&lengths[from..], most);
                turns += 1;
            }
            prop_assert_eq!(turns, count.div_ceil(most / length));
        }
    }
}
