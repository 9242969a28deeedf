//! Predicted beside measured: the step of some mixes of jobs, by the planner's cost model and by the engine.

use std::sync::Arc;

use coordinator::plan::arrange::optimizers;
use coordinator::plan::device::Device;
use coordinator::plan::memory::Sizes;
use coordinator::plan::mix::Mix;
use coordinator::plan::pipeline::{Pipeline, Stage};
use coordinator::plan::profile::{Link, Profile};
use coordinator::plan::snapshot::Task;
use data::rows::TokenRow;
use gpu_actor::model::Model;
use gpu_actor::peft::init;
use gpu_actor::train::pack::{self, Request};
use gpu_actor::train::session::{self, Session};
use kernels::cpu::Cpu;
use serde::Serialize;
use serde_json::{Value, json};
use shared::job::JobSpec;
use shared::units::Micros;

use super::gather;
use crate::clock::Stopwatch;
use crate::exit::{Exit, Failure, OrExit};
use crate::interrupt::Interrupt;
use crate::render::{Align, Table};

/// Rows of a pass, as `spotmux train` has them.
const PER_PASS: usize = 512;
/// Steps that are measured after one that is not; the median counts.
const ROUNDS: usize = 3;
/// Steps of a job: more than are taken.
const STEPS: u64 = 1_000;

/// A mix of jobs.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    name: &'static str,
    jobs: Vec<(Value, Vec<usize>)>,
    /// Whether each job takes its step by itself, one after another.
    apart: bool,
}

