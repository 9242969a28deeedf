//! Whole pipelines in virtual time: any stages, any micro-batches, any delays.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use proptest::prelude::*;

use super::*;

mod chunks;
mod flow;

/// Ticks of a forward pass, of a backward pass and of a message.
#[derive(Clone, Copy, Debug)]
struct Ticks {
    forward: u64,
    backward: u64,
    message: u64,
}

/// When, in which order, where, what.
type Posted = (u64, u64, usize, Box<Message>);

/// Stages that send each other messages.
struct World {
    stages: Vec<Pipeline>,
    ticks: Ticks,
    now: u64,
    queue: BinaryHeap<Reverse<Posted>>,
    sent: u64,
    /// Stages that completed a step.
    reports: BTreeMap<(Slot, u64), usize>,
    log: Vec<(usize, Work)>,
    busy: Vec<u64>,
    jitter: u64,
    /// How many times the ticks each micro-batch takes; one that is not named takes them once.
    sizes: Vec<u64>,
    /// When the last stage began, and ended its last work.
    last: Option<(u64, u64)>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Message {
    Activation(u64),
    Gradient(u64),
    Agreed(Slot, u64),
    Done,
}

impl World {
    fn new(stages: usize, budget: u64, ticks: Ticks, jitter: u64) -> Self {
        let place = |stage| Place { stage, stages };
        Self {
            stages: (0..stages)
                .map(|stage| Pipeline::new(place(stage), budget))
                .collect(),
            ticks,
            now: 0,
            queue: BinaryHeap::new(),
            sent: 0,
            reports: BTreeMap::new(),
            log: Vec::new(),
            busy: vec![0; stages],
            jitter,
            sizes: Vec::new(),
            last: None,
        }
    }

    /// A delay that differs from message to message, when there is jitter.
    fn delay(&self, ticks: u64) -> u64 {
        ticks + (self.sent.wrapping_mul(0x9E37_79B9) >> 7) % (self.jitter + 1)
    }

    fn send(&mut self, ticks: u64, stage: usize, message: Message) {
        let at = self.now + self.delay(ticks);
        self.sent += 1;
        self.queue
            .push(Reverse((at, self.sent, stage, Box::new(message))));
    }

    fn tell(&mut self, stage: usize, event: Event) {
        let before: Vec<_> = self.stages[stage].complete().collect();
        let work = self.stages[stage].step(event).unwrap();
        let after: Vec<_> = self.stages[stage].complete().collect();
        for step in after.iter().filter(|step| !before.contains(step)) {
            let reports = self.reports.entry(*step).or_default();
            *reports += 1;
            if *reports == self.stages.len() {
                for stage in 0..self.stages.len() {
                    let agreed = Message::Agreed(step.0, step.1);
                    self.send(self.ticks.message, stage, agreed);
                }
            }
        }
        if let Some(work) = work {
            self.log.push((stage, work));
            let size = |number: u64| self.sizes.get(number as usize).copied().unwrap_or(1);
            let ticks = match work {
                Work::Forward(number) => self.ticks.forward * size(number),
                Work::Backward(number) => self.ticks.backward * size(number),
                Work::Apply(..) => 0,
            };
            self.busy[stage] += ticks;
            if stage + 1 == self.stages.len() && ticks > 0 {
                let begun = self.last.map_or(self.now, |(begun, _)| begun);
                self.last = Some((begun, self.now + ticks));
            }
            self.send(ticks, stage, Message::Done);
        }
    }

    fn plan(&mut self, micro_batches: &[MicroBatch]) {
        for stage in 0..self.stages.len() {
            for slot in 0..SLOTS {
                self.tell(stage, Event::Attached(slot, 0));
            }
            for micro_batch in micro_batches {
                self.tell(stage, Event::Planned(micro_batch.clone()));
            }
        }
    }

    /// Runs until no message is left; a pipeline that stalls is told with what it lacks.
    fn run(&mut self) {
        while let Some(Reverse((at, _, stage, message))) = self.queue.pop() {
            self.now = at;
            let event = match *message {
                Message::Activation(number) => Event::Activation(number),
                Message::Gradient(number) => Event::Gradient(number),
                Message::Agreed(slot, step) => Event::Agreed(slot, step),
                Message::Done => self.deliver(stage),
            };
            self.tell(stage, event);
        }
        for (stage, pipeline) in self.stages.iter().enumerate() {
            let lack = pipeline.waits_for();
            assert!(pipeline.is_idle(), "stage {stage} waits for {lack:?}");
        }
    }

