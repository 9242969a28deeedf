//! Owners of jobs: they submit, change their minds, and ask again when nobody answers.

use coordinator::life::cluster::Handle;
use shared::ids::{JobId, JobName};
use shared::units::{Bytes, Micros};
use shared::wire::request::{FileRef, JobRef, RefusalCode, Reply, Request, Submission};

use crate::world::{FAULTS_END, Happening, World};

/// After so long without an answer, a client asks again.
const ASK_AGAIN: Micros = Micros::of_millis(600);

/// An owner of one job.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) name: JobName,
    pub(crate) steps: u64,
    pub(crate) sick: Option<u64>,
    /// Most replicas that share its steps.
    replicas: u64,
    pub(crate) job: Option<JobId>,
    /// What it will still ask, and when; the last first.
    asks: Vec<(Micros, Ask)>,
    asked_for_end: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    Submit,
    Pause,
    Resume,
    Cancel,
}

impl Client {
    pub(crate) fn is_over(&self) -> bool {
        self.asks.is_empty()
    }

    /// Whether it ever asked for the end of its job.
    pub(crate) fn asked_for_end(&self) -> bool {
        self.asked_for_end
    }

    fn request(&self, ask: Ask) -> Request {
        let job = JobRef::Name(self.name.clone());
        match ask {
            Ask::Pause => Request::Pause(job),
            Ask::Resume => Request::Resume(job),
            Ask::Cancel => Request::Cancel(job),
            Ask::Submit => {
                let (name, steps, replicas) = (&self.name, self.steps, self.replicas);
                let seed = self.sick.unwrap_or(1_000_000);
                let spec = format!(
                    r#"{{"name":"{name}","seed":{seed},"replicas":{replicas},"adapter":{{"method":"lora","rank":2}},"data":{{"train":"d.jsonl"}},"train":{{"steps":{steps}}}}}"#
                );
                let file = FileRef {
                    path: "d.jsonl".into(),
                    sha256: "0".repeat(64),
                    bytes: Bytes(1),
                };
                Request::Submit(Submission {
                    spec,
                    files: vec![file],
                })
            }
        }
    }
}

impl World {
    pub(crate) fn make_clients(&mut self) {
        let count = self.dice.between(1, 7);
        for number in 0..count {
            let begin = self.millis(0, 6_000);
            let mut asks = vec![(begin, Ask::Submit)];
            let (pause, cancel) = (self.dice.percent(30), self.dice.percent(15));
            if pause {
                let at = begin.plus(self.millis(10, 3_000));
                asks.push((at, Ask::Pause));
                asks.push((at.plus(self.millis(10, 3_000)), Ask::Resume));
            }
            if cancel {
                let at = begin.plus(self.millis(10, 5_000));
                asks.push((at, Ask::Cancel));
            }
            asks.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
            let steps = self.dice.between(1, 250);
            let sick = self.dice.percent(10).then(|| self.dice.below(steps));
            let shares = self.dice.percent(30);
            let replicas = if shares { self.dice.between(2, 3) } else { 1 };
            let name = JobName::new(format!("job-{number}")).expect("a name");
            self.clients.push(Client {
                name,
                steps,
                sick,
                replicas,
                job: None,
                asks,
                asked_for_end: false,
            });
            self.queue.at(begin, Happening::Client(number as usize));
        }
    }

    pub(crate) fn client_acts(&mut self, client: usize) {
        let Some((at, ask)) = self.clients[client].asks.last().copied() else {
            return;
        };
        if at > self.now() {
            return self.queue.at(at, Happening::Client(client));
        }
        self.clients[client].asked_for_end |= ask == Ask::Cancel;
        let request = self.clients[client].request(ask);
        if let Some(handle) = self.ask(request) {
            let left = self.clients[client].asks.len();
            self.handles.insert(handle, (client, left));
        }
        self.queue.after(ASK_AGAIN, Happening::Client(client));
    }

    /// Whether the client closed the stream of a question since, because another was answered.
    pub(crate) fn is_withdrawn(&self, handle: Handle) -> bool {
        let asked = self.handles.get(&handle.0);
        asked.is_some_and(|(client, left)| self.clients[*client].asks.len() != *left)
    }

    /// An answer; it may be lost, and so may the question have been.
    pub(crate) fn answered(&mut self, handle: Handle, reply: Reply) {
        let Some((client, left)) = self.handles.remove(&handle.0) else {
            return;
        };
        // The answer to a question that was answered before.
        if self.clients[client].asks.len() != left {
            return;
        }
        if self.now() < FAULTS_END && self.dice.percent(10) {
            return;
        }
        match reply {
            Reply::Job(job) => {
                let known = self.clients[client].job.replace(job.id);
                if known.is_some_and(|known| known != job.id) {
                    self.check
                        .fail("SIM-1", format!("{} is {} and another", job.name, job.id));
                }
            }
            Reply::Refused(refusal) if refusal.code == RefusalCode::Conflict => {}
            Reply::Refused(refusal) if refusal.code == RefusalCode::Busy => return,
            other => self
                .check
                .fail("SIM-1", format!("an owner was answered {other:?}")),
        }
        self.clients[client].asks.pop();
        self.queue.after(Micros(1), Happening::Client(client));
    }
}
