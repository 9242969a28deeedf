//! Clients of an actor whose journal is a file.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::sync::Arc;

use actix::{Addr, Message, System};
use data::template::Template;
use data::tokenizer::Tokenizer;
use shared::artifact::Store;
use shared::ids::EventNumber;
use shared::net::endpoint::EndpointSettings;
use shared::units::{Bytes, Micros};
use shared::wire::request::{FileRef, Reply, Request, Submission};

use super::super::settings::{BackboneFiles, Language};
use super::*;
use crate::life::placement::Stages;
use crate::settings::testing;

/// Who follows events.
#[derive(Message)]
#[rtype(result = "usize")]
struct Followers;

impl Handler<Followers> for CoordinatorActor {
    type Result = usize;

    fn handle(&mut self, _: Followers, _: &mut Self::Context) -> usize {
        self.machine.followers()
    }
}

fn settings(folder: &Path) -> CoordinatorSettings {
    let tokenizer = Tokenizer::bytes();
    let template = Template::choose(None, &tokenizer, None).unwrap();
    let language = Language {
        tokenizer,
        template,
    };
    let address = "127.0.0.1:0".parse().unwrap();
    let mut decisions = testing::settings(Stages::Fixed(1), 1, 1);
    decisions.limits.events_kept = 2;
    CoordinatorSettings {
        decisions,
        language: Arc::new(language),
        backbone: BackboneFiles {
            base: "tiny".into(),
            files: Vec::new(),
            serve_rate: Bytes(1),
        },
        endpoint: EndpointSettings::at(address),
        metrics: None,
        credential: folder.join("own.pem"),
        authority: None,
        tokens: folder.into(),
        told_to_joiners: Vec::new(),
        certificate_life: Micros::of_millis(1_000),
        store: Store::open(&folder.display().to_string(), &BTreeMap::new()).unwrap(),
        journal: folder.join("journal"),
        owner: "me".into(),
        lease: Micros::of_millis(600_000),
        largest_upload: Bytes(1),
        snapshot_every: 1_000,
        events_kept: u64::MAX,
        tick: Duration::from_secs(3_600),
        steady: Arc::new(|| Micros(1)),
        wall: Arc::new(|| Micros(1)),
    }
}

fn start(settings: CoordinatorSettings) -> Addr<CoordinatorActor> {
    let meters = Meters::new(Micros(1));
    let leadership = Leadership::take(&settings, &meters).unwrap();
    let (ending, _) = oneshot::channel();
    CoordinatorActor::new(leadership, settings, meters, Box::new(|_, _, _| {}), ending).start()
}

async fn ask(
    actor: &Addr<CoordinatorActor>,
    request: Request,
    room: usize,
) -> (Handle, mpsc::Receiver<ToClient>) {
    let (answers, inbox) = mpsc::channel(room);
    let trace = String::new();
    let question = Question::Request { trace, request };
    let handle = actor.send(Ask(question, answers)).await.unwrap();
    (handle, inbox)
}

async fn submit(actor: &Addr<CoordinatorActor>, name: &str) {
    let spec = format!(
        r#"{{"name":"{name}","adapter":{{"method":"lora","rank":2}},"data":{{"train":"d.jsonl"}}}}"#
    );
    let file = FileRef {
        path: "d.jsonl".into(),
        sha256: "00".into(),
        bytes: Bytes(1),
    };
    let files = vec![file];
    let submission = Submission { spec, files };
    let (_, mut inbox) = ask(actor, Request::Submit(submission), 1).await;
    let answer = inbox.recv().await;
    let Some(ToClient::Reply(reply, true)) = answer else {
        panic!("{answer:?}")
    };
    assert!(matches!(*reply, Reply::Job(_)), "{reply:?}");
}

fn events(follow: bool) -> Request {
    Request::Events {
        job: None,
        after: EventNumber(0),
        follow,
    }
}

#[test]
fn a_client_that_is_too_slow_is_followed_by_nobody_once_it_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path());
    System::new().block_on(async {
        let actor = start(settings);
        let (handle, mut slow) = ask(&actor, events(true), 1).await;
        while actor.send(Followers).await.unwrap() == 0 {
            slow.recv().await;
        }
        for name in ["a", "b", "c"] {
            submit(&actor, name).await;
        }
        // What found room is still said, and then nothing follows.
        while slow.recv().await.is_some() {}
        assert_eq!(actor.send(Followers).await.unwrap(), 1);
        actor.send(Gone(handle)).await.unwrap();
        assert_eq!(actor.send(Followers).await.unwrap(), 0);
    });
}

#[test]
fn events_that_only_the_journal_has_come_first_and_then_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path());
    System::new().block_on(async {
        let actor = start(settings);
        for number in 0..9 {
            submit(&actor, &format!("a{number}")).await;
        }
        let (_, mut inbox) = ask(&actor, events(false), 9).await;
        let mut numbers = Vec::new();
        let last = loop {
            match inbox.recv().await.unwrap() {
                ToClient::Reply(reply, false) => match *reply {
                    Reply::Events(events) => numbers.extend(events.iter().map(|one| one.number.0)),
                    other => panic!("{other:?}"),
                },
                ToClient::Reply(reply, true) => break *reply,
                ToClient::Tokens(tokens) => panic!("{tokens:?}"),
            }
        };
        assert_eq!(last, Reply::Done);
        let most = numbers.last().copied().unwrap();
        assert!(most >= 9, "{numbers:?}");
        assert_eq!(numbers, (1..=most).collect::<Vec<_>>());
    });
}

/// A reader that waits has room for what only the journal has, and for nothing behind it.
#[test]
fn a_slow_reader_of_the_past_is_told_its_end_once_it_reads_on() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path());
    System::new().block_on(async {
        let actor = start(settings);
        for number in 0..9 {
            submit(&actor, &format!("a{number}")).await;
        }
        let (_, mut inbox) = ask(&actor, events(false), 2).await;
        while inbox.is_empty() {
            tokio::task::yield_now().await;
        }
        // What is in memory would find no room now: it takes two places more.
        for _ in 0..99 {
            actor.send(Followers).await.unwrap();
        }
        let mut last = None;
        while let Some(told) = inbox.recv().await {
            last = Some(told);
        }
        let Some(ToClient::Reply(reply, true)) = last else {
            panic!("{last:?}")
        };
        assert_eq!(*reply, Reply::Done);
    });
}
