//! What cannot go on says why: lost parcels, neighbours that are gone, words that do not fit.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use data::rows::TokenRow;
use gpu_actor::artifacts::keeper::StoreKeeper;
use gpu_actor::link::bell::Bell;
use gpu_actor::link::word::{Pass, Planned, Word};
use gpu_actor::link::{ChunkLink, LinkError, Parcel, local};
use gpu_actor::pipeline::Place;
use gpu_actor::replica::error::{ReplicaError, Side};
use gpu_actor::replica::follower::{Ended, Follower};
use gpu_actor::replica::lead::{Lead, Start};
use gpu_actor::replica::local::LocalReplica;
use gpu_actor::replica::local::LocalSettings;
use gpu_actor::replica::seat::{LeadSettings, Ports, Seat};
use gpu_actor::replica::watch::Watch;
use gpu_actor::sample::generator::BARE;
use gpu_actor::train::pack::{self, Cut, Request, Size};
use kernels::cpu::Cpu;
use shared::model::Family;
use system_tests::methods;
use system_tests::plan::plain;

use crate::run::{admission, store};
use crate::tiny;

/// A link that loses some parcels on their way out.
struct Lossy<F> {
    link: local::LocalLink,
    loses: F,
}

impl<F: FnMut(&Parcel) -> bool + Send> ChunkLink for Lossy<F> {
    fn credit(&self) -> usize {
        self.link.credit()
    }

    fn send(&mut self, parcel: Parcel) -> Result<(), LinkError> {
        if (self.loses)(&parcel) {
            return Ok(());
        }
        self.link.send(parcel)
    }

    fn receive(&mut self) -> Result<Option<Parcel>, LinkError> {
        self.link.receive()
    }

    fn close(&mut self) {
        self.link.close();
    }
}

fn ports(
    before: Option<Box<dyn ChunkLink>>,
    behind: Option<Box<dyn ChunkLink>>,
    bell: &Bell,
) -> Ports {
    let store = store();
    let keeper = StoreKeeper::start(Arc::clone(&store), bell.clone()).unwrap();
    Ports {
        links: [before, behind],
        peers: BTreeMap::new(),
        bell: bell.clone(),
        keeper: Box::new(keeper),
        store,
        watch: Watch::default(),
    }
}

fn seat(stage: usize, patience: Duration) -> Seat {
    Seat {
        patience,
        ..Seat::new(Place { stage, stages: 2 }, 1)
    }
}

/// A job on two stages whose links lose parcels: what the lead and the follower say.
fn lost(
    forth: impl FnMut(&Parcel) -> bool + Send + 'static,
    back: impl FnMut(&Parcel) -> bool + Send + 'static,
) -> [ReplicaError; 2] {
    let model = tiny::model(Family::Llama, true);
    let cpu = Cpu::new(1).unwrap();
    let bells = [Bell::default(), Bell::default()];
    let [first, second] = local::pair(2, [&bells[0], &bells[1]]);
    let first = Lossy {
        link: first,
        loses: forth,
    };
    let second = Lossy {
        link: second,
        loses: back,
    };
    let part = Arc::new(model.slice(2..5));
    // The follower is less patient, so it speaks for itself.
    let patience = Duration::from_secs(2);
    let follower = Follower::new(
        part,
        cpu.clone(),
        seat(1, patience),
        ports(Some(Box::new(second)), None, &bells[1]),
    );
    let follower = std::thread::spawn(move || follower.run(&AtomicBool::new(false)));
    let mut lead = Lead::new(
        Arc::new(model.slice(0..2)),
        cpu,
        seat(0, patience * 3),
        ports(None, Some(Box::new(first)), &bells[0]),
        LeadSettings::new(1000),
    );
    let plan = plain("job", methods::every().remove(0));
    let init_tokens = Vec::new();
    let start = Start::Fresh { init_tokens };
    lead.admit(admission(&plan, &model, start))
        .unwrap()
        .unwrap();
    let error = loop {
        if let Err(error) = lead.round() {
            break error;
        }
    };
    drop(lead);
    [error, follower.join().unwrap().unwrap_err()]
}

#[test]
fn a_lost_parcel_is_named_by_the_stage_that_lacks_it() {
    let chunk = |number: u64| move |parcel: &Parcel| matches!(parcel, Parcel::Chunk(c) if c.header.micro_batch == number);
    let word = |name: &'static str| move |parcel: &Parcel| matches!(parcel, Parcel::Word(word) if word.name() == name);
    let none = |_: &Parcel| false;
    let [lead, follower] = lost(chunk(1), none);
    assert_eq!(
        follower.to_string(),
        "stage 1 stalled: it waits for the activation of micro-batch 1"
    );
    let gone = matches!(
        lead,
        ReplicaError::Link {
            stage: 0,
            side: Side::Behind,
            ..
        }
    );
    assert!(gone, "{lead}");
    let [_, follower] = lost(word("agreement"), none);
    let told = follower.to_string();
    assert!(
        told.starts_with("stage 1 stalled")
            && told.ends_with("step 0 of slot 0: the agreement is missing"),
        "{told}"
    );
    let [lead, _] = lost(none, chunk(1));
    assert!(lead.to_string().starts_with("stage 0"), "{lead}");
    // A chunk whose plan was lost is none of the plan.
    let [_, follower] = lost(word("plan"), none);
    assert!(
        matches!(follower, ReplicaError::Chunk { stage: 1, .. }),
        "{follower}"
    );
}

