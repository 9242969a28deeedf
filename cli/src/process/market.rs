//! What a market actor is told: section `market` of the cluster's file.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use market_actor::actor::{MarketSettings, Offered};
use market_actor::broker::Terms;
use market_actor::custody::Bounds;
use market_actor::feed::files;
use market_actor::feed::resample::{Cut, PriceRule, resample};
use market_actor::market::Market;
use market_actor::money::Budget;
use market_actor::policy::Safety;
use market_actor::policy::tenant::Rules;
use market_actor::provider::Kind;
use market_actor::provider::fixed::Listed;
use market_actor::provider::local::{Launch, Stock};
use market_actor::provider::replay::course::Script;
use market_actor::select::pool::Member;
use market_actor::select::word;
use shared::config::load::Loaded;
use shared::config::market::{MarketSection, Provider, seconds};
use shared::config::places;
use shared::units::Micros;

use super::endpoint;
use crate::clock;
use crate::exit::{Exit, Failure, OrExit};
use crate::security;

/// A slot of the market as it is known to forecasters of a day.
const DAY: u64 = 86_400;
/// A call of the provider that takes longer is given up.
const PATIENCE: Duration = Duration::from_secs(30);
/// Per mille of the budget from which on it is said aloud.
const WARN: u32 = 800;
/// What finishing in time is worth, over the work at the price on demand.
const WORTH: f64 = 1.5;

/// The folder of the market actor's files.
pub(crate) fn folder(loaded: &Loaded) -> PathBuf {
    let state = loaded.path_of(&loaded.config.cluster.state);
    state.join(places::MARKET_STATE)
}

/// What a market actor is told; `set` are keys that its machines are told too.
///
/// # Errors
/// What is wrong with the section or the trace.
pub(crate) fn market(loaded: &Loaded, set: &[String]) -> Result<MarketSettings, Failure> {
    let section = &loaded.config.market;
    if !section.runs() {
        let message = format!(
            "market.provider ({}) is \"none\": no market actor is to run",
            loaded.origin("market.provider")
        );
        return Err(
            Failure::new(Exit::BadInput, message).hint("name one: market.provider = \"local\"")
        );
    }
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
        offered: offered(loaded, set)?,
        terms: terms(loaded)?,
        bounds: bounds(section),
        folder: folder(loaded),
        look: Duration::from_millis(section.look_ms),
        patience: PATIENCE,
        clock: Arc::new(clock::now),
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

fn terms(loaded: &Loaded) -> Result<Terms, Failure> {
    let section = &loaded.config.market;
    let narrow = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    let day = narrow(DAY / section.slot_seconds.max(1));
    if section.most < section.fewest {
        let message = format!(
            "market.most ({}) is {}, market.fewest is {}: at least as many",
            loaded.origin("market.most"),
            section.most,
            section.fewest
        );
        return Err(Failure::new(Exit::BadInput, message));
    }
    let policy = word::policy(&section.policy)
        .map_err(|error| anyhow::anyhow!("market.policy: {error}"))
        .or_exit(Exit::BadInput)?;
    let source = word::foresight(&section.forecast, day)
        .map_err(|error| anyhow::anyhow!("market.forecast: {error}"))
        .or_exit(Exit::BadInput)?;
    if matches!(
        section.forecast.split('=').next(),
        Some("perfect" | "noisy")
    ) {
        let message = format!(
            "market.forecast is {:?}: nobody knows the future, it is for back-tests only",
            section.forecast
        );
        return Err(Failure::new(Exit::BadInput, message)
            .hint("persistence, real, ensemble and proven look at the past"));
    }
    Ok(Terms {
        slot: section.slot(),
        fewest: narrow(section.fewest),
        most: narrow(section.most),
        deadline: section.deadline(),
        budget: section.budget().map(|cap| Budget {
            cap,
            warn_per_mille: WARN,
        }),
        worth: WORTH,
        change: seconds(5),
        on_demand_price: section.on_demand_price(),
        member: Member { policy, source },
        safety: Safety::default(),
        rules: Rules::default(),
        grace: seconds(section.grace_seconds),
        rest: seconds(section.rest_seconds),
        hysteresis: narrow(section.hysteresis),
    })
}

fn offered(loaded: &Loaded, set: &[String]) -> Result<Offered, Failure> {
    let section = &loaded.config.market;
    let stock = Stock {
        most: u32::try_from(section.most).unwrap_or(u32::MAX),
        spot_price: section.spot_price(),
        on_demand_price: section.on_demand_price(),
        notice: Micros::of_millis(section.notice_ms),
    };
    Ok(match section.provider {
        Provider::None | Provider::Static => Offered::Static {
            list: loaded
                .config
                .node
                .iter()
                .map(|node| Listed {
                    node: node.name.clone(),
                    kind: if node.spot {
                        Kind::Spot
                    } else {
                        Kind::OnDemand
                    },
                })
                .collect(),
            price: section.on_demand_price(),
        },
        Provider::Local => Offered::Local {
            launch: launch(loaded, set)?,
            stock,
        },
        Provider::Replay => Offered::Replay {
            launch: launch(loaded, set)?,
            stock,
            script: Box::new(Script {
                market: trace(loaded)?,
                speed: section.speed,
                notice: stock.notice,
                abrupt_per_mille: section.abrupt_per_mille,
                seed: section.seed,
            }),
        },
    })
}

/// How a machine of this one is started: a certificate, then a node on a port that is free.
fn launch(loaded: &Loaded, set: &[String]) -> Result<Launch, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| anyhow::anyhow!("cannot find the program itself: {error}"))
        .or_exit(Exit::Internal)?;
    let state = loaded.path_of(&loaded.config.cluster.state);
    let words = |own: &[&str], more: &[&str]| -> Vec<String> {
        let mut words: Vec<String> = own.iter().map(ToString::to_string).collect();
        words.extend(["--config".into(), loaded.path.display().to_string()]);
        let own = more.iter().map(ToString::to_string);
        for key in set.iter().cloned().chain(own) {
            words.extend(["--set".into(), key]);
        }
        words
    };
    Ok(Launch {
        program,
        prepare: words(&["ca", "issue", "{name}", "--quiet"], &[]),
        start: words(
            &["gpu-actor", "--name", "{name}"],
            &["gpu_actor.listen=127.0.0.1:0", "telemetry.metrics=false"],
        ),
        machines: folder(loaded).join("machines"),
        processes: state.join(places::PROCESSES),
        logs: state.join(places::LOGS),
    })
}

fn trace(loaded: &Loaded) -> Result<Market, Failure> {
    let section = &loaded.config.market;
    let path = loaded.path_of(&section.trace);
    let about = |error: &dyn std::fmt::Display| {
        let origin = loaded.origin("market.trace");
        Failure::new(Exit::BadInput, format!("market.trace ({origin}): {error}"))
    };
    let mut pools = files::read(&path, None).map_err(|error| about(&error))?;
    let observed = pools.swap_remove(0);
    let cut = Cut {
        slot: seconds(section.trace_slot_minutes.saturating_mul(60)),
        price: PriceRule::First,
        on_demand_price: section.on_demand_price(),
        on_demand_available: None,
        spot_price: Some(section.spot_price()),
        spot_available: Some(u32::try_from(section.most).unwrap_or(u32::MAX)),
    };
    let market = resample(&observed, &cut).map_err(|error| about(&error))?;
    Ok(market)
}
