use proptest::prelude::*;

use super::*;

fn pool(zone: &str) -> Pool {
    Pool {
        provider: "aws".into(),
        region: "us-east-1".into(),
        zone: zone.into(),
        machine: "p3.2xlarge".into(),
    }
}

fn seen(at: u64, zone: &str) -> Sighting {
    Sighting {
        at: Micros(at),
        pool: pool(zone),
        spot_price: Some(MicroUsd(918_000)),
        spot_available: None,
        on_demand_price: None,
        on_demand_available: None,
    }
}

#[test]
fn the_text_is_the_documented_one() {
    let mut recorder = Recorder::default();
    let first = Sighting {
        spot_available: Some(4),
        ..seen(1_700_000_000_000_000, "us-east-1a")
    };
    let text = recorder.write(&first) + &recorder.write(&seen(1_700_000_000_000_009, "us-east-1a"));
    let expected = "{\"spotmux_market\":1}\n\
        {\"pool\":0,\"provider\":\"aws\",\"region\":\"us-east-1\",\"zone\":\"us-east-1a\",\"machine\":\"p3.2xlarge\"}\n\
        {\"at\":1700000000000000,\"of\":0,\"spot_price\":918000,\"spot_available\":4}\n\
        {\"at\":1700000000000009,\"of\":0,\"spot_price\":918000}\n";
    assert_eq!(text, expected);
}

#[test]
fn a_process_that_comes_back_appends() {
    let text = Recorder::default().write(&seen(1, "a")) + &Recorder::default().write(&seen(2, "b"));
    let recording = parse("r.jsonl", &text).unwrap();
    assert_eq!(recording.sightings, [seen(1, "a"), seen(2, "b")]);
}

#[test]
fn a_cut_line_is_passed_over() {
    let mut recorder = Recorder::default();
    let whole = recorder.write(&seen(1, "a"));
    let text = whole + &recorder.write(&seen(2, "a"))[..9];
    let recording = parse("r.jsonl", &text).unwrap();
    assert_eq!(recording.sightings, [seen(1, "a")]);
    assert!(recording.cut);
}

#[test]
fn what_is_wrong_is_listed_with_its_line() {
    let text = "{\"at\":1,\"of\":0}\n{\"spotmux_market\":1}\n{\"at\":1,\"of\":0}\n{\"at\":1,\"of\":0,\"x\":1}\nnot\n{\"pool\":4,\"provider\":\"\",\"region\":\"\",\"zone\":\"\",\"machine\":\"\"}\n";
    let message = parse("r.jsonl", text).unwrap_err().to_string();
    for said in [
        "5 bad rows",
        "line 1, column 1: ",
        "line 3, column 1: \"pool 0\" stands where",
        "line 4, column 18: unknown field `x`",
        "line 5, column 2",
        "line 6, column 1: \"pool 4\"",
    ] {
        assert!(message.contains(said), "{said} in {message}");
    }
    let later = parse("r.jsonl", "{\"spotmux_market\":2}\n").unwrap_err();
    assert!(matches!(
        later,
        FeedError::Version {
            found: 2,
            known: 1,
            ..
        }
    ));
}

#[test]
fn pools_are_told_apart() {
    let mut recorder = Recorder::default();
    let text: String = [seen(5, "b"), seen(1, "a"), seen(9, "b")]
        .iter()
        .map(|s| recorder.write(s))
        .collect();
    let observed = parse("r.jsonl", &text).unwrap().observed();
    assert_eq!(observed.len(), 2);
    assert_eq!(observed[1].pool, pool("b"));
    let prices = observed[1].spot_price.as_ref().unwrap();
    assert_eq!((prices.start(), prices.end()), (Micros(5), Micros(9)));
    assert!(observed[1].spot_available.is_none());
}

prop_compose! {
    fn any_sighting()(
        at in 0..=LAST,
        zone in prop::sample::select(vec!["a", "b", "zone \"q\" \\ \u{e9}"]),
        price in prop::option::of(0..=money::MOST),
        available in prop::option::of(0..=MOST_MACHINES as u32),
        on_demand in prop::option::of(0..=money::MOST),
        on_demand_available in prop::option::of(0..=MOST_MACHINES as u32),
    ) -> Sighting {
        Sighting {
            at: Micros(at),
            pool: pool(zone),
            spot_price: price.map(MicroUsd),
            spot_available: available,
            on_demand_price: on_demand.map(MicroUsd),
            on_demand_available,
        }
    }
}

proptest! {
    #[test]
    fn rc_1_what_is_read_back_is_what_was_written(sightings in prop::collection::vec(any_sighting(), 0..40)) {
        let mut recorder = Recorder::default();
        let text: String = sightings.iter().map(|s| recorder.write(s)).collect();
        let expected = Recording { sightings, cut: false };
        prop_assert_eq!(parse("r.jsonl", &text).unwrap(), expected);
    }
}

#[test]
fn numbers_that_no_market_shows_are_refused_with_line_column_and_limit() {
    let head = "{\"spotmux_market\":1}\n\
        {\"pool\":0,\"provider\":\"\",\"region\":\"\",\"zone\":\"\",\"machine\":\"m\"}\n";
    for (key, value, limit) in [
        ("spot_price", u64::MAX, "1000000000000"),
        ("on_demand_price", u64::MAX - 1, "1000000000000"),
        ("spot_available", 4_000_000_000, "1000000"),
        ("on_demand_available", 4_294_967_295, "1000000"),
    ] {
        let text = format!("{head}{{\"at\":1,\"of\":0,\"{key}\":{value}}}\n");
        let message = parse("r.jsonl", &text).unwrap_err().to_string();
        let place = "line 3, column 16";
        assert!(
            message.contains(place) && message.contains(key) && message.contains(limit),
            "{message}"
        );
    }
    let text = format!("{head}{{\"at\":{},\"of\":0}}\n", u64::MAX);
    let message = parse("r.jsonl", &text).unwrap_err().to_string();
    assert!(message.contains("line 3, column 2"), "{message}");
}
