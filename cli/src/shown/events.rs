//! Events, a line each.

use serde_json::{Value, json};
use shared::units::Micros;
use shared::wire::view::{EventView, Level};

use super::{inner, value};

/// An event for people.
pub(crate) fn line(event: &EventView) -> String {
    let level = match event.level {
        Level::Info => "",
        Level::Warn => "warning: ",
        Level::Error => "error: ",
    };
    let job = event.job.map(|job| format!("{job} ")).unwrap_or_default();
    format!(
        "{} {:>6} {job}{level}{}",
        clock(event.at),
        event.number.to_string(),
        event.message
    )
}

/// An event for programs.
pub(crate) fn told(event: &EventView) -> Value {
    let mut told = json!({ "event": event.kind });
    told["number"] = json!(event.number.to_string());
    told["at"] = json!(event.at.seconds());
    told["job"] = json!(event.job.map(|job| job.to_string()));
    told["level"] = value(&event.level);
    told["message"] = json!(event.message);
    told["data"] = inner(&event.data);
    told
}

/// The time of day in UTC.
fn clock(at: Micros) -> String {
    let seconds = at.0 / 1_000_000 % 86_400;
    format!(
        "{:02}:{:02}:{:02}Z",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shown::samples;

    #[test]
    fn a_line_has_time_number_job_and_weight() {
        let event = samples::event(12, Level::Warn, "node_lost", "node n2 is lost");
        assert_eq!(line(&event), "00:01:40Z   ev12 j3 warning: node n2 is lost");
        let told = told(&event);
        assert_eq!(
            (&told["event"], &told["job"]),
            (&json!("node_lost"), &json!("j3"))
        );
        assert_eq!(told["data"]["step"], 4);
    }
}
