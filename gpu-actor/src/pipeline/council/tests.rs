//! Councils of one to eight stages in any interleaving of their messages.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

fn broken(piece: usize) -> Broken {
    Broken {
        piece: Some(piece),
        what: format!("new value of p{piece}"),
    }
}

/// A stage's report: its own piece.
fn report(stage: usize) -> Report {
    Report {
        squares: vec![(stage, stage as f64)],
        ..Report::default()
    }
}

/// Links carry what is said in order; a stage does what its council says at once or later.
struct World {
    councils: Vec<Council>,
    /// To each stage: from the one before and from the one behind.
    inboxes: Vec<[VecDeque<(Matter, Heard)>; 2]>,
    /// Gradients not yet complete, and trials not yet made, by stage.
    own: Vec<Vec<Matter>>,
    trials: Vec<Vec<Matter>>,
    agreements: Vec<BTreeMap<Matter, Agreement>>,
    closed: Vec<BTreeMap<Matter, Verdict>>,
    against: BTreeMap<(usize, Matter), Broken>,
}

impl World {
    fn new(stages: usize, matters: &[Matter], against: BTreeMap<(usize, Matter), Broken>) -> Self {
        let place = |stage| Place { stage, stages };
        Self {
            councils: (0..stages).map(|s| Council::new(place(s))).collect(),
            inboxes: (0..stages).map(|_| Default::default()).collect(),
            own: vec![matters.to_vec(); stages],
            trials: vec![Vec::new(); stages],
            agreements: vec![BTreeMap::new(); stages],
            closed: vec![BTreeMap::new(); stages],
            against,
        }
    }

    fn hear(&mut self, stage: usize, matter: Matter, heard: Heard) {
        for act in self.councils[stage].hear(matter, heard).unwrap() {
            match act {
                Act::Report(all) => self.send(stage - 1, 1, matter, Heard::Behind(all)),
                Act::Settle(agreement) => {
                    self.agreements[stage].insert(matter, agreement);
                    self.trials[stage].push(matter);
                }
                Act::Agreement(agreement, votes) => {
                    self.send(stage + 1, 0, matter, Heard::Agreement(agreement, votes));
                }
                Act::Verdict(verdict) => self.send(stage - 1, 1, matter, Heard::Verdict(verdict)),
                Act::Close(verdict) => {
                    let before = self.closed[stage].insert(matter, verdict);
                    assert_eq!(before, None, "MT-1: closed twice");
                }
            }
        }
    }

    fn send(&mut self, stage: usize, side: usize, matter: Matter, heard: Heard) {
        self.inboxes[stage][side].push_back((matter, heard));
    }

    /// Everything that may happen next.
    fn possible(&self) -> Vec<(usize, usize)> {
        let stages = 0..self.councils.len();
        let all = stages.flat_map(|stage| (0..4).map(move |kind| (stage, kind)));
        all.filter(|&(stage, kind)| match kind {
            0 | 1 => !self.inboxes[stage][kind].is_empty(),
            2 => !self.own[stage].is_empty(),
            _ => !self.trials[stage].is_empty(),
        })
        .collect()
    }

    fn run(&mut self, mut choice: impl FnMut() -> usize) {
        loop {
            let possible = self.possible();
            if possible.is_empty() {
                return;
            }
            let (stage, kind) = possible[choice() % possible.len()];
            match kind {
                0 | 1 => {
                    let (matter, heard) = self.inboxes[stage][kind].pop_front().unwrap();
                    self.hear(stage, matter, heard);
                }
                2 => {
                    let at = choice() % self.own[stage].len();
                    let matter = self.own[stage].remove(at);
                    self.hear(stage, matter, Heard::Own(report(stage)));
                }
                _ => {
                    let matter = self.trials[stage].remove(0);
                    let vote = self.against.get(&(stage, matter)).cloned();
                    self.hear(stage, matter, Heard::Settled(vote));
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn all_stages_close_every_matter_the_same_way(
        stages in 1..=8usize,
        matters in prop::collection::btree_set((0..4usize, 0..3u64), 1..6),
        against in prop::collection::vec(
            (0..8usize, any::<prop::sample::Index>(), 0..9usize), 0..4),
        seed in any::<u64>(),
    ) {
        let matters: Vec<Matter> = matters.into_iter().collect();
        let against: BTreeMap<_, _> = against
            .into_iter()
            .filter(|(stage, ..)| *stage < stages)
            .map(|(stage, matter, piece)| ((stage, *matter.get(&matters)), broken(piece)))
            .collect();
        let mut world = World::new(stages, &matters, against.clone());
        let mut state = seed;
        world.run(|| {
            state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
            (state >> 33) as usize
        });
        for matter in matters {
            let votes = (0..stages).filter_map(|stage| against.get(&(stage, matter)).cloned());
            let verdict = votes.min();
            let all = Agreement::of((0..stages).map(report));
            for stage in 0..stages {
                // MT-1, MT-2
                prop_assert_eq!(world.closed[stage].get(&matter), Some(&verdict));
                prop_assert_eq!(world.agreements[stage].get(&matter), Some(&all));
                prop_assert_eq!(world.councils[stage].lacks(), None);
            }
        }
    }
}

#[test]
fn what_is_not_due_is_refused_and_changes_nothing() {
    let matter = (3, 7);
    let mut middle = Council::new(Place {
        stage: 1,
        stages: 3,
    });
    for heard in [
        Heard::Verdict(None),
        Heard::Settled(None),
        Heard::Agreement(Agreement::default(), None),
    ] {
        middle.hear(matter, heard).unwrap_err();
        assert_eq!(middle.lacks(), None);
    }
    assert_eq!(middle.hear(matter, Heard::Own(report(1))), Ok(Vec::new()));
    let error = middle.hear(matter, Heard::Own(report(1))).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the own report of step 7 of slot 3 is not due: reports are missing"
    );
    let acts = middle.hear(matter, Heard::Behind(report(2))).unwrap();
    assert_eq!(acts, [Act::Report(report(1).and(report(2)))]);
    assert_eq!(middle.lacks(), Some((matter, "the agreement is missing")));
}
