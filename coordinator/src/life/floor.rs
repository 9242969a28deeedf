//! What a job costs at least, and whether it can be done in time, by what a market offers now.
//!
//! Machines are counted in slots of one machine, held in groups of the fewest that do work, F, each doing its share of what was
//! measured. With r tokens of a machine in a slot, a job of T tokens takes
//!
//! ```text
//! M = F * ceil(T / (r F))
//! ```
//!
//! of them. Without a deadline each is bought at the lowest price that is known; with one, spot is bought as far as there is some in
//! that many slots, the cheapest first, and the rest on demand. That is the cheapest way at these prices: a job in company shares its
//! steps with others, and what it does not finish now may get dearer or cheaper.

use shared::units::{MicroUsd, Micros};
use shared::wire::market::{Ground, Offered};
use thiserror::Error;

/// Microseconds of an hour: prices are by the hour.
const HOUR: f64 = 3_600_000_000.0;

/// Jobs that one message names at most.
const MOST_NAMED: usize = 8;

/// What a job asks of the machines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Asked<'a> {
    /// Tokens that it passes in all; 0 where that is not known.
    pub tokens: u64,
    /// Time until it is to be done; nothing where it has time.
    pub within: Option<Micros>,
    /// What it may cost; nothing where there is no end.
    pub budget: Option<MicroUsd>,
    /// Zones or regions where it may be; all when empty.
    pub zones: &'a [String],
}

/// Why a job cannot be done as asked, with what would work.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum Misfit {
    /// A place that is none.
    #[error("market.zones names {zone:?}, which is no zone and no region of the market: there are {}", known.join(", "))]
    UnknownZone {
        /// What was asked for.
        zone: String,
        /// Zones and regions that there are.
        known: Vec<String>,
    },
    /// Nowhere beside others.
    #[error(
        "market.zones ({}) leaves no place for it beside those at work or waiting, which share its machines: {}. Submit it when they are done, or \
         with zones where they may be",
        zones.join(", "), others.join(", ")
    )]
    Apart {
        /// Where it may be.
        zones: Vec<String>,
        /// Jobs at work that say where they may be, and where.
        others: Vec<String>,
    },
    /// Not even on all machines.
    #[error(
        "it is to be done in {:.2} h, and its {tokens} tokens take {:.2} h on {machines} machines, the most there are: market.deadline_hours = {:.2} would do",
        hours(*within), hours(*needed), (hours(*needed) * 100.0).ceil() / 100.0
    )]
    TooSoon {
        /// Until its deadline.
        within: Micros,
        /// Time that it takes.
        needed: Micros,
        /// On so many machines.
        machines: u32,
        /// Tokens that it passes.
        tokens: u64,
    },
    /// Less money than the cheapest way takes.
    #[error(
        "market.budget_usd is {cap}, and its {tokens} tokens take {machine_slots} slots of a machine, which cost at least {floor} at the \
         prices of now: at least {:.2} would do",
        floor.0.div_ceil(10_000) as f64 / 100.0
    )]
    TooPoor {
        /// The budget.
        cap: MicroUsd,
        /// What it costs at least.
        floor: MicroUsd,
        /// Slots of a machine.
        machine_slots: u64,
        /// Tokens that it passes.
        tokens: u64,
    },
}

fn hours(time: Micros) -> f64 {
    time.0 as f64 / HOUR
}

/// Offers of these zones and regions; of all when none is named.
///
/// # Errors
/// [`Misfit::UnknownZone`].
pub fn zones<'a>(ground: &'a Ground, names: &[String]) -> Result<Vec<&'a Offered>, Misfit> {
    let known = |name: &&String| ground.offers.iter().any(|one| is_in(one, name));
    if let Some(zone) = names.iter().find(|name| !known(name)) {
        let all = ground.offers.iter();
        let mut known: Vec<String> = all
            .flat_map(|one| [one.place.zone.clone(), one.place.region.clone()])
            .filter(|name| !name.is_empty())
            .collect();
        known.sort_unstable();
        known.dedup();
        return Err(Misfit::UnknownZone {
            zone: zone.clone(),
            known,
        });
    }
    let offers = ground.offers.iter();
    let wanted = offers.filter(|one| names.is_empty() || is_in_any(one, names));
    Ok(wanted.collect())
}

fn is_in(one: &Offered, name: &str) -> bool {
    one.place.zone == name || one.place.region == name
}

fn is_in_any(one: &Offered, names: &[String]) -> bool {
    names.iter().any(|name| is_in(one, name))
}

