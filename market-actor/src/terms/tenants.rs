//! Rules of tenants as a cluster's file writes them: `"team-a: no-spot, team-b: max-spot-cents=40 wait-slots=3, *: leave=2/8"`.
//!
//! | word | means |
//! | --- | --- |
//! | `no-spot` | on demand only |
//! | `regions=A+B` | pools of these regions only |
//! | `max-spot-cents=N` | no spot machine above so much for an hour |
//! | `wait-slots=N` | after so many slots without spot it goes on demand |
//! | `leave=L/N` | after L machines lost within an hour a pool's spot is left alone for N slots |
//!
//! All live jobs share the machines, so what holds is what all their tenants allow: the strictest of each.

use std::collections::{BTreeMap, BTreeSet};

use shared::units::MicroUsd;
use thiserror::Error;

use crate::policy::tenant::{Leave, Rules};

/// The name of every tenant.
pub(crate) const ALL: &str = "*";
/// Where there is no rule.
const NONE: &str = "none";

/// A rule that is none.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RuleError {
    /// No tenant before the rules.
    #[error("{text:?} names no tenant: write \"TENANT: RULE ...\", \"*\" for all")]
    Nameless {
        /// What was written.
        text: String,
    },
    /// None of the words.
    #[error(
        "{word:?} of tenant {tenant:?} is no rule: no-spot, regions=A+B, max-spot-cents=N, wait-slots=N and leave=LOSSES/SLOTS are, \
         with whole numbers up to {limit}",
        limit = MOST
    )]
    Unknown {
        /// Whose.
        tenant: String,
        /// The word.
        word: String,
    },
}

/// Largest number of a rule.
const MOST: u32 = 100_000_000;

/// Reads the rules of all tenants.
pub(super) fn rules(text: &str) -> Result<BTreeMap<String, Rules>, RuleError> {
    let mut all = BTreeMap::new();
    if matches!(text.trim(), "" | NONE) {
        return Ok(all);
    }
    for part in text.split(',').map(str::trim) {
        let named = part.split_once(':');
        let named = named.filter(|(tenant, _)| !tenant.trim().is_empty());
        let Some((tenant, words)) = named else {
            return Err(RuleError::Nameless { text: part.into() });
        };
        let mut own = Rules::default();
        for word in words.split_whitespace() {
            let mut one = Rules::default();
            if !add(&mut one, word) {
                return Err(RuleError::Unknown {
                    tenant: tenant.trim().into(),
                    word: word.into(),
                });
            }
            // Of what is said twice the stricter holds, also of a tenant that is named twice.
            own = own.and(&one);
        }
        let known: &mut Rules = all.entry(tenant.trim().to_owned()).or_default();
        *known = own.and(known);
    }
    Ok(all)
}

/// Adds one rule; whether it is one.
fn add(rules: &mut Rules, word: &str) -> bool {
    let number = |text: &str| text.parse::<u32>().ok().filter(|count| *count <= MOST);
    match word.split_once('=') {
        None => {
            rules.no_spot |= word == "no-spot";
            word == "no-spot"
        }
        Some(("regions", names)) => {
            let names = names.split('+').filter(|name| !name.is_empty());
            rules.regions = names.map(ToOwned::to_owned).collect();
            !rules.regions.is_empty()
        }
        Some(("max-spot-cents", cents)) => {
            let price = number(cents).map(|cents| MicroUsd(u64::from(cents) * 10_000));
            rules.max_spot_price = price;
            price.is_some()
        }
        Some(("wait-slots", slots)) => {
            rules.wait_at_most = number(slots);
            rules.wait_at_most.is_some()
        }
        Some(("leave", both)) => {
            let both = both.split_once('/');
            let both = both.and_then(|(losses, slots)| Some((number(losses)?, number(slots)?)));
            rules.leave = both
                .filter(|(losses, slots)| *losses > 0 && *slots > 0)
                .map(|(losses, slots)| Leave { losses, slots });
            rules.leave.is_some()
        }
        Some(_) => false,
    }
}

/// What tenants allow together.
pub(super) fn joined<'a>(
    rules: &BTreeMap<String, Rules>,
    tenants: impl Iterator<Item = &'a str>,
) -> Rules {
    let own: BTreeSet<&str> = tenants.chain([ALL]).collect();
    let own = own.iter().filter_map(|tenant| rules.get(*tenant));
    own.fold(Rules::default(), |all, one| all.and(one))
}