/// Its neighbour is there and does nothing: a lead that is told to end does not wait as long as for one that works.
#[test]
fn a_lead_that_is_told_to_end_waits_for_no_neighbour() {
    let model = tiny::model(Family::Llama, true);
    let bells = [Bell::default(), Bell::default()];
    let [first, second] = local::pair(2, [&bells[0], &bells[1]]);
    let hours = Duration::from_secs(36_000);
    let mut lead = Lead::new(
        Arc::new(model.slice(0..2)),
        Cpu::new(1).unwrap(),
        seat(0, hours),
        ports(None, Some(Box::new(first)), &bells[0]),
        LeadSettings::new(1000),
    );
    let stop = Arc::new(AtomicBool::new(false));
    lead.heed(Arc::clone(&stop));
    let plan = plain("job", methods::every().remove(0));
    let init_tokens = Vec::new();
    let job = admission(&plan, &model, Start::Fresh { init_tokens });
    let ender = std::thread::spawn(move || {
        stop.store(true, Ordering::Release);
        bells[0].ring();
    });
    let error = lead.admit(job).unwrap_err();
    assert!(
        matches!(error, ReplicaError::Stopped { stage: 0 }),
        "{error}"
    );
    ender.join().unwrap();
    drop(second);
}

#[test]
fn more_stages_than_layers_are_refused() {
    let model = tiny::model(Family::Llama, true);
    for stages in [0, tiny::LAYERS + 1] {
        let (cpu, settings) = (Cpu::new(1).unwrap(), LocalSettings::new(100));
        let error = LocalReplica::start(&model, &cpu, stages, &store(), &settings).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("for 5 layers") && error.contains("1 to 5"),
            "{error}"
        );
    }
}

/// Ends of a link of which one belongs to a follower of two stages.
fn alone() -> (local::LocalLink, Follower, Bell) {
    let model = tiny::model(Family::Llama, true);
    let bells = [Bell::default(), Bell::default()];
    let [first, second] = local::pair(2, [&bells[0], &bells[1]]);
    let follower = Follower::new(
        Arc::new(model.slice(2..5)),
        Cpu::new(1).unwrap(),
        seat(1, Duration::from_secs(60)),
        ports(Some(Box::new(second)), None, &bells[1]),
    );
    (first, follower, bells[0].clone())
}

#[test]
fn a_follower_ends_when_it_is_told_or_its_neighbour_is_gone() {
    let go = AtomicBool::new(false);
    let (mut link, follower, _) = alone();
    link.send(Parcel::Word(Word::Close)).unwrap();
    assert_eq!(follower.run(&go).unwrap(), Ended::Closed);
    let (_link, follower, _) = alone();
    assert_eq!(
        follower.run(&AtomicBool::new(true)).unwrap(),
        Ended::Stopped
    );
    let (link, follower, _) = alone();
    drop(link);
    let error = follower.run(&go).unwrap_err();
    let gone = matches!(
        error,
        ReplicaError::Link {
            stage: 1,
            side: Side::Before,
            ..
        }
    );
    assert!(gone, "{error}");
    for word in [
        Word::Keep { slot: 0, step: 1 },
        Word::Attached { slot: 0 },
        Word::Report {
            matter: (0, 0),
            report: Default::default(),
        },
    ] {
        let (mut link, follower, _) = alone();
        let name = word.name();
        link.send(Parcel::Word(word)).unwrap();
        let error = follower.run(&go).unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
    }
}

/// The keys and values that a sequence carries are its own, however long the other is.
#[test]
fn a_chunk_of_another_sequence_of_the_same_length_is_refused() {
    let row = TokenRow::new(vec![3; 100], vec![3; 100]);
    let request = Request {
        slot: BARE,
        prompt_tokens: 0,
        prefix_tokens: 0,
        step: 0,
        rows: vec![&row],
        part: None,
    };
    let size = Size {
        budget: 64,
        chunk: 64,
        cut: Cut::Anywhere,
    };
    let chunks = pack::cut_passes(&[request], size);
    let refusal = |number: u32| {
        let (mut link, follower, _bell) = alone();
        for (at, mut batch) in (0..).zip(chunks.clone()) {
            if at == 1 {
                batch.sequences[0].number = number;
            }
            let planned = Planned {
                number: at,
                pass: Pass::Evaluate,
                batch,
                goals: Vec::new(),
            };
            link.send(Parcel::Word(Word::Plan(Box::new(planned))))
                .unwrap();
        }
        drop(link);
        follower
            .run(&AtomicBool::new(false))
            .unwrap_err()
            .to_string()
    };
    let other = refusal(1);
    assert!(
        other.contains("not the chunk behind the one before"),
        "{other}"
    );
    let own = refusal(0);
    assert!(!own.contains("not the chunk"), "{own}");
}