/// Whether a place is left to a job that may be in these zones and regions, beside the `others`, by name, that share its machines. Who may
/// be nowhere that is offered is in nobody's way.
///
/// # Errors
/// [`Misfit::UnknownZone`]; [`Misfit::Apart`] with the first eight of the others.
pub fn beside(
    ground: &Ground,
    names: &[String],
    others: &[(String, Vec<String>)],
) -> Result<(), Misfit> {
    let mut left = zones(ground, names)?;
    let mut said = Vec::new();
    for (job, own) in others {
        if ground.offers.iter().any(|one| is_in_any(one, own)) {
            left.retain(|one| is_in_any(one, own));
            said.push(format!("{job} in {}", own.join(" or ")));
        }
    }
    if !left.is_empty() || said.is_empty() {
        return Ok(());
    }
    said.truncate(MOST_NAMED);
    Err(Misfit::Apart {
        zones: names.to_vec(),
        others: said,
    })
}

/// What one slot of the fewest machines costs at the lowest price; nothing without an offer.
#[must_use]
pub fn slot(ground: &Ground, offers: &[&Offered]) -> Option<MicroUsd> {
    let price = lowest(offers)?;
    Some(cost(u64::from(ground.fewest.max(1)), price, ground.slot))
}

fn lowest(offers: &[&Offered]) -> Option<MicroUsd> {
    let prices = offers.iter();
    prices
        .map(|one| one.spot_price.min(one.on_demand_price))
        .min()
}

fn cost(machine_slots: u64, hourly: MicroUsd, slot: Micros) -> MicroUsd {
    let exact = u128::from(machine_slots) * u128::from(hourly.0) * u128::from(slot.0);
    let whole = exact.div_ceil(HOUR as u128);
    MicroUsd(u64::try_from(whole).unwrap_or(u64::MAX))
}

/// Whether a job can be done as it asks.
///
/// # Errors
/// The first [`Misfit`]; none of time and money while no rate was measured, or nothing is offered.
pub fn check(ground: &Ground, asked: &Asked<'_>) -> Result<(), Misfit> {
    let offers = zones(ground, asked.zones)?;
    let each = ground.tokens_per_machine_hour as f64 * hours(ground.slot);
    let (Some(lowest), true) = (lowest(&offers), each > 0.0 && asked.tokens > 0) else {
        return Ok(());
    };
    let group = ground.fewest.max(1);
    let tokens = asked.tokens;
    if let Some(within) = asked.within {
        let there = offers.iter().try_fold(0u32, |all, one| {
            let all = all.saturating_add(one.spot_available);
            Some(all.saturating_add(one.on_demand_available?))
        });
        let most = ground.most.min(there.unwrap_or(u32::MAX)) / group * group;
        // Where too few are offered now, more may be later.
        let machines = if most > 0 { most } else { group };
        let needed = tokens as f64 / each / f64::from(machines) * ground.slot.0 as f64;
        if needed > within.0 as f64 {
            return Err(Misfit::TooSoon {
                within,
                needed: Micros(needed.ceil() as u64),
                machines,
                tokens,
            });
        }
    }
    let groups = (tokens as f64 / each / f64::from(group)).ceil().max(1.0);
    let machine_slots = (groups as u64).saturating_mul(u64::from(group));
    let floor = match asked.within {
        None => cost(machine_slots, lowest, ground.slot),
        Some(within) => {
            let slots = within.0.div_ceil(ground.slot.0.max(1));
            bought(machine_slots, slots, &offers, ground.slot)
        }
    };
    match asked.budget {
        Some(cap) if cap < floor => Err(Misfit::TooPoor {
            cap,
            floor,
            machine_slots,
            tokens,
        }),
        _ => Ok(()),
    }
}

/// The cheapest way to so many slots of a machine within so many slots; what is beyond all that is offered costs the dearest of it.
fn bought(machine_slots: u64, slots: u64, offers: &[&Offered], slot: Micros) -> MicroUsd {
    let mut ways: Vec<(MicroUsd, Option<u32>)> = Vec::new();
    for one in offers {
        ways.push((one.spot_price, Some(one.spot_available)));
        ways.push((one.on_demand_price, one.on_demand_available));
    }
    ways.sort_unstable_by_key(|(price, _)| *price);
    let (mut left, mut paid) = (machine_slots, MicroUsd(0));
    let last = ways.len().saturating_sub(1);
    for (at, (price, there)) in ways.into_iter().enumerate() {
        let there = there.filter(|_| at < last);
        let taken = there.map_or(left, |there| {
            left.min(u64::from(there).saturating_mul(slots))
        });
        left -= taken;
        paid = MicroUsd(paid.0.saturating_add(cost(taken, price, slot).0));
    }
    paid
}

#[cfg(test)]
mod tests {
    use shared::wire::market::Place;

    use super::*;

    const SLOT: Micros = Micros(1_800_000_000);

    fn offered(zone: &str, spot: u32) -> Offered {
        Offered {
            place: Place {
                region: "east".into(),
                zone: zone.into(),
            },
            spot_price: MicroUsd(200_000),
            spot_available: spot,
            on_demand_price: MicroUsd(1_000_000),
            on_demand_available: None,
        }
    }

