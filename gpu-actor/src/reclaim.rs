//! What clouds say to a machine of its end: the words of their metadata services, read. Pure; [`crate::actor::reclaim`] asks.
//!
//! | cloud | asked for | says |
//! | --- | --- | --- |
//! | AWS | `spot/instance-action` | `{"action": "terminate", "time": "2026-01-02T03:04:05Z"}`: a notice, some two minutes before; 404: nothing |
//! | | `events/recommendations/rebalance` | `{"noticeTime": ..}`: a risk; 404: nothing |
//! | GCP | `instance/preempted` | `TRUE`: a notice, some 30 s before |
//! | | `instance/maintenance-event` | `TERMINATE_ON_HOST_MAINTENANCE`, `MIGRATE_ON_HOST_MAINTENANCE`: a risk |
//! | Azure | `scheduledevents` | an event of type `Preempt` with `NotBefore`: a notice, 30 s or more; others: a risk |
//!
//! A notice evicts; a risk never does.

use serde::Deserialize;
use shared::config::schema::Cloud;
use shared::units::Micros;

/// What is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// Nothing.
    Nothing,
    /// The machine may be taken.
    Risk(String),
    /// The machine will be taken.
    Notice {
        /// So long from now.
        within: Micros,
        /// In the cloud's words.
        cause: String,
    },
}

impl Said {
    /// The graver of two.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        match (&self, &other) {
            (Self::Notice { .. }, _) | (Self::Risk(_), Self::Nothing | Self::Risk(_)) => self,
            _ => other,
        }
    }
}

#[derive(Deserialize)]
struct Action {
    action: String,
    time: String,
}

/// Reads `spot/instance-action` of AWS. `hibernate` begins at once; what cannot be read is a notice all the same: the service
/// answers there only when the machine is taken.
#[must_use]
pub fn aws_action(body: &str, now: Micros) -> Said {
    let usual = Cloud::Aws.notice();
    let (within, cause) = match serde_json::from_str::<Action>(body) {
        Ok(Action { action, time }) if action == "hibernate" => {
            (Micros(0), format!("AWS will {action} it at {time}"))
        }
        Ok(Action { action, time }) => {
            let within = iso(&time).map_or(usual, |end| end.since(now).min(usual));
            (within, format!("AWS will {action} it at {time}"))
        }
        Err(_) => (usual, "AWS takes it, and does not say when".to_owned()),
    };
    Said::Notice { within, cause }
}

/// Reads `events/recommendations/rebalance` of AWS.
#[must_use]
pub fn aws_rebalance(body: &str) -> Said {
    let at = body.split('"').nth(3).unwrap_or("some time");
    Said::Risk(format!("AWS recommends since {at} to leave it"))
}

/// Reads `instance/preempted` of GCP.
#[must_use]
pub fn gcp_preempted(body: &str) -> Said {
    if body.trim().eq_ignore_ascii_case("true") {
        Said::Notice {
            within: Cloud::Gcp.notice(),
            cause: "GCP preempts it".to_owned(),
        }
    } else {
        Said::Nothing
    }
}