impl Trial {
    fn new(name: &'static str, jobs: Vec<(Value, Vec<usize>)>) -> Self {
        Self {
            name,
            jobs,
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
    fn padded(mut self, name: &'static str) -> Self {
        let lengths = self.jobs.iter().flat_map(|(_, lengths)| lengths);
        let longest = lengths.max().copied().unwrap_or(0);
        for (_, lengths) in &mut self.jobs {
            lengths.fill(longest);
        }
        Self { name, ..self }
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
}

fn lora(rank: u64, targets: Value) -> Value {
    json!({ "method": "lora", "rank": rank, "targets": targets })
}

/// The mixes; no sequence is longer than the model takes.
pub(crate) fn trials(context: usize) -> Vec<Trial> {
    let all = |rank| lora(rank, json!("all-linear"));
    // Lengths of SST2, OpenBookQA and RTE in the MuxTune paper, and its batches (workloads A and B).
    let batches = [4, 2, 4, 4, 8, 2, 4, 4];
    let paper = |lengths: [usize; 8]| {
        let jobs = lengths.into_iter().zip(batches);
        jobs.map(|(length, batch)| (all(16), vec![length.min(context); batch]))
            .collect()
    };
    let within = |lengths: Vec<usize>| -> Vec<usize> {
        lengths
            .into_iter()
            .map(|length| length.min(context))
            .collect()
    };
    let (a, b) = (
        Trial::new("workload A", paper([64, 128, 128, 64, 64, 64, 128, 128])),
        Trial::new("workload B", paper([256, 64, 256, 64, 64, 256, 256, 256])),
    );
    vec![
        Trial::new("one job", vec![(all(8), within(vec![93, 81, 60, 77]))]),
        Trial::new(
            "two of rank 32",
            vec![
                (all(32), within(vec![128; 4])),
                (all(32), within(vec![256; 2])),
            ],
        ),
        Trial::new(
            "methods",
            vec![
                (all(8), within(vec![93, 81, 60, 77])),
                (lora(32, json!(["q_proj", "v_proj"])), within(vec![64; 8])),
                (json!({ "method": "ia3" }), within(vec![256; 2])),
                (
                    json!({ "method": "bottleneck", "size": 32 }),
                    within(vec![128; 4]),
                ),
            ],
        ),
        Trial::new(
            "short and long",
            vec![
                (all(16), within(vec![16; 16])),
                (all(16), within(vec![1024])),
                (lora(8, json!("attention")), within(vec![512; 2])),
            ],
        ),
        a.clone().apart("A, passes not shared"),
        a.clone().padded("A, padded"),
        a,
        b.clone().apart("B, passes not shared"),
        b.clone().padded("B, padded"),
        b,
    ]
}

impl Trial {
    fn specs(&self) -> Result<Vec<JobSpec>, Failure> {
        let spec = |(number, (adapter, lengths)): (usize, &(Value, Vec<usize>))| {
            serde_json::from_value(json!({
                "name": format!("trial-{number}"), "adapter": adapter,
                "data": { "train": "made up" },
                "train": { "steps": STEPS, "batch_size": lengths.len(), "shuffle": false },
                "checkpoint": { "every_steps": 0 },
            }))
        };
        let specs: Result<Vec<JobSpec>, _> = self.jobs.iter().enumerate().map(spec).collect();
        specs.or_exit(Exit::Internal)
    }

    fn rows(&self, vocabulary: usize) -> Vec<Vec<TokenRow>> {
        let row = |length: &usize| {
            let ids: Vec<u32> = (0..*length)
                .map(|i| ((i * 7 + 3) % vocabulary) as u32)
                .collect();
            let labels = ids.iter().enumerate().map(|(index, id)| match index {
                0 => data::mask::NOT_TRAINED,
                _ => *id as i32,
            });
            let labels = labels.collect();
            TokenRow::new(ids, labels)
        };
        let jobs = self.jobs.iter();
        jobs.map(|(_, lengths)| lengths.iter().map(row).collect())
            .collect()
    }

    /// Passes of a step, as the engine packs them.
    fn passes(&self) -> usize {
        let rows = self.rows(2);
        let requests: Vec<Request<'_>> = rows
            .iter()
            .enumerate()
            .map(|(slot, rows)| Request {
                slot,
                prompt_tokens: 0,
                prefix_tokens: 0,
                step: 0,
                rows: rows.iter().collect(),
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
        let tasks: Vec<Task> = self
            .specs()?
            .iter()
            .zip(&self.jobs)
            .map(|(spec, (_, lengths))| {
                let rows: Vec<u32> = lengths.iter().map(|length| *length as u32).collect();
                let all: usize = lengths.iter().sum();
                let counted = (1000 * (all - lengths.len()) / all.max(1)) as u64;
                Task::of(spec, "trial", &rows, counted, STEPS, Micros(0))
            })
            .collect();
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
        interrupt: &Interrupt,
    ) -> Result<Found, Failure> {
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
        let (measured_ms, predicted_ms) = (measured * 1e3, predicted as f64 / 1e6);
        Ok(Found {
            mix: self.name,
            jobs: self.jobs.len(),
            rows: self.jobs.iter().flat_map(|(_, lengths)| lengths).sum(),
            passes,
            measured_ms,
            predicted_ms,
            error_percent: 100.0 * (predicted_ms - measured_ms) / measured_ms,
        })
    }

    /// Each job by itself.
    fn alone(&self) -> impl Iterator<Item = Self> + '_ {
        let jobs = self.jobs.iter();
        jobs.map(|job| Self::new(self.name, vec![job.clone()]))
    }

    /// Seconds of a step.
    fn measured(
        &self,
        model: &Arc<Model>,
        cpu: &Cpu,
        interrupt: &Interrupt,
    ) -> Result<f64, Failure> {
        let mut session = Session::new(Arc::clone(model), cpu.clone(), PER_PASS);
        for (spec, rows) in self.specs()?.into_iter().zip(self.rows(model.shape.vocab)) {
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
        ]);
    }
    let absolute = all.iter().map(|found| found.error_percent.abs());
    let mean = absolute.clone().sum::<f64>() / all.len().max(1) as f64;
    let worst = absolute.fold(0.0, f64::max);
    format!(
        "{}mean error {mean:.1} %, worst {worst:.1} %\n",
        table.text()
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
            for (spec, (_, lengths)) in trial.specs().expect("jobs").iter().zip(&trial.jobs) {
                assert!(
                    spec.problems(&shape).is_empty(),
                    "{}: {:?}",
                    trial.name,
                    spec.problems(&shape)
                );
                assert!(lengths.iter().all(|length| *length <= shape.max_positions));
            }
            let rows: usize = trial.jobs.iter().flat_map(|(_, lengths)| lengths).sum();
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
        };
        let text = text(&[found]);
        assert!(
            text.contains("-5.0 %") && text.contains("mean error 5.0 %"),
            "{text}"
        );
    }
}
