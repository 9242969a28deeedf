use proptest::prelude::*;

use super::*;
use crate::market::Pool;

fn observed(
    prices: Option<Vec<(u64, u64)>>,
    capacities: Option<Vec<(u64, u32)>>,
    end: u64,
    dated: bool,
) -> Observed {
    let pool = Pool {
        provider: "t".into(),
        region: String::new(),
        zone: String::new(),
        machine: "m".into(),
    };
    let mut observed = Observed::nothing(pool, dated);
    observed.spot_price = prices.and_then(|all| {
        let all = all.into_iter().map(|(at, usd)| (Micros(at), MicroUsd(usd)));
        Steps::new(all.collect(), Micros(end))
    });
    observed.spot_available = capacities.and_then(|all| {
        let all = all.into_iter().map(|(at, machines)| (Micros(at), machines));
        Steps::new(all.collect(), Micros(end))
    });
    observed
}

fn cut(slot: u64) -> Cut {
    Cut {
        slot: Micros(slot),
        price: PriceRule::TimeWeighted,
        on_demand_price: MicroUsd(1000),
        on_demand_available: None,
        spot_price: None,
        spot_available: None,
    }
}

fn values(market: &Market) -> Vec<(u64, u32)> {
    let slots = market.slots.iter();
    slots.map(|s| (s.spot_price.0, s.spot_available)).collect()
}

#[test]
fn a_price_is_weighted_by_time_and_a_capacity_is_the_least() {
    let seen = observed(
        Some(vec![(0, 100), (25, 200)]),
        Some(vec![(0, 4), (12, 1), (15, 3), (20, 2)]),
        30,
        false,
    );
    let market = resample(&seen, &cut(10)).unwrap();
    assert_eq!(values(&market), [(100, 4), (100, 1), (150, 2)]);
    let of_third = |price| {
        let cut = Cut { price, ..cut(10) };
        values(&resample(&seen, &cut).unwrap())[2].0
    };
    assert_eq!(of_third(PriceRule::First), 100);
    assert_eq!(of_third(PriceRule::Last), 200);
    assert_eq!(of_third(PriceRule::Highest), 200);
    assert_eq!(market.slots[0].on_demand_price, MicroUsd(1000));
}

#[test]
fn slots_begin_where_all_is_known_on_a_multiple_when_dated() {
    let seen = observed(Some(vec![(7, 100)]), Some(vec![(3, 4)]), 40, true);
    let market = resample(&seen, &cut(10)).unwrap();
    assert_eq!((market.start, market.slots.len()), (Micros(10), 3));
    let undated = Observed {
        dated: false,
        ..seen
    };
    let market = resample(&undated, &cut(10)).unwrap();
    assert_eq!((market.start, market.slots.len()), (Micros(7), 3));
}

#[test]
fn what_a_source_does_not_have_is_given_or_missed() {
    let priced = observed(Some(vec![(0, 100)]), None, 40, false);
    assert!(matches!(
        resample(&priced, &cut(10)),
        Err(ResampleError::NoCapacity { .. })
    ));
    let with = Cut {
        spot_available: Some(8),
        ..cut(10)
    };
    assert_eq!(values(&resample(&priced, &with).unwrap())[3], (100, 8));
    let sized = observed(None, Some(vec![(0, 1)]), 40, false);
    assert!(matches!(
        resample(&sized, &cut(10)),
        Err(ResampleError::NoPrice { .. })
    ));
}

#[test]
fn lengths_have_limits() {
    let seen = observed(Some(vec![(0, 100)]), Some(vec![(0, 4)]), 40, false);
    assert_eq!(resample(&seen, &cut(0)), Err(ResampleError::NoLength));
    assert!(matches!(
        resample(&seen, &cut(41)),
        Err(ResampleError::TooShort { .. })
    ));
    let long = observed(Some(vec![(0, 100)]), Some(vec![(0, 4)]), 40_000_000, false);
    assert!(matches!(
        resample(&long, &cut(1)),
        Err(ResampleError::TooMany { .. })
    ));
}

#[test]
fn on_demand_is_read_where_a_source_has_it() {
    let mut seen = observed(Some(vec![(0, 100)]), Some(vec![(0, 4)]), 20, false);
    seen.on_demand_price = Steps::new(vec![(Micros(12), MicroUsd(7))], Micros(12));
    seen.on_demand_available = Steps::new(vec![(Micros(0), 9), (Micros(14), 5)], Micros(14));
    let market = resample(&seen, &cut(10)).unwrap();
    let found: Vec<_> = market
        .slots
        .iter()
        .map(|s| (s.on_demand_price.0, s.on_demand_available))
        .collect();
    assert_eq!(found, [(7, Some(9)), (7, Some(5))]);
}

proptest! {
    /// Against the slow version: one look a microsecond.
    #[test]
    fn slots_are_what_one_sees_at_every_instant(
        prices in prop::collection::btree_map(0u64..60, 0u64..1000, 1..12),
        capacities in prop::collection::btree_map(0u64..60, 0u32..20, 1..12),
        slot in 1u64..15,
        dated: bool,
    ) {
        let prices: Vec<(u64, u64)> = prices.into_iter().collect();
        let capacities: Vec<(u64, u32)> = capacities.into_iter().collect();
        let seen = observed(Some(prices.clone()), Some(capacities.clone()), 60, dated);
        let Ok(market) = resample(&seen, &cut(slot)) else {
            return Ok(());
        };
        let in_force = |all: &[(u64, u64)], at: u64| all.iter().rfind(|(from, _)| *from <= at).unwrap().1;
        let wide: Vec<(u64, u64)> = capacities.iter().map(|(at, n)| (*at, u64::from(*n))).collect();
        for (index, found) in market.slots.iter().enumerate() {
            let begin = market.start.0 + index as u64 * slot;
            let least = (begin..begin + slot).map(|at| in_force(&wide, at)).min().unwrap();
            let spent: u64 = (begin..begin + slot).map(|at| in_force(&prices, at)).sum();
            prop_assert_eq!(u64::from(found.spot_available), least);
            prop_assert_eq!(found.spot_price.0, (spent + slot / 2) / slot);
        }
        let end = market.start.0 + market.slots.len() as u64 * slot;
        prop_assert!(end <= 60 && end + slot > 60);
    }
}
