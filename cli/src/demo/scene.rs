//! The demo's acts: asked, trained - on a cluster or in this process - and asked again.

use std::path::{Path, PathBuf};

use gpu_actor::sample::choice::Sampling;
use gpu_actor::sample::generator::BARE;
use gpu_actor::stage::step::Stage;
use kernels::cpu::Cpu;
use shared::wire::view::ClusterView;

use super::kit::{self, Probe};
use super::lodging::{self, Wishes};
use super::question::{Answers, Told};
use super::report::{Cluster, Happened};
use super::steady::Steady;
use super::tour::Tour;
use crate::adapter_folder;
use crate::backbone::Backbone;
use crate::clock::{self, Stopwatch};
use crate::desk::{Desk, Terminal};
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::machine;
use crate::render::{self, Output};
use crate::settings::Settings;
use crate::shown;
use crate::training::job_file::Jobs;
use crate::training::prepare::Prepared;
use crate::training::report;
use crate::training::run::Run;
use crate::writer;

/// Where it takes place.
pub(crate) struct Scene<'a> {
    /// The jobs.
    pub(crate) jobs: &'a Jobs,
    /// Folder of the results.
    pub(crate) folder: &'a Path,
    /// The model.
    pub(crate) backbone: &'a Backbone,
    /// What this process computes with.
    pub(crate) cpu: &'a Cpu,
    /// What the environment says.
    pub(crate) settings: &'a Settings,
    /// Who reads.
    pub(crate) output: &'a Output,
    /// Whether the user wants the end.
    pub(crate) interrupt: &'a Interrupt,
}

/// What was trained, what is answered before and after, and how it ended; nothing when the user stopped it.
pub(crate) type Trained = Option<(Happened, Answers, Exit)>;

impl Scene<'_> {
    /// Trains in this process.
    ///
    /// # Errors
    /// When the engine refuses a job, or something cannot be saved.
    pub(crate) fn alone(&self, prepared: Vec<Prepared>) -> Result<Trained, Failure> {
        let engine = &self.jobs.file.engine;
        let before = self.ask(None)?;
        self.output.note(format!(
            "training in this process, {} threads",
            self.cpu.threads()
        ));
        let adapters: Vec<PathBuf> = prepared.iter().map(|job| job.place.adapter()).collect();
        let mut run = Run::new(self.backbone, self.cpu, engine, prepared)?;
        let exit = run.train(self.output, self.interrupt)?;
        if exit == Exit::Interrupted {
            let file = self.folder.join(kit::JOBS).display().to_string();
            self.output.next(&[format!(
                "spotmux train {} --model {}",
                render::shell_word(&file),
                render::shell_word(&self.jobs.file.model)
            )]);
            return Ok(None);
        }
        let happened = Happened {
            reports: report::of(&run),
            training_seconds: run.seconds,
            rate: run.rate,
            memory: machine::peak_resident(),
            cluster: None,
        };
        drop(run);
        let after = self.ask(Some(&adapters))?;
        Ok(Some((happened, Answers { before, after }, exit)))
    }

    /// Trains on a cluster of processes, and leaves none of them running.
    ///
    /// # Errors
    /// As [`lodging::within`] and [`Tour::go`].
    pub(crate) fn cluster(
        &self,
        prepared: &[Prepared],
        wishes: &Wishes,
    ) -> Result<Trained, Failure> {
        let output = self.output;
        let loaded = lodging::write(self.folder, wishes)?;
        let clock = Stopwatch::start();
        self.interrupt.silently();
        let nodes = loaded.config.node.len();
        output.note(format!(
            "starting a cluster on this machine: a coordinator and {nodes} nodes, each a process of its own"
        ));
        let toured = lodging::within(
            &loaded,
            self.settings,
            output,
            self.interrupt,
            |state, news| {
                let control = Steady::new(&loaded, self.interrupt);
                let desk = Desk {
                    control: &control,
                    output,
                    asker: &Terminal,
                    interrupt: self.interrupt,
                    now: clock::now(),
                };
                output.note(format!(
                    "it serves after {:.1} s; {}",
                    clock.seconds(),
                    seats(&desk.status()?)
                ));
                let base = self.backbone.model.identity();
                let tour = Tour {
                    desk: &desk,
                    jobs: self.jobs,
                    prepared,
                    base: &base,
                    state,
                    news,
                };
                tour.go()
            },
        );
        let toured = match toured {
            Err(failure) if failure.exit == Exit::Interrupted => {
                output.note("stopped; no process is left, and what was durable is kept");
                output.next(&[again(self.folder)]);
                return Ok(None);
            }
            other => other?,
        };
        for report in &toured.reports {
            if let Some(reason) = &report.reason {
                output.note(format!("job {} did not succeed: {reason}", report.job));
            }
        }
        let happened = Happened {
            reports: toured.reports,
            training_seconds: toured.seconds,
            rate: toured.rate,
            memory: toured.memory,
            cluster: Some(Cluster {
                processes: toured.processes,
                stages: lodging::STAGES,
                moved: toured.moved,
            }),
        };
        Ok(Some((happened, toured.answers, toured.exit)))
    }

    /// The answer of each job to its question, of the bare model or with the adapters; greedy, so that it is the same
    /// every time. A job without an adapter has none.
    ///
    /// # Errors
    /// [`Exit::Interrupted`], and when an adapter or a question does not fit the model.
    fn ask(&self, adapters: Option<&[PathBuf]>) -> Result<Vec<String>, Failure> {
        let mut answers = Vec::new();
        let backbone = self.backbone;
        for (number, probe) in Probe::all().into_iter().enumerate() {
            self.interrupt.check()?;
            let mut stage = Stage::new(backbone.model.clone(), self.cpu.clone());
            let slot = match adapters.map(|all| &all[number]) {
                None => BARE,
                Some(folder) if !folder.exists() => {
                    answers.push(String::new());
                    continue;
                }
                Some(folder) => {
                    let opened = adapter_folder::open(folder, &backbone.model.shape)?;
                    stage.attach(opened.adapter())
                }
            };
            let written = writer::write(
                &mut stage,
                slot,
                &backbone.language,
                &probe.tokens(&backbone.language)?,
                Sampling::default(),
                probe.limit,
                |_| Ok(()),
            )?;
            self.output.event(&Told {
                event: "answer",
                job: &probe.job,
                when: if adapters.is_some() {
                    "after"
                } else {
                    "before"
                },
                text: &written.text,
            });
            answers.push(written.text);
        }
        Ok(answers)
    }
}

/// Who holds what, in a sentence.
fn seats(cluster: &ClusterView) -> String {
    let nodes: Vec<String> = cluster
        .nodes
        .iter()
        .map(|node| match cluster.plan.place_of(&node.name) {
            Some((replica, stage)) => {
                let layers = replica.seats[stage].layers();
                let layers = shown::layers(layers.start, layers.end);
                format!("{} has layers {layers}", node.name)
            }
            None => format!("{} is spare", node.name),
        })
        .collect();
    nodes.join(", ")
}

/// Starts the demo's cluster anew.
pub(crate) fn again(folder: &Path) -> String {
    let file = folder.join(lodging::FILE).display().to_string();
    format!("spotmux up --config {}", render::shell_word(&file))
}
