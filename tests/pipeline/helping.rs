//! What a lead says to the lead of another replica, word by word, with the other one played by the test.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use gpu_actor::artifacts::keeper::StoreKeeper;
use gpu_actor::artifacts::manifest::StateManifest;
use gpu_actor::batch::{Batch, JobEntry};
use gpu_actor::link::bell::Bell;
use gpu_actor::link::word::{Assist, Attach, Pass, Shard, Source, StepGoal, Sums, Word};
use gpu_actor::link::{ChunkLink, Parcel, local};
use gpu_actor::model::Model;
use gpu_actor::pipeline::Place;
use gpu_actor::replica::error::{AdmitError, ReplicaError};
use gpu_actor::replica::event::ReplicaEvent;
use gpu_actor::replica::lead::{Admission, Lead, Start, TextRequest};
use gpu_actor::replica::seat::{LeadSettings, Ports, Seat};
use gpu_actor::replica::watch::Watch;
use gpu_actor::sample::choice::Sampling;
use gpu_actor::stage::outcome::JobOutcome;
use gpu_actor::stage::partial::{Of, PartialHead};
use gpu_actor::train::event::Event;
use kernels::cpu::Cpu;
use shared::ids::JobName;
use shared::model::Family;
use system_tests::methods;
use system_tests::plan::{Plan, plain};

use crate::run::{Manner, Store, admission, admit, fresh, store, stored};
use crate::tiny;

/// The replica that leads, and the one that helps.
const HOME: u32 = 0;
const HELPER: u32 = 1;

/// A replica of one stage, and the other one's end of the link between them.
struct Pair {
    lead: Lead,
    link: local::LocalLink,
    model: Arc<Model>,
    store: Store,
    plan: Plan,
}

impl Pair {
    /// The replica of this number; the test is the other.
    fn new(number: u32) -> Self {
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
    fn helping(job: &str) -> Self {
        let mut pair = Self::new(HELPER);
        pair.enlist(job);
        pair.tend().unwrap();
        assert_eq!(pair.heard(), [enlisted(job)]);
        pair
    }

    fn say(&mut self, word: Word) {
        self.link.send(Parcel::Word(word)).unwrap();
    }

    fn heard(&mut self) -> Vec<Word> {
        heard(&mut self.link)
    }

    fn enlist(&mut self, job: &str) {
        let word = enlist(&self.plan, job);
        self.say(word);
    }

    /// Lets the lead work until nothing moves.
    fn tend(&mut self) -> Result<(), ReplicaError> {
        loop {
            self.lead.tend()?;
            if !self.lead.moved() {
                return Ok(());
            }
        }
    }

    /// One sequence for the helper to compute, of a step.
    fn assist(&self, ticket: u64, pass: Pass, step: u64) -> Assist {
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
            batch,
            goal,
        }
    }

    fn ask(&mut self, assist: Assist) {
        self.say(Word::Assist(Box::new(assist)));
    }

