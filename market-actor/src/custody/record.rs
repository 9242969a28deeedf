//! The durable record of what was asked for: JSON lines, appended and synced before each call, folded at a start.
//!
//! ```text
//! {"spotmux_custody":1}
//! {"asked":{"at":..,"want":{..}}}       before the provider is asked
//! {"granted":{"at":..,"token":..,"id":..}}
//! {"releasing":{"at":..,"token":..,"cause":..}}     before it is told to end
//! {"closed":{"at":..,"token":..,"cause":..}}        it costs nothing any more
//! ```
//!
//! - CR-1: a token is open from `asked` to `closed`. What is open and not listed, and what is listed and not open, is what
//!   [`orphans`] tells.
//!
//! A last line without its end was cut while it was written: the call that it stands before was not made, so it is passed over.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use shared::ids::NodeName;
use shared::units::Micros;
use thiserror::Error;

use crate::provider::{Machine, Want};

/// The form that is read.
pub const VERSION: u32 = 1;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Entry {
    /// A machine is about to be asked for.
    Asked {
        /// When, since 1970.
        at: Micros,
        /// What.
        want: Want,
    },
    /// There is one.
    Granted {
        /// When, since 1970.
        at: Micros,
        /// Of which request.
        token: NodeName,
        /// The provider's name for it.
        id: String,
    },
    /// It is about to be told to end.
    Releasing {
        /// When, since 1970.
        at: Micros,
        /// Of which request.
        token: NodeName,
        /// Why.
        cause: String,
    },
    /// It is gone, or there never was one.
    Closed {
        /// When, since 1970.
        at: Micros,
        /// Of which request.
        token: NodeName,
        /// Why.
        cause: String,
    },
}

/// The head of a file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    spotmux_custody: u32,
}

/// A request that is not closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// What was asked for.
    pub want: Want,
    /// The provider's name for it, if it said one.
    pub id: Option<String>,
    /// Whether it was told to end.
    pub releasing: bool,
}

/// Why a record cannot be read.
#[derive(Debug, Error)]
pub enum RecordError {
    /// A line that is none.
    #[error(
        "line {line} of the record of machines: {why}; machines may run unseen: compare it with the provider's list"
    )]
    Line {
        /// From 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
    /// Another program's.
    #[error(
        "the record of machines has form {found}, this program reads {VERSION}: run the program that wrote it"
    )]
    Version {
        /// The form found.
        found: u32,
    },
}

/// The first line of a file.
#[must_use]
pub fn head() -> String {
    format!("{{\"spotmux_custody\":{VERSION}}}\n")
}

/// A line of a file.
#[must_use]
pub fn line(entry: &Entry) -> String {
    let text = serde_json::to_string(entry).expect("an entry is plain data");
    text + "\n"
}

/// Reads a file.
///
/// # Errors
/// At the first line that is none, but for a last one that was cut.
pub fn read(text: &str) -> Result<Vec<Entry>, RecordError> {
    let mut entries = Vec::new();
    let whole = match text.rfind('\n') {
        Some(end) => &text[..=end],
        None => "",
    };
    for (at, line) in whole.lines().enumerate() {
        let bad = |error: serde_json::Error| RecordError::Line {
            line: at + 1,
            why: error.to_string(),
        };
        if at == 0 {
            let head: Head = serde_json::from_str(line).map_err(bad)?;
            if head.spotmux_custody != VERSION {
                return Err(RecordError::Version {
                    found: head.spotmux_custody,
                });
            }
            continue;
        }
        entries.push(serde_json::from_str(line).map_err(bad)?);
    }
    Ok(entries)
}

/// What is open after all entries (CR-1).
#[must_use]
pub fn open(entries: &[Entry]) -> BTreeMap<NodeName, Open> {
    let mut open: BTreeMap<NodeName, Open> = BTreeMap::new();
    for entry in entries {
        match entry {
            Entry::Asked { want, .. } => {
                let fresh = Open {
                    want: want.clone(),
                    id: None,
                    releasing: false,
                };
                open.insert(want.token.clone(), fresh);
            }
            Entry::Granted { token, id, .. } => {
                if let Some(own) = open.get_mut(token) {
                    own.id = Some(id.clone());
                }
            }
            Entry::Releasing { token, .. } => {
                if let Some(own) = open.get_mut(token) {
                    own.releasing = true;
                }
            }
            Entry::Closed { token, .. } => {
                open.remove(token);
            }
        }
    }
    open
}

