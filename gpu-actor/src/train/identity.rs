//! What a saved state belongs to.

use serde::{Deserialize, Serialize};
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
    /// How products with frozen weights are computed.
    #[serde(default, skip_serializing_if = "Products::is_default")]
    pub products: Products,
}

impl Identity {
    /// Dotted names of what differs. How often to save, and how many replicas share a step, may
    /// change on resume; how long to train may not, since a schedule
    /// spreads over it.
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
        if old.products != new.products {
            let (was, is) = (old.products, new.products);
            keys.push(format!(
                "products (trained with \"{was}\", now set to \"{is}\": set it back to go on)"
            ));
        }
        let mut old_spec = old.spec.clone();
        old_spec.checkpoint = new.spec.checkpoint.clone();
        old_spec.replicas = new.spec.replicas;
        let value = |spec| serde_json::to_value(spec).expect("a spec has a JSON form");
        compare("", &value(&old_spec), &value(&new.spec), &mut keys);
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

    #[test]
    fn another_arithmetic_is_named_with_the_remedy() {
        let spec =
            r#"{"name": "a", "adapter": {"method": "bitfit"}, "data": {"train": "a.jsonl"}}"#;
        let old = Identity {
            spec: serde_json::from_str(spec).unwrap(),
            backbone: "b".into(),
            data: "d".into(),
            products: Products::Split,
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
