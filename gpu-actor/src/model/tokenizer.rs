//! Where a model's tokenizer comes from; the `data` crate builds it.

use std::path::{Path, PathBuf};

use data::tokenizer::GgufTokenizer;

use super::locate::{LocateError, optional, read_text};

/// What a model brings along to turn text into tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenizerSource {
    /// Files of a model folder; links are already followed and checked.
    Files {
        /// `tokenizer.json`.
        tokenizer: PathBuf,
        /// `tokenizer_config.json`.
        config: Option<PathBuf>,
        /// `chat_template.jinja`, which goes before a template inside the configuration.
        chat_template: Option<PathBuf>,
    },
    /// The parts that a GGUF file carries.
    Gguf {
        /// The file that carries them, for messages.
        file: PathBuf,
        /// What it says.
        parts: Box<GgufTokenizer>,
    },
    /// None: the model can be trained on token ids only.
    Missing,
}

impl TokenizerSource {
    /// Looks into a model folder (a real path).
    pub(crate) fn of_folder(folder: &Path) -> Result<Self, LocateError> {
        let Some(tokenizer) = optional(folder, "tokenizer.json")? else {
            return Ok(Self::Missing);
        };
        Ok(Self::Files {
            tokenizer,
            config: optional(folder, "tokenizer_config.json")?,
            chat_template: optional(folder, "chat_template.jinja")?,
        })
    }

    /// Names the kind, for summaries: `tokenizer.json`, `gguf gpt2/smollm` or `none`.
    #[must_use]
    pub fn kind(&self) -> String {
        match self {
            Self::Files { .. } => "tokenizer.json".into(),
            Self::Gguf { parts, .. } => format!("gguf {}/{}", parts.model, parts.pre),
            Self::Missing => "none".into(),
        }
    }

    /// Whether a chat template comes along.
    ///
    /// # Errors
    /// When `tokenizer_config.json` cannot be read.
    pub fn has_chat_template(&self) -> Result<bool, LocateError> {
        match self {
            Self::Gguf { parts, .. } => Ok(parts.chat_template.is_some()),
            Self::Missing => Ok(false),
            Self::Files {
                chat_template: Some(_),
                ..
            } => Ok(true),
            Self::Files { config: None, .. } => Ok(false),
            Self::Files {
                config: Some(config),
                ..
            } => {
                let text = read_text(config)?;
                let config: Option<serde_json::Value> = serde_json::from_str(&text).ok();
                Ok(config.is_some_and(|config| !config["chat_template"].is_null()))
            }
        }
    }
}
