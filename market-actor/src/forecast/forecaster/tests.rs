use proptest::prelude::*;

use super::*;
use crate::forecast::testing::slots;

fn models(day: usize) -> Vec<(Arc<dyn Model>, bool)> {
    let price = price_models(day).into_iter().map(|model| (model, true));
    let capacity = capacity_models(day).into_iter().map(|model| (model, false));
    let hedges = [
        (Arc::new(hedge(price_models(day))) as Arc<dyn Model>, true),
        (
            Arc::new(hedge(capacity_models(day))) as Arc<dyn Model>,
            false,
        ),
    ];
    price.chain(capacity).chain(hedges).collect()
}

#[test]
fn an_outlook_is_of_the_slots_asked_for() {
    let seen = slots(4, 60);
    for forecaster in [Forecaster::persistence(), Forecaster::ensemble(12)] {
        let outlook = forecaster.outlook(&seen, 5);
        assert_eq!(outlook.slots.len(), 5);
        for slot in &outlook.slots {
            assert!(slot.spot_price.p10 <= slot.spot_price.p50);
            assert!(slot.spot_price.p50 <= slot.spot_price.p90);
            assert!(slot.spot_lasting.mean() <= slot.spot_available.mean() + 1e-9);
            assert_eq!(slot.on_demand_price, seen[59].on_demand_price);
        }
        let losses: Vec<f64> = (1..=5).map(|h| outlook.loss_within(h, 4)).collect();
        assert!(
            losses.windows(2).all(|two| two[0] <= two[1] + 1e-12),
            "{losses:?}"
        );
        assert!(forecaster.outlook(&[], 5).slots.is_empty());
        assert!(forecaster.outlook(&seen, 0).slots.is_empty());
    }
}

#[test]
fn one_slot_is_believed_to_stay() {
    let seen = slots(4, 1);
    for forecaster in [Forecaster::persistence(), Forecaster::ensemble(12)] {
        let outlook = forecaster.outlook(&seen, 3);
        assert_eq!(outlook.medians(), [seen[0]; 3]);
    }
}

#[test]
fn a_price_that_never_moved_is_said_exactly() {
    let mut seen = slots(4, 50);
    for slot in &mut seen {
        slot.spot_price = MicroUsd(918_000);
    }
    let outlook = Forecaster::ensemble(12).outlook(&seen, 3);
    for slot in outlook.slots {
        let Quantiles { p10, p50, p90 } = slot.spot_price;
        assert_eq!([p10, p50, p90], [MicroUsd(918_000); 3]);
    }
}

#[test]
fn what_is_proven_is_used_and_nothing_else() {
    let mut seen = slots(4, 160);
    // A price that never moves cannot be forecast better; a capacity that goes to and fro can.
    for (at, slot) in seen.iter_mut().enumerate() {
        slot.spot_price = MicroUsd(918_000);
        slot.spot_available = if at % 2 == 0 { 2 } else { 9 };
    }
    let plan = Plan {
        horizon: 3,
        first: 60,
        stride: 4,
        refit: 8,
        memory: MEMORY,
    };
    let proven = proven(&seen, 0, &plan);
    assert_eq!(proven.price.chosen, 0);
    assert_eq!(proven.forecaster.price.name(), "persistence");
    assert!(proven.capacity.chosen > 0, "{}", proven.capacity);
    let medians = proven.forecaster.outlook(&seen, 3).medians();
    let capacities: Vec<u32> = medians.iter().map(|slot| slot.spot_available).collect();
    assert_eq!(capacities, [2, 9, 2], "{}", proven.capacity);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    /// MD-1: whatever follows a point, what is said there stays the same.
    #[test]
    fn md_1_no_model_looks_ahead(seed: u64, other: u64) {
        let (long, strange) = (slots(seed, 60), slots(other, 60));
        let points = [36, 40, 47];
        let last = 47;
        let changed = |series: Vec<f64>, strange: Vec<f64>| -> Vec<f64> {
            series.iter().take(last).chain(&strange[last..]).copied().collect()
        };
        for (model, is_price) in models(12) {
            let of = |slots: &[Slot]| if is_price { price_series(slots) } else { capacity_series(slots) };
            let series = of(&long);
            let said = model.replay(&series, &points, 4);
            prop_assert_eq!(said.len(), 3);
            prop_assert_eq!(&said, &model.replay(&changed(series.clone(), of(&strange)), &points, 4));
            prop_assert_eq!(&said, &model.replay(&series[..last], &points, 4));
            // At the first point nothing is fitted on more than what was seen there.
            let then = model.look(&series[..36], 4).unwrap();
            prop_assert_eq!(&said[0], &then, "{}", model.name());
        }
    }

    /// Nothing is remembered from one call to the next.
    #[test]
    fn an_outlook_depends_on_what_was_seen_alone(seed: u64, seen in 1usize..50) {
        let all = slots(seed, 60);
        let forecaster = Forecaster::ensemble(12);
        let before = forecaster.outlook(&all[..seen], 4);
        let later = forecaster.outlook(&all, 4);
        prop_assert_eq!(later.slots.len(), 4);
        prop_assert_eq!(before, forecaster.outlook(&all[..seen], 4));
    }
}
