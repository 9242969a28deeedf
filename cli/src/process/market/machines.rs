//! Who has the machines of a market, as section `market` names them.

use std::path::PathBuf;

use market_actor::actor::Offered;
use market_actor::feed::resample::{Cut, PriceRule, resample};
use market_actor::feed::{choice, files};
use market_actor::market::Market;
use market_actor::provider::aws::Account;
use market_actor::provider::aws::words::Fleet;
use market_actor::provider::fixed::Listed;
use market_actor::provider::local::{Launch, Stock};
use market_actor::provider::replay::course::Script;
use market_actor::provider::slurm::Controller;
use market_actor::provider::slurm::words::Partitions;
use market_actor::provider::{Kind, known_as};
use shared::config::Problem;
use shared::config::load::Loaded;
use shared::config::market::{MarketSection, Provider, seconds};
use shared::config::places;
use shared::net::authority::fingerprint;
use shared::net::credential::Credential;
use shared::units::Micros;

use super::folder;
use crate::exit::{Exit, Failure, OrExit};
use crate::render;
use crate::security;
use crate::settings::Settings;

/// Where a key stands for what is usual.
const USUAL: &str = "default";

/// What of the files, programs and keys that a market names is not there.
pub(super) fn problem(loaded: &Loaded, settings: &Settings) -> Option<Problem> {
    let section = &loaded.config.market;
    let of = |key: &str, message: String| Problem {
        origin: loaded.origin(key),
        key: key.into(),
        message,
    };
    for path in loaded.config.plan.profiles() {
        let whole = loaded.path_of(path);
        if !whole.is_file() {
            let message = format!(
                "{} is no file: make it with `spotmux profile`, or use \"none\"",
                whole.display()
            );
            return Some(of("plan.profile", message));
        }
    }
    match section.provider {
        Provider::None | Provider::Static | Provider::Local => None,
        Provider::Replay => trace(loaded)
            .err()
            .map(|message| of("market.trace", message)),
        Provider::Aws => {
            let absent = ["access_key_id", "secret_access_key"]
                .into_iter()
                .find(|option| !settings.store_options.contains_key(*option))?;
            let message = format!(
                "\"aws\" signs its calls, and AWS_{} is not in the environment: set it",
                absent.to_uppercase()
            );
            Some(of("market.provider", message))
        }
        Provider::Slurm => {
            let commands = commands(loaded)?;
            let absent = ["sbatch", "squeue", "scancel", "sinfo"]
                .into_iter()
                .find(|name| !commands.join(name).is_file())?;
            let message = format!(
                "{} has no {absent}: name the folder of Slurm's commands, or \"path\"",
                commands.display()
            );
            Some(of("market.slurm_commands", message))
        }
    }
}

/// The folder of Slurm's commands, where one is named.
fn commands(loaded: &Loaded) -> Option<PathBuf> {
    let named = &loaded.config.market.slurm_commands;
    (named != "path").then(|| loaded.path_of(named))
}

/// Who has machines.
pub(super) fn offered(
    loaded: &Loaded,
    set: &[String],
    settings: &Settings,
) -> Result<Offered, Failure> {
    let section = &loaded.config.market;
    let stock = Stock {
        most: u32::try_from(section.most).unwrap_or(u32::MAX),
        spot_price: section.spot_price(),
        on_demand_price: section.on_demand_price(),
        notice: Micros::of_millis(section.notice_ms),
    };
    Ok(match section.provider {
        Provider::None | Provider::Static => Offered::Static {
            list: listed(loaded),
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
                market: trace(loaded).map_err(|message| Failure::new(Exit::BadInput, message))?,
                speed: section.speed,
                notice: stock.notice,
                abrupt_per_mille: section.abrupt_per_mille,
                risk_per_mille: section.risk_per_mille,
                seed: section.seed,
            }),
        },
        Provider::Aws => Offered::Aws(Box::new(account(loaded, settings, &cluster(loaded)?))),
        Provider::Slurm => Offered::Slurm(controller(loaded, set)?),
    })
}

fn listed(loaded: &Loaded) -> Vec<Listed> {
    let nodes = loaded.config.node.iter();
    nodes
        .map(|node| Listed {
            node: node.name.clone(),
            kind: if node.spot {
                Kind::Spot
            } else {
                Kind::OnDemand
            },
        })
        .collect()
}

/// How machines of this cluster are told from those of another in the same account or queue.
fn cluster(loaded: &Loaded) -> Result<String, Failure> {
    let path = security::directory(loaded).join(places::MARKET);
    let own = Credential::load(&path).or_exit(Exit::NotFound)?;
    let name = &loaded.config.cluster.name;
    Ok(known_as(name, &fingerprint(own.authority())))
}

fn account(loaded: &Loaded, settings: &Settings, cluster: &str) -> Account {
    let section = &loaded.config.market;
    let option = |name: &str| settings.store_options.get(name).cloned();
    let region = section.aws_region.clone();
    let endpoint = match section.aws_endpoint.as_str() {
        USUAL => format!("https://ec2.{region}.amazonaws.com"),
        named => named.to_owned(),
    };
    let types = section.aws_types.split(',').map(str::trim);
    Account {
        endpoint,
        region,
        access_key_id: option("access_key_id").unwrap_or_default(),
        secret_access_key: option("secret_access_key").unwrap_or_default(),
        session_token: option("token"),
        fleet: Fleet {
            template: section.aws_template.clone(),
            types: types
                .filter(|name| !name.is_empty())
                .map(ToOwned::to_owned)
                .collect(),
            cluster: cluster.to_owned(),
        },
        spot_price: section.spot_price(),
        on_demand_price: section.on_demand_price(),
        most: u32::try_from(section.most).unwrap_or(u32::MAX),
    }
}

