//! How much work there is and how fast a machine does it, from what jobs show: tokens.
//!
//! Steps of different jobs differ in size, tokens much less in cost. A job's tokens in all are those of a step so far times its
//! steps; of a job without a step those of the other jobs, or one ([`super::progress`]). The rate is tokens per machine and microsecond over the time in
//! which machines did work, halved in weight every ten minutes of machine time, or every few steps where those take longer, so that
//! it follows a cluster that changes.
//!
//! - ME-1: tokens enter the rate only with the time that they took. At the first look, and after the coordinator was not heard, what
//!   jobs show may be older than what they did, and what they did meanwhile shows at once: so a job counts from the first change that
//!   is seen of its tokens, or from its begin where that is seen, and time counts while such a job is at work.
//! - ME-2: the rate does not depend on how far a step is: time weighs with what is reckoned of steps under way (`under_way`, UW-1),
//!   and while no job has shown how long a step takes it is kept until tokens are told.
//!
//! **Deadlines of jobs.** Jobs share their machines, and the market does not say who goes first. So the share of a job in all
//! tokens is measured, and it is done in time if all jobs together go fast enough for that share:
//!
//! ```text
//! work until its deadline = its tokens left / its share        need = work / time left
//! ```
//!
//! The plan is made for whoever needs most ([`Meter::demands`]) among those whose deadline can be met: who needs less is done
//! earlier, and who cannot be done in time any more says nothing for the others.

use std::collections::BTreeMap;

use shared::ids::JobId;
use shared::units::Micros;

use super::progress::Progress;
use super::told::JobTold;
use super::under_way::{UnderWay, weight};

/// Weight of the past after so much machine time is halved, at the least.
const HALF: f64 = 600.0e6;
/// Of the longest step as many times.
const STEPS: f64 = 3.0;
/// A share that is measured is believed to be no less: one that has just begun would need the whole cluster for ever.
const LEAST_SHARE: f64 = 0.01;

/// Measures.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    progress: Progress,
    left: f64,
    /// Tokens by job at the last look, and when that was; nothing where looks begin anew.
    seen: Option<(BTreeMap<JobId, u64>, Micros)>,
    /// Live jobs whose tokens were seen to change, or that were seen to begin, since looks began anew (ME-1).
    known: BTreeMap<JobId, UnderWay>,
    /// Machine time that is kept until tokens are told (ME-2).
    pending: f64,
    /// Tokens that were told and machine time, faded.
    tokens: f64,
    time: f64,
    /// Tokens of each live job that were told, faded alike.
    shares: BTreeMap<JobId, f64>,
    lefts: BTreeMap<JobId, f64>,
}

/// Work that must be done within some time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// The job that asks for it; nothing where it is the work of all by the cluster's deadline.
    pub job: Option<JobId>,
    /// Tokens of its own until then.
    pub own: f64,
    /// Tokens of all jobs until then.
    pub work: f64,
    /// Until when from now on.
    pub within: Micros,
}

impl Demand {
    /// Tokens in a microsecond that it takes.
    #[must_use]
    pub fn pace(&self) -> f64 {
        self.work / self.within.0.max(1) as f64
    }
}

impl Meter {
    /// Looks begin anew: what jobs did and do until the next one is not known (ME-1).
    pub fn interrupted(&mut self) {
        self.seen = None;
        self.known.clear();
        self.pending = 0.0;
    }

    /// Takes in what jobs show, with so many machines at work since the last time; `now` is by the steady clock.
    pub fn see(&mut self, jobs: &[JobTold], machines: u32, now: Micros) {
        self.progress.see(jobs);
        let left = jobs.iter().filter(|job| job.is_live()).map(|job| {
            let steps = job.total_steps.saturating_sub(job.step);
            (job.id, self.progress.each(job.id) * steps as f64)
        });
        self.lefts = left.collect();
        self.left = self.lefts.values().sum();
        let shown: BTreeMap<JobId, u64> = jobs.iter().map(|job| (job.id, job.tokens)).collect();
        if let Some((before, at)) = self.seen.take() {
            let time = now.since(at).0 as f64 * f64::from(machines);
            self.count(jobs, &before, time);
            let changed = jobs.iter().filter(|job| match before.get(&job.id) {
                Some(before) => job.tokens != *before,
                None => job.tokens == 0,
            });
            for job in changed {
                self.known.entry(job.id).or_default();
            }
            let gone = self
                .known
                .extract_if(.., |id, _| !self.lefts.contains_key(id));
            // What was done of a step that is broken off took its time too.
            self.tokens += gone.map(|(_, own)| own.reckoned()).sum::<f64>();
        }
        self.seen = Some((shown, now));
    }

