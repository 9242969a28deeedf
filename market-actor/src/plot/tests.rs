use shared::units::{MicroUsd, Micros};

use super::*;
use crate::feed::synthetic::Synthetic;
use crate::forecast::Forecast;
use crate::forecast::forecaster::Forecaster;
use crate::market::Pool;

fn tiny() -> Market {
    let slot = |spot: u64, available: u32| Slot {
        spot_price: MicroUsd(spot),
        spot_available: available,
        on_demand_price: MicroUsd(1_000_000),
        on_demand_available: None,
    };
    Market {
        pool: Pool {
            provider: "t".into(),
            region: String::new(),
            zone: String::new(),
            machine: "m".into(),
        },
        start: Micros(0),
        slot: Micros(3_600_000_000),
        slots: vec![slot(300_000, 4), slot(300_000, 4), slot(500_000, 1)],
    }
}

/// Elements that are not closed in themselves are closed in order.
fn is_well_formed(text: &str) -> bool {
    let mut reader = quick_xml::Reader::from_str(text);
    loop {
        match reader.read_event() {
            Ok(quick_xml::events::Event::Eof) => return true,
            Ok(_) => {}
            Err(_) => return false,
        }
    }
}

#[test]
fn the_text_of_a_small_picture() {
    let market = tiny();
    let held = [Held {
        spot: 2,
        on_demand: 1,
    }; 3];
    let picture = Picture {
        title: "a < b",
        market: &market,
        dated: false,
        outlooks: &[],
        held: &held,
    };
    let text = picture.svg();
    assert!(is_well_formed(&text));
    assert!(text.contains(">a &lt; b</text>"));
    assert!(text.contains(">price, USD per machine and hour</text>"));
    assert!(text.contains(">held, machines</text>"));
    assert!(text.contains("minutes since the trace's first slot</text>"));
    // The price: three quarters below the on-demand price of 1, then half of it, over 912 pixels and a height of 220.
    assert!(
        text.contains("<path d=\"M64 218L672 218L672 174L976 174\""),
        "{text}"
    );
    assert!(!text.contains("median forecast"));
    assert_eq!(text, picture.svg());
}

#[test]
fn an_outlook_goes_on_beyond_the_market() {
    let market = Synthetic::default().markets().remove(0);
    let seen = &market.slots[..300];
    let outlook = Forecaster::persistence().outlook(seen, 48);
    let outlooks = [(300, outlook)];
    let picture = Picture {
        title: "outlook",
        market: &market,
        dated: true,
        outlooks: &outlooks,
        held: &[],
    };
    let text = picture.svg();
    assert!(is_well_formed(&text));
    assert!(text.contains("10 to 90 % of forecast"));
    assert!(text.contains("time, UTC, 1970-01-01 to 1970-01-08"));
    assert!(!text.contains("held, machines"));
}

#[test]
fn nothing_is_drawn_of_nothing() {
    let market = Market {
        slots: Vec::new(),
        ..tiny()
    };
    let picture = Picture {
        title: "",
        market: &market,
        dated: true,
        outlooks: &[],
        held: &[],
    };
    assert!(is_well_formed(&picture.svg()));
}

#[test]
fn what_a_source_does_not_have_has_no_panel() {
    let mut market = tiny();
    for slot in &mut market.slots {
        slot.spot_price = MicroUsd(0);
    }
    let picture = Picture {
        title: "",
        market: &market,
        dated: false,
        outlooks: &[],
        held: &[],
    };
    let text = picture.svg();
    assert!(!text.contains("price, USD") && text.contains("capacity, machines"));
}
