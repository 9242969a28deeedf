use proptest::prelude::*;

use super::*;
use crate::plan::order::template::{Eagerness, Rooms, template};
use crate::plan::place::{Fleet, Seat, Seats};
use crate::plan::profile::Peak;
use crate::plan::snapshot::Snapshot;
use crate::plan::testing::{llama_7b, snapshot, task};

/// A replica over all nodes, with about as many blocks on each.
fn seats(problem: &Snapshot) -> Seats {
    let (nodes, blocks) = (problem.nodes.len() as u64, problem.model.layers as u64);
    let seat = |(at, node): (u64, &shared::ids::NodeName)| Seat {
        node: node.clone(),
        first: at * blocks / nodes,
        end: (at + 1) * blocks / nodes,
    };
    (0..).zip(problem.nodes.keys()).map(seat).collect()
}

fn weighed(problem: &Snapshot) -> Option<Weighed> {
    let fleet = Fleet::new(problem).expect("profiles are here");
    let pipeline = fleet.pipeline(problem, &seats(problem))?;
    let tasks: Vec<&Task> = problem.tasks.values().collect();
    weigh(&pipeline, &tasks, &problem.options)
}

fn holds(weighed: &Weighed) -> Result<(), String> {
    let (round, without) = (weighed.plan.round, weighed.without);
    for (level, off) in [
        ("fuse", without.fuse),
        ("order", without.order),
        ("align", without.align),
    ] {
        if off.is_some_and(|off| off + off / ABOUT < round) {
            return Err(format!("{round} ns, without {level} {off:?}"));
        }
    }
    Ok(())
}

/// Lengths, batches and ranks as jobs of many users have them.
fn many(count: usize) -> Vec<Task> {
    let job = |at: usize| {
        let length = [64, 128, 256][at * 7 % 3];
        let batch = [2, 4, 8][at * 5 % 3];
        task([8, 16, 32][at % 3], &vec![length; batch])
    };
    (0..count).map(job).collect()
}

/// Passes ahead fit each stage beside what lies there; the last one holds none.
fn ahead_fits(problem: &Snapshot, plan: &Arrangement) -> Result<(), String> {
    let fleet = Fleet::new(problem).expect("profiles are here");
    let pipeline = fleet
        .pipeline(problem, &seats(problem))
        .expect("nodes are here");
    let tasks: Vec<&Task> = problem.tasks.values().collect();
    let scenes = Scenes::new(&pipeline, &tasks);
    let scene = scenes.at(plan.micro_batches);
    let fusion = scene.fusion();
    let largest_bucket = plan.buckets.iter().map(Vec::len).max().unwrap_or(1) as u64;
    for (stage, ahead) in plan.ahead.iter().enumerate() {
        let needs = |jobs: &Vec<usize>| {
            let mixes = fusion.mixes(jobs);
            let room = pipeline.room(stage, scene.resident[stage], &mixes);
            (room, pipeline.under_way(stage, &mixes))
        };
        let needs: Vec<(u64, u64)> = plan.hybrid_tasks.iter().map(needs).collect();
        let room = needs.iter().map(|need| need.0).min().unwrap_or(0);
        let largest = needs.iter().map(|need| need.1).max().unwrap_or(0);
        if *ahead == 0 || (*ahead > 1 && ahead * largest > room) {
            return Err(format!(
                "stage {stage}: {ahead} passes of {largest} in {room}"
            ));
        }
        if stage + 1 == plan.ahead.len() && *ahead > largest_bucket {
            return Err(format!("the last stage holds {ahead} passes"));
        }
    }
    Ok(())
}

#[test]
fn passes_go_further_ahead_over_a_longer_way() {
    let mut problem = snapshot(llama_7b(), &Peak::A40, 4, vec![task(8, &[512; 8])]);
    problem.options.micro_batches = Some(8);
    let near = weighed(&problem).expect("it fits").plan;
    problem.inside.latency_nanos = 200_000_000;
    let far = weighed(&problem).expect("it fits").plan;
    assert!(
        near.ahead[0] < far.ahead[0],
        "{:?} {:?}",
        near.ahead,
        far.ahead
    );
    assert!(far.ahead[0] > 4 && far.ahead[3] == 1, "{:?}", far.ahead);
}

/// As the template, with so many units beyond those of 1F1B at most.
fn at(problem: &Snapshot, plan: &Arrangement, beyond: usize) -> Template {
    let fleet = Fleet::new(problem).expect("profiles are here");
    let pipeline = fleet
        .pipeline(problem, &seats(problem))
        .expect("nodes are here");
    let tasks: Vec<&Task> = problem.tasks.values().collect();
    let scenes = Scenes::new(&pipeline, &tasks);
    let scene = scenes.at(plan.micro_batches);
    let fusion = scene.fusion();
    let clock = Clock::new(&fusion, &plan.hybrid_tasks);
    let rooms = Rooms {
        bytes: &clock.rooms,
        eagerness: Eagerness::Beyond(beyond),
    };
    let units = clock.units(&plan.buckets);
    let order = plan.template.buckets.clone();
    template(&units, order, plan.micro_batches, rooms)
}