    /// Counts what known jobs did in `time` of machines since they showed `before`.
    fn count(&mut self, jobs: &[JobTold], before: &BTreeMap<JobId, u64>, time: f64) {
        if self.known.is_empty() {
            return;
        }
        self.pending += time;
        for own in self.known.values_mut() {
            own.pass(time);
        }
        // Tokens of steps that are lost fall at once; what is done again takes machine time again, and counts.
        let more = |job: &JobTold| {
            let more = job.tokens.saturating_sub(*before.get(&job.id)?);
            (more > 0 && self.known.contains_key(&job.id)).then_some((job.id, more as f64))
        };
        let told: Vec<(JobId, f64)> = jobs.iter().filter_map(more).collect();
        let longest = self.known.values().filter_map(UnderWay::took);
        let Some(longest) = longest
            .reduce(f64::max)
            .or_else(|| told.first().map(|_| 0.0))
        else {
            return;
        };
        let half = HALF.max(STEPS * longest);
        let pending = std::mem::take(&mut self.pending);
        let kept = 0.5f64.powf(pending / half);
        self.time = self.time * kept + weight(0.0, pending, half);
        self.tokens *= kept;
        self.shares.retain(|id, _| self.lefts.contains_key(id));
        for own in self.shares.values_mut() {
            *own *= kept;
        }
        for own in self.known.values_mut() {
            own.fold(kept, half);
        }
        for (id, more) in told {
            let own = self.known.get_mut(&id).map(|own| own.ended(more));
            let own = own.unwrap_or_default();
            self.tokens += own;
            if self.lefts.contains_key(&id) {
                *self.shares.entry(id).or_default() += own;
            }
        }
    }

    /// As after very many machine hours without a token: almost nothing is left of those that were told.
    #[cfg(test)]
    pub(super) fn wear(&mut self) {
        self.tokens = 1e-305;
        self.known.clear();
    }

    /// Tokens done by all jobs that were ever seen.
    #[must_use]
    pub fn done(&self) -> f64 {
        self.progress.done()
    }

    /// What is to survive a restart.
    #[must_use]
    pub const fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Goes on from what was done.
    #[must_use]
    pub fn resumed(progress: Progress) -> Self {
        Self {
            progress,
            ..Self::default()
        }
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
            let reckoned: f64 = self.known.values().map(UnderWay::reckoned).sum();
            (self.tokens + reckoned) / self.time * time.0 as f64
        } else {
            0.0
        }
    }

    /// The share of a live job in all tokens; as many as there are jobs before anything was measured.
    #[must_use]
    pub fn share(&self, job: JobId) -> f64 {
        let reckoned: f64 = self.known.values().map(UnderWay::reckoned).sum();
        let all = self.shares.values().sum::<f64>() + reckoned;
        if all > 0.0 {
            let told = self.shares.get(&job).copied().unwrap_or(0.0);
            (told + self.known.get(&job).map_or(0.0, UnderWay::reckoned)) / all
        } else {
            1.0 / self.lefts.len().max(1) as f64
        }
    }

    /// What is asked for, who needs most first: all jobs within `whole`, and those with a deadline of their own; nothing of those
    /// whose steps are done or not known yet. `now` is by the wall.
    #[must_use]
    pub fn demands(&self, jobs: &[JobTold], whole: Micros, now: Micros) -> Vec<Demand> {
        let mut found = vec![Demand {
            job: None,
            own: self.left,
            work: self.left,
            within: whole,
        }];
        for job in jobs.iter().filter(|job| job.is_live()) {
            let (Some(deadline), Some(left)) = (job.deadline, self.lefts.get(&job.id)) else {
                continue;
            };
            let share = self.share(job.id);
            found.push(Demand {
                job: Some(job.id),
                own: *left,
                work: (left / share.max(LEAST_SHARE)).min(self.left.max(*left)),
                within: deadline.since(now),
            });
        }
        // A plan of no work is no machine: who has nothing left, or has not been told its steps yet, must not decide.
        found.retain(|demand| demand.own > 0.0);
        found.sort_by(|a, b| b.pace().total_cmp(&a.pace()));
        found
    }
}

