//! Predicted beside measured: the step of some mixes of jobs, by the planner's cost model and by the engine.

use std::sync::Arc;

use coordinator::plan::arrange::optimizers;
use coordinator::plan::device::Device;
use coordinator::plan::memory::Sizes;
use coordinator::plan::mix::Mix;
use coordinator::plan::pipeline::{Pipeline, Stage};
use coordinator::plan::profile::{Link, Profile};
use coordinator::plan::snapshot::Task;
use gpu_actor::model::Model;
use gpu_actor::peft::init;
use gpu_actor::train::pack::{self, Request};
use gpu_actor::train::session::{self, Session};
use kernels::cpu::Cpu;
use serde::Serialize;
use serde_json::{Value, json};
use shared::plan::arrangement::Arrangement;

use super::gather;
use super::pace::Pace;
use super::workload::{Workload, everywhere, lora};
use crate::clock::Stopwatch;
use crate::exit::{Exit, Failure, OrExit};
use crate::interrupt::Interrupt;
use crate::render::{Align, Table};

/// Rows of a pass, as `spotmux train` has them.
const PER_PASS: usize = 512;
/// Steps that are measured after one that is not; the median counts.
const ROUNDS: usize = 3;

/// A mix of jobs.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    name: &'static str,
    workload: Workload,
    /// Whether each job takes its step by itself, one after another.
    apart: bool,
}

impl Trial {
    fn new(name: &'static str, workload: Workload) -> Self {
        Self {
            name,
            workload,
            apart: false,
        }
    }

    /// The same with passes that are not shared.
    fn apart(self, name: &'static str) -> Self {
        Self {
            name,
            apart: true,
            ..self
        }
    }

    /// The same with every sequence as long as the longest: what padding computes.
    fn padded(&self, name: &'static str) -> Self {
        let all: Vec<usize> = (0..self.workload.len()).collect();
        Self::new(name, self.workload.padded(&[all]))
    }
}

/// What was found of one.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Found {
    /// The mix.
    pub(crate) mix: &'static str,
    /// Jobs.
    pub(crate) jobs: usize,
    /// Rows of a step of all.
    pub(crate) rows: usize,
    /// Passes of it.
    pub(crate) passes: usize,
    /// Milliseconds that a step takes.
    pub(crate) measured_ms: f64,
    /// Milliseconds that it was predicted to take.
    pub(crate) predicted_ms: f64,
    /// Of the measured time, with its sign.
    pub(crate) error_percent: f64,
    /// Rate of the machine around the measurement, over that of the profile.
    pub(crate) rate: f64,
    /// The error if the machine had kept its rate.
    pub(crate) error_at_rate_percent: f64,
}

/// The mixes; no sequence is longer than the model takes.
pub(crate) fn trials(context: usize) -> Vec<Trial> {
    let mix = |name, jobs: Vec<(Value, Vec<usize>)>| Trial::new(name, Workload::new(jobs, context));
    let (a, b) = (
        Trial::new("workload A", Workload::a(context)),
        Trial::new("workload B", Workload::b(context)),
    );
    vec![
        mix("one job", vec![(everywhere(8), vec![93, 81, 60, 77])]),
        mix(
            "two of rank 32",
            vec![
                (everywhere(32), vec![128; 4]),
                (everywhere(32), vec![256; 2]),
            ],
        ),
        mix(
            "methods",
            vec![
                (everywhere(8), vec![93, 81, 60, 77]),
                (lora(32, json!(["q_proj", "v_proj"])), vec![64; 8]),
                (json!({ "method": "ia3" }), vec![256; 2]),
                (json!({ "method": "bottleneck", "size": 32 }), vec![128; 4]),
            ],
        ),
        mix(
            "short and long",
            vec![
                (everywhere(16), vec![16; 16]),
                (everywhere(16), vec![1024]),
                (lora(8, json!("attention")), vec![512; 2]),
            ],
        ),
        a.clone().apart("A, passes not shared"),
        a.padded("A, padded"),
        a,
        b.clone().apart("B, passes not shared"),
        b.padded("B, padded"),
        b,
    ]
}

impl Trial {
    /// Passes of a step, as the engine packs them.
    fn passes(&self) -> usize {
        let rows = self.workload.rows(2);
        let requests: Vec<Request<'_>> = rows
            .iter()
            .enumerate()
            .map(|(slot, rows)| Request {
                slot,
                prompt_tokens: 0,
                prefix_tokens: 0,
                step: 0,
                rows: rows.iter().collect(),
                part: None,
            })
            .collect();
        pack::passes(&requests, PER_PASS, pack::Cut::Anywhere).len()
    }

    /// Nanoseconds that the cost model predicts of a step on one stage.
    fn predicted(&self, model: &Model, profile: &Profile) -> Result<u64, Failure> {
        let (blocks, tables) = gather::kept(model);
        let device = Device::new(profile, &model.shape, blocks, tables).or_exit(Exit::BadInput)?;
        let sizes = [Sizes::new(&model.shape, blocks, tables, profile.compute)];
        let devices = [device];
        let pipeline = Pipeline {
            devices: &devices,
            sizes: &sizes,
            stages: vec![Stage {
                device: 0,
                blocks: model.shape.layers as u64,
                memory: profile.memory_bytes,
                link: Link {
                    name: String::new(),
                    latency_nanos: 0,
                    bytes_per_second: 1,
                },
            }],
            padded: false,
        };
        let tasks = self.workload.tasks()?;
        let tasks: Vec<&Task> = tasks.iter().collect();
        let passes = self.passes() as u64;
        let loads = pipeline.loads(&tasks, passes);
        let mixes: Vec<Mix> = loads.iter().map(Mix::of).collect();
        let time = pipeline.times(&mixes)[0].sum();
        Ok(passes * time + optimizers(&pipeline, &tasks))
    }