/// Memory for passes ahead is spent only where a thousandth of the step is gained, and no number of them would gain as much more.
fn ahead_pays(problem: &Snapshot, plan: &Arrangement) -> Result<(), String> {
    let (beyond, latency) = (plan.template.beyond, plan.template.latency);
    let all = plan.template.units();
    let powers = (0..usize::BITS).map(|power| 1usize << power);
    let tried = [0].into_iter().chain(powers.take_while(|more| *more < all));
    for other in tried.chain([all]).filter(|other| *other != beyond) {
        let found = at(problem, plan, other).latency;
        if (other < beyond && found <= latency) || found < latency - latency / 1_000 {
            return Err(format!(
                "{beyond} ahead take {latency} ns, {other} take {found} ns"
            ));
        }
    }
    let none = at(problem, plan, 0).latency;
    if beyond > 0 && latency >= none - none / 1_000 {
        return Err(format!("{beyond} ahead take {latency} ns, none {none} ns"));
    }
    Ok(())
}

/// As these levels lead to, without a look at the others.
fn only(problem: &Snapshot, fuse: bool) -> Option<Arrangement> {
    let fleet = Fleet::new(problem).expect("profiles are here");
    let pipeline = fleet.pipeline(problem, &seats(problem))?;
    let tasks: Vec<&Task> = problem.tasks.values().collect();
    let levels = Levels {
        fuse,
        order: true,
        search: true,
    };
    with_levels(&pipeline, &tasks, &problem.options, levels)
}

#[test]
fn hundreds_of_jobs_on_many_stages_are_no_slower_than_without_a_level() {
    let problem = snapshot(llama_7b(), &Peak::A40, 16, many(349));
    let weighed = weighed(&problem).expect("it fits");
    holds(&weighed).expect("no ablation is faster");
    ahead_fits(&problem, &weighed.plan).expect("memory holds");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// What is computed once for all ways is what each would compute by itself.
    #[test]
    fn ways_that_share_work_come_to_the_same(
        jobs in prop::collection::vec((1u32..40, 1usize..9, 0usize..3), 1..40),
        stages in 1usize..7,
        asked in prop::option::of(1u64..40),
    ) {
        let job = |(length, batch, rank): &(u32, usize, usize)| {
            task([4, 16, 64][*rank], &vec![length * 29; *batch])
        };
        let mut problem = snapshot(llama_7b(), &Peak::A40, stages, jobs.iter().map(job).collect());
        problem.options.micro_batches = asked;
        let fleet = Fleet::new(&problem).expect("profiles are here");
        let pipeline = fleet.pipeline(&problem, &seats(&problem)).expect("nodes are here");
        let tasks: Vec<&Task> = problem.tasks.values().collect();
        let scenes = Scenes::new(&pipeline, &tasks);
        for (fuse, order) in [(true, true), (false, true), (true, false), (false, false)] {
            let levels = Levels { fuse, order, search: true };
            let shared = leveled(&scenes, &problem.options, levels);
            let own = leveled(&Scenes::new(&pipeline, &tasks), &problem.options, levels);
            prop_assert_eq!(shared, own);
        }
    }

    #[test]
    fn no_plan_is_slower_than_one_of_its_ablations(
        jobs in prop::collection::vec((1u32..40, 1usize..9, 0usize..3, any::<bool>()), 1..90),
        stages in 1usize..9,
        fast in any::<bool>(),
        switches in (any::<bool>(), any::<bool>()),
    ) {
        let jobs: Vec<Task> = jobs
            .iter()
            .map(|(length, batch, rank, odd)| {
                let mut lengths = vec![length * 29; *batch];
                if *odd {
                    lengths[0] = 17;
                }
                task([4, 16, 64][*rank], &lengths)
            })
            .collect();
        let peak = if fast { Peak::H100 } else { Peak::A40 };
        let mut problem = snapshot(llama_7b(), &peak, stages, jobs);
        (problem.options.fuse, problem.options.order) = switches;
        if let Some(weighed) = weighed(&problem) {
            prop_assert!(holds(&weighed).is_ok(), "{:?}", holds(&weighed));
            let fits = ahead_fits(&problem, &weighed.plan);
            prop_assert!(fits.is_ok(), "{fits:?}");
        }
        if let Some(plan) = only(&problem, switches.0)
            && plan.template.units() * stages <= STEPS
        {
            let pays = ahead_pays(&problem, &plan);
            prop_assert!(pays.is_ok(), "{pays:?}");
        }
    }
}
