//! Sequences that pass in chunks, beside whole ones, on any pipeline.

use super::*;

/// A step, or an evaluation: of which job, how many chunks each of its sequences has, bytes of each, and whether it
/// trains.
type Step = (Slot, Vec<usize>, u64, bool);

fn planned(steps: &[Step]) -> Vec<MicroBatch> {
    let mut taken = [0; SLOTS];
    let mut list = Vec::new();
    for (slot, sequences, bytes, trains) in steps {
        for (index, &chunks) in sequences.iter().enumerate() {
            for chunk in 0..chunks {
                // The gradient is complete once the first chunk of the last sequence came back.
                let last = *trains && index + 1 == sequences.len() && chunk == 0;
                let share = Share {
                    slot: *slot,
                    step: taken[*slot],
                    last,
                };
                list.push(MicroBatch {
                    number: list.len() as u64,
                    bytes: if chunk == 0 { *bytes } else { 0 },
                    passing: bytes % 5,
                    trains: *trains,
                    shares: vec![share],
                    part: Part {
                        follows: chunk > 0,
                        goes_on: chunk + 1 < chunks,
                    },
                });
            }
        }
        taken[*slot] += u64::from(*trains);
    }
    list
}

/// The order in which micro-batches come back: sequence after sequence, the chunks of each in reverse.
fn returns(plan: &[MicroBatch]) -> Vec<u64> {
    let sequences = plan.chunk_by(|_, next| next.part.follows);
    let back = sequences.flat_map(|chunks| chunks.iter().rev());
    back.filter(|m| m.trains).map(|m| m.number).collect()
}

fn any_steps() -> impl Strategy<Value = Vec<Step>> {
    let sequences = prop::collection::vec(1..6usize, 1..4);
    let step = (0..SLOTS, sequences, 1..50u64, prop::bool::weighted(0.8));
    prop::collection::vec(step, 1..9)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn chunks_come_back_in_reverse_and_nothing_stalls_pi_6(
        steps in any_steps(),
        stages in 1..=8usize,
        budget in 0..200u64,
        (forward, backward, message, jitter) in (1..9u64, 1..9u64, 0..20u64, 0..40u64),
    ) {
        let plan = planned(&steps);
        let mut world = World::new(stages, budget, Ticks { forward, backward, message }, jitter);
        world.plan(&plan);
        world.run();
        for stage in 0..stages {
            let work = world.work_of(stage);
            let (forward, backward) = numbers(&work);
            prop_assert_eq!(&forward, &(0..plan.len() as u64).collect::<Vec<_>>(), "PI-1");
            prop_assert_eq!(&backward, &returns(&plan), "PI-1, PI-6");
            holds_invariants(&plan, &work, stages - stage, budget)?;
            prop_assert_eq!(world.stages[stage].held_bytes(), 0);
        }
    }
}

/// A sequence of m chunks fills and drains p stages as m micro-batches would that all go before any comes back: with one
/// forward and one backward pass each, (m + p - 1) of both.
#[test]
fn the_bubble_of_a_cut_sequence_is_that_of_as_many_micro_batches() {
    let ticks = Ticks {
        forward: 10,
        backward: 20,
        message: 0,
    };
    for (stages, chunks) in [(1, 1), (1, 5), (2, 3), (4, 2), (4, 16)] {
        let mut world = World::new(stages, u64::MAX, ticks, 0);
        world.plan(&planned(&[(0, vec![chunks], 1, true)]));
        world.run();
        let total = (chunks + stages - 1) as u64 * 30;
        assert_eq!(world.now, total, "{stages} stages, {chunks} chunks");
    }
}

/// On the first stage, while the chunks of one sequence are behind, the next sequence goes forward.
#[test]
fn another_sequence_fills_the_time_until_the_first_comes_back() {
    let ticks = Ticks {
        forward: 10,
        backward: 20,
        message: 0,
    };
    let time = |steps: &[Step]| {
        let mut world = World::new(2, u64::MAX, ticks, 0);
        world.plan(&planned(steps));
        world.run();
        world.now
    };
    let alone = time(&[(0, vec![3], 1, true)]);
    let both = time(&[(0, vec![3], 1, true), (1, vec![3], 1, true)]);
    assert!(both < 2 * alone, "{both} ticks, one alone {alone}");
}

#[test]
fn chunks_out_of_place_are_refused() {
    let place = Place {
        stage: 0,
        stages: 1,
    };
    let mut stage = Pipeline::new(place, 100);
    let plan = planned(&[(0, vec![3, 1], 1, true)]);
    let again = |number, at: usize| {
        Event::Planned(MicroBatch {
            number,
            ..plan[at].clone()
        })
    };
    // A second chunk without the first, and a whole sequence or held-out chunk behind a first.
    assert!(stage.step(again(0, 1)).is_err());
    stage.step(again(0, 0)).unwrap();
    for wrong in [
        again(1, 3),
        Event::Planned(MicroBatch {
            trains: false,
            ..plan[1].clone()
        }),
    ] {
        assert!(stage.step(wrong).is_err());
    }
    stage.step(again(1, 1)).unwrap();
}
