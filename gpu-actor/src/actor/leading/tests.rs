//! A lead among orders, texts and a store that does not take what it is given, or does not answer.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::VecDeque;
use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Condvar, Mutex};

use data::rows::TokenRow;
use kernels::cpu::Cpu;
use shared::artifact::{BlockingStore, Store};
use shared::ids::NodeName;
use shared::model::Family;
use shared::units::Micros;
use shared::wire::order::{JobOrder, SampleOrder};

use super::again::{STORE_PATIENCE, WAITS};
use super::texts::{MOST, TOKENS_A_ROUND};
use super::*;
use crate::artifacts::ArtifactError;
use crate::artifacts::keeper::StoreKeeper;
use crate::artifacts::stored::SharedStore;
use crate::link::bell::Bell;
use crate::model::tiny::{TinySpec, write_tiny};
use crate::model::{Model, OpenOptions};
use crate::pipeline::Place;
use crate::replica::seat::{LeadSettings, Ports, Seat};
use crate::replica::watch::Watch;
use crate::train::event::Event as Training;
use crate::train::seal;

mod aside;
mod coming;
mod giants;

const JOB: JobId = JobId(1);
/// Steps of the job: its rows are one batch, twice.
const STEPS: u64 = 2;
const PATIENCE: Duration = Duration::from_secs(60);

/// The order to end all steps, for which no machine goes.
fn drain(toward: u64) -> Command {
    let toward = PlanEpoch(toward);
    Command::Drain {
        toward,
        soon: false,
    }
}

/// The same, and a machine may go before they end.
fn hasty_drain(toward: u64) -> Command {
    let toward = PlanEpoch(toward);
    Command::Drain { toward, soon: true }
}

/// A store that does not answer for keys that start like this.
#[derive(Debug)]
struct Gated {
    inner: SharedStore,
    shut: Mutex<Option<String>>,
    opened: Condvar,
}

impl Gated {
    fn shut(&self, keys: &str) {
        *self.shut.lock().unwrap() = Some(keys.to_owned());
    }

    fn open(&self) {
        *self.shut.lock().unwrap() = None;
        self.opened.notify_all();
    }

    fn pass(&self, key: &str) -> &SharedStore {
        let shut = self.shut.lock().unwrap();
        let closed = |shut: &mut Option<String>| {
            let keys = shut.as_ref();
            keys.is_some_and(|keys| key.starts_with(keys.as_str()))
        };
        drop(self.opened.wait_while(shut, closed).unwrap());
        &self.inner
    }
}

impl Artifacts for Gated {
    fn get(&self, key: &str) -> Result<Vec<u8>, ArtifactError> {
        self.pass(key).get(key)
    }
    fn put(&self, key: &str, bytes: &[u8]) -> Result<(), ArtifactError> {
        self.pass(key).put(key, bytes)
    }
    fn create(&self, key: &str, bytes: &[u8]) -> Result<bool, ArtifactError> {
        self.pass(key).create(key, bytes)
    }
    fn list(&self, prefix: &str) -> Result<Vec<String>, ArtifactError> {
        self.pass(prefix).list(prefix)
    }
    fn delete(&self, key: &str) -> Result<(), ArtifactError> {
        self.pass(key).delete(key)
    }
}

/// A lead of one stage, everything around it, and what it told.
struct Office {
    folder: tempfile::TempDir,
    around: Surroundings,
    lead: Option<Lead>,
    now: Arc<AtomicU64>,
    store: Arc<Gated>,
    told: Arc<Mutex<VecDeque<Event>>>,
}

