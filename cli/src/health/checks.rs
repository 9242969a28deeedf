//! The checks.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use shared::config::check::ModelFacts;
use shared::config::load::Loaded;
use shared::net::credential::Credential;
use shared::units::{Bytes, Micros};
use shared::wire::request::{Reply, Request};

use super::{Check, Verdict};
use crate::backbone;
use crate::clock;
use crate::control::Control;
use crate::machine;
use crate::process::judge;
use crate::security;
use crate::settings::Settings;
use crate::shown;
use crate::store::Store;

/// Clocks that differ by less do not matter.
const SKEW: Micros = Micros::of_millis(2_000);
/// A process may take so long to say how it is.
const ANSWER: Duration = Duration::from_secs(2);
/// Certificates are not believed when clocks differ by more.
const MOST_SKEW: Micros = Micros::of_millis(5 * 60 * 1000);

/// Whether every address can be had.
pub(super) fn ports(loaded: &Loaded) -> Vec<Check> {
    let config = &loaded.config;
    let mut found = vec![port(
        "coordinator.listen",
        loaded,
        udp(config.coordinator.listen),
    )];
    if config.telemetry.metrics {
        found.push(port(
            "coordinator.metrics",
            loaded,
            tcp(config.coordinator.metrics),
        ));
    }
    for (index, node) in config.nodes().iter().enumerate() {
        found.push(port(
            &format!("node[{index}].listen"),
            loaded,
            udp(node.listen),
        ));
        if config.telemetry.metrics {
            let key = format!("node[{index}].metrics");
            let check = port(&key, loaded, tcp(node.metrics));
            // A node works without its metrics.
            found.push(match check.verdict {
                Verdict::Fail => Check::warn(check.what, check.found, check.remedy),
                _ => check,
            });
        }
    }
    found
}

/// Whether anybody is to compute.
pub(super) fn work(loaded: &Loaded) -> Check {
    const WHAT: &str = "nodes";
    let nodes = loaded.config.node.len();
    match (nodes, loaded.config.market.runs()) {
        (0, false) => Check::fail(
            WHAT,
            format!("{} lists no node", loaded.path.display()),
            "add a [[node]] table, or name a market.provider",
        ),
        (0, true) => Check::ok(WHAT, "machines of a market"),
        (_, _) => Check::ok(WHAT, format!("{nodes} are listed")),
    }
}

/// Whether each process can be told what it is to do; of a model that does not open, that is said already.
pub(super) fn processes(loaded: &Loaded, settings: &Settings, model_opens: bool) -> Vec<Check> {
    let faults = judge::faults(loaded, settings).into_iter();
    let news = faults.filter(|(who, _)| model_opens || *who != "coordinator");
    news.map(|(who, failure)| Check::fail(who, failure.message(), failure.hints.join("; ")))
        .collect()
}

/// Whether the nodes of this file tell of themselves where they should, and are well.
pub(super) fn metrics(loaded: &Loaded) -> Vec<Check> {
    const WHAT: &str = "metrics";
    let config = &loaded.config;
    if !config.telemetry.metrics {
        return Vec::new();
    }
    let nodes = config.nodes().into_iter();
    let asked = nodes.map(|node| {
        let (name, address) = (&node.name, node.metrics);
        match healthz(address) {
            Ok(answer) if answer.starts_with("HTTP/1.1 200") => {
                Check::ok(WHAT, format!("node {name} is well, says {address}"))
            }
            Ok(answer) => Check::fail(
                WHAT,
                format!("node {name} is not well: {}", last_line(&answer)),
                format!(
                    "look at its log, and at spotmux nodes; it answers at http://{address}/healthz"
                ),
            ),
            Err(error) => Check::warn(
                WHAT,
                format!("node {name} does not answer at {address}: {error}"),
                "is it up, on this machine? its log says so when the port was taken",
            ),
        }
    });
    asked.collect()
}

/// What a process answers who asks how it is.
fn healthz(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER)?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.set_write_timeout(Some(ANSWER))?;
    write!(stream, "GET /healthz HTTP/1.1\r\nHost: {address}\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(64 << 10).read_to_string(&mut answer)?;
    Ok(answer)
}

fn last_line(answer: &str) -> &str {
    answer.trim_end().lines().last().unwrap_or_default()
}

fn udp(address: SocketAddr) -> (SocketAddr, &'static str, std::io::Result<()>) {
    (address, "UDP", UdpSocket::bind(address).map(drop))
}

fn tcp(address: SocketAddr) -> (SocketAddr, &'static str, std::io::Result<()>) {
    (address, "TCP", TcpListener::bind(address).map(drop))
}

fn port(
    key: &str,
    loaded: &Loaded,
    (address, kind, bound): (SocketAddr, &str, std::io::Result<()>),
) -> Check {
    let place = loaded.origin(key);
    match bound {
        Ok(()) => Check::ok("port", format!("{address} ({kind}) is free for {key}")),
        Err(error) if error.kind() == ErrorKind::AddrInUse => Check::fail(
            "port",
            format!("{address} ({kind}) of {key} is in use"),
            format!(
                "end what has it (a cluster that is up: spotmux down), or change {key} ({place})"
            ),
        ),
        Err(error) => Check::fail(
            "port",
            format!("{address} ({kind}) of {key} cannot be had: {error}"),
            format!("is it an address of this machine? change {key} ({place})"),
        ),
    }
}

