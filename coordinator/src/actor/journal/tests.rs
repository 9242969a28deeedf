#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::{Arc, Mutex};

use shared::ids::{NodeName, Term};
use shared::telemetry::names::COORDINATOR;
use shared::telemetry::registry::Registry;
use shared::wire::request::Reply;

use super::super::messages::ToClient;
use super::super::recall::{self, PORTION, Wanted};
use super::*;
use crate::record::Change;
use crate::store::memory::Memory;
use crate::store::{Loaded, Seen};

/// Longer than any test.
const LASTS: Micros = Micros::of_millis(600_000);

/// A journal in memory that says what it is asked, and waits with its first append until it is let.
struct Watched {
    inner: Arc<Mutex<Memory>>,
    asked: Sender<String>,
    gate: Option<Receiver<()>>,
}

impl Watched {
    fn say(&self, what: impl Into<String>) {
        self.asked.send(what.into()).unwrap();
    }
}

impl Journal for Watched {
    fn take_lease(&mut self, owner: &str, lasts: Micros) -> Result<Lease, JournalError> {
        self.inner.lock().unwrap().take_lease(owner, lasts)
    }

    fn renew(&mut self, lease: &Lease, lasts: Micros) -> Result<(), JournalError> {
        self.say("renew");
        self.inner.lock().unwrap().renew(lease, lasts)
    }

    fn give_back(&mut self, lease: &Lease) -> Result<(), JournalError> {
        self.say("give back");
        self.inner.lock().unwrap().give_back(lease)
    }

    fn append(&mut self, lease: &Lease, records: &[Record]) -> Result<(), JournalError> {
        self.say(format!("append {}", records.len()));
        if let Some(gate) = self.gate.take() {
            gate.recv().unwrap();
        }
        self.inner.lock().unwrap().append(lease, records)
    }

    fn snapshot(&mut self, lease: &Lease, book: &Book, kept: u64) -> Result<(), JournalError> {
        self.say("snapshot");
        self.inner.lock().unwrap().snapshot(lease, book, kept)
    }

    fn load(&mut self) -> Result<Loaded, JournalError> {
        self.inner.lock().unwrap().load()
    }

    fn led(&mut self) -> Result<Option<Seen>, JournalError> {
        self.inner.lock().unwrap().led()
    }

    fn take_over(
        &mut self,
        owner: &str,
        lasts: Micros,
        seen: &Seen,
    ) -> Result<Lease, JournalError> {
        self.inner.lock().unwrap().take_over(owner, lasts, seen)
    }

    fn records(&mut self, after: EventNumber, most: u32) -> Result<Vec<Record>, JournalError> {
        self.inner.lock().unwrap().records(after, most)
    }
}

struct Bench {
    memory: Arc<Mutex<Memory>>,
    asked: Receiver<String>,
    gate: Sender<()>,
    clock: Arc<Mutex<Micros>>,
    registry: Registry,
    writer: Writer,
    told: mpsc::UnboundedReceiver<Written>,
}

fn bench() -> Bench {
    let memory = Arc::new(Mutex::new(Memory::default()));
    let (say, asked) = channel();
    let (gate, gated) = channel();
    let lease = memory.lock().unwrap().take_lease("me", LASTS).unwrap();
    let clock = Arc::new(Mutex::new(Micros(0)));
    let steady = Arc::clone(&clock);
    let registry = Registry::new("test", "0", COORDINATOR);
    let held = Held {
        journal: Box::new(Watched {
            inner: Arc::clone(&memory),
            asked: say,
            gate: Some(gated),
        }),
        lease,
        lasts: LASTS,
        steady: Arc::new(move || *steady.lock().unwrap()),
        appends: registry.histogram(&shared::telemetry::names::JOURNAL_APPEND, None),
    };
    let (tell, told) = mpsc::unbounded_channel();
    Bench {
        memory,
        asked,
        gate,
        clock,
        registry,
        writer: Writer::start(held, tell).unwrap(),
        told,
    }
}

fn record(number: u64) -> Record {
    Record {
        number: EventNumber(number),
        at: Micros(number),
        change: Change::NodeJoined {
            node: NodeName::new("n1").unwrap(),
            incarnation: number,
        },
    }
}

impl Bench {
    fn told(&mut self) -> Option<Written> {
        self.told.blocking_recv()
    }
}

