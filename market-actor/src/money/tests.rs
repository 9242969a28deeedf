//! Money that adds up.

use proptest::prelude::*;

use super::*;
use crate::problem::decision::Reason;
use crate::problem::episode::tests::market;
use crate::problem::episode::{Course, filled, play};
use crate::problem::tests::trial;
use crate::problem::throughput::Throughput;

fn name(text: &str) -> JobName {
    JobName::new(text).unwrap()
}

proptest! {
    /// MONEY-1, and nobody pays more than a millionth beside the exact share.
    #[test]
    fn parts_add_up_and_are_fair(whole in any::<u64>(), weights in proptest::collection::vec(any::<u64>(), 0..20)) {
        match split(whole, &weights) {
            None => prop_assert!(weights.iter().all(|weight| *weight == 0)),
            Some(parts) => {
                let sum: u128 = parts.iter().map(|&part| u128::from(part)).sum();
                prop_assert_eq!(sum, u128::from(whole));
                let all: u128 = weights.iter().map(|&weight| u128::from(weight)).sum();
                for (part, weight) in parts.iter().zip(&weights) {
                    let floor = u128::from(whole) * u128::from(*weight) / all;
                    prop_assert!(u128::from(*part) == floor || u128::from(*part) == floor + 1);
                }
            }
        }
    }

    /// MONEY-2 over random usage.
    #[test]
    fn what_is_charged_is_what_was_paid(
        slots in proptest::collection::vec((0u64..5, 0u64..7, 0u64..1_000_003, 0u64..1_000_003), 1..30)
    ) {
        let mut ledger = Ledger::default();
        let (mut spot, mut on_demand) = (0, 0);
        for (a, b, cheap, dear) in slots {
            ledger.charge(&Usage {
                tokens: BTreeMap::from([(name("a"), a), (name("b"), b)]),
                machine_time: Micros(cheap + 1),
                spot: MicroUsd(cheap),
                on_demand: MicroUsd(dear),
                waste: MicroUsd(cheap / 3),
                all_on_demand: MicroUsd(3 * cheap + dear),
            });
            spot += cheap;
            on_demand += dear;
        }
        let whole = ledger.whole();
        prop_assert_eq!((whole.spot.0, whole.on_demand.0), (spot, on_demand));
        let tenants = ledger.tenants(&BTreeMap::from([(name("a"), "x".to_owned())]));
        let owed: u64 = tenants.values().map(|account| account.spent().0).sum();
        prop_assert_eq!(owed + ledger.idle.spent().0, spot + on_demand);
    }
}

#[test]
fn remainders_go_to_the_largest_and_then_to_the_first() {
    assert_eq!(split(10, &[1, 1, 1]), Some(vec![4, 3, 3]));
    assert_eq!(split(10, &[0, 3, 3]), Some(vec![0, 5, 5]));
    assert_eq!(split(11, &[1, 2, 1]), Some(vec![3, 5, 3]));
    assert_eq!(split(7, &[0, 0]), None);
    assert_eq!(split(7, &[]), None);
    assert_eq!(
        split(u64::MAX, &[u64::MAX, u64::MAX]),
        Some(vec![1 << 63, (1 << 63) - 1])
    );
}

#[test]
fn an_episode_becomes_an_account() {
    let mut problem = trial(0.5, Throughput::per_machine(1.0));
    problem.work = 20.0;
    let length = Micros(1_800_000_000);
    let market = market(&[(0.25, 4), (0.5, 8), (0.5, 0), (0.5, 0)], 1.0);
    let outcome = play(&problem, &Course::plain(&market, 0), |situation| {
        filled(&situation.offer, 6, Reason::EvenPace { machines: 6 })
    });
    let mut ledger = Ledger::default();
    for record in &outcome.records {
        let tokens = BTreeMap::from([(name("a"), 300), (name("b"), 100)]);
        ledger.charge(&Usage::of(record, length, tokens));
    }
    let whole = ledger.whole();
    assert_eq!(whole.spent(), outcome.spent);
    assert_eq!(whole.all_on_demand, MicroUsd(24_000_000));
    assert_eq!(whole.saved(), 24_000_000 - 18_000_000);
    let a = ledger.jobs[&name("a")];
    assert_eq!(a.spent(), MicroUsd(13_500_000));
    assert_eq!(a.machine_time, Micros(18 * length.0));
    // Alone it would have taken 24 machine-slots at one dollar.
    assert_eq!(
        a.saved_against_solo(Micros(24 * length.0), MicroUsd(2_000_000)),
        24_000_000 - 13_500_000
    );
    assert_eq!(a.waste.0, 225_000);
}

#[test]
fn a_budget_pauses_before_it_is_passed() {
    let budget = Budget {
        cap: MicroUsd(100),
        warn_per_mille: 800,
    };
    assert_eq!(
        budget.verdict(MicroUsd(10), MicroUsd(30)),
        Verdict::Within { left: MicroUsd(60) }
    );
    assert_eq!(
        budget.verdict(MicroUsd(50), MicroUsd(30)),
        Verdict::NearCap { left: MicroUsd(20) }
    );
    assert_eq!(
        budget.verdict(MicroUsd(70), MicroUsd(30)),
        Verdict::NearCap { left: MicroUsd(0) }
    );
    let pause = Verdict::Pause {
        left: MicroUsd(20),
        next: MicroUsd(21),
    };
    assert_eq!(budget.verdict(MicroUsd(80), MicroUsd(21)), pause);
    assert!(matches!(
        budget.verdict(MicroUsd(200), MicroUsd(1)),
        Verdict::Pause { .. }
    ));
}
