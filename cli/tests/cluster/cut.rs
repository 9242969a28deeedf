//! Neighbours that do not reach each other though the coordinator hears both: another node takes the place, and the same
//! bytes.

use std::time::Duration;

use super::relay::Relay;
use super::run::{Cluster, Places, Sandbox, assert_same};

#[test]
fn a_node_that_its_neighbours_do_not_reach_is_replaced_and_no_bit_changes() {
    let sandbox = Sandbox::new(8);
    let wanted = sandbox.alone();
    let mut places = Places::free(3);
    let roads: Vec<Relay> = places
        .nodes
        .iter_mut()
        .map(|(listen, advertise)| {
            let relay = Relay::to(*listen, 0, Duration::ZERO);
            *advertise = Some(relay.address);
            relay
        })
        .collect();
    let mut cluster = Cluster::up(&sandbox, 2, &places);
    cluster.submit();
    cluster.until_step(30);
    let holder = cluster.holder(1).unwrap();
    let road = &roads[holder[1..].parse::<usize>().unwrap() - 1];
    road.cut(true);
    cluster.until("another has its stage", |cluster| {
        let holders = [cluster.holder(0)?, cluster.holder(1)?];
        (!holders.contains(&holder)).then_some(())
    });
    let taken = cluster.until("it answers", |cluster| cluster.steps());
    cluster.until_step(taken + 5);
    assert!(
        !cluster.happened("node_lost", &holder),
        "it was heard all the time"
    );
    road.cut(false);
    assert_same(&cluster.adapters(), &wanted);
}
