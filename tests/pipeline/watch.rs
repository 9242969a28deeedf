//! Who looks is told every piece of device work, by the clock that was given.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use gpu_actor::artifacts::keeper::StoreKeeper;
use gpu_actor::link::bell::Bell;
use gpu_actor::link::{ChunkLink, local};
use gpu_actor::pipeline::Place;
use gpu_actor::replica::follower::Follower;
use gpu_actor::replica::lead::Lead;
use gpu_actor::replica::seat::{LeadSettings, Ports, Seat};
use gpu_actor::replica::watch::{Deed, Observer, Span, Watch};
use kernels::cpu::Cpu;
use shared::model::Family;
use shared::units::Micros;
use system_tests::methods;
use system_tests::plan::plain;

use crate::run::{Store, admission, begin, store};
use crate::tiny;

#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<Span>>>);

impl Observer for Notes {
    fn worked(&mut self, span: Span) {
        self.0.lock().unwrap().push(span);
    }
}

fn ports(
    links: [Option<Box<dyn ChunkLink>>; 2],
    store: &Store,
    bell: &Bell,
    watch: Watch,
) -> Ports {
    Ports {
        links,
        peers: BTreeMap::new(),
        bell: bell.clone(),
        keeper: Box::new(StoreKeeper::start(Arc::clone(store), bell.clone()).unwrap()),
        store: Arc::clone(store),
        watch,
    }
}

#[test]
fn every_piece_of_device_work_is_told() {
    let model = tiny::model(Family::Llama, true);
    let mut plan = plain("job", methods::every().remove(0));
    plan.spec.eval.every_steps = Some(2);
    plan.spec.checkpoint.every_steps = Some(0);
    let (notes, ticks) = (Notes::default(), AtomicU64::new(0));
    let now = move || Micros(ticks.fetch_add(1, Ordering::Relaxed));
    let watch = Watch::new(Box::new(notes.clone()), Arc::new(now));
    let store = store();
    let ports = ports([None, None], &store, &Bell::default(), watch);
    let place = Place {
        stage: 0,
        stages: 1,
    };
    let settings = LeadSettings::new(1000);
    let cpu = Cpu::new(1).unwrap();
    let mut lead = Lead::new(model.clone(), cpu, Seat::new(place, 1), ports, settings);
    let start = begin(&store, &plan, &model);
    lead.admit(admission(&plan, &model, start))
        .unwrap()
        .unwrap();
    while !lead.is_idle() {
        lead.round().unwrap();
    }
    lead.drain().unwrap();
    let spans = notes.0.lock().unwrap().clone();
    let count = |deed| spans.iter().filter(|span| span.deed == deed).count();
    let counts = [
        Deed::Forward,
        Deed::Backward,
        Deed::Apply,
        Deed::Evaluate,
        Deed::Keep,
    ]
    .map(count);
    assert_eq!(counts, [4, 4, 4, 3, 1], "{spans:?}");
    let mut at = Micros(0);
    for span in &spans {
        assert!(at <= span.start && span.start < span.end, "{span:?}");
        assert_eq!(span.jobs[0].0, plan.spec.name);
        at = span.end;
    }
}

/// A job's next round begins while another's is under way: the pipeline is not drained between rounds.
#[test]
fn rounds_overlap_as_each_job_waits_for_its_own_step_only() {
    let model = tiny::model(Family::Llama, true);
    let (notes, store) = (Notes::default(), store());
    let bells = [Bell::default(), Bell::default()];
    let [first, second] = local::pair(2, [&bells[0], &bells[1]]);
    let cpu = Cpu::new(2).unwrap();
    let seat = |stage| Seat::new(Place { stage, stages: 2 }, 1);
    let behind = ports(
        [Some(Box::new(second)), None],
        &store,
        &bells[1],
        Watch::default(),
    );
    let follower = Follower::new(Arc::new(model.slice(3..5)), cpu.clone(), seat(1), behind);
    let follower = std::thread::spawn(move || follower.run(&AtomicBool::new(false)));
    let watch = Watch::new(Box::new(notes.clone()), Arc::new(|| Micros(0)));
    let before = ports([None, Some(Box::new(first))], &store, &bells[0], watch);
    let part = Arc::new(model.slice(0..3));
    let mut lead = Lead::new(part, cpu, seat(0), before, LeadSettings::new(1));
    for job in 0..6 {
        let plan = plain(&format!("job-{job}"), methods::every().remove(0));
        let start = begin(&store, &plan, &model);
        lead.admit(admission(&plan, &model, start))
            .unwrap()
            .unwrap();
    }
    while !lead.is_idle() {
        lead.round().unwrap();
    }
    lead.drain().unwrap();
    lead.close().unwrap();
    follower.join().unwrap().unwrap();
    let spans = notes.0.lock().unwrap().clone();
    let overlaps = (0..3).filter(|&step| {
        let of = |deed, step| {
            move |span: &Span| span.deed == deed && span.jobs.iter().any(|job| job.1 == step)
        };
        let next = spans.iter().position(of(Deed::Forward, step + 1));
        next < spans.iter().rposition(of(Deed::Backward, step))
    });
    assert!(overlaps.count() > 0, "{spans:?}");
}
