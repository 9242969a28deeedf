//! What a saved state belongs to.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use shared::hexadecimal;
use shared::job::{JobSpec, Products};

/// What a checkpoint belongs to: a resume with another specification, backbone or data is refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// The job.
    pub spec: JobSpec,
    /// Content hash of the backbone.
    pub backbone: String,
    /// Content hash of the token rows.
    pub data: String,
    /// Content hash of the adapter that it starts from, if its specification names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    /// How products with frozen weights are computed.
    #[serde(default, skip_serializing_if = "Products::is_default")]
    pub products: Products,
}

impl Identity {
    /// SHA-256 in hexadecimal over all that results depend on; equal for what [`Self::differences`] takes for the same.
    #[must_use]
    pub fn hash(&self) -> String {
        let of_results = Self {
            spec: self.spec.of_results(),
            ..self.clone()
        };
        // Through a value, whose keys have one order whatever the fields have.
        let value = serde_json::to_value(of_results).expect("an identity has a JSON form");
        hexadecimal::lower(&Sha256::digest(value.to_string()))
    }

    /// Dotted names of what differs. What changes no result may ([`JobSpec::of_results`]); how long to train may not,
    /// since a schedule spreads over it.
    #[must_use]
    pub fn differences(&self, new: &Self) -> Vec<String> {
        let old = self;
        let mut keys = Vec::new();
        if old.backbone != new.backbone {
            keys.push("the backbone".to_owned());
        }
        if old.data != new.data {
            keys.push("the data".to_owned());
        }
        if old.start != new.start && old.spec.init_from == new.spec.init_from {
            keys.push("the adapter at init_from".to_owned());
        }
        if old.products != new.products {
            let (was, is) = (old.products, new.products);
            keys.push(format!(
                "products (trained with \"{was}\", now set to \"{is}\": set it back to go on)"
            ));
        }
        let value = |spec: &JobSpec| {
            serde_json::to_value(spec.of_results()).expect("a spec has a JSON form")
        };
        compare("", &value(&old.spec), &value(&new.spec), &mut keys);
        keys
    }
}

fn compare(at: &str, old: &serde_json::Value, new: &serde_json::Value, keys: &mut Vec<String>) {
    match (old.as_object(), new.as_object()) {
        (Some(old), Some(new)) => {
            let names: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            for name in names {
                let null = &serde_json::Value::Null;
                let (a, b) = (old.get(name).unwrap_or(null), new.get(name).unwrap_or(null));
                let at = if at.is_empty() {
                    name.clone()
                } else {
                    format!("{at}.{name}")
                };
                compare(&at, a, b, keys);
            }
        }
        _ if old != new => keys.push(at.to_owned()),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn identity(spec: &str) -> Identity {
        Identity {
            spec: serde_json::from_str(spec).unwrap(),
            backbone: "b".into(),
            data: "d".into(),
            start: None,
            products: Products::F32,
        }
    }

    /// The hash beside a finished adapter and the names told on resume judge alike.
    #[test]
    fn hash_and_differences_agree_on_what_results_depend_on() {
        let old = identity(
            r#"{"name": "a", "adapter": {"method": "bitfit"}, "data": {"train": "a.jsonl"}, "init_from": "x"}"#,
        );
        let changed = |change: fn(&mut Identity)| {
            let mut new = old.clone();
            change(&mut new);
            (old.differences(&new), old.hash() == new.hash())
        };
        let nothing: [fn(&mut Identity); 5] = [
            |new| new.spec.tenant = Some("t".into()),
            |new| {
                new.spec.market = Some(serde_json::from_str(r#"{"deadline_hours": 2.0}"#).unwrap());
            },
            |new| new.spec.replicas = 3,
            |new| new.spec.checkpoint.every_steps = Some(7),
            |new| new.spec.checkpoint.keep_last = 7,
        ];
        for change in nothing {
            assert_eq!(changed(change), (Vec::new(), true));
        }
        type Change = fn(&mut Identity);
        let something: [(Change, &str); 6] = [
            (|new| new.spec.seed = 7, "seed"),
            (|new| new.spec.train.steps = Some(9), "train.steps"),
            (|new| new.backbone = "c".into(), "the backbone"),
            (|new| new.data = "c".into(), "the data"),
            (
                |new| new.start = Some("s".into()),
                "the adapter at init_from",
            ),
            (|new| new.spec.init_from = Some("y".into()), "init_from"),
        ];
        for (change, name) in something {
            assert_eq!(changed(change), (vec![name.to_owned()], false));
        }
    }

    #[test]
    fn another_arithmetic_is_named_with_the_remedy() {
        let spec =
            r#"{"name": "a", "adapter": {"method": "bitfit"}, "data": {"train": "a.jsonl"}}"#;
        let old = Identity {
            products: Products::Split,
            ..identity(spec)
        };
        let new = Identity {
            products: Products::F32,
            ..old.clone()
        };
        let text = serde_json::to_string(&old).unwrap();
        assert!(text.contains(r#""products":"split""#), "{text}");
        assert_eq!(serde_json::from_str::<Identity>(&text).unwrap(), old);
        // What was written before there was a choice is f32, and is written the same.
        let text = serde_json::to_string(&new).unwrap();
        assert!(!text.contains("products"), "{text}");
        assert_eq!(serde_json::from_str::<Identity>(&text).unwrap(), new);
        assert!(old.differences(&old).is_empty());
        let [difference] = old.differences(&new).try_into().unwrap();
        assert!(
            difference.contains("\"split\"") && difference.contains("set it back"),
            "{difference}"
        );
    }
}