/// Where a record and a list differ.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Orphans {
    /// Machines that cost money and that no open request accounts for.
    pub unclaimed: Vec<Machine>,
    /// Open requests that the provider shows no machine for.
    pub missing: Vec<NodeName>,
    /// Machines that open requests account for.
    #[serde(skip)]
    pub claimed: Vec<Machine>,
}

impl Orphans {
    /// Whether record and list agree.
    #[must_use]
    pub fn none(&self) -> bool {
        self.unclaimed.is_empty() && self.missing.is_empty()
    }
}

/// Compares what is open with what a provider shows.
#[must_use]
pub fn orphans(open: &BTreeMap<NodeName, Open>, listed: &[Machine]) -> Orphans {
    let mut told = Orphans::default();
    let mut claimed: BTreeMap<&NodeName, &str> = BTreeMap::new();
    for machine in listed {
        let by_id = || {
            let mut all = open.iter();
            all.find(|(_, own)| own.id.as_deref() == Some(&machine.id))
                .map(|(token, _)| token)
        };
        let token = match &machine.token {
            Some(token) => open.get_key_value(token).map(|(token, _)| token),
            None => by_id(),
        };
        let fits = token.is_some_and(|token| {
            let known = open[token].id.as_deref();
            let first = claimed.get(token).is_none_or(|id| *id == machine.id);
            first && known.is_none_or(|id| id == machine.id)
        });
        match token {
            Some(token) if fits => {
                claimed.insert(token, &machine.id);
                told.claimed.push(machine.clone());
            }
            _ => told.unclaimed.push(machine.clone()),
        }
    }
    told.missing = open
        .keys()
        .filter(|token| !claimed.contains_key(token))
        .cloned()
        .collect();
    told
}

#[cfg(test)]
mod tests {
    use super::super::tests::{machine, name, want};
    use super::*;

    fn entries() -> Vec<Entry> {
        let at = Micros(7);
        let asked = |token| Entry::Asked {
            at,
            want: want(token),
        };
        let granted = |token, id: &str| Entry::Granted {
            at,
            token: name(token),
            id: id.into(),
        };
        vec![
            asked("a"),
            granted("a", "i-1"),
            asked("b"),
            asked("c"),
            granted("c", "i-3"),
            Entry::Releasing {
                at,
                token: name("c"),
                cause: "dear".into(),
            },
            asked("d"),
            Entry::Closed {
                at,
                token: name("d"),
                cause: "no capacity".into(),
            },
        ]
    }

    #[test]
    fn cr_1_a_file_says_what_is_open_even_when_its_last_line_was_cut() {
        let mut text = head();
        for entry in &entries() {
            text.push_str(&line(entry));
        }
        let whole = open(&read(&text).expect("it is whole"));
        assert_eq!(
            whole.keys().map(NodeName::as_str).collect::<Vec<_>>(),
            ["a", "b", "c"]
        );
        assert!(whole[&name("c")].releasing && !whole[&name("a")].releasing);
        let cut = &text[..text.len() - 9];
        let again = open(&read(cut).expect("only the last line is cut"));
        assert!(again.contains_key(&name("d")), "its end was not recorded");
        let broken = text.replacen("asked", "found", 1);
        let told = read(&broken).expect_err("it is broken").to_string();
        assert!(told.contains("line 2"), "{told}");
        assert!(read("{\"spotmux_custody\":9}\n").is_err());
        assert_eq!(read("").expect("nothing was written"), []);
    }

    #[test]
    fn orphans_are_what_one_side_alone_knows() {
        let open = open(&entries());
        let listed = [
            machine("i-1", Some("a")),
            machine("i-9", Some("a")),
            machine("i-3", None),
            machine("i-7", Some("z")),
        ];
        let told = orphans(&open, &listed);
        let ids: Vec<&str> = told.unclaimed.iter().map(|one| one.id.as_str()).collect();
        assert_eq!(ids, ["i-9", "i-7"]);
        assert_eq!(told.missing, [name("b")]);
    }
}
