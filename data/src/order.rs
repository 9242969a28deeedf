//! Which rows come when: pure functions of the job's seed, so that a resume needs only a step number.
//!
//! Rows are shuffled anew each epoch, or keep the order of the file: [`RowOrder`].

use shared::random::{Domain, Stream};

/// In which order an epoch takes its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowOrder {
    /// Another permutation each epoch, by the job's seed.
    Shuffled {
        /// The job's seed.
        seed: u64,
    },
    /// As they lie in the file.
    AsGiven,
}

/// The order of rows in an epoch: a permutation of `0..rows`.
#[must_use]
pub fn epoch_order(row_order: RowOrder, epoch: u32, rows: u32) -> Vec<u32> {
    let mut order: Vec<u32> = (0..rows).collect();
    if let RowOrder::Shuffled { seed } = row_order {
        Stream::new(seed, Domain::Shuffle, [epoch, 0, 0]).shuffle(&mut order);
    }
    order
}

/// Micro-batches in one pass over `rows`; the last one may be smaller.
///
/// # Panics
/// When `batch_size` is zero.
#[must_use]
pub fn batches_per_epoch(rows: u32, batch_size: usize) -> u64 {
    assert!(batch_size > 0, "a micro-batch holds rows");
    u64::from(rows).div_ceil(batch_size as u64)
}

/// The rows of micro-batch `index`, counted from 0 over all epochs; none when there are no rows.
///
/// # Panics
/// When `batch_size` is zero.
#[must_use]
pub fn batch(row_order: RowOrder, rows: u32, batch_size: usize, index: u64) -> Vec<u32> {
    Batches::new(row_order, rows, batch_size).rows(index)
}

/// Micro-batches of a job; the same as [`batch`], but an epoch's order is made once.
#[derive(Clone, Debug)]
pub struct Batches {
    row_order: RowOrder,
    rows: u32,
    batch_size: usize,
    epoch: u32,
    order: Vec<u32>,
}

impl Batches {
    /// Of `rows` rows, `batch_size` at a time.
    ///
    /// # Panics
    /// When `batch_size` is zero.
    #[must_use]
    pub fn new(row_order: RowOrder, rows: u32, batch_size: usize) -> Self {
        assert!(batch_size > 0, "a micro-batch holds rows");
        Self {
            row_order,
            rows,
            batch_size,
            epoch: 0,
            order: Vec::new(),
        }
    }

    /// The rows of micro-batch `index`, counted from 0 over all epochs; none when there are no rows.
    ///
    /// # Panics
    /// When the index lies beyond 2^32 epochs.
    #[must_use]
    pub fn rows(&mut self, index: u64) -> Vec<u32> {
        let per_epoch = batches_per_epoch(self.rows, self.batch_size);
        if per_epoch == 0 {
            return Vec::new();
        }
        let epoch = u32::try_from(index / per_epoch).expect("fewer than 2^32 epochs");
        if self.order.is_empty() || self.epoch != epoch {
            self.order = epoch_order(self.row_order, epoch, self.rows);
            self.epoch = epoch;
        }
        let start = (index % per_epoch) as usize * self.batch_size;
        let end = start.saturating_add(self.batch_size).min(self.order.len());
        self.order[start..end].to_vec()
    }
}

/// Optimizer steps in `epochs` passes, `accumulation` micro-batches each; a partial last one counts.
///
/// # Panics
/// When `batch_size` or `accumulation` is zero.
#[must_use]
pub fn optimizer_steps(epochs: f64, rows: u32, batch_size: usize, accumulation: usize) -> u64 {
    assert!(accumulation > 0, "a step holds micro-batches");
    let exact = epochs * batches_per_epoch(rows, batch_size) as f64;
    // A product such as 0.1 * 30 lies a little above 3 and must not count as 4.
    let batches = (exact - 1e-9 * exact).ceil() as u64;
    batches.div_ceil(accumulation as u64)
}

