//! How long a whole decision takes: chain, window programme and choice of the policy, for one job and for 500.
//!
//! ```text
//! cargo run --release -p market-actor --example decision_time
//! ```

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use market_actor::market::{Market, Pool, Slot};
use market_actor::policy::expectation::Expectation;
use market_actor::policy::foresight::Autoregression;
use market_actor::policy::horizon::Horizon;
use market_actor::policy::share::{Claim, Shares};
use market_actor::policy::{Memory, Policy, Safety};
use market_actor::problem::decision::Situation;
use market_actor::problem::offer::{Held, Offer};
use market_actor::problem::throughput::Throughput;
use market_actor::problem::{Problem, Reconfigure};
use market_actor::select::pool::standard;
use market_actor::select::{Regime, Selection, Supply};
use shared::random::{Domain, Stream};
use shared::units::{MicroUsd, Micros};

#[expect(clippy::disallowed_methods, reason = "it measures time")]
fn now() -> Instant {
    Instant::now()
}

fn market() -> Market {
    let slots = (0..1440u32).map(|at| {
        let stream = Stream::new(1, Domain::Policy, [at / 6, 9, 9]);
        Slot {
            spot_price: MicroUsd(400_000 + stream.below(1, 900_000)),
            spot_available: (stream.below(0, 25) as u32).saturating_sub(8),
            on_demand_price: MicroUsd(2_000_000),
            on_demand_available: None,
        }
    });
    Market {
        pool: Pool {
            provider: "seeded".into(),
            region: String::new(),
            zone: String::new(),
            machine: "m".into(),
        },
        start: Micros(0),
        slot: Micros(1_800_000_000),
        slots: slots.collect(),
    }
}

fn job(seed: u32) -> Problem {
    let work = 60.0 + f64::from(seed % 120);
    Problem {
        work,
        soft_deadline: 24,
        hard_deadline: 36,
        fewest: 1,
        most: 12,
        throughput: Throughput::Affine {
            alpha: 0.72,
            beta: 2.0,
        },
        reconfigure: Reconfigure {
            grow: 0.9,
            shrink: 0.95,
            ..Reconfigure::default()
        },
        value: MicroUsd((1.5e6 * work) as u64),
        reclaims: false,
    }
}

fn main() -> Result<()> {
    let market = market();
    let regime = Regime {
        pool: market.pool.clone(),
        supply: Some(Supply::of(&market.slots)),
    };
    let selection = Selection::new(standard(48), 1.0, 1)?;
    let foresight = Autoregression { memory: 240 };
    let at = market.slots.len() - 1;
    let nothing = [0];
    let decide = |policy: Policy, job: &Problem, number: u64| -> Duration {
        let situation = Situation {
            problem: job,
            slot: 0,
            progress: 0.0,
            held: Held::default(),
            offer: Offer::of(&market.slots[at], market.slot),
            at,
            past: &market.slots[..at],
            length: market.slot,
            losses: &nothing,
            waited: 0,
        };
        let begin = now();
        let chosen = selection.choose(&regime, number);
        let decision = policy.decide(
            &situation,
            &foresight,
            &mut Memory::default(),
            Safety::default(),
        );
        let time = begin.elapsed();
        assert!(chosen < selection.members().len() && decision.held.count() <= 12);
        time
    };
    for (name, policy) in [
        ("window 6, track", Policy::Horizon(Horizon::track(6))),
        (
            "window 12, cost to go",
            Policy::Horizon(Horizon::cost_to_go(12)),
        ),
        ("window 6, chain", Policy::Horizon(Horizon::chain(6))),
        ("expectation", Policy::Expectation(Expectation::default())),
    ] {
        let mut times: Vec<Duration> = (0..500)
            .map(|number| decide(policy, &job(number), u64::from(number)))
            .collect();
        let all: Duration = times.iter().sum();
        times.sort_unstable();
        println!(
            "{name}: one job p50 {:?}, max {:?}; 500 jobs {all:?}",
            times[250], times[499]
        );
    }
    let claims: BTreeMap<String, Claim> = (0..500u32)
        .map(|number| {
            let worth = (0..=12)
                .map(|n| f64::from(number % 7 + 1) * f64::from(n).sqrt())
                .collect();
            (format!("job-{number}"), Claim { worth, weight: 1.0 })
        })
        .collect();
    let begin = now();
    let granted = Shares::new(8).grant(&claims, 2000);
    println!(
        "sharing 2000 machines among 500 jobs: {:?}, {} granted",
        begin.elapsed(),
        granted.values().sum::<u32>()
    );
    Ok(())
}
