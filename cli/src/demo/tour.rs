//! The jobs on a cluster, from submission to adapters, with one stage moved on the way.

use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use gpu_actor::train::progress::Progress;
use serde_json::{Value, json};
use shared::ids::EventNumber;
use shared::life::JobState;
use shared::wire::request::{JobRef, Reply, Request};
use shared::wire::view::{EventView, JobView};

use super::heard::Heard;
use super::lodging::News;
use super::question::{self, Answers};
use super::shift::{Held, Moved, Shift};
use crate::clock::Stopwatch;
use crate::commands::cluster::{fetch, submit};
use crate::control::{Flow, is_lost, unfitting};
use crate::desk::{Desk, wait};
use crate::exit::{Exit, Failure};
use crate::local::state::State;
use crate::machine;
use crate::render::{self, Output};
use crate::shown::{self, events};
use crate::training::board::Board;
use crate::training::job_file::Jobs;
use crate::training::keep;
use crate::training::prepare::Prepared;
use crate::training::record::FileRecord;
use crate::training::report::{self, JobReport};

/// How often memory is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// How often a coordinator may be lost on the way.
const TRIES: u32 = 5;

/// What is needed on the way.
pub(crate) struct Tour<'a> {
    /// The cluster, and who reads.
    pub(crate) desk: &'a Desk<'a>,
    /// The jobs as their file has them.
    pub(crate) jobs: &'a Jobs,
    /// The same, looked at.
    pub(crate) prepared: &'a [Prepared],
    /// What names the backbone elsewhere.
    pub(crate) base: &'a str,
    /// The processes.
    pub(crate) state: &'a State,
    /// What becomes of them.
    pub(crate) news: &'a Receiver<News>,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Toured {
    /// The jobs, in the order of the file.
    pub(crate) reports: Vec<JobReport>,
    /// Seconds of training.
    pub(crate) seconds: f64,
    /// Tokens a second over all jobs.
    pub(crate) rate: f64,
    /// The stage that moved.
    pub(crate) moved: Option<Moved>,
    /// Most memory of all processes together, the demo's own too.
    pub(crate) memory: Option<u64>,
    /// Processes of the cluster.
    pub(crate) processes: usize,
    /// What the backbone answers to each job's question, bare and with its adapter.
    pub(crate) answers: Answers,
    /// Whether all jobs succeeded.
    pub(crate) exit: Exit,
}

/// What is seen while events come.
struct Seen<'a> {
    tour: &'a Tour<'a>,
    board: Board,
    heard: Heard,
    shift: Shift,
    moved: Option<Moved>,
    memory: Option<u64>,
    looked: Option<Stopwatch>,
    last: EventNumber,
}

impl Tour<'_> {
    /// Goes all the way.
    ///
    /// # Errors
    /// What the cluster refuses, [`Exit::Interrupted`], and when results cannot be written.
    pub(crate) fn go(&self) -> Result<Toured, Failure> {
        let processes = self.state.living().len();
        let before = question::before(self.desk)?;
        let after = wait::newest(self.desk)?;
        let quiet = Output::new(false, true);
        let submitting = Desk {
            output: &quiet,
            ..*self.desk
        };
        let accepted = submit::send(self.jobs, &submitting)?;
        let mut seen = Seen {
            tour: self,
            board: Board::new(self.desk.output, self.prepared),
            heard: Heard::default(),
            shift: Shift::default(),
            moved: None,
            memory: None,
            looked: None,
            last: after,
        };
        for (job, view) in self.prepared.iter().zip(&accepted) {
            seen.heard.expect(view.id, view.name.clone(), job.total);
        }
        let followed = seen.follow_to_the_end();
        seen.board.clear();
        followed?;
        let (tokens, seconds) = seen.heard.effort();
        let (mut reports, mut trained, mut exit) = (Vec::new(), Vec::new(), Exit::Done);
        for (job, view) in self.prepared.iter().zip(&accepted) {
            let view = self.desk.job(&Request::Job(JobRef::Id(view.id)))?;
            let progress = progress(&view);
            let reason = self.take_home(job, &view, &progress)?;
            trained.push(reason.is_none().then_some(view.id));
            if reason.is_some() {
                exit = Exit::JobEnded;
            }
            reports.push(report::came(job, &progress, reason));
        }
        let after = question::after(self.desk, &trained)?;
        Ok(Toured {
            answers: Answers { before, after },
            reports,
            seconds,
            rate: tokens as f64 / seconds.max(1e-9),
            moved: seen.moved,
            memory: seen.memory,
            processes,
            exit,
        })
    }

    /// Fetches a job's adapter, or gives the reason why there is none.
    fn take_home(
        &self,
        job: &Prepared,
        view: &JobView,
        progress: &Progress,
    ) -> Result<Option<String>, Failure> {
        if view.state != JobState::Succeeded {
            let reason = view.reason.as_ref().map(|reason| reason.message.clone());
            return Ok(Some(reason.unwrap_or_else(|| view.state.to_string())));
        }
        let (id, place) = (JobRef::Id(view.id), job.place.adapter());
        let files = fetch::fetch(&id, &place, self.desk, |_, _| Ok(()))?;
        let files = files.iter().map(FileRecord::of_fetched).collect();
        keep::complete(job, progress, self.base, files)?;
        Ok(None)
    }
}

