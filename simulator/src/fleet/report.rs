//! What came of a fleet, as data and text.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use coordinator::plan::fair::jain;
use coordinator::plan::profile::Origin;
use serde_json::{Value, json};

use super::Setting;
use super::instance::System;

/// A job that ended, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// In the queue, before it first trained.
    pub waited_s: u64,
    /// From its arrival to its end.
    pub whole_s: u64,
    /// From its first step to its end.
    pub trained_s: u64,
    /// Alone.
    pub alone_s: u64,
}

/// What came of one system.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Which.
    pub system: System,
    /// GPUs to an instance.
    pub width: usize,
    /// Instances.
    pub instances: usize,
    /// Seconds simulated.
    pub horizon_s: u64,
    /// Jobs that came.
    pub came: usize,
    /// Jobs that ended.
    pub ended: Vec<Ended>,
    /// Jobs in the queue at the end.
    pub waiting: usize,
    /// Jobs that fit no instance.
    pub refused: usize,
    /// Tokens trained.
    pub tokens: f64,
    /// GPU seconds that computed.
    pub busy_s: f64,
    /// GPU seconds of instances with jobs.
    pub held_s: f64,
    /// GPU seconds paid for.
    pub paid_s: f64,
    /// Millionths of a dollar for a GPU and hour.
    pub price: u64,
    /// Instances lost.
    pub losses: usize,
    /// What each tenant's jobs trained, in seconds of a job alone.
    pub served_s: BTreeMap<String, f64>,
    /// Every hour: jobs of each instance, and of the queue.
    pub looked: Vec<(Vec<u16>, usize)>,
    /// Every hour: tokens a second.
    pub rates: Vec<u64>,
}

impl Outcome {
    pub(super) fn new(setting: &Setting, system: System, width: usize, instances: usize) -> Self {
        Self {
            system,
            width,
            instances,
            horizon_s: setting.horizon_s,
            came: 0,
            ended: Vec::new(),
            waiting: 0,
            refused: 0,
            tokens: 0.0,
            busy_s: 0.0,
            held_s: 0.0,
            paid_s: (instances * width) as f64 * setting.horizon_s as f64,
            price: setting.price,
            losses: 0,
            served_s: BTreeMap::new(),
            looked: Vec::new(),
            rates: Vec::new(),
        }
    }

    /// Tokens a second, over the whole time.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.tokens / self.horizon_s.max(1) as f64
    }

    /// Dollars for a million tokens; nothing where none was trained.
    #[must_use]
    pub fn dollars_per_million(&self) -> Option<f64> {
        let dollars = self.paid_s / 3_600.0 * self.price as f64 / 1e6;
        (self.tokens > 0.0).then(|| dollars / (self.tokens / 1e6))
    }

    /// Share of the GPUs' time in which they compute.
    #[must_use]
    pub fn utilisation(&self) -> f64 {
        self.busy_s / self.paid_s.max(1.0)
    }

    /// Mean, median and 99th percentile of a figure of ended jobs.
    #[must_use]
    pub fn spread(&self, figure: impl Fn(&Ended) -> f64) -> [f64; 3] {
        let mut all: Vec<f64> = self.ended.iter().map(figure).collect();
        all.sort_by(f64::total_cmp);
        if all.is_empty() {
            return [0.0; 3];
        }
        let at = |permille: usize| all[(all.len() - 1) * permille / 1000];
        [all.iter().sum::<f64>() / all.len() as f64, at(500), at(990)]
    }

    /// Jain's index over tenants of what they trained, permille.
    #[must_use]
    pub fn fairness(&self) -> u64 {
        let shares: Vec<u64> = self.served_s.values().map(|s| *s as u64).collect();
        jain(&shares)
    }

    fn json(&self) -> Value {
        let spread = |figure: &dyn Fn(&Ended) -> f64| {
            let [mean, median, p99] = self.spread(figure);
            json!({ "mean": mean, "median": median, "p99": p99 })
        };
        json!({
            "system": self.system.name(),
            "gpus_per_instance": self.width,
            "instances": self.instances,
            "tokens_per_second": self.rate(),
            "jobs_came": self.came,
            "jobs_ended": self.ended.len(),
            "jobs_waiting": self.waiting,
            "jobs_refused": self.refused,
            "completion_seconds": spread(&|job| job.whole_s as f64),
            "waiting_seconds": spread(&|job| job.waited_s as f64),
            "slowdown_training": spread(&|job| job.trained_s as f64 / job.alone_s.max(1) as f64),
            "slowdown_whole": spread(&|job| job.whole_s as f64 / job.alone_s.max(1) as f64),
            "utilisation": self.utilisation(),
            "occupancy": self.held_s / self.paid_s.max(1.0),
            "jain_permille": self.fairness(),
            "dollars_per_million_tokens": self.dollars_per_million(),
            "instances_lost": self.losses,
            "hourly_tokens_per_second": self.rates,
            "hourly_queue": self.looked.iter().map(|(_, queue)| *queue).collect::<Vec<_>>(),
        })
    }
}