fn controller(loaded: &Loaded, set: &[String]) -> Result<Controller, Failure> {
    let section = &loaded.config.market;
    let command = match section.slurm_command.as_str() {
        USUAL => {
            let alone = loaded.config.coordinator.listen.ip().is_loopback();
            job(&launch(loaded, set)?, alone)
        }
        named => named.to_owned(),
    };
    let logs = loaded
        .path_of(&loaded.config.cluster.state)
        .join(places::LOGS);
    Ok(Controller {
        commands: commands(loaded).unwrap_or_default(),
        partitions: Partitions {
            spot: section.slurm_spot.clone(),
            on_demand: section.slurm_on_demand.clone(),
        },
        cluster: cluster(loaded)?,
        command,
        logs: std::path::absolute(&logs).unwrap_or(logs),
        spot_price: section.spot_price(),
        on_demand_price: section.on_demand_price(),
        notice: Micros::of_millis(section.notice_ms),
    })
}

/// What a job of Slurm runs on a machine that sees the same files: a certificate, then a node; on a machine of its own unless all
/// are on this one.
fn job(launch: &Launch, alone: bool) -> String {
    let line = |words: &[String]| {
        let program = launch.program.display().to_string();
        let words = std::iter::once(program).chain(words.iter().cloned());
        let words: Vec<String> = words.map(|word| render::shell_word(&word)).collect();
        words.join(" ")
    };
    // The last word counts; neighbours reach it at its host's first address that is no loopback, as `hostname -I` lists them.
    let listens = match alone {
        true => "",
        false => " --set gpu_actor.listen=\"$at\":0",
    };
    let (first, then) = (line(&launch.prepare), line(&launch.start));
    let address = match alone {
        true => "",
        false => {
            "at=$(hostname -I | cut -d\" \" -f1); case $at in \"\") echo \"hostname -I shows no address\" >&2; exit 1;; \
             *:*) at=[$at];; esac; "
        }
    };
    let both = format!("{address}{first} && exec {then}{listens}");
    format!("sh -c {}", render::shell_word(&both))
}

/// How a machine of this one is started: a certificate, then a node on a port that is free.
fn launch(loaded: &Loaded, set: &[String]) -> Result<Launch, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| anyhow::anyhow!("cannot find the program itself: {error}"))
        .or_exit(Exit::Internal)?;
    let state = loaded.path_of(&loaded.config.cluster.state);
    let config = std::path::absolute(&loaded.path).unwrap_or_else(|_| loaded.path.clone());
    let words = |own: &[&str], more: &[&str]| -> Vec<String> {
        let mut words: Vec<String> = own.iter().map(ToString::to_string).collect();
        words.extend(["--config".into(), config.display().to_string()]);
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
        // As `places::node` names that of a node.
        made: Some(security::directory(loaded).join("node-{name}.pem")),
        kept_logs: usize::try_from(loaded.config.market.kept_logs).unwrap_or(usize::MAX),
    })
}

/// The trace that is played, or why it cannot be.
fn trace(loaded: &Loaded) -> Result<Market, String> {
    let section = &loaded.config.market;
    let path = loaded.path_of(&section.trace);
    let pools = files::read(&path, None).map_err(|error| error.to_string())?;
    let named = Some(section.trace_pool.as_str()).filter(|name| *name != "none");
    let observed = choice::one(pools, named)
        .map_err(|error| format!("{}: {error}: set market.trace_pool", path.display()))?;
    resample(&observed, &cut(section)).map_err(|error| error.to_string())
}

fn cut(section: &MarketSection) -> Cut {
    Cut {
        slot: seconds(section.trace_slot_minutes.saturating_mul(60)),
        price: PriceRule::First,
        on_demand_price: section.on_demand_price(),
        on_demand_available: None,
        spot_price: Some(section.spot_price()),
        spot_available: Some(u32::try_from(section.most).unwrap_or(u32::MAX)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_of_slurm_is_one_word_for_the_shell_whatever_is_in_a_path() {
        let launch = Launch {
            program: "/opt/spot mux".into(),
            prepare: vec!["ca".into(), "issue".into(), "{name}".into()],
            start: vec!["gpu-actor".into(), "--name".into(), "{name}".into()],
            machines: PathBuf::new(),
            processes: PathBuf::new(),
            logs: PathBuf::new(),
            made: None,
            kept_logs: 0,
        };
        let here = job(&launch, true);
        assert!(
            here.starts_with("sh -c '") && !here.contains("hostname"),
            "{here}"
        );
        let there = job(&launch, false);
        let told = std::process::Command::new("sh")
            .args([
                "-c",
                &there.replace("sh -c", "printf %s").replace("{name}", "n1"),
            ])
            .output();
        let told = told.map(|told| String::from_utf8_lossy(&told.stdout).into_owned());
        let told = told.unwrap_or_default();
        assert!(
            told.ends_with(
                "'/opt/spot mux' ca issue 'n1' && exec '/opt/spot mux' gpu-actor --name 'n1' --set gpu_actor.listen=\"$at\":0"
            ),
            "{told}"
        );
        assert!(
            told.starts_with("at=$(hostname -I"),
            "the job's shell asks, not this one: {told}"
        );
    }
}
