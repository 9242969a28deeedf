//! A replica of one stage, and the other end of its link, which the test holds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use gpu_actor::artifacts::keeper::StoreKeeper;
use gpu_actor::artifacts::manifest::StateManifest;
use gpu_actor::batch::{Batch, JobEntry};
use gpu_actor::link::bell::Bell;
use gpu_actor::link::word::{Assist, Attach, Pass, Shard, Source, StepGoal, Word};
use gpu_actor::link::{ChunkLink, Parcel, local};
use gpu_actor::model::Model;
use gpu_actor::pipeline::Place;
use gpu_actor::replica::error::ReplicaError;
use gpu_actor::replica::lead::{Admission, Lead, TextRequest};
use gpu_actor::replica::seat::{LeadSettings, Ports, Seat};
use gpu_actor::replica::watch::Watch;
use gpu_actor::sample::choice::Sampling;
use kernels::cpu::Cpu;
use shared::ids::JobName;
use shared::model::Family;
use system_tests::methods;
use system_tests::plan::{Plan, plain};

use crate::run::{Manner, Store, admission, admit, begin, store, stored};
use crate::tiny;

/// The replica that leads, and the one that helps.
pub(super) const HOME: u32 = 0;
pub(super) const HELPER: u32 = 1;

/// A replica of one stage, and the other one's end of the link between them.
pub(super) struct Pair {
    pub(super) lead: Lead,
    pub(super) link: local::LocalLink,
    pub(super) model: Arc<Model>,
    pub(super) store: Store,
    pub(super) plan: Plan,
}

impl Pair {
    /// The replica of this number; the test is the other.
    pub(super) fn new(number: u32) -> Self {
        let (model, store) = (tiny::model(Family::Llama, true), store());
        let bells = [Bell::default(), Bell::default()];
        let [near, far] = local::pair(256, [&bells[0], &bells[1]]);
        let keeper = StoreKeeper::start(Arc::clone(&store), bells[0].clone()).unwrap();
        let ports = Ports {
            links: [None, None],
            peers: BTreeMap::from([(1 - number, Box::new(near) as Box<dyn ChunkLink>)]),
            bell: bells[0].clone(),
            keeper: Box::new(keeper),
            store: Arc::clone(&store),
            watch: Watch::default(),
        };
        let place = Place {
            stage: 0,
            stages: 1,
        };
        let seat = Seat {
            replica: number,
            patience: Duration::from_secs(5),
            ..Seat::new(place, 1)
        };
        let cpu = Cpu::new(1).unwrap();
        let lead = Lead::new(Arc::clone(&model), cpu, seat, ports, LeadSettings::new(1));
        let plan = plain("job", methods::every().remove(0));
        Self {
            lead,
            link: far,
            model,
            store,
            plan,
        }
    }

    /// One that helps with a job of this name.
    pub(super) fn helping(job: &str) -> Self {
        let mut pair = Self::new(HELPER);
        pair.enlist(job);
        pair.tend().unwrap();
        assert_eq!(pair.heard(), [enlisted(job)]);
        pair
    }

    pub(super) fn say(&mut self, word: Word) {
        self.link.send(Parcel::Word(word)).unwrap();
    }

    pub(super) fn heard(&mut self) -> Vec<Word> {
        heard(&mut self.link)
    }

    pub(super) fn enlist(&mut self, job: &str) {
        let word = enlist(&self.plan, job);
        self.say(word);
    }

    /// Lets the lead work until nothing moves.
    pub(super) fn tend(&mut self) -> Result<(), ReplicaError> {
        loop {
            self.lead.tend()?;
            if !self.lead.moved() {
                return Ok(());
            }
        }
    }

    /// One sequence for the helper to compute, of a step.
    pub(super) fn assist(&self, ticket: u64, pass: Pass, step: u64) -> Assist {
        let rows = self.plan.rows(self.model.shape.vocab);
        let entry = JobEntry {
            slot: 0,
            prompt_tokens: 0,
            prefix_tokens: 0,
            first_block: 0,
            first_sequence: 0,
            last: false,
            step,
            trained_tokens: rows[0].trained() as u64,
        };
        let mut batch = Batch::default();
        batch.push(entry, &[&rows[0]]);
        let shard = Shard {
            blocks: batch.jobs[0].blocks.len() as u64,
            idle: false,
        };
        let goal = StepGoal {
            slot: 0,
            step,
            learning_rate: 1e-2,
            keep: false,
            shard: Some(shard),
        };
        let goal = (pass == Pass::Train).then_some(goal);
        Assist {
            job: name("job"),
            ticket,
            pass,
            chain: vec![batch],
            goal,
        }
    }

    pub(super) fn ask(&mut self, assist: Assist) {
        self.say(Word::Assist(Box::new(assist)));
    }

    /// Trains the job on a replica of its own over the same store: its last state.
    pub(super) fn trained(&self) -> StateManifest {
        let mut replica = Manner::new(1, 100).start(&self.model, &self.store);
        admit(replica.lead(), &self.plan, &self.model, &self.store);
        while !replica.lead().is_idle() {
            replica.lead().round().unwrap();
        }
        replica.lead().drain().unwrap();
        replica.close().unwrap();
        let found = stored(&self.store, &self.plan, &self.model);
        found.recovered.unwrap().manifest
    }

    /// The job, its steps shared with the test.
    pub(super) fn shared(&self) -> Admission {
        let start = begin(&self.store, &self.plan, &self.model);
        Admission {
            replicas: vec![HOME, HELPER],
            ..admission(&self.plan, &self.model, start)
        }
    }
}

pub(super) fn name(job: &str) -> JobName {
    JobName::new(job).unwrap()
}

pub(super) fn heard(link: &mut local::LocalLink) -> Vec<Word> {
    let mut words = Vec::new();
    while let Some(parcel) = link.receive().unwrap() {
        if let Parcel::Word(word) = parcel {
            words.push(word);
        }
    }
    words
}

pub(super) fn enlist(plan: &Plan, job: &str) -> Word {
    Word::Enlist(Box::new(Attach {
        slot: 0,
        job: name(job),
        spec: serde_json::to_string(&plan.spec).unwrap(),
        source: Source::Fresh {
            init_tokens: Vec::new(),
        },
        replicas: vec![HOME, HELPER],
    }))
}

pub(super) fn enlisted(job: &str) -> Word {
    let (job, outcome) = (name(job), Ok(()));
    Word::Enlisted { job, outcome }
}

/// Micro-batches whose outcome was told.
pub(super) fn found(words: &[Word]) -> Vec<u64> {
    let ticket = |word: &Word| match word {
        Word::Found { ticket, .. } => Some(*ticket),
        _ => None,
    };
    words.iter().filter_map(ticket).collect()
}

pub(super) fn text(prompt: &[u32]) -> TextRequest<'_> {
    TextRequest {
        job: None,
        prompt,
        sampling: Sampling {
            temperature: 1.0,
            seed: 3,
            ..Sampling::default()
        },
        limit: 4,
        stops: &[],
    }
}