impl Office {
    fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let spec = TinySpec {
            hidden: 32,
            layers: 2,
            heads: 4,
            kv_heads: 2,
            head_dim: 8,
            intermediate: 64,
            ..TinySpec::smallest(Family::Llama)
        };
        let path = folder.path().join("model");
        write_tiny(&path, &spec).unwrap();
        let cpu = Cpu::new(1).unwrap();
        let model = Arc::new(Model::open(&path, &OpenOptions::new(cpu.clone())).unwrap());
        let address = folder.path().join("store").display().to_string();
        let store = Store::open(&address, &BTreeMap::new()).unwrap();
        let store = Arc::new(Gated {
            inner: SharedStore::new(BlockingStore::new(store).unwrap()),
            shut: Mutex::default(),
            opened: Condvar::new(),
        });
        let artifacts = Arc::clone(&store) as Arc<dyn Artifacts>;
        let bell = Bell::default();
        let ports = Ports {
            links: [None, None],
            peers: BTreeMap::new(),
            keeper: Box::new(StoreKeeper::start(Arc::clone(&artifacts), bell.clone()).unwrap()),
            bell,
            store: artifacts,
            watch: Watch::default(),
        };
        let seat = Seat::new(
            Place {
                stage: 0,
                stages: 1,
            },
            1,
        );
        let shape = Arc::new(model.shape.clone());
        let lead = Lead::new(model, cpu, seat, ports, LeadSettings::new(1000));
        let now = Arc::new(AtomicU64::new(0));
        let told: Arc<Mutex<VecDeque<Event>>> = Arc::default();
        let (time, heard) = (Arc::clone(&now), Arc::clone(&told));
        let around = Surroundings {
            epoch: PlanEpoch(1),
            term: Term(1),
            store: Arc::clone(&store) as Arc<dyn Artifacts>,
            backbone: "ab".into(),
            products: Products::F32,
            base: "tiny".into(),
            shape,
            clock: Arc::new(move || Micros(time.load(Ordering::Acquire))),
            traces: Traces::new(NodeName::new("n1").unwrap(), 1, Arc::new(|| Micros(0))),
            meters: Meters::new(Micros(0)),
            report: Arc::new(move |event| heard.lock().unwrap().push_back(event)),
        };
        Self {
            folder,
            around,
            lead: Some(lead),
            now,
            store,
            told,
        }
    }

    /// The order for a job whose rows are in the store.
    fn order(&self) -> JobOrder {
        self.long_order(JOB, STEPS, "rows")
    }

    /// The order for a job of so many steps, whose rows are under this key.
    fn long_order(&self, job: JobId, steps: u64, key: &str) -> JobOrder {
        self.order_of(job, steps, key, &[4])
    }

    /// The same with steps of rows of these lengths.
    fn order_of(&self, job: JobId, steps: u64, key: &str, lengths: &[usize]) -> JobOrder {
        let token = |at: usize| 1 + (at % 4) as u32;
        let row = |length: &usize| -> Vec<u32> { (0..*length).map(token).collect() };
        let rows = lengths.iter().map(row);
        let rows = rows.map(|ids| {
            let labels = ids.iter().map(|id| *id as i32).collect();
            TokenRow::new(ids, labels)
        });
        let rows: Vec<TokenRow> = rows.collect();
        let rows = data::packed::pack(&rows, &[]);
        self.store.inner.put(key, &rows).unwrap();
        let mut spec: shared::job::JobSpec = serde_json::from_str(
            r#"{"name":"one","adapter":{"method":"lora","rank":2},"data":{"train":"d.jsonl"},
                "train":{"batch_size":1},"checkpoint":{"every_steps":0}}"#,
        )
        .unwrap();
        spec.train.steps = Some(steps);
        spec.train.batch_size = lengths.len();
        JobOrder {
            job,
            spec: serde_json::to_string(&spec).unwrap(),
            rows: key.into(),
            rows_sha256: seal::hash(&rows),
            init_from: None,
            init_tokens: Vec::new(),
            paused: false,
            trace: String::new(),
            replicas: Vec::new(),
        }
    }

    /// A file where the store would have a folder: nothing can be put under it.
    fn block(&self, key: &str) {
        let path = self.path(key);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, b"").unwrap();
    }

    fn unblock(&self, key: &str) {
        fs::remove_file(self.path(key)).unwrap();
    }

    fn path(&self, key: &str) -> std::path::PathBuf {
        Path::new(self.folder.path()).join("store").join(key)
    }

    fn pass(&self, time: Micros) {
        self.now.fetch_add(time.0, Ordering::AcqRel);
    }

    fn told(&self, what: impl Fn(&JobNotice) -> bool) -> bool {
        self.count(|event| matches!(event, Event::Job(.., notice) if what(notice))) > 0
    }

    fn count(&self, what: impl Fn(&Event) -> bool) -> usize {
        let told = self.told.lock().unwrap();
        told.iter().filter(|event| what(event)).count()
    }

    /// How drains ended so far.
    fn drained(&self) -> Vec<Result<(), String>> {
        let told = self.told.lock().unwrap();
        let drained = told.iter().filter_map(|event| match event {
            Event::Drained(_, outcome) => Some(outcome.clone()),
            _ => None,
        });
        drained.collect()
    }
}

