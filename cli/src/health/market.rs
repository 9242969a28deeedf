//! What keeps a market from holding machines for this plan.

use market_actor::terms;
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
    if let (true, Some(seats)) = (found.is_empty(), terms::seats_below_most(&loaded.config)) {
        let most = section.most;
        return vec![Check::warn(
            WHAT,
            format!(
                "market.most = {most} machines, and the plan gives work to {seats}: the others are never held"
            ),
            format!("raise plan.replicas, or set market.most to {seats}"),
        )];
    }
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