impl Seen<'_> {
    /// Follows the events; when the coordinator is started again meanwhile, from the last one heard.
    fn follow_to_the_end(&mut self) -> Result<(), Failure> {
        let mut left = TRIES;
        loop {
            let followed = self.follow();
            let over = self.hear_of_processes();
            match followed {
                Err(failure) if is_lost(&failure) && left > 0 && !over => {
                    left -= 1;
                    self.board.say("  the coordinator is away; waiting for it");
                }
                followed => return followed,
            }
        }
    }

    /// Follows the events until all jobs have ended and nothing moves.
    fn follow(&mut self) -> Result<(), Failure> {
        let request = Request::Events {
            job: None,
            after: self.last,
            follow: true,
        };
        let mut over = false;
        self.tour.desk.control.stream(&request, &mut |reply| {
            let Reply::Events(batch) = reply else {
                return Err(unfitting(&reply));
            };
            for event in &batch {
                self.take(event);
            }
            self.look_around();
            self.move_a_stage()?;
            self.tour.desk.interrupt.check()?;
            over = self.heard.all_ended() && !self.shift.is_moving();
            Ok(if over { Flow::Enough } else { Flow::More })
        })?;
        if over {
            return Ok(());
        }
        let message = "the coordinator ended the stream of events before the jobs ended";
        Err(Failure::new(Exit::Unreachable, message))
    }

    fn take(&mut self, event: &EventView) {
        self.last = self.last.max(event.number);
        self.tour.desk.output.event(&events::told(event));
        if let Some(told) = self.heard.take(event) {
            self.board.show(&told);
        }
        self.shift.take(event);
        if matches!(event.kind.as_str(), "migration_called_off" | "node_lost") {
            self.board.say(&format!("  {}", event.message));
        }
    }

    /// Asks for the move when it is due, and tells what came of it once training goes on.
    fn move_a_stage(&mut self) -> Result<(), Failure> {
        let desk = self.tour.desk;
        if self.shift.is_due(self.heard.steps()) && !self.heard.all_ended() {
            let Some(held) = Held::last(&desk.status()?) else {
                return Ok(());
            };
            let request = Request::Migrate {
                from: held.node.clone(),
                to: None,
            };
            self.board.say(&format!(
                "  moving stage {} (layers {}) away from node {}, while it trains",
                held.stage,
                shown::layers(held.layers.0, held.layers.1),
                held.node
            ));
            self.shift.ask(held, self.heard.steps().0);
            match desk.done(&request) {
                Err(refused) if refused.exit == Exit::Conflict => self.shift.refused(),
                asked => asked?,
            }
        }
        let over = self.heard.all_ended() && !self.shift.is_moving();
        if self.moved.is_none() && (self.shift.goes_on() || over) {
            self.moved = self.shift.outcome(&desk.status()?);
            if let Some(moved) = &self.moved {
                desk.output.event(&told(moved));
                self.board.say(&format!("  {}", sentence(moved)));
            }
        }
        Ok(())
    }

    /// Tells what became of processes; true when nobody watches them any more.
    fn hear_of_processes(&self) -> bool {
        loop {
            match self.tour.news.try_recv() {
                Ok(News::Restarted(told)) => self.board.say(&format!("  {told}")),
                Ok(News::Ready) => {}
                Err(why) => return why == TryRecvError::Disconnected,
            }
        }
    }

    /// Looks at memory now and then, and at what became of processes.
    fn look_around(&mut self) {
        self.hear_of_processes();
        if self.looked.is_some_and(|looked| looked.elapsed() < LOOK) {
            return;
        }
        self.looked = Some(Stopwatch::start());
        let living = self.tour.state.living();
        let ids = living.iter().map(|(_, process)| process.id);
        let sum: Option<u64> = ids
            .chain([std::process::id()])
            .map(machine::proportional_of)
            .sum();
        self.memory = self.memory.max(sum);
    }
}

/// A move in a sentence.
pub(crate) fn sentence(moved: &Moved) -> String {
    let Moved {
        held,
        to,
        stall,
        step_to_step,
        bytes,
        ..
    } = moved;
    let times = stall.zip(*step_to_step);
    let times = times.map_or_else(String::new, |(stall, between)| {
        format!("{stall:.1} s without training, {between:.1} s from step to step, ")
    });
    format!(
        "stage {} moved from node {} to node {to}: {times}{} of state went along",
        held.stage,
        held.node,
        render::bytes(*bytes)
    )
}

fn told(moved: &Moved) -> Value {
    let mut told = json!(moved);
    told["event"] = json!("moved");
    told
}

fn progress(view: &JobView) -> Progress {
    Progress {
        step: view.step,
        tokens: view.tokens,
        first_loss: view.first_loss,
        last_loss: view.last_loss,
        first_eval: view.first_eval,
        last_eval: view.last_eval.map(|(loss, _)| loss),
        ..Progress::default()
    }
}