/// Takes turns until something is so.
fn turn_until(leading: &mut Leading<'_>, what: &str, is_so: impl Fn() -> bool) {
    let bell = leading.lead.bell();
    for _ in 0..1000 {
        let heard = bell.heard();
        let rests = leading.turn().unwrap();
        if is_so() {
            return;
        }
        if rests && !leading.lead.moved() {
            assert!(bell.wait(heard, PATIENCE), "{what}: nothing rang");
        }
    }
    panic!("{what}: not within a thousand turns");
}

/// Orders a job, and waits until it is here.
fn admit(office: &Office, leading: &mut Leading<'_>, order: JobOrder) {
    let job = name(order.job);
    leading.obey(Command::Admit(vec![order])).unwrap();
    let bell = leading.lead.bell();
    loop {
        let heard = bell.heard();
        leading.land().unwrap();
        if leading.lead.progress(&job).is_some() {
            break;
        }
        assert!(bell.wait(heard, PATIENCE), "the job does not come");
    }
    assert!(office.told(|notice| matches!(notice, JobNotice::Admitted { .. })));
}

fn sample(number: u64, job: Option<JobId>, tokens: u32) -> Command {
    Command::Sample(SampleOrder {
        number,
        job,
        prompt: vec![1, 2, 3],
        max_tokens: tokens,
        temperature: 0.0,
        top_p: 1.0,
        top_k: 0,
        seed: 1,
        stops: Vec::new(),
    })
}

fn is_step(event: &Event) -> bool {
    matches!(event, Event::Job(.., JobNotice::Step { .. }))
}

fn is_piece(event: &Event) -> bool {
    matches!(event, Event::Piece(..))
}

/// Works until something of this kind was told.
fn until(
    leading: &mut Leading<'_>,
    seen: &mut Vec<ReplicaEvent>,
    what: &str,
    is_it: impl Fn(&ReplicaEvent) -> bool,
) {
    let bell = leading.lead.bell();
    for _ in 0..100 {
        let heard = bell.heard();
        let events = if leading.lead.is_idle() {
            leading.lead.tend().unwrap()
        } else {
            leading.lead.round().unwrap()
        };
        seen.extend(events.iter().cloned());
        leading.tell(events).unwrap();
        if seen.iter().any(&is_it) {
            return;
        }
        if leading.lead.is_idle() {
            assert!(bell.wait(heard, PATIENCE), "{what}: nothing rang");
        }
    }
    panic!("{what}: not within a hundred looks");
}

#[test]
fn a_state_and_an_adapter_that_could_not_be_stored_are_stored_again() {
    let mut office = Office::open();
    let lead = office.lead.take().unwrap();
    let own = name(JOB);
    let state = format!("jobs/{own}/step-{STEPS:08}");
    let adapter = format!("jobs/{own}/adapter");
    office.block(&state);
    office.block(&adapter);
    let mut leading = Leading::new(lead, &office.around);
    admit(&office, &mut leading, office.order());
    let mut seen = Vec::new();
    until(&mut leading, &mut seen, "the last step", |event| {
        matches!(event, ReplicaEvent::Training(Training::Finished { .. }))
    });
    until(&mut leading, &mut seen, "the store refuses", |event| {
        matches!(event, ReplicaEvent::NotDurable { step: STEPS, .. })
    });
    assert_ne!(leading.lead.durable(&own), Some(STEPS));
    office.unblock(&state);
    for _ in 0..100 {
        office.pass(WAITS.most);
        let bell = leading.lead.bell();
        let heard = bell.heard();
        leading.try_again().unwrap();
        let events = leading.lead.tend().unwrap();
        leading.tell(events).unwrap();
        if leading.lead.durable(&own) == Some(STEPS) {
            break;
        }
        assert!(bell.wait(heard, PATIENCE), "nothing is being stored");
    }
    assert!(office.told(|notice| matches!(notice, JobNotice::Durable { step: STEPS, .. })));

    // Neither is the adapter.
    let (hand_on, handed) = channel();
    let exported = std::mem::replace(&mut leading.inside.exported, handed);
    let failed: Exported = exported.recv_timeout(PATIENCE).unwrap();
    assert!(failed.outcome.is_err(), "{failed:?}");
    hand_on.send(failed).unwrap();
    leading.note_exported().unwrap();
    office.unblock(&adapter);
    leading.try_again().unwrap();
    assert!(leading.done.is_empty(), "not at once");
    office.pass(WAITS.most);
    leading.try_again().unwrap();
    hand_on
        .send(exported.recv_timeout(PATIENCE).unwrap())
        .unwrap();
    leading.note_exported().unwrap();
    assert!(office.told(|notice| matches!(notice, JobNotice::Exported { .. })));
    assert!(leading.ending.is_empty());
}

