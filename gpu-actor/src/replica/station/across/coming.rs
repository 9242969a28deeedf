//! Sums of another replica, on their way.

use super::super::super::gathering::{Contribution, Step};
use crate::link::word::Sums;
use crate::stage::partial::Partial;

/// Sums whose values are on their way.
#[derive(Debug)]
pub(super) struct Coming {
    pub(super) sums: Sums,
    /// Values that came.
    pub(super) taken: usize,
    /// They are kept: the job is here.
    pub(super) kept: bool,
    pub(super) values: Vec<f32>,
}

impl Coming {
    pub(super) fn wanted(&self) -> usize {
        let lengths = self.sums.heads.iter().map(|head| head.len);
        lengths.fold(0, usize::saturating_add)
    }

    pub(super) fn contribution(self) -> (Step, Contribution) {
        let mut values = self.values.into_iter();
        let partials = self.sums.heads.into_iter().map(|head| Partial {
            values: values.by_ref().take(head.len).collect(),
            head,
        });
        let partials = partials.collect();
        let losses = self.sums.losses;
        let step = (self.sums.job, self.sums.step);
        (step, Contribution { partials, losses })
    }
}
