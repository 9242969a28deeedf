//! Who is here, by the clock.

use shared::ids::Term;

use super::*;
use crate::life::placement::Stages;
use crate::settings::Settings;
use crate::settings::testing::settings;

fn hello(node: &str, incarnation: u64) -> Hello {
    Hello {
        node: NodeName::new(node).unwrap(),
        incarnation,
        address: "here:1".into(),
        backbone: "ab".into(),
        products: Products::F32,
        layers: 6,
        memory: Bytes(1 << 20),
        threads: 1,
        device: "cpu".into(),
        term: Term(0),
        held: None,
        unheard: 1,
        clock: Micros(0),
    }
}

fn cluster() -> (Membership, Settings) {
    (Membership::new(Micros(0)), settings(Stages::AllNodes, 1, 1))
}

fn come(
    members: &mut Membership,
    settings: &Settings,
    at: u64,
    link: u64,
    hello: Hello,
) -> Result<Arrival, Unwelcome> {
    let (backbone, bounds) = (&settings.backbone, &settings.bounds);
    members.hello(Micros::of_millis(at), LinkId(link), hello, backbone, bounds)
}

#[test]
fn mb_1_a_second_process_of_a_name_waits_until_the_first_is_silent() {
    let (mut members, settings) = cluster();
    assert!(
        come(&mut members, &settings, 0, 1, hello("a", 7))
            .unwrap()
            .joined
    );
    let refused = come(&mut members, &settings, 500, 2, hello("a", 8)).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("a node named a is here already"),
        "{refused}"
    );
    // The same process on another connection takes the place of the first.
    let again = come(&mut members, &settings, 600, 3, hello("a", 7)).unwrap();
    assert_eq!(again.replaced, Some(LinkId(1)));
    assert!(!again.fresh && !again.joined);
    assert!(
        members.heard(Micros(0), LinkId(1)).is_none(),
        "the old link is of nobody"
    );
    members.closed(Micros::of_millis(700), LinkId(3));
    assert!(
        come(&mut members, &settings, 800, 4, hello("a", 8))
            .unwrap()
            .fresh
    );
}

#[test]
fn mb_2_another_backbone_is_refused_by_name() {
    let (mut members, settings) = cluster();
    let other = Hello {
        backbone: "cd".into(),
        ..hello("a", 1)
    };
    let refused = come(&mut members, &settings, 0, 1, other)
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("identity cd") && refused.contains("ab (tiny)"),
        "{refused}"
    );
    let fewer = Hello {
        layers: 5,
        ..hello("a", 1)
    };
    let refused = come(&mut members, &settings, 0, 1, fewer)
        .unwrap_err()
        .to_string();
    assert!(refused.contains("5 layers"), "{refused}");
    let split = Hello {
        products: Products::Split,
        ..hello("a", 1)
    };
    let refused = come(&mut members, &settings, 0, 1, split)
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("model.products = \"split\"") && refused.contains("\"f32\""),
        "{refused}"
    );
    assert!(members.nodes().next().is_none(), "nothing is left of them");
}

#[test]
fn mb_4_silence_is_loss_even_on_an_open_connection() {
    let (mut members, settings) = cluster();
    come(&mut members, &settings, 0, 1, hello("a", 1)).unwrap();
    come(&mut members, &settings, 0, 2, hello("b", 1)).unwrap();
    let mut found = Vec::new();
    for at in (0..=4_000).step_by(500) {
        let now = Micros::of_millis(at);
        members.heard(now, LinkId(2));
        found.extend(members.tick(now, &settings.bounds));
    }
    assert_eq!(found, [(NodeName::new("a").unwrap(), LinkId(1))]);
}

#[test]
fn nobody_is_blamed_for_a_pause_of_the_coordinator() {
    let (mut members, settings) = cluster();
    come(&mut members, &settings, 0, 1, hello("a", 1)).unwrap();
    members.tick(Micros::of_millis(100), &settings.bounds);
    assert!(
        members
            .tick(Micros::of_millis(60_000), &settings.bounds)
            .is_empty()
    );
    let presence = members.presence(
        Micros::of_millis(60_000),
        &NodeName::new("a").unwrap(),
        &settings.bounds,
    );
    assert_eq!(presence, Presence::Here);
}

#[test]
fn a_short_absence_is_no_loss() {
    let (mut members, settings) = cluster();
    come(&mut members, &settings, 0, 1, hello("a", 1)).unwrap();
    let a = NodeName::new("a").unwrap();
    assert_eq!(
        members.closed(Micros::of_millis(100), LinkId(1)),
        Some(a.clone())
    );
    let at = |millis| members.presence(Micros::of_millis(millis), &a, &settings.bounds);
    assert_eq!(at(200), Presence::Away);
    assert_eq!(at(3_100), Presence::Gone);
    assert_eq!(
        members.overdue(Micros::of_millis(3_100), &settings.bounds),
        [a]
    );
}