/// Rows for training and rows held out, each ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// Rows for training; at least one.
    pub train: Vec<u32>,
    /// Rows held out.
    pub eval: Vec<u32>,
}

/// Holds out a share of the rows by the seed: none for share 0, else at least one, and never all.
#[must_use]
pub fn split(seed: u64, rows: u32, share: f64) -> Split {
    let mut all: Vec<u32> = (0..rows).collect();
    let wanted = (share.clamp(0.0, 1.0) * f64::from(rows)).round() as usize;
    let least = usize::from(share > 0.0);
    let most = all.len().saturating_sub(1);
    let held_out = wanted.max(least).min(most);
    Stream::new(seed, Domain::Split, [0, 0, 0]).shuffle(&mut all);
    let mut train = all.split_off(held_out);
    train.sort_unstable();
    all.sort_unstable();
    Split { train, eval: all }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn orders_differ_by_seed_and_epoch() {
        let order = |seed, epoch| epoch_order(RowOrder::Shuffled { seed }, epoch, 50);
        assert_ne!(order(1, 0), order(1, 1));
        assert_ne!(order(1, 0), order(2, 0));
        assert_eq!(order(1, 3), order(1, 3));
    }

    #[test]
    fn rows_can_keep_their_order() {
        let mut batches = Batches::new(RowOrder::AsGiven, 5, 2);
        let rows: Vec<Vec<u32>> = (0..6).map(|index| batches.rows(index)).collect();
        let epoch = [vec![0, 1], vec![2, 3], vec![4]];
        assert_eq!(rows, [epoch.clone(), epoch].concat());
    }

    #[test]
    fn steps_count_partial_windows() {
        assert_eq!(optimizer_steps(1.0, 10, 4, 1), 3);
        assert_eq!(optimizer_steps(2.0, 10, 4, 4), 2);
        assert_eq!(optimizer_steps(0.5, 10, 4, 1), 2);
        assert_eq!(optimizer_steps(0.1, 120, 4, 1), 3);
        assert_eq!(optimizer_steps(0.0, 10, 4, 1), 0);
    }

    #[test]
    fn a_split_holds_out_some_and_never_all() {
        assert!(split(1, 10, 0.0).eval.is_empty());
        assert_eq!(split(1, 10, 0.01).eval.len(), 1);
        assert_eq!(split(1, 10, 0.3).eval.len(), 3);
        assert_eq!(split(1, 10, 1.0).train.len(), 1);
        assert_eq!(split(1, 1, 0.5).train, [0]);
        assert!(split(1, 0, 0.5).train.is_empty());
    }

    fn row_orders() -> impl Strategy<Value = RowOrder> {
        let shuffled = any::<u64>().prop_map(|seed| RowOrder::Shuffled { seed });
        prop_oneof![shuffled, Just(RowOrder::AsGiven)]
    }

    proptest! {
        #[test]
        fn every_epoch_sees_every_row_once(order in row_orders(), rows in 1u32..60, size in 1usize..9, epoch in 0u64..5) {
            let per_epoch = batches_per_epoch(rows, size);
            let mut seen: Vec<u32> = (0..per_epoch)
                .flat_map(|at| batch(order, rows, size, epoch * per_epoch + at))
                .collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..rows).collect::<Vec<_>>());
        }

        #[test]
        fn a_resume_continues_where_it_stopped(order in row_orders(), rows in 0u32..40, size in 1usize..9, stop in 0u64..30) {
            let mut whole = Batches::new(order, rows, size);
            for index in 0..stop {
                let _ = whole.rows(index);
            }
            prop_assert_eq!(whole.rows(stop), batch(order, rows, size, stop));
        }

        #[test]
        fn a_split_is_a_partition(seed: u64, rows in 0u32..60, share in 0.0f64..1.0) {
            let Split { train, eval } = split(seed, rows, share);
            let mut all = [train, eval].concat();
            all.sort_unstable();
            prop_assert_eq!(all, (0..rows).collect::<Vec<_>>());
        }
    }
}
