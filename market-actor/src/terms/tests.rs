//! Settings that can be and that cannot.

#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

fn config(text: &str) -> ClusterConfig {
    toml::from_str(text).unwrap()
}

fn told(text: &str) -> Vec<String> {
    misfits(&config(text))
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn without_a_market_nothing_is_wrong_with_it() {
    assert_eq!(told("[market]\nfewest = 9\nmost = 2\n"), [""; 0]);
    assert_eq!(told("[market]\nprovider = 'local'\n"), [""; 0]);
}

#[test]
fn a_market_that_holds_fewer_machines_than_a_replica_is_refused_with_the_number_that_would_work() {
    let text = "[plan]\nstages = 3\n[market]\nprovider = 'local'\nfewest = 2\n";
    let found = told(text);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with(
            "market.fewest: 2 machines hold no replica of plan.stages = 3: use at least 3"
        ),
        "{found:?}"
    );
    // Not said: what the plan needs.
    let terms = Terms::of(&config(&text.replace("fewest = 2\n", ""))).unwrap();
    assert_eq!((terms.fewest, terms.most), (3, 4));
    assert_eq!([2, 3, 4].map(|n| terms.useful(n)), [0, 3, 3]);
    assert_eq!(terms.throughput().at(2), 0.0);
    let few = told("[plan]\nstages = 6\n[market]\nprovider = 'local'\n");
    assert!(few[0].starts_with("market.most: 4 machines"), "{few:?}");
}

#[test]
fn replicas_are_no_need_but_an_end_of_what_is_useful() {
    let text = "[plan]\nstages = 2\nreplicas = 2\n[market]\nprovider = 'local'\nmost = 9\n";
    let terms = Terms::of(&config(text)).unwrap();
    assert_eq!(terms.fewest, 2);
    assert_eq!([1, 2, 3, 4, 9].map(|n| terms.useful(n)), [0, 2, 2, 4, 4]);
    assert_eq!(seats_below_most(&config(text)), Some(4));
    assert_eq!(
        seats_below_most(&config(&text.replace("most = 9", "most = 4"))),
        None
    );
    let idle = told(&format!("{text}fewest = 5\n"));
    assert_eq!(idle.len(), 1, "{idle:?}");
    assert!(
        idle[0].starts_with("market.fewest: 5 machines at least")
            && idle[0].contains("lower it to 4"),
        "{idle:?}"
    );
    let all = text.replace("stages = 2", "stages = 'all'");
    assert_eq!(seats_below_most(&config(&all)), None);
    let terms = Terms::of(&config(&all)).unwrap();
    assert_eq!((terms.fewest, terms.useful(7)), (1, 7));
}

#[test]
fn every_key_that_cannot_be_is_told_with_its_value_and_a_remedy() {
    for (set, wanted) in [
        (
            "fewest = 5",
            "market.fewest: 5 is above market.most = 4: lower it to 4",
        ),
        (
            "provider = 'static'\nfewest = 2",
            "market.fewest: 2 machines at least, and the file lists 1",
        ),
        (
            "provider = 'replay'",
            "market.trace: it is not said, and market.provider = \"replay\" needs it",
        ),
        (
            "provider = 'aws'\naws_types = 'g5.xlarge'",
            "market.aws_template: it is not said",
        ),
        (
            "provider = 'slurm'\nslurm_on_demand = 'none'",
            "market.slurm_on_demand: it is not said",
        ),
        (
            "deadline_minutes = 20",
            "market.deadline_minutes: a deadline of 1200.0 s is 0 slots",
        ),
        (
            "slot_seconds = 1\ndeadline_minutes = 999999",
            "use slots of at least 1200 s",
        ),
        (
            "slot_seconds = 86400\ndeadline_minutes = 3000\nbudget_usd = 5",
            "use at least 8 USD",
        ),
        (
            "policy = 'greedy'",
            "market.policy: \"greedy\" is no policy",
        ),
        (
            "forecast = 'perfect'",
            "market.forecast: \"perfect\" knows the future",
        ),
        (
            "forecast = 'tea'",
            "market.forecast: \"tea\" is no foresight",
        ),
        (
            "rules = 'a: no-spot cheap'",
            "market.rules: \"cheap\" of tenant \"a\" is no rule",
        ),
        (
            "rules = 'no-spot'",
            "market.rules: \"no-spot\" names no tenant",
        ),
    ] {
        let provider = if set.contains("provider") {
            ""
        } else {
            "provider = 'local'\n"
        };
        let text = format!("[market]\n{provider}{set}\n[[node]]\nname = 'n'\n");
        let found = told(&text);
        assert_eq!(found.len(), 1, "{set}: {found:?}");
        assert!(found[0].contains(wanted), "{set}: {found:?}");
    }
    let both =
        told("[market]\nprovider = 'local'\npolicy = 'x'\nbudget_usd = 1\nmost = 1\nfewest = 2\n");
    assert_eq!(both.len(), 2, "all at once: {both:?}");
}

#[test]
fn rules_of_all_tenants_at_work_hold_together() {
    let text = "rules = 'a: max-spot-cents=40 regions=eu+us, b: max-spot-cents=30 regions=eu wait-slots=3, c: no-spot, *: leave=2/8'";
    let terms = Terms::of(&config(&format!("[market]\nprovider = 'local'\n{text}\n"))).unwrap();
    let both = terms.rules_of(["a", "b", "z"].into_iter());
    assert_eq!(both.max_spot_price, Some(MicroUsd(300_000)));
    assert_eq!(both.regions.iter().collect::<Vec<_>>(), ["eu"]);
    assert_eq!(both.wait_at_most, Some(3));
    assert!(both.leave.is_some() && !both.no_spot);
    assert!(terms.rules_of(["c"].into_iter()).no_spot);
}

#[test]
fn of_rules_that_are_said_twice_the_stricter_holds() {
    for rules in [
        "a: max-spot-cents=30 wait-slots=5, a: wait-slots=3 max-spot-cents=40",
        "a: max-spot-cents=40 max-spot-cents=30 wait-slots=3 wait-slots=5",
    ] {
        let text = format!("[market]\nprovider = 'local'\nrules = '{rules}'\n");
        let own = Terms::of(&config(&text)).unwrap();
        let own = own.rules_of(["a"].into_iter());
        assert_eq!(own.max_spot_price, Some(MicroUsd(300_000)), "{rules}");
        assert_eq!(own.wait_at_most, Some(3), "{rules}");
    }
}

#[test]
fn a_policy_that_is_learned_is_one_of_the_standard_pool() {
    let text = "[market]\nprovider = 'local'\npolicy = 'selection'\n";
    let terms = Terms::of(&config(text)).unwrap();
    assert!(matches!(terms.choice, Choice::Learned(members) if members.len() > 10));
}