/// Reads `instance/maintenance-event` of GCP.
#[must_use]
pub fn gcp_maintenance(body: &str) -> Said {
    match body.trim() {
        "" | "NONE" => Said::Nothing,
        word => Said::Risk(format!("GCP announces {word}")),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Scheduled {
    #[serde(default)]
    events: Vec<Planned>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Planned {
    event_type: String,
    #[serde(default)]
    not_before: String,
    #[serde(default)]
    resources: Vec<String>,
}

/// Reads the scheduled events of Azure, for a machine of this name.
#[must_use]
pub fn azure_events(body: &str, machine: &str, now: Micros) -> Said {
    let Ok(scheduled) = serde_json::from_str::<Scheduled>(body) else {
        return Said::Nothing;
    };
    let own = |event: &&Planned| event.resources.iter().any(|resource| resource == machine);
    let mut said = Said::Nothing;
    for event in scheduled.events.iter().filter(own) {
        let Planned {
            event_type,
            not_before,
            ..
        } = event;
        said = said.or(if event_type == "Preempt" || event_type == "Terminate" {
            let usual = Cloud::Azure.notice();
            let within = day_first(not_before).map_or(usual, |end| end.since(now));
            Said::Notice {
                within,
                cause: format!("Azure announces {event_type}, not before {not_before:?}"),
            }
        } else {
            Said::Risk(format!("Azure announces {event_type}"))
        });
    }
    said
}

/// `2026-01-02T03:04:05Z`.
fn iso(text: &str) -> Option<Micros> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let mut date = date.splitn(3, '-').map(|part| part.parse::<i64>().ok());
    instant(date.next()??, date.next()??, date.next()??, time)
}

/// `Mon, 19 Sep 2016 18:29:47 GMT`.
fn day_first(text: &str) -> Option<Micros> {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let [_, day, month, year, time, "GMT"] = words[..] else {
        return None;
    };
    let month = MONTHS.iter().position(|own| *own == month)? as i64 + 1;
    instant(year.parse().ok()?, month, day.parse().ok()?, time)
}

/// Microseconds since 1970 of a date of the Gregorian calendar and `hh:mm:ss`, UTC (days by Hinnant's `days_from_civil`).
fn instant(year: i64, month: i64, day: i64, time: &str) -> Option<Micros> {
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let mut parts = time
        .split('.')
        .next()?
        .splitn(3, ':')
        .map(|part| part.parse::<i64>().ok());
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next()??);
    if !(0..24).contains(&hour) || !(0..60).contains(&minute) || !(0..=60).contains(&second) {
        return None;
    }
    let shifted = year - i64::from(month <= 2);
    let era = shifted.div_euclid(400);
    let of_era = shifted - era * 400;
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    let seconds = days * 86_400 + hour * 3600 + minute * 60 + second;
    Some(Micros(u64::try_from(seconds).ok()? * 1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000;

    #[test]
    fn instants_of_both_forms() {
        // 2016-09-19 18:29:47 UTC is 1474309787.
        let at = Some(Micros(1_474_309_787 * S));
        assert_eq!(iso("2016-09-19T18:29:47Z"), at);
        assert_eq!(iso("2016-09-19T18:29:47.123Z"), at);
        assert_eq!(day_first("Mon, 19 Sep 2016 18:29:47 GMT"), at);
        assert_eq!(iso("2000-03-01T00:00:00Z"), Some(Micros(951_868_800 * S)));
        for wrong in [
            "",
            "soon",
            "2016-13-19T18:29:47Z",
            "2016-09-19T25:29:47Z",
            "2016-09-19",
        ] {
            assert_eq!(iso(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn aws_says_when_and_is_believed_within_its_notice() {
        let now = Micros(1_474_309_700 * S);
        let body = r#"{"action": "terminate", "time": "2016-09-19T18:29:47Z"}"#;
        let within = |body: &str, now| match aws_action(body, now) {
            Said::Notice { within, .. } => within.0 / S,
            other => panic!("{other:?}"),
        };
        assert_eq!(within(body, now), 87);
        assert_eq!(within(body, Micros(0)), 120);
        assert_eq!(within(body, Micros(u64::MAX)), 0, "it is over");
        assert_eq!(within("<html>", now), 120);
        assert_eq!(within(r#"{"action": "hibernate", "time": "x"}"#, now), 0);
        let risk = aws_rebalance(r#"{"noticeTime": "2020-10-27T08:22:00Z"}"#);
        assert!(matches!(risk, Said::Risk(words) if words.contains("2020-10-27")));
    }

    #[test]
    fn gcp_and_azure() {
        assert_eq!(gcp_preempted("FALSE"), Said::Nothing);
        assert!(
            matches!(gcp_preempted("TRUE\n"), Said::Notice { within, .. } if within.0 == 30 * S)
        );
        assert_eq!(gcp_maintenance("NONE"), Said::Nothing);
        assert!(matches!(
            gcp_maintenance("MIGRATE_ON_HOST_MAINTENANCE"),
            Said::Risk(_)
        ));
        let now = Micros(1_474_309_700 * S);
        let events = r#"{"DocumentIncarnation": 2, "Events": [
            {"EventType": "Reboot", "Resources": ["vm1"]},
            {"EventType": "Preempt", "NotBefore": "Mon, 19 Sep 2016 18:29:47 GMT", "Resources": ["vm1"]},
            {"EventType": "Preempt", "NotBefore": "", "Resources": ["vm2"]}]}"#;
        let of = |machine| azure_events(events, machine, now);
        assert!(matches!(of("vm1"), Said::Notice { within, .. } if within.0 == 87 * S));
        assert!(matches!(of("vm2"), Said::Notice { within, .. } if within.0 == 30 * S));
        assert_eq!(of("vm3"), Said::Nothing);
        assert_eq!(azure_events("", "vm1", now), Said::Nothing);
    }

    #[test]
    fn a_notice_outweighs_a_risk() {
        let notice = gcp_preempted("TRUE");
        let risk = Said::Risk("r".into());
        assert_eq!(risk.clone().or(notice.clone()), notice);
        assert_eq!(notice.clone().or(risk.clone()), notice);
        assert_eq!(Said::Nothing.or(risk.clone()), risk);
    }
}