#[test]
fn jt_1_what_waits_together_is_appended_together_and_told_when_it_is_safe() {
    let mut bench = bench();
    bench.writer.append(1, vec![record(1)]);
    assert_eq!(bench.asked.recv().unwrap(), "append 1");
    // The first append is held up: these wait together.
    bench.writer.append(2, vec![record(2), record(3)]);
    bench.writer.append(3, Vec::new());
    bench.writer.append(4, vec![record(4)]);
    assert!(bench.told.try_recv().is_err(), "nothing is safe yet");
    bench.gate.send(()).unwrap();
    assert!(matches!(bench.told(), Some(Written::UpTo(1))));
    assert!(matches!(bench.told(), Some(Written::UpTo(4))));
    assert_eq!(bench.asked.recv().unwrap(), "append 3");
    assert_eq!(bench.memory.lock().unwrap().all().len(), 4);
    let text = bench.registry.text();
    assert!(
        text.contains("\nspotmux_journal_append_seconds_count 2\n"),
        "{text}"
    );
}

#[test]
fn jt_2_a_failure_is_told_and_nothing_more_is_written() {
    let mut bench = bench();
    bench.gate.send(()).unwrap();
    // A gap.
    bench.writer.append(1, vec![record(2)]);
    assert!(matches!(
        bench.told(),
        Some(Written::Failed(JournalError::Gap(_)))
    ));
    bench.writer.append(2, vec![record(1)]);
    assert!(bench.told().is_none(), "the thread ended");
    assert!(bench.memory.lock().unwrap().all().is_empty());
}

#[test]
fn jt_2_a_lease_that_is_lost_ends_the_writing() {
    let mut bench = bench();
    bench.gate.send(()).unwrap();
    {
        let mut memory = bench.memory.lock().unwrap();
        memory.set_clock(LASTS.plus(Micros(1)));
        let other = memory.take_lease("other", LASTS).unwrap();
        assert_eq!(other.term, Term(2));
    }
    bench.writer.append(1, vec![record(1)]);
    assert!(matches!(
        bench.told(),
        Some(Written::Failed(JournalError::Deposed { .. }))
    ));
    assert!(bench.memory.lock().unwrap().all().is_empty());
}

#[test]
fn jt_3_a_busy_journal_renews_its_lease_too() {
    let mut bench = bench();
    bench.gate.send(()).unwrap();
    bench.writer.append(1, vec![record(1)]);
    assert!(matches!(bench.told(), Some(Written::UpTo(1))));
    *bench.clock.lock().unwrap() = Micros(LASTS.0 / 3);
    bench.writer.append(2, vec![record(2)]);
    assert!(matches!(bench.told(), Some(Written::UpTo(2))));
    let mut asked: Vec<String> = (0..3).map(|_| bench.asked.recv().unwrap()).collect();
    // The clock may be looked at behind the first append or behind the second.
    asked.sort();
    assert_eq!(asked, ["append 1", "append 1", "renew"]);
}

#[test]
fn what_only_the_journal_has_is_told_in_order_and_what_cannot_be_read_is_said() {
    let mut bench = bench();
    bench.gate.send(()).unwrap();
    let last = u64::from(PORTION) + 20;
    bench.writer.append(1, (1..=last).map(record).collect());
    assert!(matches!(bench.told(), Some(Written::UpTo(1))));
    let reader = bench.writer.reader();
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.build().unwrap();
    let wanted = Wanted {
        job: None,
        after: EventNumber(4),
        until: EventNumber(last - 5),
    };
    let (client, mut heard) = mpsc::channel(9);
    assert!(runtime.block_on(recall::tell(reader.clone(), wanted, &client)));
    let mut numbers = Vec::new();
    while let Ok(ToClient::Reply(reply, false)) = heard.try_recv() {
        let Reply::Events(events) = *reply else {
            panic!("{reply:?}")
        };
        numbers.extend(events.iter().map(|event| event.number.0));
    }
    assert_eq!(numbers, (5..=last - 5).collect::<Vec<_>>());
    bench.writer.end();
    assert!(!runtime.block_on(recall::tell(reader, wanted, &client)));
    let Ok(ToClient::Reply(reply, true)) = heard.try_recv() else {
        panic!("it is said")
    };
    assert!(matches!(*reply, Reply::Refused(_)), "{reply:?}");
}

#[test]
fn jt_4_the_end_writes_what_waits_gives_the_lease_back_and_waits_for_no_reader() {
    let mut bench = bench();
    bench.gate.send(()).unwrap();
    let reader = bench.writer.reader();
    bench.writer.append(1, vec![record(1)]);
    bench.writer.end();
    assert!(matches!(bench.told.blocking_recv(), Some(Written::UpTo(1))));
    let mut memory = bench.memory.lock().unwrap();
    assert_eq!(memory.all().len(), 1);
    assert!(memory.take_lease("next", LASTS).is_ok());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    assert!(runtime.block_on(reader.read(EventNumber(0), 10)).is_none());
}