#[test]
fn a_drain_is_told_with_the_reason_when_a_state_is_not_durable_and_again_when_it_is() {
    let mut office = Office::open();
    let lead = office.lead.take().unwrap();
    let state = format!("jobs/{}/step-00000000", name(JOB));
    office.block(&state);
    let mut leading = Leading::new(lead, &office.around);
    admit(&office, &mut leading, office.order());
    leading.obey(drain(2)).unwrap();
    turn_until(&mut leading, "the store refuses", || {
        !office.drained().is_empty()
    });
    let why = office.drained()[0].clone().unwrap_err();
    assert!(why.starts_with("step 0 of j1: "), "{why}");
    leading.try_again().unwrap();
    assert_eq!(office.drained().len(), 1);
    office.unblock(&state);
    office.pass(WAITS.most);
    turn_until(&mut leading, "it is stored", || office.drained().len() == 2);
    assert_eq!(office.drained()[1], Ok(()));
    assert_eq!(leading.lead.durable(&name(JOB)), Some(0));
    // A move that was called off: nothing is stored again for it.
    leading.obey(Command::Undrain).unwrap();
    office.pass(WAITS.most);
    leading.try_again().unwrap();
    assert_eq!(office.drained().len(), 2);
}

#[test]
fn a_store_that_does_not_answer_is_told_in_time_and_orders_are_heard_meanwhile() {
    let mut office = Office::open();
    let lead = office.lead.take().unwrap();
    let mut leading = Leading::new(lead, &office.around);
    admit(&office, &mut leading, office.long_order(JOB, 50, "rows"));
    office.store.shut("jobs/");
    leading.obey(drain(2)).unwrap();
    leading.turn().unwrap();
    // Called off, and ordered once more.
    leading.obey(Command::Undrain).unwrap();
    turn_until(&mut leading, "it trains", || office.count(is_step) > 0);
    leading.obey(drain(3)).unwrap();
    leading.turn().unwrap();
    assert_eq!(office.drained().len(), 0, "the store may yet answer");
    while leading.lead.is_settling() {
        leading.turn().unwrap();
    }
    office.pass(STORE_PATIENCE);
    leading.turn().unwrap();
    let why = office.drained()[0].clone().unwrap_err();
    assert!(why.contains("the store has not answered"), "{why}");
    office.store.open();
    office.pass(WAITS.most);
    turn_until(&mut leading, "it is stored", || office.drained().len() == 2);
    assert_eq!(office.drained()[1], Ok(()));
}

#[test]
fn tx_2_rounds_are_taken_between_the_tokens_of_a_text_that_they_do_not_change() {
    let mut office = Office::open();
    let lead = office.lead.take().unwrap();
    let mut leading = Leading::new(lead, &office.around);
    admit(&office, &mut leading, office.long_order(JOB, 500, "rows"));
    let tokens = 4 * TOKENS_A_ROUND;
    leading.obey(sample(1, None, tokens)).unwrap();
    assert_eq!(office.count(is_piece), 0, "no order waits for a text");
    let ended = |event: &Event| *event == Event::SampleEnded(1, Ok(()));
    turn_until(&mut leading, "the text ends", || office.count(ended) == 1);
    assert_eq!(office.count(is_piece), tokens as usize);
    assert!(office.count(is_step) >= 3, "{}", office.count(is_step));
}

