//! Reads a profile, and refuses by key what is none.

use std::collections::BTreeSet;

use serde_json::Value;
use thiserror::Error;

use super::{FORMAT, Profile, VERSION};
use crate::plan::bounds::{self, Bound};
use crate::plan::curve::{BadCurve, Curve, LARGEST, Points};

/// Why a text is not a profile, or why a profile does not tell what was asked.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum BadProfile {
    /// No JSON, or not an object.
    #[error("the profile is not readable: {reason}")]
    Syntax {
        /// What the reader says.
        reason: String,
    },
    /// Some other file.
    #[error("format is {found}, and a profile has \"{FORMAT}\": this is another file")]
    Foreign {
        /// What stands there.
        found: String,
    },
    /// Of another time.
    #[error("version {found} is not known, only {VERSION}: measure again, or use a newer program")]
    Version {
        /// What stands there.
        found: String,
    },
    /// A key that is missing, unknown, or of another kind.
    #[error("{key}: {reason}")]
    Key {
        /// The path to it.
        key: String,
        /// What is wrong.
        reason: String,
    },
    /// Points that are no curve.
    #[error("{key}: {reason}")]
    Curve {
        /// The path to it.
        key: String,
        /// What is wrong.
        reason: BadCurve,
    },
    /// An operation that is in no table and that no roofline covers.
    #[error(
        "the profile of {device} does not hold {key}, and has no roofline: measure it, or give the peaks"
    )]
    Unmeasured {
        /// The device.
        device: String,
        /// What was asked for.
        key: String,
    },
}

impl Profile {
    /// Reads the text of a profile.
    ///
    /// # Errors
    /// [`BadProfile`] with the key and what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, BadProfile> {
        let value = shared::strict_json::parse(text).map_err(|error| BadProfile::Syntax {
            reason: error.to_string(),
        })?;
        let Value::Object(map) = &value else {
            return Err(BadProfile::Syntax {
                reason: "it is not an object".into(),
            });
        };
        let shown = |key: &str| {
            map.get(key)
                .map_or_else(|| "absent".to_owned(), Value::to_string)
        };
        if map.get("format").and_then(Value::as_str) != Some(FORMAT) {
            return Err(BadProfile::Foreign {
                found: shown("format"),
            });
        }
        if map.get("version").and_then(Value::as_u64) != Some(u64::from(VERSION)) {
            return Err(BadProfile::Version {
                found: shown("version"),
            });
        }
        let profile: Self = serde_path_to_error::deserialize(value).map_err(|error| {
            let key = error.path().to_string();
            BadProfile::Key {
                key: if key == "." { "profile".into() } else { key },
                reason: error.into_inner().to_string(),
            }
        })?;
        profile.check()?;
        Ok(profile)
    }

    /// Checks what the types do not.
    ///
    /// # Errors
    /// [`BadProfile`] with the key and what is wrong with it.
    pub fn check(&self) -> Result<(), BadProfile> {
        if self.device.is_empty() {
            return Err(wrong("device", "is empty: name it as the nodes do"));
        }
        within("memory_bytes", self.memory_bytes, bounds::MEMORY)?;
        if self.workspace_bytes >= self.memory_bytes {
            let reason = format!("{} leaves nothing of memory_bytes", self.workspace_bytes);
            return Err(wrong("workspace_bytes", &reason));
        }
        let change = &self.reconfiguration;
        let rate = change.load_bytes_per_second;
        within("reconfiguration.load_bytes_per_second", rate, bounds::RATE)?;
        for (key, nanos) in [
            ("reconfiguration.attach_nanos", change.attach_nanos),
            ("reconfiguration.switch_nanos", change.switch_nanos),
        ] {
            within(key, nanos, bounds::NANOS)?;
        }
        self.check_roofline()?;
        self.check_tables()?;
        for (index, link) in self.links.iter().enumerate() {
            let (rate, latency) = (link.bytes_per_second, link.latency_nanos);
            within(
                &format!("links[{index}].bytes_per_second"),
                rate,
                bounds::RATE,
            )?;
            within(
                &format!("links[{index}].latency_nanos"),
                latency,
                bounds::NANOS,
            )?;
        }
        Ok(())
    }

    fn check_roofline(&self) -> Result<(), BadProfile> {
        let Some(roofline) = self.roofline else {
            return Ok(());
        };
        let (flops, bytes) = (roofline.flops_per_second, roofline.bytes_per_second);
        within("roofline.flops_per_second", flops, bounds::RATE)?;
        within("roofline.bytes_per_second", bytes, bounds::RATE)?;
        let launch = roofline.launch_nanos;
        within("roofline.launch_nanos", launch, bounds::NANOS)?;
        for (key, permille) in [
            ("roofline.compute_permille", roofline.compute_permille),
            ("roofline.memory_permille", roofline.memory_permille),
        ] {
            if !(1..=1000).contains(&permille) {
                return Err(wrong(key, &format!("{permille} is not within 1 and 1000")));
            }
        }
        Ok(())
    }

    fn check_tables(&self) -> Result<(), BadProfile> {
        let mut known = BTreeSet::new();
        let mut once = |key: String, entry: String| {
            if known.insert(entry.clone()) {
                return Ok(());
            }
            Err(wrong(&key, &format!("{entry} is there twice")))
        };
        for (index, linear) in self.linear.iter().enumerate() {
            let key = format!("linear[{index}]");
            positive(&format!("{key}.out"), linear.out)?;
            positive(&format!("{key}.input"), linear.input)?;
            curve(&format!("{key}.forward"), &linear.forward)?;
            curve(&format!("{key}.backward"), &linear.backward)?;
            let weights = linear.weights.name();
            once(
                key,
                format!("linear {} x {} {weights}", linear.out, linear.input),
            )?;
        }
        for (index, attention) in self.attention.iter().enumerate() {
            let key = format!("attention[{index}]");
            positive(&format!("{key}.heads"), attention.heads)?;
            positive(&format!("{key}.length"), attention.length)?;
            curve(&format!("{key}.forward"), &attention.forward)?;
            curve(&format!("{key}.backward"), &attention.backward)?;
            let heads = (attention.heads, attention.kv_heads, attention.head_dim);
            once(
                key,
                format!("attention {heads:?} of length {}", attention.length),
            )?;
        }
        for (index, adapter) in self.adapters.iter().enumerate() {
            let key = format!("adapters[{index}]");
            within(&format!("{key}.width"), adapter.width, bounds::WIDTH)?;
            curve(&format!("{key}.forward"), &adapter.forward)?;
            curve(&format!("{key}.backward"), &adapter.backward)?;
            curve(&format!("{key}.utilisation"), &adapter.utilisation)?;
            let shape = (adapter.out, adapter.input);
            let entry = format!(
                "adapter {} of width {} at {shape:?}",
                adapter.method, adapter.width
            );
            once(key, entry)?;
        }
        if !self.stream.is_empty() {
            curve("stream", &self.stream)?;
        }
        Ok(())
    }
}

