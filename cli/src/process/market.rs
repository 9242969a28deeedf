//! What a market actor is told: section `market` of the cluster's file.

mod machines;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use market_actor::actor::{Clocks, MarketSettings};
use market_actor::custody::Bounds;
use market_actor::problem::offer::slot_price;
use market_actor::terms::{Misfit, Terms, misfits};
use shared::config::Problem;
use shared::config::load::Loaded;
use shared::config::market::{MarketSection, Provider, seconds};
use shared::config::places;
use shared::units::{MicroUsd, Micros};

use super::{endpoint, steady};
use crate::clock;
use crate::exit::{Exit, Failure};
use crate::security;
use crate::settings::Settings;

/// A call of the provider that takes longer is given up.
const PATIENCE: Duration = Duration::from_secs(30);

/// The folder of the market actor's files.
pub(crate) fn folder(loaded: &Loaded) -> PathBuf {
    let state = loaded.path_of(&loaded.config.cluster.state);
    state.join(places::MARKET_STATE)
}

/// Everything that keeps a market from being started as the file says: by itself, beside the plan, and files that it names. Nothing
/// where no market runs. `config check`, `doctor`, `up` and the process itself ask this.
pub(crate) fn problems(loaded: &Loaded, settings: &Settings) -> Vec<Problem> {
    let found = misfits(&loaded.config);
    let mut problems: Vec<Problem> = found.iter().map(|misfit| told(loaded, misfit)).collect();
    if problems.is_empty() && loaded.config.market.runs() {
        problems.extend(machines::problem(loaded, settings));
    }
    problems
}

fn told(loaded: &Loaded, misfit: &Misfit) -> Problem {
    Problem {
        origin: loaded.origin(misfit.key),
        key: misfit.key.into(),
        message: misfit.fault.to_string(),
    }
}

/// What a job that names a budget must have at least: one slot of the fewest machines at the lower price.
pub(crate) fn least_budget(loaded: &Loaded) -> MicroUsd {
    let section = &loaded.config.market;
    let Ok(terms) = Terms::of(&loaded.config) else {
        return MicroUsd(0);
    };
    if !section.runs() {
        return MicroUsd(0);
    }
    let price = section.spot_price().min(section.on_demand_price());
    let each = slot_price(price, terms.slot).0;
    MicroUsd(each.saturating_mul(u64::from(terms.fewest)))
}

/// What a market actor is told; `set` are keys that its machines are told too.
///
/// # Errors
/// What is wrong with the section or the trace.
pub(crate) fn market(
    loaded: &Loaded,
    set: &[String],
    settings: &Settings,
) -> Result<MarketSettings, Failure> {
    let section = &loaded.config.market;
    if section.provider == Provider::None {
        let message = format!(
            "market.provider ({}) is \"none\": no market actor is to run",
            loaded.origin("market.provider")
        );
        return Err(
            Failure::new(Exit::BadInput, message).hint("name one: market.provider = \"local\"")
        );
    }
    let wrong = |problems: Vec<Problem>| {
        let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
        Failure::new(Exit::BadInput, lines.join("\n"))
    };
    let found = problems(loaded, settings);
    if !found.is_empty() {
        return Err(wrong(found));
    }
    let terms = Terms::of(&loaded.config);
    let terms = terms.map_err(|all| wrong(all.iter().map(|one| told(loaded, one)).collect()))?;
    let source = std::net::SocketAddr::new(
        match loaded.config.coordinator.listen.is_ipv4() {
            true => std::net::Ipv4Addr::UNSPECIFIED.into(),
            false => std::net::Ipv6Addr::UNSPECIFIED.into(),
        },
        0,
    );
    Ok(MarketSettings {
        coordinator: loaded.config.coordinator.listen,
        endpoint: endpoint(source, loaded),
        credential: security::directory(loaded).join(places::MARKET),
        offered: machines::offered(loaded, set, settings)?,
        terms,
        bounds: bounds(section),
        folder: folder(loaded),
        look: Duration::from_millis(section.look_ms),
        patience: PATIENCE,
        clocks: Clocks {
            wall: Arc::new(clock::now),
            steady: Arc::new(steady),
        },
    })
}

fn bounds(section: &MarketSection) -> Bounds {
    let look = Micros::of_millis(section.look_ms);
    let grace = seconds(section.grace_seconds);
    Bounds {
        lost: Micros(look.0.saturating_mul(5)).max(seconds(30)),
        boot: seconds(section.boot_seconds),
        again: grace,
        alarm: Micros(grace.0.saturating_mul(5)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::fs;

    use shared::config::load;

    use super::*;

    fn loaded(folder: &std::path::Path, text: &str) -> Loaded {
        let path = folder.join("cluster.toml");
        fs::write(&path, text).unwrap();
        load::load(&path, [], &[]).unwrap()
    }

    #[test]
    fn what_up_would_end_with_is_told_before() {
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings::default();
        let of = |text: &str| {
            let found = problems(&loaded(folder.path(), text), &settings);
            found.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(of("[market]\nprovider = 'local'\n"), [""; 0]);
        let few = of("[plan]\nstages = 2\n[market]\nprovider = 'local'\nfewest = 1\n");
        assert!(
            few[0].contains("cluster.toml:5: market.fewest: 1 machines hold no replica"),
            "{few:?}"
        );
        let absent = of("[market]\nprovider = 'replay'\ntrace = 'none.json'\n");
        assert!(
            absent[0].contains("cluster.toml:3: market.trace: ") && absent[0].contains("none.json"),
            "{absent:?}"
        );
        fs::write(folder.path().join("bad.json"), "[]").unwrap();
        let bad = of("[market]\nprovider = 'replay'\ntrace = 'bad.json'\n");
        assert!(bad[0].contains("market.trace: "), "{bad:?}");
        let aws = "[market]\nprovider = 'aws'\naws_template = 't'\naws_types = 'g5.xlarge'\n";
        let keys = of(aws);
        assert!(keys[0].contains("AWS_ACCESS_KEY_ID"), "{keys:?}");
        let slurm = of("[market]\nprovider = 'slurm'\nslurm_commands = 'nowhere'\n");
        assert!(slurm[0].contains("market.slurm_commands"), "{slurm:?}");
        let profile = of("[plan]\nprofile = 'absent.json'\n[market]\nprovider = 'local'\n");
        assert!(profile[0].contains("plan.profile"), "{profile:?}");
    }

    #[test]
    fn a_job_has_at_least_a_slot_of_the_fewest_machines() {
        let folder = tempfile::tempdir().unwrap();
        let text = "[plan]\nstages = 2\n[market]\nprovider = 'local'\nspot_cents = 40\n";
        assert_eq!(
            least_budget(&loaded(folder.path(), text)),
            MicroUsd(400_000)
        );
        assert_eq!(least_budget(&loaded(folder.path(), "")), MicroUsd(0));
    }
}