/// All systems over the same jobs.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Where the jobs are from.
    pub source: String,
    /// GPUs.
    pub gpus: usize,
    /// The device.
    pub device: String,
    /// Whether it was measured.
    pub origin: Origin,
    /// Work that came, over what one job to an instance could do.
    pub offered: f64,
    /// The first is ours.
    pub outcomes: Vec<Outcome>,
}

/// What the paper simulated of the same three: uniform jobs, over HF-PEFT, NeMo and SL-PEFT.
pub const PAPER: [(&str, f64); 3] = [("HF-PEFT", 1.61), ("NeMo", 1.51), ("SL-PEFT", 1.36)];

impl Comparison {
    /// Tokens a second of ours over that of another; nothing where the other trained none.
    #[must_use]
    pub fn ratio(&self, system: System) -> Option<f64> {
        let rate = |system| {
            let found = self
                .outcomes
                .iter()
                .find(|outcome| outcome.system == system);
            found.map_or(0.0, Outcome::rate)
        };
        let other = rate(system);
        (other > 0.0).then(|| rate(System::Spotmux) / other)
    }

    /// For programs.
    #[must_use]
    pub fn json(&self) -> Value {
        let systems: Vec<Value> = self.outcomes.iter().map(Outcome::json).collect();
        let paper: Vec<Value> = PAPER
            .iter()
            .map(|(name, ratio)| json!({ "over": name, "ratio": ratio }))
            .collect();
        json!({
            "source": self.source, "gpus": self.gpus, "device": self.device, "profile": self.origin, "offered_load": self.offered,
            "systems": systems,
            "throughput_over": {
                "one_instance_a_job": self.ratio(System::Single),
                "spatial_only": self.ratio(System::Spatial),
                "temporal_only": self.ratio(System::Temporal),
            },
            "paper_uniform": paper,
        })
    }

    /// For people.
    #[must_use]
    pub fn text(&self) -> String {
        let how = match self.origin {
            Origin::Measured => "measured",
            Origin::Computed => "computed from published peaks, not measured",
        };
        let mut text = format!(
            "{} GPUs ({}, profile {how}), {}\n",
            self.gpus, self.device, self.source
        );
        let _ = writeln!(
            text,
            "{:<22} {:>5} {:>10} {:>7} {:>7} {:>10} {:>9} {:>9} {:>6} {:>6} {:>8}",
            "",
            "GPUs",
            "tokens/s",
            "ended",
            "queue",
            "done in h",
            "slowdown",
            "p99",
            "util",
            "Jain",
            "$/Mtok"
        );
        for outcome in &self.outcomes {
            let [mean, ..] = outcome.spread(|job| job.whole_s as f64 / 3_600.0);
            let [_, slow, slowest] =
                outcome.spread(|job| job.trained_s as f64 / job.alone_s.max(1) as f64);
            let _ = writeln!(
                text,
                "{:<22} {:>5} {:>10.0} {:>7} {:>7} {:>10.2} {:>9.2} {:>9.2} {:>5.1}% {:>6.3} {:>8}",
                outcome.system.name(),
                outcome.width,
                outcome.rate(),
                outcome.ended.len(),
                outcome.waiting,
                mean,
                slow,
                slowest,
                100.0 * outcome.utilisation(),
                outcome.fairness() as f64 / 1000.0,
                outcome
                    .dollars_per_million()
                    .map_or_else(|| "-".into(), |dollars| format!("{dollars:.4}"))
            );
        }
        let ratio = |system| {
            let ratio = self.ratio(system);
            ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"))
        };
        let _ = writeln!(
            text,
            "tokens/s over one instance a job {} (paper, uniform: 1.61 over HF-PEFT, 1.51 over NeMo), over spatial only \
             {} (paper over SL-PEFT, uniform: 1.36, non-uniform: 1.58), over temporal only {}",
            ratio(System::Single),
            ratio(System::Spatial),
            ratio(System::Temporal)
        );
        let behind = self.outcomes.iter().filter(|outcome| outcome.waiting > 0);
        let behind: Vec<String> = behind
            .map(|outcome| format!("{} {}", outcome.system.name(), outcome.waiting))
            .collect();
        let look = if behind.is_empty() {
            "no job waits at the end: compare times and queues".to_owned()
        } else {
            let behind = behind.join(", ");
            format!(
                "jobs that still wait at the end ({behind}) are in no time here: compare tokens/s"
            )
        };
        let _ = writeln!(
            text,
            "work came for {:.0} % of what one job to an instance can do; {look}",
            100.0 * self.offered
        );
        text.push_str("slowdown: from first step to end, over the same job alone (median)\n");
        text
    }
}
