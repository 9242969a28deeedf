//! The step that a job has under way: its tokens are told only when it ends, the machine time that it takes passes at every look.
//!
//! What was measured fades with machine time; what a span of it, that ended `a` and began `b` ago, still weighs is
//!
//! ```text
//! weight(a, b) = integral of 2^(-s / half) over s from a to b
//! ```
//!
//! - UW-1: tokens of a step weigh as if they had been done evenly over its time. Until they are told, as many are reckoned as at the
//!   pace of the step before, and never more than that had: so a rate is the same at each look within a step, and one that does not
//!   come on makes it fall.

/// Of one job; times are machine time in microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UnderWay {
    /// Passed since the last fold.
    fresh: f64,
    /// Passed since the step began, up to the last fold.
    passed: f64,
    /// What that still weighs.
    weight: f64,
    /// What its first part weighs, as long as the step before took.
    due: f64,
    /// Tokens and time of the step before; nothing before one was told.
    before: Option<(f64, f64)>,
}

/// What machine time still weighs that ended and began so long ago.
pub(super) fn weight(ended: f64, began: f64, half: f64) -> f64 {
    let left = |ago: f64| 0.5f64.powf(ago / half);
    // The difference of two numbers near 1 would lose its digits: of a short span it is the first factor's.
    let lost = -(-(began - ended) / half * std::f64::consts::LN_2).exp_m1();
    left(ended) * lost * half / std::f64::consts::LN_2
}

impl UnderWay {
    pub(super) fn pass(&mut self, time: f64) {
        self.fresh += time;
    }

    /// Everything fades by `kept`, and what has passed weighs from now on.
    pub(super) fn fold(&mut self, kept: f64, half: f64) {
        let fresh = std::mem::take(&mut self.fresh);
        let whole = self.before.map_or(0.0, |(_, time)| time);
        let first = (whole - self.passed).clamp(0.0, fresh);
        self.due = self.due * kept + weight(fresh - first, fresh, half);
        self.weight = self.weight * kept + weight(0.0, fresh, half);
        self.passed += fresh;
    }

    /// Its step ended with so many tokens: what they weigh. Nothing where it took no time that was seen (ME-1).
    pub(super) fn ended(&mut self, tokens: f64) -> f64 {
        if self.passed <= 0.0 {
            return 0.0;
        }
        let found = tokens / self.passed * self.weight;
        *self = Self {
            before: Some((tokens, self.passed)),
            ..Self::default()
        };
        found
    }

    /// What is reckoned of the step under way.
    pub(super) fn reckoned(&self) -> f64 {
        self.before
            .map_or(0.0, |(tokens, time)| tokens / time * self.due)
    }

    /// How long the step before took; nothing before one was told.
    pub(super) fn took(&self) -> Option<f64> {
        self.before.map(|(_, time)| time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uw_1_what_is_reckoned_becomes_what_is_told_and_is_no_more_than_a_step() {
        let half = 600.0;
        let mut own = UnderWay::default();
        let pass = |own: &mut UnderWay| {
            own.pass(100.0);
            own.fold(0.5f64.powf(100.0 / half), half);
        };
        (0..20).for_each(|_| pass(&mut own));
        assert_eq!((own.reckoned(), own.took()), (0.0, None));
        own.ended(40.0);
        (0..20).for_each(|_| pass(&mut own));
        let reckoned = own.reckoned();
        let mut late = own;
        assert!((own.ended(40.0) / reckoned - 1.0).abs() < 1e-9);
        // It does not end: what was reckoned fades, nothing comes to it.
        (0..6).for_each(|_| pass(&mut late));
        assert!((late.reckoned() / reckoned - 0.5).abs() < 1e-9);
        assert!((weight(0.0, 1e-3, 1e9) / 1e-3 - 1.0).abs() < 1e-6);
    }
}