/// Whether the coordinator answers, and what time it has.
pub(super) fn reached(control: &dyn Control) -> Check {
    let before = clock::now();
    let status = control.request(&Request::Status);
    let now = clock::now();
    match status {
        Ok(Reply::Cluster(cluster)) => skew(cluster.clock, before, now),
        Ok(_) => Check::fail(
            "coordinator",
            "it answers something else than was asked",
            "compare spotmux --version on both machines",
        ),
        Err(failure) => Check::fail(
            "coordinator",
            failure.message(),
            "look at its log, in the state folder of its machine",
        ),
    }
}

/// How far clocks are apart, at least, when the other was read between two readings of ours.
fn skew(other: Micros, before: Micros, now: Micros) -> Check {
    let apart = Micros(other.since(now).0.max(before.since(other).0));
    let text = format!(
        "it answers, and its clock is {} from ours",
        shown::span(apart)
    );
    let remedy = "set both clocks, by NTP";
    if apart > MOST_SKEW {
        Check::fail("coordinator", text, remedy)
    } else if apart > SKEW {
        Check::warn("coordinator", text, remedy)
    } else {
        Check::ok("coordinator", text)
    }
}

/// Whether every certificate is there and holds.
pub(super) fn certificates(loaded: &Loaded) -> Vec<Check> {
    const WHAT: &str = "certificate";
    let directory = security::directory(loaded);
    if !directory.exists() {
        return vec![Check::warn(
            WHAT,
            format!("{} is absent", directory.display()),
            "spotmux up makes certificates at its first start; so does spotmux ca init",
        )];
    }
    let authority = security::authority(loaded);
    let mut found = vec![match &authority {
        Ok(authority) => Check::ok(
            WHAT,
            format!("authority of cluster {}", authority.cluster()),
        ),
        Err(failure) => Check::warn(
            WHAT,
            failure.message(),
            "needed only where certificates are made",
        ),
    }];
    let now = clock::now();
    for (member, path) in security::members(loaded) {
        let shown = path.display();
        let again = if authority.is_ok() {
            "spotmux ca init makes it anew"
        } else {
            "ask the operator of the cluster for spotmux ca issue or spotmux ca token"
        };
        found.push(match Credential::load(&path) {
            Ok(held) if held.identity != member => Check::fail(
                WHAT,
                format!("{shown} is of {}, not of {member}", held.identity),
                again,
            ),
            Ok(held) => life(
                &shown.to_string(),
                held.life.start,
                held.renewal(),
                held.life.end,
                now,
                again,
            ),
            Err(_) if !path.exists() => Check::warn(WHAT, format!("{shown} is absent"), again),
            Err(error) => Check::fail(WHAT, format!("{shown}: {error}"), again),
        });
    }
    found
}

fn life(
    path: &str,
    start: Micros,
    renewal: Micros,
    end: Micros,
    now: Micros,
    again: &str,
) -> Check {
    const WHAT: &str = "certificate";
    if now < start {
        let text = format!("{path} holds only in {}", shown::span(start.since(now)));
        Check::fail(WHAT, text, "the clock of this machine is behind: set it")
    } else if now >= end {
        let text = format!("{path} expired {} ago", shown::span(now.since(end)));
        Check::fail(WHAT, text, again)
    } else if now >= renewal {
        let text = format!("{path} expires in {}", shown::span(end.since(now)));
        Check::warn(WHAT, text, again)
    } else {
        Check::ok(
            WHAT,
            format!("{path} holds for {}", shown::span(end.since(now))),
        )
    }
}

/// Whether the backbone is there, whole, and fits.
pub(super) fn model(loaded: &Loaded, settings: &Settings) -> Vec<Check> {
    const WHAT: &str = "model";
    let section = &loaded.config.model;
    let opened = Store::new(settings).and_then(|store| {
        // What was fetched is compared with the hashes it was fetched with.
        store.resolve(&section.path, &loaded.folder)?;
        let cpu = backbone::cpu(Some(1))?;
        backbone::model(&store, &section.path, &loaded.folder, section.format, &cpu)
    });
    let model = match opened {
        Ok(model) => model,
        Err(failure) => {
            let remedy = failure.hints.first().cloned().unwrap_or_default();
            let place = loaded.origin("model.path");
            return vec![Check::fail(
                WHAT,
                format!("{} (model.path, {place})", failure.message()),
                remedy,
            )];
        }
    };
    let facts = ModelFacts {
        layers: model.shape.layers as u64,
        bytes: model
            .matrices()
            .map(|weight| weight.byte_len() as u64)
            .sum(),
    };
    let mut found = vec![Check::ok(
        WHAT,
        format!(
            "{}: {} layers, {}",
            section.path,
            facts.layers,
            Bytes(facts.bytes)
        ),
    )];
    let problems = loaded.problems_with(facts);
    found.extend(
        problems
            .into_iter()
            .map(|problem| Check::fail("plan", problem.to_string(), "see there")),
    );
    found.push(memory(loaded));
    found
}

fn memory(loaded: &Loaded) -> Check {
    const WHAT: &str = "memory";
    let offered: u64 = loaded.config.nodes().iter().map(|node| node.memory.0).sum();
    let Some(available) = machine::available() else {
        return Check::warn(
            WHAT,
            "the system does not say how much is free",
            "look yourself",
        );
    };
    let text = format!(
        "nodes of this file offer {}, {} are available ({})",
        Bytes(offered),
        Bytes(available.bytes),
        available.bound
    );
    if offered > available.bytes {
        let remedy =
            "lower memory_mib, or run some nodes elsewhere; they take it only as jobs need it";
        Check::warn(WHAT, text, remedy)
    } else {
        Check::ok(WHAT, text)
    }
}

#[cfg(test)]
mod tests;
