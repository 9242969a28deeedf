//! Whether an adapter's values can be the first values of a job.
//!
//! They can where both train the same parameters at the same sites. What only says how training goes (dropout, the
//! learning rates of LoRA+, the text that fresh embeddings come from) may differ.

use serde_json::Value;
use shared::job::{AdapterSpec, LoraSpec, Targets};
use shared::model::ModelShape;

use super::files::Imported;
use super::layout::Layout;

/// What of the seed shows in the sites of an adapter.
const SEED: &str = "seed (the places that diff pruning draws)";

/// Names of what keeps the values of `found` from being the first ones of a job with this method and layout; empty
/// when they can be.
#[must_use]
pub fn misfits(
    wanted: &AdapterSpec,
    layout: &Layout,
    seed: u64,
    found: &Imported,
    shape: &ModelShape,
) -> Vec<String> {
    if found.layout == *layout {
        return Vec::new();
    }
    let trained_alike = match (wanted, &found.spec) {
        (AdapterSpec::Lora(wanted), AdapterSpec::Lora(found)) => AdapterSpec::Lora(LoraSpec {
            dropout: found.dropout,
            lr_ratio: found.lr_ratio,
            ..wanted.clone()
        }),
        _ => wanted.clone(),
    };
    if Layout::new(&trained_alike, shape, seed) == found.layout {
        return Vec::new();
    }
    let keys = differing(&plain(&trained_alike), &plain(&found.spec));
    if keys.is_empty() {
        return vec![SEED.to_owned()];
    }
    keys
}

/// A method as its keys, with what it leaves open resolved and what shows in no value left out.
fn plain(spec: &AdapterSpec) -> Value {
    let mut spec = spec.clone();
    match &mut spec {
        AdapterSpec::Lora(lora) => {
            lora.alpha = Some(lora.alpha());
            resolve(&mut lora.targets);
        }
        AdapterSpec::Ia3(ia3) => {
            resolve(&mut ia3.targets);
            ia3.feedforward.sort_unstable();
        }
        AdapterSpec::BitFit(bitfit) => resolve(&mut bitfit.targets),
        AdapterSpec::Diff(diff) => resolve(&mut diff.targets),
        AdapterSpec::Prompt(prompt) => prompt.init_text = None,
        AdapterSpec::Bottleneck(_) | AdapterSpec::Prefix(_) => {}
    }
    serde_json::to_value(spec).expect("a method has a JSON form")
}

fn resolve(targets: &mut Targets) {
    if let Ok(mut named) = targets.resolve() {
        named.sort_unstable();
        named.dedup();
        *targets = Targets::Named(named);
    }
}

/// The keys whose values differ; of two methods `method` alone.
fn differing(one: &Value, other: &Value) -> Vec<String> {
    if one["method"] != other["method"] {
        return vec!["method".to_owned()];
    }
    let keys = |value: &Value| -> Vec<String> {
        let map = value.as_object();
        map.map(|map| map.keys().cloned().collect())
            .unwrap_or_default()
    };
    let mut names = [keys(one), keys(other)].concat();
    names.sort_unstable();
    names.dedup();
    names.retain(|key| one.get(key) != other.get(key));
    names
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use shared::model::Family;

    use super::*;
    use crate::model::tiny::TinySpec;

    #[test]
    fn what_keeps_values_from_going_on_is_named() {
        let shape = TinySpec::smallest(Family::Llama).shape();
        let spec = |text: &str| -> AdapterSpec { serde_json::from_str(text).unwrap() };
        let judged = |wanted: &str, found: &str, seed: u64| {
            let (wanted, found) = (spec(wanted), spec(found));
            let imported = Imported {
                layout: Layout::new(&found, &shape, 1),
                spec: found,
                values: Vec::new(),
                base: None,
            };
            misfits(
                &wanted,
                &Layout::new(&wanted, &shape, seed),
                seed,
                &imported,
                &shape,
            )
        };
        let lora = r#"{"method": "lora", "rank": 4}"#;
        for alike in [
            r#"{"method": "lora", "rank": 4, "dropout": 0.1}"#,
            r#"{"method": "lora", "rank": 4, "alpha": 8.0, "lr_ratio": 16.0}"#,
            r#"{"method": "lora", "rank": 4, "targets": ["down_proj", "up_proj", "gate_proj", "o_proj", "v_proj", "k_proj", "q_proj"]}"#,
        ] {
            assert!(judged(alike, lora, 2).is_empty(), "{alike}");
        }
        for (wanted, keys) in [
            (
                r#"{"method": "lora", "rank": 4, "alpha": 9.0}"#,
                vec!["alpha"],
            ),
            (
                r#"{"method": "lora", "rank": 2, "dropout": 0.5, "targets": ["q_proj"]}"#,
                vec!["alpha", "rank", "targets"],
            ),
            (r#"{"method": "bitfit"}"#, vec!["method"]),
        ] {
            assert_eq!(judged(wanted, lora, 1), keys, "{wanted}");
        }
        let diff = r#"{"method": "diff", "targets": ["q_proj"], "density": 0.1}"#;
        assert!(judged(diff, diff, 1).is_empty());
        assert_eq!(judged(diff, diff, 2), [SEED]);
    }
}