#[cfg(test)]
mod tests {
    use shared::ids::JobName;

    use super::*;

    fn job(step: u64, total: u64, tokens: u64) -> JobTold {
        JobTold {
            id: JobId(total),
            name: JobName::new(format!("j{total}")).expect("a plain word is a name"),
            tenant: String::new(),
            ended: false,
            paused: false,
            step,
            total_steps: total,
            tokens,
            deadline: None,
            budget: None,
            zones: Default::default(),
        }
    }

    #[test]
    fn work_is_tokens_and_a_rate_is_what_was_seen() {
        let mut meter = Meter::default();
        meter.see(&[], 2, Micros(0));
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

    #[test]
    fn pr_1_what_a_job_did_stays_done_when_it_is_not_shown_any_more() {
        let mut meter = Meter::default();
        let other = job(30, 200, 3000);
        meter.see(&[job(10, 10, 1000), other.clone()], 1, Micros(0));
        meter.see(std::slice::from_ref(&other), 1, Micros(1));
        assert_eq!((meter.done(), meter.left()), (4000.0, 17_000.0));
        let kept = serde_json::to_string(meter.progress()).expect("plain data");
        let mut meter = Meter::resumed(serde_json::from_str(&kept).expect("it was written"));
        meter.see(&[other], 1, Micros(0));
        assert_eq!(meter.done(), 4000.0);
        // One that is shown again is not counted twice.
        meter.see(&[job(10, 10, 1000)], 1, Micros(1));
        assert_eq!(meter.done(), 4000.0);
        // Of very many the sum is known.
        for total in 1000..3000 {
            meter.see(&[job(1, total, 7)], 1, Micros(2));
        }
        assert!((meter.done() - 18_000.0).abs() < 1e-6, "{}", meter.done());
        assert!(meter.progress().len() < 600);
    }

    #[test]
    fn pr_2_a_step_that_falls_takes_its_tokens_with_it() {
        let mut meter = Meter::default();
        meter.see(&[job(10, 100, 1000)], 1, Micros(0));
        // From an older state: its tokens are shown with its next step.
        for (step, tokens) in [(4, 1000), (4, 1000), (5, 500)] {
            meter.see(&[job(step, 100, tokens)], 1, Micros(1));
            let done = step as f64 * 100.0;
            assert_eq!((meter.done(), meter.left()), (done, 10_000.0 - done));
        }
    }

    #[test]
    fn me_1_tokens_enter_only_with_the_time_they_took() {
        const S: u64 = 1_000_000;
        let second = Micros(S);
        let near = |meter: &Meter, rate: f64| (meter.rate(second) - rate).abs() < 1e-9;
        // A process that begins beside a job at work, and a coordinator that at first shows what it last had on record.
        let mut meter = Meter::default();
        meter.see(&[job(10, 9000, 1000)], 2, Micros(0));
        meter.see(&[job(10, 9000, 1000)], 2, Micros(2 * S));
        meter.see(&[job(600, 9000, 60_000)], 2, Micros(4 * S));
        assert_eq!(meter.rate(second), 0.0, "nothing was measured");
        meter.see(&[job(602, 9000, 60_200)], 2, Micros(8 * S));
        assert!(near(&meter, 25.0), "{}", meter.rate(second));
        // The coordinator is away: what was measured stands, what was done meanwhile is left out with its time.
        meter.interrupted();
        meter.see(&[job(602, 9000, 60_200)], 2, Micros(90 * S));
        meter.see(&[job(900, 9000, 90_000)], 2, Micros(91 * S));
        assert!(near(&meter, 25.0), "{}", meter.rate(second));
        meter.see(&[job(902, 9000, 90_200)], 2, Micros(95 * S));
        assert!(near(&meter, 25.0), "{}", meter.rate(second));
        // A job that is new with tokens counts from the next change on, beside one that is known.
        let both = |tokens, more| [job(tokens / 100, 9000, tokens), job(more / 100, 700, more)];
        meter.see(&both(90_400, 50_000), 2, Micros(99 * S));
        assert!(near(&meter, 25.0), "{}", meter.rate(second));
        meter.see(&both(90_400, 50_100), 2, Micros(103 * S));
        meter.see(&both(90_400, 50_200), 2, Micros(107 * S));
        assert!(meter.rate(second) < 25.0, "{}", meter.rate(second));
        assert!(meter.share(JobId(700)) > 0.0);
    }

    #[test]
    fn me_2_a_rate_does_not_depend_on_how_far_a_step_is() {
        const S: u64 = 1_000_000;
        let second = Micros(S);
        for (machines, each) in [(16_u32, 300_u64), (64, 120), (4, 60)] {
            let mut meter = Meter::default();
            meter.see(&[], machines, Micros(0));
            // One that never gets a turn, one alone, and from the middle on another with steps half as long beside it.
            let waits = job(0, 7, 0);
            let half = 12 * each / 2;
            for at in 0..12 * each {
                let now = 2 * at;
                let first = now / each * 4800;
                let other = now.saturating_sub(2 * half) / (each / 2).max(1) * 2400;
                let mut jobs = vec![waits.clone(), job(now / each, 9000, first)];
                if at >= half {
                    jobs.push(job(other / 2400, 500, other));
                }
                meter.see(&jobs, machines, Micros(now * S));
                // Both go on as fast as the first did alone: from a few steps on twice as much is done.
                let pace = match () {
                    () if now > 5 * each && at < half => 1.0,
                    () if now > 2 * half + 8 * each => 2.0,
                    () => continue,
                };
                let truth = pace * 4800.0 / (each * u64::from(machines)) as f64;
                let rate = meter.rate(second) / truth;
                assert!(
                    (0.8..1.2).contains(&rate),
                    "{machines} x {each} s at {now}: {rate}"
                );
                if pace == 2.0 {
                    let share = meter.share(JobId(9000));
                    assert!(
                        (0.4..0.6).contains(&share),
                        "{machines} x {each} s: {share}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_step_that_is_broken_off_leaves_its_rate_and_a_job_that_stands_still_loses_it() {
        const S: u64 = 1_000_000;
        let mut meter = Meter::default();
        meter.see(&[], 16, Micros(0));
        let mut own = job(0, 9000, 0);
        for at in 0..890 {
            let now = 2 * at;
            own = job(now / 300, 9000, now / 300 * 4800);
            meter.see(std::slice::from_ref(&own), 16, Micros(now * S));
        }
        let mut still = meter.clone();
        own.paused = true;
        meter.see(std::slice::from_ref(&own), 16, Micros(1780 * S));
        assert!(
            (meter.rate(Micros(S)) - 1.0).abs() < 0.1,
            "{}",
            meter.rate(Micros(S))
        );
        own.paused = false;
        for at in 900..9000 {
            still.see(std::slice::from_ref(&own), 16, Micros(2 * at * S));
        }
        assert!(still.rate(Micros(S)) < 0.1, "{}", still.rate(Micros(S)));
    }

    #[test]
    fn the_job_that_needs_most_for_its_share_presses() {
        const S: u64 = 1_000_000;
        let mut meter = Meter::default();
        let (whole, wall) = (Micros(1000 * S), Micros(5000 * S));
        let mut jobs = [job(0, 100, 0), job(0, 300, 0)];
        meter.see(&[], 1, Micros(0));
        meter.see(&jobs, 1, Micros(0));
        jobs[0].tokens = 100;
        jobs[0].step = 10;
        jobs[1].tokens = 300;
        jobs[1].step = 30;
        meter.see(&jobs, 1, Micros(10 * S));
        let first = |jobs: &[JobTold]| meter.demands(jobs, whole, wall)[0];
        let all = first(&jobs);
        assert_eq!((all.job, all.work), (None, 3600.0));
        // A quarter of the tokens are its own: 900 left are 3600 of all.
        jobs[0].deadline = Some(Micros(5500 * S));
        let one = first(&jobs);
        assert_eq!((one.job, one.within), (Some(JobId(100)), Micros(500 * S)));
        assert!((one.work - 3600.0).abs() < 1e-6, "{one:?}");
        // One that is far away does not press.
        jobs[0].deadline = Some(Micros(9000 * S));
        assert_eq!(first(&jobs).job, None);
        // One that is over presses most.
        jobs[0].deadline = Some(Micros(4000 * S));
        assert_eq!(first(&jobs).within, Micros(0));
    }
}
