//! What can be wrong with an adapter's configuration, whichever library wrote it.

use shared::excerpt::excerpt;
use thiserror::Error;

/// Says why an adapter's configuration cannot be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ConfigError {
    /// Not JSON, or not an object.
    #[error("adapter_config.json is not a JSON object: {0}")]
    Syntax(String),
    /// A key is missing or of the wrong type.
    #[error("adapter_config.json: {key} is missing or not {wanted}")]
    Key {
        /// The key.
        key: &'static str,
        /// What it should be.
        wanted: &'static str,
    },
    /// A method that is not computed here.
    #[error(
        "peft_type \"{}\" is not computed here: known are LORA, IA3, PREFIX_TUNING, PROMPT_TUNING, BOTTLENECK, BITFIT, DIFF_PRUNING",
        excerpt(.found)
    )]
    Method {
        /// What the file says.
        found: String,
    },
    /// A setting that would change the numbers.
    #[error(
        "adapter_config.json: {} = {} is not computed here; re-export the adapter without it",
        excerpt(.key),
        excerpt(.value)
    )]
    Setting {
        /// The key.
        key: String,
        /// Its value.
        value: String,
    },
    /// A setting of the `adapters` library that would change the numbers.
    #[error("adapter_config.json: {key} = {} is not computed here: {reason}", excerpt(.value))]
    AdapterHub {
        /// The key within `config`.
        key: &'static str,
        /// Its value.
        value: String,
        /// What is computed.
        reason: &'static str,
    },
}
