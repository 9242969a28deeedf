//! How much work there is and how fast a machine does it, from what jobs show: tokens.
//!
//! Steps of different jobs differ in size, tokens much less in cost. A job's tokens in all are those of a step so far times its
//! steps; of a job without a step those of the other jobs, or one. The rate is tokens per machine and microsecond over the time in
//! which machines served, halved in weight every ten minutes of machine time, so that it follows a cluster that changes.

use shared::units::Micros;

use super::told::JobTold;

/// Weight of the past after so much machine time is halved.
const HALF: f64 = 600.0e6;

/// Measures.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    done: f64,
    left: f64,
    seen: Option<(f64, Micros)>,
    /// Tokens and machine time, faded.
    tokens: f64,
    time: f64,
}

impl Meter {
    /// Takes in what jobs show, with so many machines serving since the last time.
    pub fn see(&mut self, jobs: &[JobTold], machines: u32, now: Micros) {
        let (mut tokens, mut steps) = (0.0, 0.0);
        for job in jobs {
            tokens += job.tokens as f64;
            steps += job.step as f64;
        }
        let usual = if steps > 0.0 { tokens / steps } else { 1.0 };
        let left = jobs.iter().filter(|job| job.is_live()).map(|job| {
            let each = if job.step > 0 {
                job.tokens as f64 / job.step as f64
            } else {
                usual
            };
            each * job.total_steps.saturating_sub(job.step) as f64
        });
        self.left = left.sum();
        self.done = tokens;
        if let Some((before, at)) = self.seen {
            let time = now.since(at).0 as f64 * f64::from(machines);
            // Work that is done again after a loss is not progress.
            let more = tokens - before;
            if time > 0.0 && more >= 0.0 {
                let kept = 0.5f64.powf(time / HALF);
                self.tokens = self.tokens * kept + more;
                self.time = self.time * kept + time;
            }
        }
        self.seen = Some((tokens, now));
    }

    /// Tokens done by all jobs.
    #[must_use]
    pub const fn done(&self) -> f64 {
        self.done
    }

    /// Tokens left of live jobs.
    #[must_use]
    pub const fn left(&self) -> f64 {
        self.left
    }

    /// Tokens that a machine does in so long; 0 while nothing was measured.
    #[must_use]
    pub fn rate(&self, time: Micros) -> f64 {
        if self.time > 0.0 {
            self.tokens / self.time * time.0 as f64
        } else {
            0.0
        }
    }
}

#[cfg(test)]
mod tests {
    use shared::ids::JobId;

    use super::*;

    fn job(step: u64, total: u64, tokens: u64) -> JobTold {
        JobTold {
            id: JobId(total),
            ended: false,
            paused: false,
            step,
            total_steps: total,
            tokens,
        }
    }

    #[test]
    fn work_is_tokens_and_a_rate_is_what_was_seen() {
        let mut meter = Meter::default();
        meter.see(&[job(0, 10, 0), job(0, 20, 0)], 2, Micros(0));
        assert_eq!((meter.left(), meter.rate(Micros(1_000_000))), (30.0, 0.0));
        meter.see(&[job(4, 10, 400), job(0, 20, 0)], 2, Micros(10_000_000));
        // 100 tokens a step: 600 and 2000 left, 400 in 20 machine seconds.
        assert_eq!((meter.done(), meter.left()), (400.0, 2600.0));
        assert!((meter.rate(Micros(1_000_000)) - 20.0).abs() < 1e-9);
        let mut ended = job(10, 10, 1000);
        ended.ended = true;
        meter.see(&[ended], 2, Micros(20_000_000));
        assert_eq!(meter.left(), 0.0);
    }
}
