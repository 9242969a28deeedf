//! A selection learns, is stored and goes on.

use super::*;
use crate::policy::Policy;

fn members() -> Vec<Member> {
    vec![
        Member::plain(Policy::OnDemand),
        Member::plain(Policy::Maximal { limit: 1.0 }),
        Member::plain(Policy::BuyAhead { sigma: 0.7 }),
    ]
}

fn regime(supply: Supply) -> Regime {
    Regime {
        pool: Pool {
            provider: "aws".into(),
            region: "us-west-2".into(),
            zone: "us-west-2a".into(),
            machine: "p3.2xlarge".into(),
        },
        supply: Some(supply),
    }
}

#[test]
fn a_selection_survives_a_restart() {
    let mut whole = Selection::new(members(), 1.0, 7).unwrap();
    let mut parted = whole.clone();
    for round in 0..40u32 {
        let at = regime(if round % 3 == 0 {
            Supply::Scarce
        } else {
            Supply::Plenty
        });
        let utilities = [1.0, f64::from(round % 5), 2.5 + 1.0 / f64::from(round + 1)];
        whole.learn(&at, &utilities, 0.0, 5.0);
        parted.learn(&at, &utilities, 0.0, 5.0);
        parted = Selection::from_json(&parted.to_json().unwrap()).unwrap();
        assert_eq!(parted, whole);
        assert_eq!(
            parted.choose(&at, u64::from(round)),
            whole.choose(&at, u64::from(round))
        );
    }
    assert_ne!(
        whole.chances(&regime(Supply::Scarce)),
        whole.chances(&regime(Supply::Plenty))
    );
    assert_eq!(whole.chances(&regime(Supply::Mixed)), [1.0 / 3.0; 3]);
}

#[test]
fn what_cannot_be_read_says_so() {
    let selection = Selection::new(members(), 1.0, 1).unwrap();
    let text = selection.to_json().unwrap();
    let other = text.replacen("\"version\":2", "\"version\":1", 1);
    assert!(matches!(
        Selection::from_json(&other),
        Err(SelectionError::Version { found: 1 })
    ));
    assert!(matches!(
        Selection::from_json("{"),
        Err(SelectionError::Broken(_))
    ));
    assert!(matches!(
        Selection::new(Vec::new(), 1.0, 1),
        Err(SelectionError::Empty)
    ));
    assert!(matches!(
        Selection::new(members(), 0.0, 1),
        Err(SelectionError::Keep(_))
    ));
    let mut learned = selection;
    learned.learn(&regime(Supply::Mixed), &[1.0, 2.0, 3.0], 0.0, 3.0);
    let text = learned.to_json().unwrap();
    let broken = text.replacen("\"rounds\":1", "\"rounds\":0", 1);
    assert!(matches!(
        Selection::from_json(&broken),
        Err(SelectionError::Unlike { .. })
    ));
}

#[test]
fn the_better_member_is_chosen_more_often_and_new_ones_get_a_chance() {
    let at = regime(Supply::Mixed);
    let mut selection = Selection::new(members(), 1.0, 3).unwrap();
    for _ in 0..60 {
        selection.learn(&at, &[0.2, 0.9, 0.7], 0.0, 1.0);
    }
    let chances = selection.chances(&at);
    assert!(chances[1] > 0.9 && chances[0] < chances[2], "{chances:?}");
    let drawn = (0..1000)
        .filter(|job| selection.choose(&at, *job) == 1)
        .count();
    assert!(drawn > 880, "{drawn}");
    let mut pool = members();
    pool.remove(0);
    pool.push(Member::plain(Policy::Uniform { mixed: true }));
    let next = selection.adopt(pool).unwrap();
    let after = next.chances(&at);
    assert!(after[2] > 0.2 && after[1] < after[2], "{after:?}");
}

#[test]
fn supply_is_how_often_cheap_spot_was_there() {
    let slot = |available| Slot {
        spot_price: shared::units::MicroUsd(1),
        spot_available: available,
        on_demand_price: shared::units::MicroUsd(3),
        on_demand_available: None,
    };
    assert_eq!(Supply::of(&[]), Supply::Mixed);
    assert_eq!(
        Supply::of(&[slot(0), slot(0), slot(0), slot(4)]),
        Supply::Scarce
    );
    assert_eq!(Supply::of(&[slot(0), slot(4)]), Supply::Mixed);
    assert_eq!(Supply::of(&[slot(4); 4]), Supply::Plenty);
}
