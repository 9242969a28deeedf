//! What keeps a market from holding machines for this plan.

use shared::config::Origin;
use shared::config::load::Loaded;

use super::Check;
use crate::process;
use crate::settings::Settings;

/// Everything that is wrong with section `market`; nothing where no market runs.
pub(super) fn check(loaded: &Loaded, settings: &Settings) -> Vec<Check> {
    const WHAT: &str = "market";
    let section = &loaded.config.market;
    if !section.runs() {
        return Vec::new();
    }
    let found = process::market::problems(loaded, settings);
    if found.is_empty() {
        let provider = section.provider;
        return vec![Check::ok(
            WHAT,
            format!("{provider} can hold what the plan needs"),
        )];
    }
    let checks = found.into_iter().map(|problem| {
        let origin = problem.origin.to_string();
        Check::fail(
            WHAT,
            format!("{}: {}", problem.key, problem.message),
            match &problem.origin {
                Origin::Default => format!("set {}", problem.key),
                _ => format!("change it: {origin}"),
            },
        )
    });
    checks.collect()
}