fn wrong(key: &str, reason: &str) -> BadProfile {
    BadProfile::Key {
        key: key.to_owned(),
        reason: reason.to_owned(),
    }
}

fn positive(key: &str, number: u64) -> Result<(), BadProfile> {
    within(key, number, Bound::new("", 1, LARGEST))
}

fn within(key: &str, number: u64, bound: Bound) -> Result<(), BadProfile> {
    bound.check(number).map(drop).map_err(|_| {
        let (least, most) = (bound.least, bound.most);
        let reason = format!("{number} is not within {least} and {most}: is the unit right?");
        wrong(key, &reason)
    })
}

fn curve(key: &str, points: &Points) -> Result<(), BadProfile> {
    Curve::new(points)
        .map(drop)
        .map_err(|reason| BadProfile::Curve {
            key: key.to_owned(),
            reason,
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::profile::Peak;

    fn written() -> Value {
        serde_json::to_value(Profile::peak(&Peak::A40)).expect("a profile is JSON")
    }

    fn refused(value: &Value) -> String {
        Profile::parse(&value.to_string())
            .expect_err("it is wrong")
            .to_string()
    }

    #[test]
    fn what_is_written_is_read() {
        let profile = Profile::peak(&Peak::A40);
        let text = serde_json::to_string(&profile).expect("a profile is JSON");
        assert_eq!(Profile::parse(&text), Ok(profile));
    }

    #[test]
    fn the_example_of_the_documentation_is_read() {
        let source = include_str!("../profile.rs");
        let lines: Vec<&str> = source
            .lines()
            .skip_while(|line| *line != "//! ```json")
            .skip(1)
            .take_while(|line| *line != "//! ```")
            .map(|line| line.trim_start_matches("//!"))
            .collect();
        let profile = Profile::parse(&lines.join("\n")).expect("the example");
        assert_eq!(profile.linear.len(), 1);
    }

    #[test]
    fn foreign_and_corrupt_files_are_refused_by_key() {
        assert!(Profile::parse("{").is_err_and(|e| matches!(e, BadProfile::Syntax { .. })));
        let mut value = written();
        value["format"] = "safetensors".into();
        assert!(refused(&value).contains("another file"));
        let mut value = written();
        value["version"] = 2.into();
        assert!(refused(&value).starts_with("version 2"));
        let mut value = written();
        value["roofline"]["compute_permille"] = 1200.into();
        assert!(refused(&value).starts_with("roofline.compute_permille: 1200"));
        let mut value = written();
        value["linear"] = serde_json::json!([{ "out": 8, "input": 8, "weights": "bf16",
            "forward": [[4, 10], [2, 20]], "backward": [[1, 1]] }]);
        assert!(refused(&value).starts_with("linear[0].forward: size 2 at point 1"));
        let mut value = written();
        value["linear"] = serde_json::json!([{ "out": 8, "input": 8, "weights": "int3",
            "forward": [[4, 10]], "backward": [[1, 1]] }]);
        let said = refused(&value);
        assert!(
            said.starts_with("linear[0].weights") && said.contains("int3"),
            "{said}"
        );
        let mut value = written();
        value["speed"] = 1.into();
        assert!(refused(&value).contains("speed"));
        let mut value = written();
        value["workspace_bytes"] = value["memory_bytes"].clone();
        assert!(refused(&value).starts_with("workspace_bytes"));
    }
}
