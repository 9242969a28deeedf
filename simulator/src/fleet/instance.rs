//! An instance: some GPUs with one backbone, and what a step takes there for a set of jobs.

use std::collections::BTreeMap;

use coordinator::plan::arrange::{Arrangement, Levels, optimizers, with_each};
use coordinator::plan::estimate::Loads;
use coordinator::plan::pipeline::Pipeline;
use coordinator::plan::place::{Fleet, NoPlace, Seats, place};
use coordinator::plan::snapshot::{Machine, Snapshot, Task};
use shared::ids::NodeName;
use shared::units::{Bytes, MicroUsd};

use super::jobs::Mix;
use super::{BadSetting, Setting, WIDTHS};

/// How jobs share an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum System {
    /// This planner.
    Spotmux,
    /// One instance a job.
    Single,
    /// One pass for all, padded.
    Spatial,
    /// One after another.
    Temporal,
}

impl System {
    /// All four.
    pub const ALL: [Self; 4] = [Self::Spotmux, Self::Single, Self::Spatial, Self::Temporal];

    /// For people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Spotmux => "spotmux",
            Self::Single => "one instance a job",
            Self::Spatial => "spatial only, padded",
            Self::Temporal => "temporal only",
        }
    }
}

/// Jobs of an instance above which hybrid tasks are runs.
const SEARCHED: usize = 16;

/// A set of jobs: how many of each kind.
pub(super) type Company = BTreeMap<usize, u32>;

/// What a step takes, by company.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pace {
    /// Nanoseconds of a step, while rounds follow each other.
    pub(super) step: u64,
    /// Tokens of a step.
    pub(super) tokens: u64,
    /// Nanoseconds of a step in which stages compute, over all stages.
    pub(super) busy: u64,
}

impl Pace {
    pub(super) fn rate(&self) -> u128 {
        u128::from(self.tokens) * 1_000_000_000_000 / u128::from(self.step.max(1))
    }
}

/// Predicts instances of one system and width; remembers what it was asked.
pub(super) struct Oracle<'a> {
    system: System,
    pub(super) width: usize,
    mix: &'a Mix,
    snapshot: Snapshot,
    fleet: Fleet,
    seats: Seats,
    known: BTreeMap<Company, Option<Pace>>,
}

/// A snapshot of one instance.
fn instance(setting: &Setting, system: System, width: usize) -> Snapshot {
    let mut snapshot = setting.base.clone();
    let machine = Machine {
        device: setting.profile.device.clone(),
        memory: Bytes(setting.profile.memory_bytes),
        site: "one".into(),
        price: MicroUsd(setting.price),
        losses_per_kilohour: setting.losses.per_kilohour,
    };
    let name = |at: usize| NodeName::new(format!("gpu-{at:02}")).ok();
    snapshot.nodes = (0..width)
        .filter_map(name)
        .map(|name| (name, machine.clone()))
        .collect();
    let profile = setting.profile.clone();
    snapshot.profiles = BTreeMap::from([(profile.device.clone(), profile)]);
    snapshot.tasks = BTreeMap::new();
    snapshot.options.stages = Some(width as u32);
    snapshot.options.replicas = Some(1);
    snapshot.options.fuse = matches!(system, System::Spotmux | System::Spatial);
    snapshot.options.order = system == System::Spotmux;
    snapshot.options.align = system != System::Spatial;
    if system != System::Spotmux {
        snapshot.options.micro_batches = setting.micro_batches;
    }
    snapshot
}

impl<'a> Oracle<'a> {
    pub(super) fn new(
        setting: &Setting,
        mix: &'a Mix,
        system: System,
        width: usize,
    ) -> Result<Self, NoPlace> {
        let snapshot = instance(setting, system, width);
        let fleet = Fleet::new(&snapshot)?;
        let tasks: Vec<&Task> = mix.kinds.iter().collect();
        let layout = place(&snapshot, &fleet, &tasks, &[])?;
        let seats = layout.replicas.into_iter().next().ok_or(NoPlace::NoNode)?;
        Ok(Self {
            system,
            width,
            mix,
            snapshot,
            fleet,
            seats,
            known: BTreeMap::new(),
        })
    }

    /// What a step of these jobs takes; nothing when they do not fit.
    pub(super) fn pace(&mut self, company: &Company) -> Option<Pace> {
        if let Some(known) = self.known.get(company) {
            return *known;
        }
        let pace = self.predict(company);
        self.known.insert(company.clone(), pace);
        pace
    }