    /// Predicts and measures a step.
    ///
    /// # Errors
    /// [`Exit::BadInput`] when the profile lacks an operation of the model; [`Exit::Interrupted`].
    pub(crate) fn run(
        &self,
        model: &Arc<Model>,
        cpu: &Cpu,
        profile: &Profile,
        (pace, interrupt): (&mut Pace, &Interrupt),
    ) -> Result<Found, Failure> {
        let before = pace.rate()?;
        let parts: Vec<Self> = match self.apart {
            true => self.alone().collect(),
            false => vec![self.clone()],
        };
        let (mut predicted, mut measured, mut passes) = (0, 0.0, 0);
        for part in &parts {
            predicted += part.predicted(model, profile)?;
            measured += part.measured(model, cpu, interrupt)?;
            passes += part.passes();
        }
        let rate = f64::midpoint(before, pace.rate()?);
        let (measured_ms, predicted_ms) = (measured * 1e3, predicted as f64 / 1e6);
        let error = |measured: f64| 100.0 * (predicted_ms - measured) / measured;
        Ok(Found {
            mix: self.name,
            jobs: self.workload.len(),
            rows: self.workload.total(),
            passes,
            measured_ms,
            predicted_ms,
            error_percent: error(measured_ms),
            rate,
            error_at_rate_percent: error(measured_ms * rate),
        })
    }

    /// Each job by itself.
    fn alone(&self) -> impl Iterator<Item = Self> + '_ {
        let each = self.workload.alone();
        each.map(|workload| Self::new(self.name, workload))
    }

    /// Seconds of a step.
    fn measured(
        &self,
        model: &Arc<Model>,
        cpu: &Cpu,
        interrupt: &Interrupt,
    ) -> Result<f64, Failure> {
        let mut session = Session::new(Arc::clone(model), cpu.clone(), PER_PASS);
        session.arrange(Arrangement::of_whole_steps());
        let rows = self.workload.rows(model.shape.vocab);
        for (spec, rows) in self.workload.specs()?.into_iter().zip(rows) {
            let layout = session::layout_of(&spec.adapter, model, spec.seed);
            let values = init::values(&layout, model, cpu, spec.seed, &[]);
            let admitted = session.admit(spec, layout, values, rows, Vec::new(), None);
            admitted.map_err(|problem| Failure::new(Exit::Internal, problem))?;
        }
        session.round();
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            interrupt.check()?;
            let clock = Stopwatch::start();
            session.round();
            times.push(clock.elapsed());
        }
        times.sort_unstable();
        Ok(times[ROUNDS / 2].as_secs_f64())
    }
}

/// For people.
pub(crate) fn text(all: &[Found]) -> String {
    let mut table = Table::new(&[
        ("mix", Align::Left),
        ("jobs", Align::Right),
        ("rows", Align::Right),
        ("passes", Align::Right),
        ("measured ms", Align::Right),
        ("predicted ms", Align::Right),
        ("error", Align::Right),
        ("machine's rate", Align::Right),
        ("error at that rate", Align::Right),
    ]);
    for found in all {
        table.row([
            found.mix.to_owned(),
            found.jobs.to_string(),
            found.rows.to_string(),
            found.passes.to_string(),
            format!("{:.0}", found.measured_ms),
            format!("{:.0}", found.predicted_ms),
            format!("{:+.1} %", found.error_percent),
            format!("{:.2}", found.rate),
            format!("{:+.1} %", found.error_at_rate_percent),
        ]);
    }
    let summed = |error: fn(&Found) -> f64| {
        let absolute = all.iter().map(|found| error(found).abs());
        let mean = absolute.clone().sum::<f64>() / all.len().max(1) as f64;
        let worst = absolute.fold(0.0, f64::max);
        format!("mean error {mean:.1} %, worst {worst:.1} %")
    };
    format!(
        "{}{}; at the machine's rate of each moment: {}\n",
        table.text(),
        summed(|found| found.error_percent),
        summed(|found| found.error_at_rate_percent)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mix_is_of_jobs_that_a_model_takes() {
        let text = r#"{"model_type":"llama","num_hidden_layers":4,"hidden_size":64,"num_attention_heads":4,
            "vocab_size":128,"intermediate_size":128,"max_position_embeddings":256,"rms_norm_eps":1e-5}"#;
        let shape = shared::model::config::parse(text).expect("a configuration");
        for trial in trials(shape.max_positions) {
            let specs = trial.workload.specs().expect("jobs");
            for (spec, lengths) in specs.iter().zip(trial.workload.lengths()) {
                assert!(
                    spec.problems(&shape).is_empty(),
                    "{}: {:?}",
                    trial.name,
                    spec.problems(&shape)
                );
                assert!(lengths.iter().all(|length| *length <= shape.max_positions));
            }
            let rows = trial.workload.total();
            assert!(trial.passes() >= rows.div_ceil(PER_PASS), "{}", trial.name);
        }
    }

    #[test]
    fn the_error_has_the_sign_of_the_prediction() {
        let found = Found {
            mix: "m",
            jobs: 1,
            rows: 2,
            passes: 1,
            measured_ms: 200.0,
            predicted_ms: 190.0,
            error_percent: -5.0,
            rate: 0.9,
            error_at_rate_percent: 5.6,
        };
        let text = text(&[found]);
        assert!(
            text.contains("-5.0 %")
                && text.contains("mean error 5.0 %")
                && text.contains("rate of each moment: mean error 5.6 %"),
            "{text}"
        );
    }
}
