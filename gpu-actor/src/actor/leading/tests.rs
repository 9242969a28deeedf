//! The end of a job whose store does not take what it is given.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::VecDeque;
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

use data::rows::TokenRow;
use kernels::cpu::Cpu;
use shared::artifact::{BlockingStore, Store};
use shared::ids::NodeName;
use shared::model::Family;
use shared::units::Micros;

use super::again::WAITS;
use super::*;
use crate::artifacts::keeper::StoreKeeper;
use crate::link::bell::Bell;
use crate::model::tiny::{TinySpec, write_tiny};
use crate::model::{Model, OpenOptions};
use crate::pipeline::Place;
use crate::replica::seat::{LeadSettings, Ports, Seat};
use crate::replica::watch::Watch;
use crate::train::event::Event as Training;
use crate::train::seal;

const JOB: JobId = JobId(1);
/// Steps of the job: its rows are one batch, twice.
const STEPS: u64 = 2;
const PATIENCE: Duration = Duration::from_secs(60);

/// A lead of one stage, everything around it, and what it told.
struct Office {
    folder: tempfile::TempDir,
    around: Surroundings,
    lead: Option<Lead>,
    now: Arc<AtomicU64>,
    told: Arc<Mutex<VecDeque<JobNotice>>>,
    drained: Arc<Mutex<Vec<Result<(), String>>>>,
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
        let store = Arc::new(SharedStore::new(BlockingStore::new(store).unwrap()));
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
        let told: Arc<Mutex<VecDeque<JobNotice>>> = Arc::default();
        let drained: Arc<Mutex<Vec<Result<(), String>>>> = Arc::default();
        let (time, heard) = (Arc::clone(&now), Arc::clone(&told));
        let ended = Arc::clone(&drained);
        let around = Surroundings {
            epoch: PlanEpoch(1),
            store,
            backbone: "ab".into(),
            products: Products::F32,
            base: "tiny".into(),
            shape,
            clock: Arc::new(move || Micros(time.load(Ordering::Acquire))),
            traces: Traces::new(NodeName::new("n1").unwrap(), 1, Arc::new(|| Micros(0))),
            meters: Meters::new(Micros(0)),
            report: Arc::new(move |event| match event {
                Event::Job(_, _, _, notice) => heard.lock().unwrap().push_back(notice),
                Event::Drained(_, outcome) => ended.lock().unwrap().push(outcome),
                _ => {}
            }),
        };
        Self {
            folder,
            around,
            lead: Some(lead),
            now,
            told,
            drained,
        }
    }

    /// The order for a job whose rows are in the store.
    fn order(&self) -> JobOrder {
        let row = TokenRow::new(vec![1, 2, 3, 4], vec![1, 2, 3, 4]);
        let rows = data::packed::pack(&[row], &[]);
        self.around.store.put("rows", &rows).unwrap();
        let spec: shared::job::JobSpec = serde_json::from_str(
            r#"{"name":"one","adapter":{"method":"lora","rank":2},"data":{"train":"d.jsonl"},
                "train":{"epochs":2,"batch_size":1}}"#,
        )
        .unwrap();
        JobOrder {
            job: JOB,
            spec: serde_json::to_string(&spec).unwrap(),
            rows: "rows".into(),
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
        self.told.lock().unwrap().iter().any(what)
    }
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
    let ((exports, exported), (searches, _found)) = (channel(), channel());
    let own = name(JOB);
    let state = format!("jobs/{own}/step-{STEPS:08}");
    let adapter = format!("jobs/{own}/adapter");
    office.block(&state);
    office.block(&adapter);
    let mut leading = Leading::new(lead, &office.around, exports, searches);
    leading.obey(Command::Admit(vec![office.order()])).unwrap();
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
    let failed: Exported = exported.recv_timeout(PATIENCE).unwrap();
    assert!(failed.outcome.is_err(), "{failed:?}");
    hand_on.send(failed).unwrap();
    leading.note_exported(&handed).unwrap();
    office.unblock(&adapter);
    leading.try_again().unwrap();
    assert!(leading.done.is_empty(), "not at once");
    office.pass(WAITS.most);
    leading.try_again().unwrap();
    hand_on
        .send(exported.recv_timeout(PATIENCE).unwrap())
        .unwrap();
    leading.note_exported(&handed).unwrap();
    assert!(office.told(|notice| matches!(notice, JobNotice::Exported { .. })));
    assert!(leading.ending.is_empty());
}

#[test]
fn a_drain_is_told_with_the_reason_when_a_state_is_not_durable_and_again_when_it_is() {
    let mut office = Office::open();
    let lead = office.lead.take().unwrap();
    let ((exports, _exported), (searches, _found)) = (channel(), channel());
    let state = format!("jobs/{}/step-00000000", name(JOB));
    office.block(&state);
    let mut leading = Leading::new(lead, &office.around, exports, searches);
    leading.obey(Command::Admit(vec![office.order()])).unwrap();
    leading.obey(Command::Drain(PlanEpoch(2))).unwrap();
    let told = |count: usize| {
        let drained = office.drained.lock().unwrap();
        assert_eq!(drained.len(), count, "{drained:?}");
        drained[count - 1].clone()
    };
    let why = told(1).unwrap_err();
    assert!(why.starts_with("step 0 of j1: "), "{why}");
    leading.try_again().unwrap();
    told(1).unwrap_err();
    office.unblock(&state);
    office.pass(WAITS.most);
    leading.try_again().unwrap();
    assert_eq!(told(2), Ok(()));
    assert_eq!(leading.lead.durable(&name(JOB)), Some(0));
    // A move that was called off: nothing is stored again for it.
    leading.obey(Command::Undrain).unwrap();
    office.pass(WAITS.most);
    leading.try_again().unwrap();
    assert_eq!(told(2), Ok(()));
}