    fn tasks(&self, company: &Company) -> Vec<&'a Task> {
        let kinds = company.iter();
        let each = kinds.flat_map(|(kind, count)| (0..*count).map(|_| &self.mix.kinds[*kind]));
        each.collect()
    }

    /// How jobs train together, with the levels that are on and without them: asked thousands of times, so for many jobs by
    /// runs alone, and without what padding leads to.
    fn arranged(&self, pipeline: &Pipeline<'_>, tasks: &[&Task]) -> Option<Arrangement> {
        let options = &self.snapshot.options;
        let on = Levels {
            search: tasks.len() <= SEARCHED,
            ..Levels::of(options)
        };
        let unfused = Levels { fuse: false, ..on };
        let neither = Levels {
            order: false,
            ..unfused
        };
        let mut levels = vec![on, unfused, neither];
        levels.dedup();
        with_each(pipeline, tasks, options, &levels)
    }

    fn predict(&self, company: &Company) -> Option<Pace> {
        let tasks = self.tasks(company);
        let pipeline = self.fleet.pipeline(&self.snapshot, &self.seats)?;
        let tokens = tasks.iter().map(|task| task.tokens()).sum();
        if self.system == System::Spatial {
            let all: Vec<usize> = (0..tasks.len()).collect();
            let loads = Loads::new(&tasks);
            let asked = self.snapshot.options.micro_batches;
            let asked = asked.and_then(|asked| loads.estimate_with(&pipeline, &all, true, asked));
            let estimate = asked.or_else(|| loads.estimate(&pipeline, &all, true))?;
            let step = estimate.step + optimizers(&pipeline, &tasks);
            // Of a closed form: what the slowest stage computes, on every stage.
            let busy = step.saturating_mul(self.width as u64) * estimate.micro_batches
                / (estimate.micro_batches + self.width as u64 - 1);
            return Some(Pace { step, tokens, busy });
        }
        let found = self.arranged(&pipeline, &tasks)?;
        let step = found.round;
        let busy = found.busy.iter().sum::<u64>() + found.optimizer * self.width as u64;
        // Dealt into runs, passes are about as large as those that were arranged: stages are never busy for longer than a round.
        Some(Pace {
            step,
            tokens,
            busy: busy.min(step.saturating_mul(self.width as u64)),
        })
    }

    /// A step that nothing follows, for comparison; nothing where a system has no template.
    #[cfg(test)]
    pub(super) fn step_by_itself(&self, company: &Company) -> Option<u64> {
        if self.system == System::Spatial {
            return None;
        }
        let pipeline = self.fleet.pipeline(&self.snapshot, &self.seats)?;
        let found = self.arranged(&pipeline, &self.tasks(company))?;
        Some(found.step())
    }

    /// Whether an instance with this company takes a job more: it fits, and the rule of saturation lets it join.
    pub(super) fn takes(&mut self, company: &Company, kind: usize) -> bool {
        if company.is_empty() {
            return true;
        }
        if self.system == System::Single {
            return false;
        }
        let mut more = company.clone();
        *more.entry(kind).or_default() += 1;
        let Some(with) = self.pace(&more) else {
            return false;
        };
        let Some(without) = self.pace(company) else {
            return false;
        };
        let rule = self.snapshot.options.saturation;
        if rule.joins(without.rate(), with.rate()) {
            return true;
        }
        let alone = self.pace(&Company::from([(kind, 1)]));
        let apart = |alone: Pace| without.step.saturating_add(alone.step);
        alone.is_some_and(|alone| rule.is_no_slower(apart(alone), with.step))
    }
}

/// The number of GPUs to an instance with the most tokens a second and GPU, when jobs of all kinds come in turn.
///
/// # Errors
/// [`BadSetting`] when the backbone fits none.
pub fn best_width(setting: &Setting, mix: &Mix, system: System) -> Result<usize, BadSetting> {
    if let Some(width) = setting.width {
        return Ok(width);
    }
    let mut best: Option<(u128, usize)> = None;
    let mut why = NoPlace::NoNode;
    for width in WIDTHS.into_iter().filter(|width| *width <= setting.gpus) {
        let mut oracle = match Oracle::new(setting, mix, system, width) {
            Ok(oracle) => oracle,
            Err(error) => {
                why = error;
                continue;
            }
        };
        let rate = if system == System::Single {
            let alone = mix.sample().into_iter().filter_map(|kind| {
                let company = Company::from([(kind, 1)]);
                oracle.pace(&company).map(|pace| pace.rate())
            });
            alone.sum::<u128>() / mix.kinds.len() as u128
        } else {
            let mut company = Company::new();
            for kind in mix.sample() {
                if oracle.takes(&company, kind) {
                    *company.entry(kind).or_default() += 1;
                }
            }
            oracle.pace(&company).map_or(0, |pace| pace.rate())
        };
        let each = rate / width as u128;
        if each > 0 && best.is_none_or(|(held, _)| each > held) {
            best = Some((each, width));
        }
    }
    best.map(|(_, width)| width).ok_or_else(|| why.into())
}
