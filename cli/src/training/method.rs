//! Methods in a few words, for tables and model cards.

use shared::job::{AdapterSpec, Targets};

/// A method in a few words, as in `LoRA r=8`.
pub(crate) fn describe(spec: &AdapterSpec) -> String {
    match spec {
        AdapterSpec::Lora(lora) => {
            let name = match (lora.dora, lora.rslora, lora.lr_ratio != 1.0) {
                (true, _, _) => "DoRA",
                (_, true, _) => "rsLoRA",
                (_, _, true) => "LoRA+",
                _ => "LoRA",
            };
            let group = match &lora.targets {
                Targets::Group(group) if group == "all-linear" => String::new(),
                Targets::Group(group) => format!(" {group}"),
                Targets::Named(list) => {
                    let names: Vec<&str> = list.iter().map(|target| target.name()).collect();
                    format!(" {}", names.join(","))
                }
            };
            format!("{name} r={}{group}", lora.rank)
        }
        AdapterSpec::Ia3(_) => "IA3".into(),
        AdapterSpec::Bottleneck(bottleneck) => {
            let placement = format!("{:?}", bottleneck.placement);
            format!("{placement} {}", bottleneck.size)
        }
        AdapterSpec::Prefix(prefix) => format!("prefix {}", prefix.tokens),
        AdapterSpec::Prompt(prompt) => format!("prompt {}", prompt.tokens),
        AdapterSpec::BitFit(_) => "BitFit".into(),
        AdapterSpec::Diff(diff) => format!("diff {:.2} %", 100.0 * diff.density),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn method(text: &str) -> AdapterSpec {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn methods_in_words() {
        assert_eq!(
            describe(&method(r#"{"method":"lora","rank":4,"dora":true}"#)),
            "DoRA r=4"
        );
        let attention =
            method(r#"{"method":"lora","rank":16,"rslora":true,"targets":"attention"}"#);
        assert_eq!(describe(&attention), "rsLoRA r=16 attention");
        let houlsby = method(r#"{"method":"bottleneck","size":16,"placement":"houlsby"}"#);
        assert_eq!(describe(&houlsby), "Houlsby 16");
    }
}