    /// The device of a stage is done: its result goes to a neighbour.
    fn deliver(&mut self, stage: usize) -> Event {
        let Lack::Device(work) = self.stages[stage].waits_for() else {
            panic!("stage {stage} was given nothing");
        };
        match work {
            Work::Forward(number) if stage + 1 < self.stages.len() => {
                self.send(self.ticks.message, stage + 1, Message::Activation(number));
            }
            Work::Backward(number) if stage > 0 => {
                self.send(self.ticks.message, stage - 1, Message::Gradient(number));
            }
            _ => {}
        }
        Event::Done
    }

    fn work_of(&self, stage: usize) -> Vec<Work> {
        let own = self.log.iter().filter(|(at, _)| *at == stage);
        own.map(|(_, work)| *work).collect()
    }
}

const SLOTS: usize = 4;

/// Micro-batches of several jobs that take turns; each step has as many as `lengths` says, and none is an evaluation.
fn micro_batches(lengths: &[(usize, usize, u64)]) -> Vec<MicroBatch> {
    let mut steps = [0; SLOTS];
    let mut list = Vec::new();
    for &(slot, count, bytes) in lengths {
        for index in 0..count.max(1) {
            let share = Share {
                slot,
                step: steps[slot],
                last: index + 1 == count,
            };
            list.push(MicroBatch {
                number: list.len() as u64,
                bytes,
                passing: 2 * bytes % 7,
                trains: count > 0,
                shares: vec![share],
                part: Part::default(),
            });
        }
        steps[slot] += u64::from(count > 0);
    }
    list
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_plan_finishes_on_any_pipeline(
        lengths in prop::collection::vec((0..SLOTS, 0..6usize, 1..50u64), 1..12),
        stages in 1..=8usize,
        budget in 0..200u64,
        (forward, backward, message, jitter) in (1..9u64, 1..9u64, 0..20u64, 0..40u64),
        // Not all stages are told how far to go ahead.
        ahead in prop::collection::vec(0..20usize, 0..8),
    ) {
        let plan = micro_batches(&lengths);
        let mut world = World::new(stages, budget, Ticks { forward, backward, message }, jitter);
        for (stage, most) in ahead.iter().take(stages).enumerate() {
            world.tell(stage, Event::Ahead(*most));
        }
        world.plan(&plan);
        world.run();
        for stage in 0..stages {
            let work = world.work_of(stage);
            let count = plan.len() as u64;
            // PI-1
            let (forward, backward) = numbers(&work);
            prop_assert_eq!(&forward, &(0..count).collect::<Vec<_>>());
            let trained = plan.iter().filter(|m| m.trains).map(|m| m.number);
            prop_assert_eq!(&backward, &trained.collect::<Vec<_>>());
            let steps = lengths.iter().filter(|(_, count, _)| *count > 0).count();
            prop_assert_eq!(work.iter().filter(|w| matches!(w, Work::Apply(..))).count(), steps);
            let most = ahead.get(stage).map_or(stages - stage, |most| (*most).max(1));
            holds_invariants(&plan, &work, most, budget)?;
        }
    }
}

/// The micro-batches that went forward and that came back, in order.
fn numbers(work: &[Work]) -> (Vec<u64>, Vec<u64>) {
    let (mut forward, mut backward) = (Vec::new(), Vec::new());
    for work in work {
        match work {
            Work::Forward(number) => forward.push(*number),
            Work::Backward(number) => backward.push(*number),
            _ => {}
        }
    }
    (forward, backward)
}

/// PI-2 to PI-6 over the work of one stage.
fn holds_invariants(
    plan: &[MicroBatch],
    work: &[Work],
    most: usize,
    budget: u64,
) -> Result<(), TestCaseError> {
    let (mut held, mut steps) = (BTreeSet::new(), [0; SLOTS]);
    for work in work {
        match *work {
            Work::Forward(number) => {
                let micro_batch = &plan[number as usize];
                for share in &micro_batch.shares {
                    prop_assert_eq!(share.step, steps[share.slot], "PI-4");
                }
                if micro_batch.trains {
                    held.insert(number);
                }
                let ones = || held.iter().map(|&number: &u64| &plan[number as usize]);
                let sequences = ones().filter(|m| !m.part.follows).count();
                let passing = ones().map(|m| m.passing).max().unwrap_or(0);
                let bytes = ones().map(|m| m.bytes).sum::<u64>() + passing;
                prop_assert!(sequences <= 1 || bytes <= budget, "PI-2");
                prop_assert!(sequences <= most, "PI-3");
            }
            Work::Backward(number) => {
                prop_assert!(held.remove(&number));
                // What follows a chunk went, and is back.
                let next = plan.get(number as usize + 1);
                if next.is_some_and(|next| next.part.follows) {
                    prop_assert!(!held.contains(&(number + 1)), "PI-6");
                }
            }
            Work::Apply(slot, step) => {
                prop_assert_eq!(step, steps[slot], "PI-5");
                let mut open = held
                    .iter()
                    .flat_map(|&number| &plan[number as usize].shares);
                prop_assert!(open.all(|share| share.slot != slot), "PI-5");
                steps[slot] += 1;
            }
        }
    }
    Ok(())
}

#[test]
fn messages_that_do_not_fit_change_nothing() {
    let place = Place {
        stage: 1,
        stages: 2,
    };
    let mut stage = Pipeline::new(place, 100);
    let plan = micro_batches(&[(0, 2, 1)]);
    stage.step(Event::Attached(0, 0)).unwrap();
    stage.step(Event::Planned(plan[0].clone())).unwrap();
    let work = stage.step(Event::Activation(0)).unwrap();
    assert_eq!(work, Some(Work::Forward(0)));
    assert_eq!(stage.step(Event::Done).unwrap(), Some(Work::Backward(0)));
    let before = format!("{stage:?}");
    for event in [
        Event::Planned(plan[0].clone()),
        Event::Activation(0),
        Event::Gradient(7),
        Event::Agreed(3, 0),
    ] {
        let refused = stage.step(event.clone()).unwrap_err();
        assert_eq!(refused.event, event);
        assert_eq!(format!("{stage:?}"), before);
    }
}

#[test]
fn a_stall_names_what_is_missing() {
    let place = Place {
        stage: 1,
        stages: 3,
    };
    let mut stage = Pipeline::new(place, 100);
    assert_eq!(stage.waits_for(), Lack::Plan);
    let plan = micro_batches(&[(0, 1, 1), (0, 1, 1)]);
    stage.step(Event::Planned(plan[0].clone())).unwrap();
    assert_eq!(stage.waits_for(), Lack::Activation(0));
    stage.step(Event::Activation(0)).unwrap();
    assert_eq!(stage.waits_for(), Lack::Adapter(0));
    let work = stage.step(Event::Attached(0, 0)).unwrap();
    assert_eq!(work, Some(Work::Forward(0)));
    assert_eq!(stage.waits_for(), Lack::Device(Work::Forward(0)));
    stage.step(Event::Done).unwrap();
    assert_eq!(stage.waits_for(), Lack::Gradient(0));
    stage.step(Event::Gradient(0)).unwrap();
    stage.step(Event::Done).unwrap();
    assert_eq!(stage.waits_for(), Lack::Agreement(0, 0));
}

/// What is made again is needed once, however many micro-batches are held: two fit where one filled the budget.
#[test]
fn a_tape_that_is_made_again_counts_once_pi_2() {
    let held = |bytes, passing| {
        let place = Place {
            stage: 0,
            stages: 3,
        };
        let mut pipeline = Pipeline::new(place, 150);
        for number in 0..3 {
            let shares = Vec::new();
            let planned = Event::Planned(MicroBatch {
                number,
                bytes,
                passing,
                trains: true,
                shares,
                part: Part::default(),
            });
            pipeline.step(planned).unwrap();
        }
        let mut held = 1;
        while let Some(Work::Forward(_)) = pipeline.step(Event::Done).unwrap() {
            held += 1;
        }
        (held, pipeline.held_bytes())
    };
    assert_eq!(held(100, 0), (1, 100));
    assert_eq!(held(30, 80), (2, 140));
    assert_eq!(held(20, 80), (3, 140));
    // A single one is let in whatever it needs.
    assert_eq!(held(200, 50), (1, 250));
}
