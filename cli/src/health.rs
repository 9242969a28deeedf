//! What would keep a cluster from working, looked for one by one.

mod checks;
mod market;
mod room;
mod store;

use serde::Serialize;
use shared::config::load::Loaded;
use tracing_subscriber::EnvFilter;

use crate::control::Control;
use crate::render::{Align, Table};
use crate::settings::Settings;

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// As it should be.
    Ok,
    /// It works, and will not for ever or not well.
    Warn,
    /// It keeps the cluster from working.
    Fail,
}

impl Verdict {
    /// In a word.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "FAIL",
        }
    }
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Check {
    /// What was looked at.
    pub(crate) what: &'static str,
    /// How it came out.
    pub(crate) verdict: Verdict,
    /// What was found.
    pub(crate) found: String,
    /// What to do; empty when there is nothing to do.
    pub(crate) remedy: String,
}

impl Check {
    fn ok(what: &'static str, found: impl Into<String>) -> Self {
        Self::new(what, Verdict::Ok, found, "")
    }

    fn warn(what: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(what, Verdict::Warn, found, remedy)
    }

    fn fail(what: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(what, Verdict::Fail, found, remedy)
    }

    fn new(
        what: &'static str,
        verdict: Verdict,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            what,
            verdict,
            found: found.into(),
            remedy: remedy.into(),
        }
    }
}

/// What must hold before a cluster is started here: its settings, and addresses that are free.
pub(crate) fn before_start(loaded: &Loaded, settings: &Settings) -> Vec<Check> {
    let mut found = checks::ports(loaded);
    found.extend(of_settings(loaded, settings));
    found
}

/// What must hold of the settings, whether the cluster runs or not: all that one of its processes would end for at its
/// start. Nothing is made or changed, but for a probe in the store that is taken away again.
pub(crate) fn of_settings(loaded: &Loaded, settings: &Settings) -> Vec<Check> {
    let mut found = vec![checks::work(loaded)];
    found.extend(standing(loaded, settings));
    found
}

/// The same of a machine that may only have joined.
fn standing(loaded: &Loaded, settings: &Settings) -> Vec<Check> {
    let mut found = Vec::new();
    let model = checks::model(loaded, settings);
    let opens = worst(&model) != Verdict::Fail;
    found.extend(model);
    found.extend(checks::processes(loaded, settings, opens));
    found.extend(market::check(loaded, settings));
    found.push(store::check(loaded, settings));
    found.extend(room::check(loaded));
    found.extend(log(loaded));
    found
}

/// A filter of logs that says nothing; a process would log warnings instead.
fn log(loaded: &Loaded) -> Option<Check> {
    let filter = &loaded.config.telemetry.log;
    let error = EnvFilter::try_new(filter).err()?;
    let place = loaded.origin("telemetry.log");
    Some(Check::warn(
        "log",
        format!("{filter:?} is no filter (telemetry.log, {place}): {error}"),
        "write a level, such as warn, or a list, such as warn,coordinator=debug",
    ))
}

/// Everything; with a coordinator that answers, what it says too.
pub(crate) fn all(
    loaded: &Loaded,
    settings: &Settings,
    control: Option<&dyn Control>,
) -> Vec<Check> {
    let mut found = match control {
        Some(control) => {
            let mut found = vec![checks::reached(control)];
            found.extend(checks::metrics(loaded));
            found
        }
        None => checks::ports(loaded),
    };
    found.extend(checks::certificates(loaded));
    found.extend(standing(loaded, settings));
    found
}

/// The worst of them.
pub(crate) fn worst(checks: &[Check]) -> Verdict {
    checks
        .iter()
        .map(|check| check.verdict)
        .max()
        .unwrap_or(Verdict::Ok)
}

/// Checks as a table.
pub(crate) fn table(checks: &[Check]) -> String {
    let l = Align::Left;
    let mut table = Table::new(&[("", l), ("what", l), ("found", l), ("to do", l)]);
    for check in checks {
        table.row([
            check.verdict.as_str().to_owned(),
            check.what.to_owned(),
            check.found.clone(),
            check.remedy.clone(),
        ]);
    }
    table.text()
}
