//! Whose adapters may share a kernel (MuxTune, section 3.4.3).
//!
//! 1. Jobs of one hybrid task: always.
//! 2. Hybrid tasks of one bucket: only if each of them is a single job, and only sites without a collective in their
//!    subgraph; a kernel over both would make each wait for the other's.
//! 3. Never across buckets: they run at different times.

use std::collections::BTreeSet;

use crate::plan::adapter::Site;

/// Hybrid tasks (by number) whose adapters at a site share one kernel, for each kernel of a bucket.
///
/// `jobs[h]` is the number of jobs of hybrid task h; `collective` the sites whose subgraph ends in a collective.
#[must_use]
pub fn kernels(
    bucket: &[usize],
    jobs: &[usize],
    site: Site,
    collective: &BTreeSet<Site>,
) -> Vec<Vec<usize>> {
    let single = bucket.iter().all(|task| jobs[*task] == 1);
    if single && !collective.contains(&site) && !bucket.is_empty() {
        return vec![bucket.to_vec()];
    }
    bucket.iter().map(|task| vec![*task]).collect()
}

/// Whether all adapters of a bucket may share kernels.
#[must_use]
pub fn fusible(bucket: &[usize], jobs: &[usize]) -> bool {
    bucket.len() > 1 && bucket.iter().all(|task| jobs[*task] == 1)
}
