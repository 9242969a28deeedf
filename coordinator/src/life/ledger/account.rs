//! What each tenant was served, and for how long each job has waited: what fair shares go by.
//!
//! A step is charged once: what is taken again after a loss is not the tenant's to pay. A tenant that comes back from having
//! no job starts where the others are: what it did not use is no claim on what comes
//! ([`start`], as start-time fair queueing has it).
//!
//! Only waiting counts as waiting. A job that is paused, or on a replica, does not wait; one that took a step begins to wait
//! anew when it loses its place, and one that took none goes on.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use shared::units::Micros;

/// For how long a job has waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// Waited before the wait under way.
    before: Micros,
    /// When the wait under way began, since 1970.
    since: Option<Micros>,
}

impl Waiting {
    /// In all, since it took its last step.
    #[must_use]
    pub fn so_far(&self, now: Micros) -> Micros {
        let under_way = self.since.map_or(Micros(0), |since| now.since(since));
        self.before.plus(under_way)
    }

    /// Notes whether it waits from now on.
    pub(super) fn note(&mut self, waits: bool, at: Micros) {
        match (waits, self.since) {
            (true, None) => self.since = Some(at),
            (false, Some(_)) => {
                self.before = self.so_far(at);
                self.since = None;
            }
            _ => {}
        }
    }

    /// It took a step: what it waited for has come.
    pub(super) fn served(&mut self) {
        self.before = Micros(0);
    }
}

/// The tenant that a specification names; the nameless one where it names none.
#[must_use]
pub fn tenant(spec: &str) -> String {
    #[derive(Deserialize)]
    struct Named {
        #[serde(default)]
        tenant: Option<String>,
    }
    let named = serde_json::from_str::<Named>(spec).ok();
    named.and_then(|named| named.tenant).unwrap_or_default()
}

/// Where a tenant's account starts when it comes back from having no job: at the least virtual time (served over weight)
/// of those that have one, for its own weight; 0 when none has.
#[must_use]
pub fn start<'a>(
    served: &BTreeMap<String, u64>,
    weights: &BTreeMap<String, u64>,
    active: impl IntoIterator<Item = &'a str>,
    tenant: &str,
) -> u64 {
    let weight = |name: &str| u128::from(weights.get(name).copied().unwrap_or(1).max(1));
    let of = |name: &str| u128::from(served.get(name).copied().unwrap_or(0));
    let least = active
        .into_iter()
        .min_by(|a, b| (of(a) * weight(b)).cmp(&(of(b) * weight(a))));
    let Some(least) = least else { return 0 };
    u64::try_from(of(least) * weight(tenant) / weight(least)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_waiting_is_waiting() {
        let mut waiting = Waiting::default();
        waiting.note(true, Micros(10));
        assert_eq!(waiting.so_far(Micros(15)), Micros(5));
        // Paused for long, and back.
        waiting.note(false, Micros(20));
        assert_eq!(waiting.so_far(Micros(1_000)), Micros(10));
        waiting.note(true, Micros(1_000));
        assert_eq!(waiting.so_far(Micros(1_005)), Micros(15));
        // A clock that was put back takes nothing away.
        assert_eq!(waiting.so_far(Micros(3)), Micros(10));
        waiting.note(false, Micros(1_010));
        waiting.served();
        waiting.note(true, Micros(2_000));
        assert_eq!(waiting.so_far(Micros(2_001)), Micros(1));
    }

    #[test]
    fn who_comes_back_starts_where_the_others_are() {
        let served = BTreeMap::from([("a".to_owned(), 900), ("b".to_owned(), 600)]);
        let weights = BTreeMap::from([("b".to_owned(), 2), ("c".to_owned(), 3)]);
        let begins =
            |active: &[&str], tenant| start(&served, &weights, active.iter().copied(), tenant);
        assert_eq!(begins(&[], "c"), 0);
        assert_eq!(begins(&["a"], "c"), 2_700);
        assert_eq!(
            begins(&["a", "b"], "c"),
            900,
            "b is at 300 for a weight of 1"
        );
        assert_eq!(begins(&["a", "b"], "new"), 300);
    }

    #[test]
    fn a_tenant_is_read_from_a_specification() {
        assert_eq!(tenant(r#"{"name":"a","tenant":"t"}"#), "t");
        assert_eq!(tenant(r#"{"name":"a","tenant":null}"#), "");
        assert_eq!(tenant("{}"), "");
    }
}
