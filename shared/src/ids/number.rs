//! Numbers that identify, each with the letters it prints with: no two kinds print alike, and none as nodes are named.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Tells why a text is not such a number.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{text:?} is not {what}: write {prefix} and a number, as {prefix}12")]
pub struct BadNumber {
    text: String,
    what: &'static str,
    prefix: &'static str,
}

macro_rules! number {
    ($name:ident, $prefix:literal, $what:literal, $doc:literal) => {
        #[doc = $doc]
        #[derive(
            Clone,
            Copy,
            Debug,
            Default,
            PartialEq,
            Eq,
            PartialOrd,
            Ord,
            Hash,
            Serialize,
            Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// The one after; the last one stays.
            #[must_use]
            pub fn next(self) -> Self {
                Self(self.0.saturating_add(1))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}{}", $prefix, self.0)
            }
        }

        impl FromStr for $name {
            type Err = BadNumber;
            fn from_str(text: &str) -> Result<Self, BadNumber> {
                let digits = text.strip_prefix($prefix);
                let digits = digits.filter(|d| d.bytes().all(|b| b.is_ascii_digit()));
                let number = digits.and_then(|digits| digits.parse().ok());
                number.map(Self).ok_or_else(|| BadNumber {
                    text: text.into(),
                    what: $what,
                    prefix: $prefix,
                })
            }
        }
    };
}

number!(
    JobId,
    "j",
    "a job id",
    "Identifies a job for as long as the cluster's journal lives; given by the coordinator, never reused."
);
number!(
    PlanEpoch,
    "e",
    "a plan epoch",
    "Numbers the plans of a cluster. What belongs to an older one is refused."
);
number!(
    Term,
    "t",
    "a term",
    "Numbers the leaderships of a cluster: the fencing epoch of the lease. Orders of an older one are refused."
);
number!(
    EventNumber,
    "ev",
    "an event number",
    "Numbers the events of a cluster, without gaps."
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_read() {
        assert_eq!(JobId(12).to_string().parse(), Ok(JobId(12)));
        assert_eq!("e0".parse(), Ok(PlanEpoch(0)));
        // Neither as a plan nor as a node is usually named.
        assert_eq!(EventNumber(12).to_string(), "ev12");
        assert_eq!("ev12".parse(), Ok(EventNumber(12)));
        assert!("n12".parse::<EventNumber>().is_err() && "ev12".parse::<PlanEpoch>().is_err());
        for bad in [
            "",
            "j",
            "12",
            "j-1",
            "j+1",
            "j1x",
            "e1",
            "j99999999999999999999",
        ] {
            assert!(bad.parse::<JobId>().is_err(), "{bad:?} passed");
        }
    }
}
