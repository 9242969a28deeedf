use shared::ids::JobName;

use super::*;

fn job(id: u64, tokens: u64) -> JobTold {
    JobTold {
        id: JobId(id),
        name: JobName::new(format!("j{id}")).expect("a plain word is a name"),
        tenant: if id < 3 { "a".into() } else { "b".into() },
        ended: false,
        paused: false,
        step: 0,
        total_steps: 100,
        tokens,
        deadline: None,
        budget: None,
        zones: Default::default(),
    }
}

fn cost(kind: Kind, cents: u64, works: bool) -> Cost {
    Cost {
        kind,
        hourly: MicroUsd(cents * 10_000),
        on_demand: MicroUsd(1_000_000),
        works,
    }
}

const MINUTE: Micros = Micros(60_000_000);

#[test]
fn pu_1_money_is_split_by_tokens_and_nothing_is_lost() {
    let mut purse = Purse::default();
    purse.charge(&[job(1, 0), job(3, 500)]);
    let both = [cost(Kind::Spot, 30, true), cost(Kind::OnDemand, 100, false)];
    for _ in 0..7 {
        purse.pay(both.iter().copied(), Micros(1_234_567));
    }
    // No tokens yet: it waits.
    purse.charge(&[job(1, 0), job(3, 500)]);
    assert_eq!(purse.accounts, Ledger::default());
    purse.charge(&[job(1, 300), job(3, 600)]);
    let whole = purse.accounts.whole();
    assert_eq!(whole.spent(), purse.spent());
    let (one, other) = (purse.of(JobId(1)), purse.of(JobId(3)));
    assert_eq!((one.tokens, other.tokens), (300, 100));
    assert!(one.spent().0.abs_diff(3 * other.spent().0) <= 4);
    assert_eq!(whole.waste, whole.on_demand, "it did no work");
    // Nobody works: it is idle.
    purse.pay(both.iter().copied(), MINUTE);
    let mut ended = [job(1, 300), job(3, 600)];
    ended.iter_mut().for_each(|job| job.ended = true);
    purse.charge(&ended);
    assert!(purse.idle().spent().0 > 20_000);
    assert_eq!(purse.accounts.whole().spent(), purse.spent());
    let tenants = purse.tenants(MicroUsd(1_000_000));
    assert_eq!(tenants["a"].spent, one.spent());
}

#[test]
fn work_that_is_done_again_is_waste() {
    let mut purse = Purse::default();
    purse.charge(&[job(1, 0)]);
    purse.pay([cost(Kind::Spot, 60, true)].into_iter(), MINUTE);
    purse.charge(&[job(1, 100)]);
    // A loss: forty tokens are gone, and done again.
    purse.charge(&[job(1, 60)]);
    purse.pay([cost(Kind::Spot, 60, true)].into_iter(), MINUTE);
    purse.charge(&[job(1, 140)]);
    let own = purse.of(JobId(1));
    assert_eq!((own.tokens, own.spent().0), (180, 20_000));
    assert_eq!(own.waste.0, 5_000, "half of the second minute");
}

#[test]
fn company_saves_what_a_job_alone_would_have_paid_more() {
    let mut purse = Purse::default();
    let hourly = MicroUsd(600_000);
    purse.charge(&[job(1, 0)]);
    // Alone: ten tokens a minute.
    purse.pay([cost(Kind::Spot, 60, true)].into_iter(), MINUTE);
    purse.charge(&[job(1, 10)]);
    let bill = &purse.jobs(hourly)["j1"];
    assert_eq!((bill.saved_by_company, bill.saved), (Some(0), 6_666));
    // In company as many for half of the money.
    purse.charge(&[job(1, 10), job(2, 0)]);
    purse.pay([cost(Kind::Spot, 60, true)].into_iter(), MINUTE);
    purse.charge(&[job(1, 20), job(2, 10)]);
    let bills = purse.jobs(hourly);
    assert_eq!(bills["j1"].saved_by_company, Some(5_000));
    assert_eq!(bills["j2"].saved_by_company, None, "it never was alone");
}

#[test]
fn a_name_that_is_used_again_is_another_account() {
    let mut purse = Purse::default();
    let mut again = job(3, 0);
    again.name = job(1, 0).name;
    purse.charge(&[job(1, 0)]);
    purse.pay([cost(Kind::Spot, 60, true)].into_iter(), MINUTE);
    purse.charge(&[job(1, 10)]);
    purse.charge(std::slice::from_ref(&again));
    assert_eq!(purse.of(JobId(3)).spent(), MicroUsd(0));
    purse.pay([cost(Kind::Spot, 30, true)].into_iter(), MINUTE);
    again.tokens = 10;
    purse.charge(&[again]);
    let bills = purse.jobs(MicroUsd(0));
    let told: Vec<_> = bills
        .iter()
        .map(|(name, bill)| (name.as_str(), bill.spent.0))
        .collect();
    assert_eq!(told, [("j1 (1)", 10_000), ("j1 (3)", 5_000)]);
    let tenants = purse.tenants(MicroUsd(0));
    assert_eq!(
        (tenants["a"].spent.0, tenants["b"].spent.0),
        (10_000, 5_000)
    );
}

#[test]
fn ended_jobs_are_bounded_and_what_they_cost_is_not_lost() {
    let mut purse = Purse::default();
    for id in 1..1_000 {
        purse.charge(&[job(id, 0)]);
        purse.pay([cost(Kind::Spot, 36, true)].into_iter(), MINUTE);
        let mut one = job(id, 5);
        one.ended = true;
        purse.charge(&[one]);
    }
    assert_eq!(purse.accounts.jobs.len(), MOST_ENDED);
    let tenants = purse.tenants(MicroUsd(0));
    let all: u64 = tenants.values().map(|bill| bill.spent.0).sum();
    assert_eq!(all, purse.spent().0);
    let text = serde_json::to_string(&purse).expect("plain data");
    let again: Purse = serde_json::from_str(&text).expect("what was written");
    assert_eq!(again, purse);
}
