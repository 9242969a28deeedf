//! What a lead says to the lead of another replica, word by word, with the other one played by the test.

mod pair;

use gpu_actor::link::word::{Assist, Pass, Sums, Word};
use gpu_actor::link::{ChunkLink, Parcel};
use gpu_actor::replica::error::AdmitError;
use gpu_actor::replica::event::ReplicaEvent;
use gpu_actor::replica::lead::Start;
use gpu_actor::stage::outcome::JobOutcome;
use gpu_actor::stage::partial::{Of, PartialHead};
use gpu_actor::train::event::Event;
use system_tests::methods;
use system_tests::plan::plain;

use crate::run::{admission, admit};

use self::pair::{HELPER, HOME, Pair, enlist, enlisted, found, name, text};

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
        assist.chain[0].jobs[0].last = true;
    });
    refused("a gradient that ends here", &|assist| {
        assist.chain[0].jobs[0].closes = true;
    });
    refused("a chunk of a sequence", &|assist| {
        assist.chain[0].cut = Some(64_000);
    });
    refused("no rows", &|assist| assist.chain.clear());
    refused("rows of two jobs", &|assist| {
        let job = assist.chain[0].jobs[0].clone();
        assist.chain[0].jobs.push(job);
    });
    refused("two batches that are no chunks", &|assist| {
        let again = assist.chain[0].clone();
        assist.chain.push(again);
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
