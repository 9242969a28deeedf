//! Views of the cluster as tables for people and as JSON for programs.

pub(crate) mod cluster;
pub(crate) mod events;
pub(crate) mod jobs;
#[cfg(test)]
pub(crate) mod samples;

use std::fmt::Display;

use serde_json::Value;
use shared::units::Micros;

/// How long ago, or how long, for people: `45 s`, `12 min`, `3.5 h`, `2 d`.
pub(crate) fn span(time: Micros) -> String {
    let seconds = time.seconds();
    match seconds {
        s if s < 10.0 => format!("{s:.1} s"),
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s if s < 48.0 * 3600.0 => format!("{:.1} h", s / 3600.0),
        s => format!("{:.0} d", s / 86_400.0),
    }
}

/// Layers of a stage, the same in every table and sentence: `0..2` are layers 0 and 1.
pub(crate) fn layers(first: impl Display, end: impl Display) -> String {
    format!("{first}..{end}")
}

/// A JSON text within a view as JSON; a text that is none stays one.
fn inner(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.into()))
}

/// A view as JSON, with numbers that identify written as people write them.
fn value(view: &impl serde::Serialize) -> Value {
    serde_json::to_value(view).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        let shown = |seconds: u64| span(Micros(seconds * 1_000_000));
        assert_eq!(shown(3), "3.0 s");
        assert_eq!(shown(119), "119 s");
        assert_eq!(shown(600), "10 min");
        assert_eq!(shown(9000), "2.5 h");
        assert_eq!(shown(260_000), "3 d");
    }
}