#[test]
fn tx_a_text_of_a_job_that_trains_holds_rounds_back_and_no_orders() {
    let mut office = Office::open();
    let lead = office.lead.take().unwrap();
    let mut leading = Leading::new(lead, &office.around);
    admit(&office, &mut leading, office.long_order(JOB, 500, "rows"));
    for number in 1..=3 {
        leading.obey(sample(number, Some(JOB), 40)).unwrap();
    }
    turn_until(&mut leading, "it is begun", || office.count(is_piece) > 0);
    let steps = office.count(is_step);
    turn_until(&mut leading, "a round's worth", || {
        office.count(is_piece) > TOKENS_A_ROUND as usize
    });
    assert_eq!(office.count(is_step), steps);
    let ended = |event: &Event| matches!(event, Event::SampleEnded(_, Ok(())));
    turn_until(&mut leading, "the second is begun", || {
        office.count(is_piece) > 40
    });
    // TX-2: forty tokens are three rounds.
    assert_eq!(office.count(ended), 1);
    assert!(office.count(is_step) >= steps + 3);
    // An order is heard in the middle of a text, which goes on behind it.
    leading.obey(drain(2)).unwrap();
    assert!(leading.draining.is_some() || !office.drained().is_empty());
    assert_eq!(office.count(ended), 1);
    turn_until(&mut leading, "it is drained", || {
        !office.drained().is_empty()
    });
    assert_eq!(office.drained(), [Ok(())]);
    turn_until(&mut leading, "the last text ends", || {
        office.count(ended) == 3
    });
}

#[test]
fn tx_1_no_token_is_made_of_a_text_that_nobody_waits_for() {
    let mut office = Office::open();
    let lead = office.lead.take().unwrap();
    let mut leading = Leading::new(lead, &office.around);
    let begun =
        |number: u64| move |event: &Event| matches!(event, Event::Piece(of, _) if *of == number);
    for number in 1..=3 {
        leading.obey(sample(number, None, 40)).unwrap();
    }
    turn_until(&mut leading, "the first is begun", || {
        office.count(begun(1)) > 0
    });
    let made = office.count(begun(1));
    for number in [1, 2, 7] {
        leading.obey(Command::EndSample(number)).unwrap();
    }
    let ended = |event: &Event| *event == Event::SampleEnded(3, Ok(()));
    turn_until(&mut leading, "the last ends", || office.count(ended) == 1);
    assert_eq!((office.count(begun(1)), office.count(begun(2))), (made, 0));
    assert_eq!(office.count(begun(3)), 40);
    // One that is looked for meanwhile is not begun either.
    office.store.shut("jobs/");
    leading.obey(sample(4, Some(JOB), 9)).unwrap();
    leading.obey(Command::EndSample(4)).unwrap();
    office.store.open();
    let searched = leading.inside.searched.recv_timeout(PATIENCE).unwrap();
    leading.host(searched.order, Ok(Vec::new()));
    assert!(!leading.texts.are_under_way());
    let answered = |event: &Event| matches!(event, Event::SampleEnded(number, _) if *number != 3);
    assert_eq!(office.count(answered), 0);
}

#[test]
fn tx_1_what_is_asked_too_much_or_too_late_is_answered() {
    let mut office = Office::open();
    let lead = office.lead.take().unwrap();
    let most = MOST as u64;
    let (orders, commands) = channel();
    let mut leading = Leading::new(lead, &office.around);
    for number in 1..=most + 1 {
        leading.obey(sample(number, None, 9)).unwrap();
    }
    let refused = |event: &Event| matches!(event, Event::SampleEnded(_, Err(_)));
    assert_eq!(office.count(refused), 1);
    drop(leading);
    office.told.lock().unwrap().clear();
    let mut other = Office::open();
    orders.send(sample(1, None, 9)).unwrap();
    let stop = AtomicBool::new(true);
    run(
        other.lead.take().unwrap(),
        &other.around,
        &commands,
        &Arc::new(stop),
    )
    .unwrap();
    assert_eq!(other.count(refused), 1);
}
