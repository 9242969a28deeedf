//! Sizes of well-known backbones by name, for planning without a file of theirs: what their published `config.json`
//! says of them.

use shared::model::{ModelShape, config};
use shared::suggest;

use crate::exit::{Exit, Failure, OrExit};

/// A backbone: its name here, and what its `config.json` has.
struct Known {
    name: &'static str,
    family: &'static str,
    layers: u32,
    hidden: u32,
    intermediate: u32,
    heads: u32,
    kv_heads: u32,
    vocab: u32,
    positions: u32,
    tied: bool,
}

/// The row of a table.
macro_rules! known {
    ($name:literal, $family:literal, $layers:literal, $hidden:literal, $inner:literal, $heads:literal / $kv:literal,
     $vocab:literal, $positions:literal, $tied:literal) => {
        Known {
            name: $name,
            family: $family,
            layers: $layers,
            hidden: $hidden,
            intermediate: $inner,
            heads: $heads,
            kv_heads: $kv,
            vocab: $vocab,
            positions: $positions,
            tied: $tied,
        }
    };
}

/// Name, family, layers, hidden, intermediate, heads / key and value heads, vocabulary, context, tied tables.
const KNOWN: [Known; 7] = [
    known!(
        "llama-2-7b",
        "llama",
        32,
        4096,
        11008,
        32 / 32,
        32000,
        4096,
        false
    ),
    known!(
        "llama-2-13b",
        "llama",
        40,
        5120,
        13824,
        40 / 40,
        32000,
        4096,
        false
    ),
    known!(
        "llama-2-70b",
        "llama",
        80,
        8192,
        28672,
        64 / 8,
        32000,
        4096,
        false
    ),
    known!(
        "llama-3-8b",
        "llama",
        32,
        4096,
        14336,
        32 / 8,
        128256,
        8192,
        false
    ),
    known!(
        "llama-3-70b",
        "llama",
        80,
        8192,
        28672,
        64 / 8,
        128256,
        8192,
        false
    ),
    known!(
        "mistral-7b",
        "mistral",
        32,
        4096,
        14336,
        32 / 8,
        32000,
        32768,
        false
    ),
    known!(
        "smollm2-135m-instruct",
        "llama",
        30,
        576,
        1536,
        9 / 3,
        49152,
        8192,
        true
    ),
];

/// The names.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    KNOWN.iter().map(|known| known.name)
}

/// The sizes of a backbone by its name.
///
/// # Errors
/// Never: they are written here, and read by the tests.
pub(crate) fn named(name: &str) -> Option<Result<ModelShape, Failure>> {
    let known = KNOWN.iter().find(|known| known.name == name)?;
    let text = serde_json::json!({
        "model_type": known.family, "num_hidden_layers": known.layers, "hidden_size": known.hidden,
        "intermediate_size": known.intermediate, "num_attention_heads": known.heads,
        "num_key_value_heads": known.kv_heads, "vocab_size": known.vocab,
        "max_position_embeddings": known.positions, "tie_word_embeddings": known.tied,
        "rms_norm_eps": 1e-5, "sliding_window": null,
    });
    Some(config::parse(&text.to_string()).or_exit(Exit::Internal))
}

/// What may be named, for a name that is none.
pub(crate) fn hint(name: &str) -> String {
    let all: Vec<&str> = names().collect();
    format!(
        "planning needs sizes alone: a config.json, or one of {}{}",
        all.join(", "),
        suggest::clause(name, names())
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_the_sizes_of_its_name() {
        let billions = [6.7, 13.0, 69.0, 8.0, 70.6, 7.2, 0.135];
        for (name, billion) in names().zip(billions) {
            let shape = named(name).expect("it is known").expect("it is sound");
            let found = shape.parameters() as f64 / 1e9;
            assert!((found / billion - 1.0).abs() < 0.02, "{name}: {found}");
        }
        assert!(named("gpt-7").is_none());
        assert!(hint("llama-3-70").contains("llama-3-70b"));
    }
}
