//! `spotmux market bill`: what the machines of a cluster have cost, in all, by job and by tenant.

use std::collections::BTreeMap;

use market_actor::actor::files;
use market_actor::broker::kept::Kept;
use market_actor::broker::purse::Bill;
use market_actor::custody::record;
use serde::Serialize;
use shared::config::market::MarketSection;
use shared::units::{MicroUsd, Micros};

use crate::args::BillArgs;
use crate::cluster_file;
use crate::exit::{Exit, Failure, OrExit};
use crate::process;
use crate::render::{self, Align, Output, Table};
use crate::settings::Settings;

#[derive(Serialize)]
struct Told {
    /// When, since 1970.
    at: Micros,
    spent: MicroUsd,
    #[serde(skip_serializing_if = "Option::is_none")]
    budget: Option<MicroUsd>,
    paused_by_budget: bool,
    machines: usize,
    idle: MicroUsd,
    not_yet_charged: MicroUsd,
    jobs: BTreeMap<String, Bill>,
    tenants: BTreeMap<String, Bill>,
}

/// Runs the command: nothing is changed.
pub(super) fn run(args: &BillArgs, settings: &Settings, output: &Output) -> Result<Exit, Failure> {
    let loaded = cluster_file::load(&args.cluster, settings)?;
    let folder = process::market::folder(&loaded);
    let state = folder.join(market_actor::actor::STATE);
    let Some(kept) = files::kept(&state).or_exit(Exit::BadInput)? else {
        let message = format!(
            "{} is absent: no market has held a machine yet",
            state.display()
        );
        return Err(Failure::new(Exit::NotFound, message)
            .hint("a market runs where market.provider is not \"none\": spotmux up"));
    };
    let entries = market_actor::actor::journal::look(&folder.join(market_actor::actor::RECORD));
    let open = record::open(&entries.or_exit(Exit::BadInput)?);
    let told = told(&kept, &loaded.config.market, open.len());
    output.result(&told, &text(&told))?;
    Ok(Exit::Done)
}

fn told(kept: &Kept, section: &MarketSection, machines: usize) -> Told {
    let latest = kept.history.slots.last();
    let hourly = latest.map_or_else(|| section.on_demand_price(), |slot| slot.on_demand_price);
    let purse = &kept.purse;
    Told {
        at: kept.at,
        spent: purse.spent(),
        budget: section.budget(),
        paused_by_budget: kept.halts.all,
        machines,
        idle: purse.idle().spent(),
        not_yet_charged: purse.pending(),
        jobs: purse.jobs(hourly),
        tenants: purse.tenants(hourly),
    }
}

fn text(told: &Told) -> String {
    let budget = match (told.budget, told.paused_by_budget) {
        (None, _) => "no cap".to_owned(),
        (Some(cap), false) => format!("of {cap}"),
        (Some(cap), true) => {
            format!("of {cap}; all jobs are paused: raise market.budget_usd and resume them")
        }
    };
    let mut text = render::facts(&[
        ("spent", format!("{}, {budget}", told.spent)),
        ("machines", told.machines.to_string()),
        ("idle", format!("{} while no job was at work", told.idle)),
        (
            "not yet charged",
            format!("{} since the last tokens", told.not_yet_charged),
        ),
    ]);
    for (what, bills) in [("job", &told.jobs), ("tenant", &told.tenants)] {
        let named = bills.keys().any(|name| !name.is_empty());
        if named {
            text.push('\n');
            text.push_str(&table(what, bills));
        }
    }
    text
}

fn table(what: &'static str, bills: &BTreeMap<String, Bill>) -> String {
    let (l, r) = (Align::Left, Align::Right);
    let mut table = Table::new(&[
        (what, l),
        ("cost", r),
        ("spot", r),
        ("on demand", r),
        ("waste", r),
        ("machine h", r),
        ("tokens", r),
        ("saved", r),
        ("by company", r),
    ]);
    for (name, bill) in bills {
        let account = &bill.account;
        table.row([
            match name.as_str() {
                "" => "(nobody)".to_owned(),
                name => name.to_owned(),
            },
            bill.spent.to_string(),
            account.spot.to_string(),
            account.on_demand.to_string(),
            account.waste.to_string(),
            format!("{:.2}", account.machine_time.seconds() / 3600.0),
            render::count(account.tokens),
            signed(bill.saved),
            bill.saved_by_company.map_or_else(|| "-".to_owned(), signed),
        ]);
    }
    table.text()
}

fn signed(micros: i64) -> String {
    let sign = if micros < 0 { "-" } else { "" };
    format!("{sign}{}", MicroUsd(micros.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_below_nothing_says_so() {
        assert_eq!(signed(-2_500_000), "-$2.50");
        assert_eq!(signed(2_500_000), "$2.50");
    }
}
