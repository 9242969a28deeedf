use proptest::prelude::*;

use super::*;

fn long(seed: u64) -> Synthetic {
    Synthetic {
        seed,
        slots: 4800,
        ..Synthetic::default()
    }
}

fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let values: Vec<f64> = values.into_iter().collect();
    values.iter().sum::<f64>() / values.len() as f64
}

#[test]
fn capacity_is_low_when_demand_is_high() {
    let market = &long(3).markets()[0];
    let at_hour = |wanted: usize| {
        let slots = market.slots.iter().enumerate();
        let of_hour = slots.filter(move |(at, _)| at / 2 % 24 == wanted);
        mean(of_hour.map(|(_, slot)| f64::from(slot.spot_available)))
    };
    // Twice the swing of 0.2 of 16 machines is 6.4, less what bursts and losses take.
    assert!(at_hour(6) - at_hour(18) > 3.0);
}

#[test]
fn zones_lose_together_more_often_than_chance_has_it() {
    let quiet = Synthetic {
        capacity_daily_swing: 0.0,
        capacity_noise: 0.0,
        bursts_per_hour: 0.0,
        ..long(5)
    };
    let markets = quiet.markets();
    let lost = |zone: usize, at: usize| markets[zone].slots[at].spot_available < 5;
    let share =
        |test: &dyn Fn(usize) -> bool| (0..4800).filter(|at| test(*at)).count() as f64 / 4800.0;
    let (a, b) = (share(&|at| lost(0, at)), share(&|at| lost(1, at)));
    let both = share(&|at| lost(0, at) && lost(1, at));
    assert!(a > 0.01 && b > 0.01 && both > 3.0 * a * b, "{a} {b} {both}");
}

#[test]
fn prices_spike_for_a_while() {
    let market = &long(7).markets()[0];
    let usual = 0.33 * 3.06e6;
    let high = |slot: &Slot| slot.spot_price.0 as f64 > 1.5 * usual;
    let spiking = market.slots.iter().filter(|slot| high(slot)).count();
    assert!((20..600).contains(&spiking), "{spiking}");
    let goes_on = market
        .slots
        .windows(2)
        .filter(|two| high(&two[0]) && high(&two[1]));
    assert!(goes_on.count() * 2 > spiking);
}

#[test]
fn seeds_and_zones_differ_and_a_seed_repeats() {
    let markets = long(1).markets();
    assert_eq!(markets, long(1).markets());
    assert_ne!(markets[0].slots, markets[1].slots);
    assert_ne!(markets[0].slots, long(2).markets()[0].slots);
    assert_eq!(markets[2].pool.zone, "synthetic-1c");
    assert_eq!(markets[2].pool.region, "synthetic-1");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn sy_1_and_sy_2(seed: u64, slots in 1u32..80, most in 0u32..50, level in -1.0..2.0f64, height in 0.0..9.0f64) {
        let short = Synthetic { seed, slots, most, level, spike_height: height, spikes_per_hour: 0.5, ..Synthetic::default() };
        let markets = short.markets();
        let longer = Synthetic { slots: slots + 20, ..short.clone() }.markets();
        for (market, longer) in markets.iter().zip(&longer) {
            prop_assert_eq!(&market.slots[..], &longer.slots[..slots as usize]);
            for slot in &market.slots {
                prop_assert!(slot.spot_available <= most);
                let over = slot.spot_price.0 as f64 / 3.06e6;
                prop_assert!((0.0999..1.5001).contains(&over));
            }
        }
    }
}
