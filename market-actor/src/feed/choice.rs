//! One pool of a source that may have several.
//!
//! A pool is named by its zone, its machine, `zone/machine`, `region/zone/machine` or `provider/region/zone/machine`: by as much as
//! tells it from the others.

use thiserror::Error;

use super::Observed;
use crate::market::Pool;

/// Most pools that an error lists.
const LISTED: usize = 20;

/// Why no pool is chosen.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ChoiceError {
    /// There is none.
    #[error("the source has no pool at all: look for one with prices or capacities in it")]
    Empty,
    /// None is named so.
    #[error("no pool is {name:?}; there are {}", listed(known))]
    Unknown {
        /// What was asked for.
        name: String,
        /// All names.
        known: Vec<String>,
    },
    /// Several are meant.
    #[error("{} pools fit: name one of {}", known.len(), listed(known))]
    Several {
        /// Their names.
        known: Vec<String>,
    },
}

fn listed(known: &[String]) -> String {
    let more = known.len().saturating_sub(LISTED);
    let first: Vec<&str> = known.iter().take(LISTED).map(String::as_str).collect();
    match more {
        0 => first.join(", "),
        _ => format!("{} and {more} more", first.join(", ")),
    }
}

/// All names of a pool, the shortest first.
fn names(pool: &Pool) -> [String; 5] {
    let joined = |parts: &[&str]| parts.join("/");
    let (zone, machine) = (pool.zone.as_str(), pool.machine.as_str());
    [
        zone.to_owned(),
        machine.to_owned(),
        joined(&[zone, machine]),
        joined(&[&pool.region, zone, machine]),
        joined(&[&pool.provider, &pool.region, zone, machine]),
    ]
}

/// The shortest name of a pool that is none of another.
fn own_name(pool: &Pool, all: &[Pool]) -> String {
    let [.., full] = names(pool);
    let alone = |name: &String| {
        let same = all.iter().filter(|other| names(other).contains(name));
        !name.is_empty() && same.count() == 1
    };
    names(pool).into_iter().find(alone).unwrap_or(full)
}

/// The pools that a name means; all where none is given.
///
/// # Errors
/// Where a name is given and no pool is named so.
pub fn named(pools: Vec<Observed>, name: Option<&str>) -> Result<Vec<Observed>, ChoiceError> {
    let Some(name) = name else {
        return Ok(pools);
    };
    let all: Vec<Pool> = pools.iter().map(|one| one.pool.clone()).collect();
    let is_meant = |one: &Observed| names(&one.pool).iter().any(|own| own == name);
    let meant: Vec<Observed> = pools.into_iter().filter(is_meant).collect();
    match meant.is_empty() {
        true if all.is_empty() => Err(ChoiceError::Empty),
        true => Err(ChoiceError::Unknown {
            name: name.to_owned(),
            known: all.iter().map(|pool| own_name(pool, &all)).collect(),
        }),
        false => Ok(meant),
    }
}

/// The pool that a name means, or the only one.
///
/// # Errors
/// [`ChoiceError`], with the names of those among which to choose.
pub fn one(pools: Vec<Observed>, name: Option<&str>) -> Result<Observed, ChoiceError> {
    let all: Vec<Pool> = pools.iter().map(|one| one.pool.clone()).collect();
    let mut meant = named(pools, name)?;
    if meant.is_empty() {
        return Err(ChoiceError::Empty);
    }
    match (meant.pop(), meant.is_empty()) {
        (Some(only), true) => Ok(only),
        (last, _) => {
            let meant = meant.iter().chain(&last);
            let known = meant.map(|one| own_name(&one.pool, &all)).collect();
            Err(ChoiceError::Several { known })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(zone: &str, machine: &str) -> Observed {
        let pool = Pool {
            provider: "aws".into(),
            region: "us-east-1".into(),
            zone: zone.into(),
            machine: machine.into(),
        };
        Observed::nothing(pool, true)
    }

    #[test]
    fn a_pool_is_named_by_as_much_as_tells_it_from_others() {
        let all = vec![pool("1a", "g5"), pool("1a", "p3"), pool("1b", "g5")];
        let zone = |name| one(all.clone(), Some(name)).map(|one| one.pool.zone);
        assert_eq!(zone("1b"), Ok("1b".into()));
        assert_eq!(zone("p3"), Ok("1a".into()));
        assert_eq!(zone("1a/g5"), Ok("1a".into()));
        assert_eq!(zone("us-east-1/1a/g5"), Ok("1a".into()));
        let told = |name| {
            let found = one(all.clone(), name);
            found
                .map(|one| one.pool)
                .expect_err("it is not clear")
                .to_string()
        };
        assert_eq!(told(None), "3 pools fit: name one of 1a/g5, p3, 1b");
        assert_eq!(told(Some("1a")), "2 pools fit: name one of 1a/g5, p3");
        assert_eq!(
            told(Some("2c")),
            "no pool is \"2c\"; there are 1a/g5, p3, 1b"
        );
        assert_eq!(one(all[..1].to_vec(), None), Ok(all[0].clone()));
        for name in [None, Some("1a")] {
            assert_eq!(one(Vec::new(), name), Err(ChoiceError::Empty));
        }
        assert_eq!(named(all.clone(), Some("1a")).map(|some| some.len()), Ok(2));
    }
}
