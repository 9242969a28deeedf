//! How full a pipeline is: its bubble, company that fills a wait, and passes that go ahead.

use super::*;

#[test]
fn the_bubble_is_that_of_the_formula() {
    // Narayanan and others 2021: of m micro-batches on p stages, (p - 1) / (m + p - 1) of the time is idle.
    for (stages, count) in [(1, 1), (2, 1), (2, 8), (4, 4), (4, 16), (8, 3)] {
        let plan = micro_batches(&[(0, count, 1)]);
        let ticks = Ticks {
            forward: 10,
            backward: 20,
            message: 0,
        };
        let mut world = World::new(stages, u64::MAX, ticks, 0);
        world.plan(&plan);
        world.run();
        let total = (count + stages - 1) as u64 * 30;
        assert_eq!(world.now, total, "{stages} stages, {count} micro-batches");
        assert!(world.busy.iter().all(|&busy| busy == count as u64 * 30));
    }
}

#[test]
fn other_jobs_fill_the_time_in_which_one_waits_for_its_step() {
    let ticks = Ticks {
        forward: 10,
        backward: 20,
        message: 0,
    };
    let time = |lengths: &[(usize, usize, u64)]| {
        let mut world = World::new(4, u64::MAX, ticks, 0);
        world.plan(&micro_batches(lengths));
        world.run();
        world.now
    };
    let alone = time(&[(0, 4, 1), (0, 4, 1), (0, 4, 1)]);
    let turns = time(&[
        (0, 4, 1),
        (1, 4, 1),
        (0, 4, 1),
        (1, 4, 1),
        (0, 4, 1),
        (1, 4, 1),
    ]);
    assert_eq!(alone, 3 * 7 * 30);
    // One fill and drain in all, not one a step.
    assert_eq!(turns, (24 + 3) * 30);
}

/// Jobs whose steps have so many micro-batches of such a size; the longest first, as the template has them.
fn sized(jobs: &[(u64, usize)]) -> (Vec<MicroBatch>, Vec<u64>) {
    let mut jobs = jobs.to_vec();
    jobs.sort_unstable_by_key(|(size, _)| Reverse(*size));
    let lengths: Vec<(usize, usize, u64)> = (0..)
        .zip(&jobs)
        .map(|(slot, (size, count))| (slot, *count, *size))
        .collect();
    let sizes = jobs.iter().flat_map(|(size, count)| vec![*size; *count]);
    (micro_batches(&lengths), sizes.collect())
}

/// Runs them on equal stages that may hold so many; what the last stage waited once it had begun, and the most bytes held
/// by each stage.
fn idle(jobs: &[(u64, usize)], ahead: &[usize], (budget, message): (u64, u64)) -> (u64, Vec<u64>) {
    let (plan, sizes) = sized(jobs);
    let ticks = Ticks {
        forward: 1,
        backward: 1,
        message,
    };
    let mut world = World::new(ahead.len(), budget, ticks, 0);
    world.sizes = sizes;
    for (stage, most) in ahead.iter().enumerate() {
        world.tell(stage, Event::Ahead(*most));
    }
    world.plan(&plan);
    world.run();
    let (begun, ended) = world.last.expect("there is work");
    let held = |stage: usize| {
        let (mut held, mut most) = (0, 0);
        for work in world.work_of(stage) {
            match work {
                Work::Forward(number) => held += plan[number as usize].bytes,
                Work::Backward(number) => held -= plan[number as usize].bytes,
                Work::Apply(..) => {}
            }
            most = held.max(most);
        }
        most
    };
    let busy = world.busy.last().copied().unwrap_or(0);
    (ended - begun - busy, (0..ahead.len()).map(held).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Theorem 2 of the paper's appendix, for stages that take what has arrived.
    #[test]
    fn with_memory_the_last_stage_never_waits_once_it_has_begun(
        jobs in prop::collection::vec((1..60u64, 1..7usize), 1..=SLOTS),
        stages in 1..=6usize,
    ) {
        let all = jobs.iter().map(|(_, count)| count).sum::<usize>();
        let (waited, _) = idle(&jobs, &vec![all; stages], (u64::MAX, 0));
        prop_assert_eq!(waited, 0);
    }

    /// A number of passes that each fit a room together fits it, without a look at bytes.
    #[test]
    fn passes_ahead_by_the_memory_model_hold_its_room(
        jobs in prop::collection::vec((1..60u64, 1..7usize), 1..=SLOTS),
        rooms in prop::collection::vec(1..400u64, 1..=6),
        message in 0..30u64,
    ) {
        let largest = jobs.iter().map(|(size, _)| *size).max().unwrap_or(1);
        // As `bytes` of a micro-batch, with what passes besides left to the budget.
        let ahead: Vec<usize> = rooms.iter().map(|room| (room / largest).max(1) as usize).collect();
        let (_, held) = idle(&jobs, &ahead, (u64::MAX, message));
        for (held, room) in held.into_iter().zip(rooms) {
            prop_assert!(held <= room.max(largest), "{held} bytes in {room}");
        }
    }
}

#[test]
fn passes_ahead_keep_the_last_stage_busy_where_1f1b_lets_it_wait() {
    // Unlike micro-batches: behind long ones the short ones come too late.
    let unlike = [(40, 2), (1, 6), (1, 6), (1, 6)];
    assert!(idle(&unlike, &[3, 2, 1], (u64::MAX, 0)).0 > 0);
    assert_eq!(idle(&unlike, &[20, 20, 1], (u64::MAX, 0)).0, 0);
    // A long way between stages.
    let alike = [(2, 6), (2, 6), (2, 6), (2, 6)];
    assert!(idle(&alike, &[2, 1], (u64::MAX, 10)).0 > 0);
    assert_eq!(idle(&alike, &[24, 1], (u64::MAX, 10)).0, 0);
    // The budget of bytes holds all the same.
    let (waited, held) = idle(&alike, &[24, 1], (9, 10));
    assert!(waited > 0 && held.iter().all(|held| *held <= 9), "{held:?}");
}
