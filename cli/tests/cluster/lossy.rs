//! Two stages on a road that loses a fifth of all datagrams and takes 50 ms each way: the same bytes.

use std::time::Duration;

use super::relay::Relay;
use super::run::{Cluster, Places, Sandbox, assert_same};
use super::sandbox::SHORT;

#[test]
fn a_road_that_loses_a_fifth_changes_no_bit() {
    let sandbox = Sandbox::of(SHORT);
    let wanted = sandbox.alone();
    let mut places = Places::free(2);
    // Either may hold the first stage and call the other.
    let roads: Vec<Relay> = places
        .nodes
        .iter_mut()
        .map(|(listen, advertise)| {
            let relay = Relay::to(*listen, 20, Duration::from_millis(50));
            *advertise = Some(relay.address);
            relay
        })
        .collect();
    let mut cluster = Cluster::up(&sandbox, 2, &places);
    cluster.submit();
    assert_same(&cluster.adapters(), &wanted);
    let (carried, lost) = roads
        .iter()
        .map(Relay::seen)
        .fold((0, 0), |(carried, lost), seen| {
            (carried + seen.0, lost + seen.1)
        });
    assert!(carried > 100, "only {carried} datagrams went by the road");
    assert!(
        lost * 8 > carried && lost * 3 < carried,
        "{lost} of {carried} were lost"
    );
}
