//! Whole clusters in virtual time: a thousand seeds of faults, each invariant looked at after everything that happens.
//!
//! A failure prints its seed; `cargo run -p simulator -- SEED trace` tells all that happened in it.

use simulator::{Arranged, Report, run};

/// Seeds of every run of the gate.
const SEEDS: u64 = 1_000;

/// All that goes wrong.
const FAULTS: [&str; 15] = [
    "break",
    "crash",
    "cut-node",
    "cut-peers",
    "doom",
    "drain",
    "halt",
    "halt-leader",
    "hang",
    "leave",
    "migrate",
    "risk",
    "rival",
    "store",
    "wall",
];

/// Runs seeds on two threads, and returns the reports in order.
fn reports(seeds: std::ops::Range<u64>) -> Vec<Report> {
    let middle = u64::midpoint(seeds.start, seeds.end);
    let (first, second) = (seeds.start..middle, middle..seeds.end);
    std::thread::scope(|scope| {
        let second = scope.spawn(|| second.map(run).collect::<Vec<_>>());
        let mut all: Vec<Report> = first.map(run).collect();
        all.extend(second.join().expect("the other half ends"));
        all
    })
}

fn sum_of(reports: &[Report], which: usize) -> u64 {
    reports.iter().map(|report| report.troubles[which]).sum()
}

fn sum_of_arranged(reports: &[Report], of: fn(&Arranged) -> u64) -> u64 {
    reports.iter().map(|report| of(&report.arranged)).sum()
}

#[test]
fn every_invariant_holds_under_a_thousand_histories_of_faults() {
    let reports = reports(0..SEEDS);
    let bad: Vec<String> = reports
        .iter()
        .filter(|report| !report.violations.is_empty())
        .map(|report| format!("seed {}: {:?}", report.seed, report.violations))
        .collect();
    assert!(
        bad.is_empty(),
        "{} of {SEEDS} failed:\n{}",
        bad.len(),
        bad.join("\n")
    );
    // A world where nothing goes wrong proves nothing.
    let sum = |of: fn(&Report) -> u64| reports.iter().map(of).sum::<u64>();
    let recoveries = sum(|report| u64::from(report.recoveries));
    let plans = sum(|report| report.plans);
    let [succeeded, cancelled, failed] = [0, 1, 2].map(|end| {
        let ends = reports.iter().map(|report| u64::from(report.ends[end]));
        ends.sum::<u64>()
    });
    assert!(recoveries > SEEDS / 5, "{recoveries} recoveries");
    assert!(plans > SEEDS * 3 / 2, "{plans} plans");
    assert!(succeeded > SEEDS, "{succeeded} adapters");
    let troubles = [0, 1, 2, 3].map(|which| sum_of(&reports, which));
    assert!(
        troubles.iter().all(|count| *count > SEEDS / 250),
        "left, hung, not durable, refused for want of a store: {troubles:?}"
    );
    // Every kind of fault is met in so many runs.
    for kind in FAULTS {
        let met = reports
            .iter()
            .filter(|report| report.faults.contains_key(kind));
        let met = met.count() as u64;
        assert!(met > SEEDS / 10, "{kind}: {met} of {SEEDS} runs met it");
    }
    let kinds = reports.iter().flat_map(|report| report.faults.keys());
    let unknown: Vec<_> = kinds.filter(|kind| !FAULTS.contains(kind)).collect();
    assert!(unknown.is_empty(), "no floor for {unknown:?}");
    let hastened = reports.iter().filter(|report| report.hastened > 0).count() as u64;
    assert!(
        hastened > SEEDS / 10,
        "{hastened} runs stored often for a risk"
    );
    let arranged = |of: fn(&Arranged) -> u64| sum_of_arranged(&reports, of);
    let told = arranged(|arranged| arranged.told);
    assert!(told > SEEDS / 2, "{told} arrangements were told");
    let stale = arranged(|arranged| arranged.stale);
    assert!(stale > 0, "{stale} answers came too late");
    let rounds = arranged(|arranged| arranged.rounds);
    assert!(rounds > SEEDS, "{rounds} rounds as arranged");
    let looks = arranged(|arranged| arranged.looks);
    assert!(looks > 0, "{looks} looks at what was told");
    assert!(
        cancelled > 0 && failed > 0,
        "{cancelled} cancelled, {failed} failed"
    );
}

#[test]
fn the_same_seed_is_the_same_history() {
    for seed in [3, 71, 100, 895] {
        let first = run(seed);
        assert_eq!(first, run(seed), "seed {seed}");
        assert_eq!(first, simulator::trace(seed).0, "seed {seed}, told");
    }
    assert_ne!(run(1).log, run(2).log, "the hash says what happened");
}
