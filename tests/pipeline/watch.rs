//! Who looks is told every piece of device work, by the clock that was given.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use gpu_actor::artifacts::keeper::StoreKeeper;
use gpu_actor::link::bell::Bell;
use gpu_actor::pipeline::Place;
use gpu_actor::replica::lead::{Lead, Start};
use gpu_actor::replica::seat::{LeadSettings, Ports, Seat};
use gpu_actor::replica::watch::{Deed, Observer, Span, Watch};
use kernels::cpu::Cpu;
use shared::model::Family;
use shared::units::Micros;
use system_tests::methods;
use system_tests::plan::plain;

use crate::run::{admission, fresh, store};
use crate::tiny;

#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<Span>>>);

impl Observer for Notes {
    fn worked(&mut self, span: Span) {
        self.0.lock().unwrap().push(span);
    }
}

#[test]
fn every_piece_of_device_work_is_told() {
    let model = tiny::model(Family::Llama, true);
    let mut plan = plain("job", methods::every().remove(0));
    plan.spec.eval.every_steps = Some(2);
    let (notes, ticks) = (Notes::default(), AtomicU64::new(0));
    let now = move || Micros(ticks.fetch_add(1, Ordering::Relaxed));
    let (store, bell) = (store(), Bell::default());
    let ports = Ports {
        links: [None, None],
        bell: bell.clone(),
        keeper: Box::new(StoreKeeper::start(Arc::clone(&store), bell).unwrap()),
        store,
        watch: Watch::new(Box::new(notes.clone()), Arc::new(now)),
    };
    let place = Place {
        stage: 0,
        stages: 1,
    };
    let settings = LeadSettings::new(1000);
    let cpu = Cpu::new(1).unwrap();
    let mut lead = Lead::new(model.clone(), cpu, Seat::new(place, 1), ports, settings);
    let start = Start::State(Box::new(fresh(&plan, &model)));
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