    /// Trains the job on a replica of its own over the same store: its last state.
    fn trained(&self) -> StateManifest {
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
    fn shared(&self) -> Admission {
        let start = Start::State(Box::new(fresh(&self.plan, &self.model)));
        Admission {
            replicas: vec![HOME, HELPER],
            ..admission(&self.plan, &self.model, start)
        }
    }
}

fn name(job: &str) -> JobName {
    JobName::new(job).unwrap()
}

fn heard(link: &mut local::LocalLink) -> Vec<Word> {
    let mut words = Vec::new();
    while let Some(parcel) = link.receive().unwrap() {
        if let Parcel::Word(word) = parcel {
            words.push(word);
        }
    }
    words
}

fn enlist(plan: &Plan, job: &str) -> Word {
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

fn enlisted(job: &str) -> Word {
    let (job, outcome) = (name(job), Ok(()));
    Word::Enlisted { job, outcome }
}

/// Micro-batches whose outcome was told.
fn found(words: &[Word]) -> Vec<u64> {
    let ticket = |word: &Word| match word {
        Word::Found { ticket, .. } => Some(*ticket),
        _ => None,
    };
    words.iter().filter_map(ticket).collect()
}

fn text(prompt: &[u32]) -> TextRequest<'_> {
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

#[test]
fn a_helper_hears_orders_between_two_pieces_of_its_help() {
    let mut pair = Pair::helping("job");
    let all = [0, 1, 2, 3, 4, 5];
    for ticket in all {
        pair.ask(pair.assist(ticket, Pass::Evaluate, 0));
    }
    pair.lead.tend().unwrap();
    let first = found(&pair.heard());
    assert!(
        first.len() < all.len() && pair.lead.moved(),
        "it was away until all were done: {first:?}"
    );
    pair.tend().unwrap();
    assert_eq!([first, found(&pair.heard())].concat(), all);
}

#[test]
fn a_helper_that_ends_begins_nothing_more_for_others() {
    let mut pair = Pair::helping("job");
    for ticket in 0..6 {
        pair.ask(pair.assist(ticket, Pass::Evaluate, 0));
    }
    pair.lead.tend().unwrap();
    let Pair { lead, mut link, .. } = pair;
    lead.close().unwrap();
    let mut words = Vec::new();
    while let Ok(Some(parcel)) = link.receive() {
        if let Parcel::Word(word) = parcel {
            words.push(word);
        }
    }
    assert!(found(&words).len() < 6, "{words:?}");
    assert_eq!(words.last(), Some(&Word::Close));
}

#[test]
fn a_job_that_comes_again_at_once_finds_its_place() {
    let mut pair = Pair::helping("a");
    pair.enlist("b");
    pair.tend().unwrap();
    assert_eq!(pair.heard(), [enlisted("b")]);
    pair.say(Word::Dismiss { job: name("a") });
    pair.say(Word::Dismiss { job: name("b") });
    pair.enlist("b");
    pair.lead.tend().unwrap();
    assert_eq!(pair.heard(), [enlisted("b")]);
}

#[test]
fn a_text_with_a_stored_state_disturbs_no_shared_step_of_its_job() {
    let mut pair = Pair::helping("job");
    let manifest = pair.trained();
    let sums = Sums {
        job: name("job"),
        step: 0,
        heads: Vec::new(),
        losses: Default::default(),
    };
    pair.say(Word::Sums(Box::new(sums)));
    pair.tend().unwrap();
    let made = pair
        .lead
        .sample_stored(&manifest, &text(&[3, 1, 4]), |_| true);
    made.unwrap().unwrap();
    for step in 0..2 {
        pair.ask(pair.assist(step, Pass::Train, step));
        pair.tend().unwrap();
    }
    // The second is begun only when the first is closed, with the sums that came before the text.
    assert_eq!(found(&pair.heard()), [0, 1]);
}

#[test]
fn a_job_is_shared_while_a_text_is_made_with_its_stored_state() {
    let mut pair = Pair::new(HELPER);
    let manifest = pair.trained();
    let (link, plan) = (&mut pair.link, &pair.plan);
    let mut tokens = 0;
    let tell = |_| {
        if tokens == 0 {
            link.send(Parcel::Word(enlist(plan, "job"))).unwrap();
        }
        tokens += 1;
        true
    };
    let made = pair.lead.sample_stored(&manifest, &text(&[3, 1, 4]), tell);
    made.unwrap().unwrap();
    assert!(tokens > 1, "the word came within the text");
    pair.tend().unwrap();
    assert_eq!(pair.heard(), [enlisted("job")]);
}

#[test]
fn a_job_trains_alone_when_the_other_replica_will_not_share_it() {
    let mut pair = Pair::new(HOME);
    let (job, reason) = (pair.plan.spec.name.clone(), "no memory".to_owned());
    let outcome = Err(reason.clone());
    pair.say(Word::Enlisted {
        job: job.clone(),
        outcome,
    });
    let shared = pair.shared();
    assert_eq!(pair.lead.admit(shared).unwrap(), Ok((0, 4)));
    assert!(pair.lead.sharing(&job).is_empty());
    let words: Vec<&str> = pair.heard().iter().map(Word::name).collect();
    assert_eq!(words, ["enlist", "dismiss"]);
    let mut told = pair.lead.tend().unwrap();
    told.extend(pair.lead.round().unwrap());
    let refused = ReplicaEvent::NotShared {
        job,
        replica: HELPER,
        reason,
    };
    assert!(told.contains(&refused), "{told:?}");
    let step = |event: &ReplicaEvent| matches!(event, ReplicaEvent::Training(Event::Step { .. }));
    assert!(told.iter().any(step), "{told:?}");
}

#[test]
fn a_state_that_the_store_does_not_give_is_no_fault_of_the_job() {
    let mut pair = Pair::new(HOME);
    let mut manifest = pair.trained();
    for part in &mut manifest.parts {
        part.key.push_str("-gone");
    }
    let start = Start::Stored(Box::new(manifest));
    let refused = pair
        .lead
        .admit(admission(&pair.plan, &pair.model, start))
        .unwrap();
    assert!(matches!(refused, Err(AdmitError::State(_))), "{refused:?}");
}

#[test]
fn an_outcome_that_is_not_that_of_the_rows_is_refused() {
    let mut pair = Pair::new(HOME);
    pair.say(enlisted("job"));
    let shared = pair.shared();
    pair.lead.admit(shared).unwrap().unwrap();
    for ticket in 0..32 {
        let outcome = JobOutcome {
            slot: 0,
            block_losses: vec![1.0; 9],
            sequences: Vec::new(),
            correct: 0,
            bad: None,
        };
        pair.say(Word::Found { ticket, outcome });
    }
    let error = pair.lead.round().unwrap_err().to_string();
    assert!(error.contains("found"), "{error}");
}

#[test]
fn rows_that_belong_to_no_shared_step_are_refused() {
    let refused = |what: &str, change: &dyn Fn(&mut Assist)| {
        let mut pair = Pair::helping("job");
        let mut assist = pair.assist(0, Pass::Train, 0);
        change(&mut assist);
        pair.ask(assist);
        let error = pair.tend().unwrap_err().to_string();
        assert!(error.contains("assist"), "{what}: {error}");
    };
    refused("a text", &|assist| {
        assist.pass = Pass::Sample {
            text: 0,
            choose: None,
        };
        assist.goal = None;
    });
    refused("a goal of another step", &|assist| {
        assist.goal.as_mut().unwrap().step = 1;
    });
    refused("a goal of held-out rows", &|assist| {
        assist.pass = Pass::Evaluate;
    });
    refused("a step that ends here", &|assist| {
        assist.batch.jobs[0].last = true;
    });
    refused("a gradient that ends here", &|assist| {
        assist.batch.jobs[0].closes = true;
    });
    refused("a chunk of a sequence", &|assist| {
        assist.batch.cut = Some(64_000);
    });
    let mut pair = Pair::helping("job");
    for ticket in 0..2 {
        pair.ask(pair.assist(ticket, Pass::Train, 0));
    }
    let error = pair.tend().unwrap_err().to_string();
    assert!(error.contains("assist"), "the same blocks twice: {error}");
}

#[test]
fn sums_that_cannot_be_of_the_step_are_refused_before_their_values_come() {
    let head = |start, len| PartialHead {
        of: Of::Parameters,
        start,
        first: 0,
        level: 0,
        len,
    };
    let cases = [
        (0, vec![head(0, 1 << 40)], "larger than the job"),
        (0, vec![head(usize::MAX, 2)], "larger than the job"),
        (0, vec![head(0, 1); 1 << 16], "larger than the job"),
        (7, Vec::new(), "of another step"),
    ];
    for (step, heads, why) in cases {
        let mut pair = Pair::helping("job");
        let sums = Sums {
            job: name("job"),
            step,
            heads,
            losses: Default::default(),
        };
        pair.say(Word::Sums(Box::new(sums)));
        let error = pair.tend().unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn held_out_rows_of_another_replica_do_not_keep_steps_from_being_taken_back() {
    let mut pair = Pair::helping("job");
    let mut own = plain("own", methods::every().remove(0));
    own.lengths = (0..8).map(|row| 5 + row).collect();
    own.spec.train.steps = Some(3);
    own.spec.train.accumulation = 4;
    admit(&mut pair.lead, &own, &pair.model, &pair.store);
    pair.ask(pair.assist(0, Pass::Evaluate, 0));
    pair.lead.round().unwrap();
    pair.lead.drain().unwrap();
    // The second step was begun behind the first.
    assert_eq!(pair.lead.progress(&own.spec.name).unwrap().0.step, 2);
    pair.tend().unwrap();
    assert_eq!(found(&pair.heard()), [0]);
}
