//! Methods in a few words, for tables and model cards: the same wherever a job is shown.

use super::{AdapterSpec, Targets};

impl AdapterSpec {
    /// The method in a few words, as in `LoRA r=8`.
    ///
    /// ```
    /// let spec = r#"{"method": "lora", "rank": 16, "rslora": true, "targets": "attention"}"#;
    /// let spec: shared::job::AdapterSpec = serde_json::from_str(spec).unwrap();
    /// assert_eq!(spec.in_words(), "rsLoRA r=16 attention");
    /// ```
    #[must_use]
    pub fn in_words(&self) -> String {
        describe(self)
    }

    /// Whether what it trains is a change of the backbone's own weights and biases, so that it can be merged into them.
    #[must_use]
    pub fn changes_weights(&self) -> bool {
        match self {
            Self::Lora(_) | Self::Ia3(_) | Self::BitFit(_) | Self::Diff(_) => true,
            Self::Bottleneck(_) | Self::Prefix(_) | Self::Prompt(_) => false,
        }
    }
}

fn describe(spec: &AdapterSpec) -> String {
    match spec {
        AdapterSpec::Lora(lora) => {
            let name = match (lora.dora, lora.rslora, lora.lr_ratio != 1.0) {
                (true, _, _) => "DoRA",
                (_, true, _) => "rsLoRA",
                (_, _, true) => "LoRA+",
                _ => "LoRA",
            };
            format!("{name} r={}{}", lora.rank, layers(&lora.targets))
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

/// Which layers, as a group where they are one; nothing for all of them.
fn layers(targets: &Targets) -> String {
    let chosen = targets.resolve();
    for (group, shown) in [
        ("all-linear", ""),
        ("attention", " attention"),
        ("mlp", " mlp"),
    ] {
        if chosen == Targets::Group(group.into()).resolve() {
            return shown.into();
        }
    }
    let names: Vec<&str> = chosen
        .iter()
        .flatten()
        .map(|target| target.name())
        .collect();
    format!(" {}", names.join(","))
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
        let named = r#"{"method":"lora","rank":2,"targets":["up_proj","down_proj","gate_proj"]}"#;
        assert_eq!(describe(&method(named)), "LoRA r=2 mlp");
        let named = r#"{"method":"lora","rank":2,"targets":["v_proj","q_proj"]}"#;
        assert_eq!(describe(&method(named)), "LoRA r=2 q_proj,v_proj");
        let houlsby = method(r#"{"method":"bottleneck","size":16,"placement":"houlsby"}"#);
        assert_eq!(describe(&houlsby), "Houlsby 16");
    }
}