    /// 1000 tokens a slot of a machine, in pairs of machines.
    fn ground() -> Ground {
        Ground {
            offers: vec![offered("east-a", 2), offered("east-b", 0)],
            fewest: 2,
            most: 9,
            slot: SLOT,
            tokens_per_machine_hour: 2000,
        }
    }

    fn asked(tokens: u64, slots: Option<u64>, usd: f64) -> Asked<'static> {
        Asked {
            tokens,
            within: slots.map(|slots| Micros(slots * SLOT.0)),
            budget: Some(MicroUsd((usd * 1e6).round() as u64)),
            zones: &[],
        }
    }

    #[test]
    fn the_floor_is_the_cheapest_way_and_what_is_named_would_do() {
        let ground = ground();
        // 9.5 slots of a machine are 10 in pairs, at a tenth of a dollar.
        let poor = check(&ground, &asked(9_500, None, 0.99));
        let Err(Misfit::TooPoor {
            floor,
            machine_slots,
            ..
        }) = poor
        else {
            panic!("{poor:?}");
        };
        assert_eq!((floor, machine_slots), (MicroUsd(1_000_000), 10));
        assert_eq!(check(&ground, &asked(9_500, None, 1.0)), Ok(()));
        // In three slots spot gives six of them, the other four are bought on demand.
        let late = check(&ground, &asked(9_500, Some(3), 2.59));
        let told = late.expect_err("it is too little").to_string();
        assert!(told.contains("at least 2.60 would do"), "{told}");
        assert_eq!(check(&ground, &asked(9_500, Some(3), 2.6)), Ok(()));
        // However small, it takes a slot of the fewest machines.
        assert!(check(&ground, &asked(1, None, 0.19)).is_err());
        assert_eq!(check(&ground, &asked(1, None, 0.2)), Ok(()));
    }

    #[test]
    fn a_deadline_that_all_machines_miss_is_refused_with_one_that_they_meet() {
        let ground = ground();
        let soon = check(&ground, &asked(80_000, Some(9), 1e6));
        let Err(Misfit::TooSoon {
            needed, machines, ..
        }) = soon
        else {
            panic!("{soon:?}");
        };
        assert_eq!((needed, machines), (Micros(10 * SLOT.0), 8), "in pairs");
        assert_eq!(check(&ground, &asked(80_000, Some(10), 1e6)), Ok(()));
        let mut few = ground;
        for one in &mut few.offers {
            one.on_demand_available = Some(0);
        }
        let scarce = check(&few, &asked(80_000, Some(10), 1e6));
        assert!(matches!(scarce, Err(Misfit::TooSoon { machines: 2, .. })));
    }

    #[test]
    fn a_place_is_left_beside_others_or_they_are_named() {
        let ground = ground();
        let names = |names: &[&str]| -> Vec<String> {
            names.iter().map(|name| (*name).to_owned()).collect()
        };
        let other = |job: &str, zone: &str| (job.to_owned(), names(&[zone]));
        let one = names(&["east-b"]);
        assert_eq!(beside(&ground, &one, &[]), Ok(()));
        // A region holds its zones; one that is not offered any more is in nobody's way.
        let open = [other("a", "east"), other("b", "gone")];
        assert_eq!(beside(&ground, &one, &open), Ok(()));
        let apart = [other("a", "east"), other("b", "east-a")];
        let told = beside(&ground, &one, &apart).expect_err("b may not be there");
        assert!(
            told.to_string().contains("a in east, b in east-a"),
            "{told}"
        );
    }

    #[test]
    fn zones_and_regions_are_known_by_name() {
        let mut ground = ground();
        ground.offers[1].on_demand_price = MicroUsd(500_000);
        ground.offers[1].spot_price = MicroUsd(400_000);
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let of = |names: Vec<String>| zones(&ground, &names).map(|offers| offers.len());
        assert_eq!(of(names(&["east-b"])), Ok(1));
        assert_eq!(of(names(&["east"])), Ok(2));
        let told = of(names(&["east-a", "west-1a"])).expect_err("there is none");
        assert_eq!(
            told.to_string(),
            "market.zones names \"west-1a\", which is no zone and no region of the market: there are east, east-a, east-b"
        );
        let there = names(&["east-b"]);
        let asked = Asked {
            zones: &there,
            ..asked(2_000, None, 0.39)
        };
        assert!(check(&ground, &asked).is_err(), "it is dearer there");
    }

    #[test]
    fn what_is_not_known_refuses_nothing() {
        let mut unmeasured = ground();
        unmeasured.tokens_per_machine_hour = 0;
        assert_eq!(check(&unmeasured, &asked(u64::MAX, Some(1), 0.0)), Ok(()));
        assert_eq!(check(&Ground::default(), &asked(9, Some(1), 0.0)), Ok(()));
        assert_eq!(check(&ground(), &asked(0, Some(1), 0.0)), Ok(()));
    }
}
