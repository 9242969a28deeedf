//! The tokenizer and chat template that come with a model.

use std::path::Path;

use anyhow::Context;
use data::mask::Encoder;
use data::message::Message;
use data::regular;
use data::template::{Origin, Template};
use data::tokenizer::{Special, Tokenizer};
use gpu_actor::model::TokenizerSource;

use crate::exit::{Exit, Failure, OrExit};

/// Largest chat template read.
const TEMPLATE: u64 = 1 << 20;
/// Largest file of a tokenizer read.
const TOKENIZER: u64 = 256 << 20;

/// Turns text into tokens and back as one model does.
#[derive(Debug)]
pub(crate) struct Language {
    /// The tokenizer.
    pub(crate) tokenizer: Tokenizer,
    /// The chat template.
    pub(crate) template: Template,
}

impl Language {
    /// The language of a model; `template` replaces its own chat template.
    ///
    /// # Errors
    /// [`Exit::BadInput`] when the model has no tokenizer, or a part of it is wrong.
    pub(crate) fn of(source: &TokenizerSource, template: Option<&Path>) -> Result<Self, Failure> {
        let tokenizer = tokenizer(source)?;
        let own = match source {
            TokenizerSource::Files {
                chat_template: Some(path),
                ..
            } => Some(read(path, TEMPLATE)?),
            _ => None,
        };
        Self::with(tokenizer, own.as_deref(), template)
    }

    /// Bytes as tokens and ChatML turns: for looking at data without a model.
    ///
    /// # Errors
    /// [`Exit::BadInput`] when the template is wrong.
    pub(crate) fn bytes(template: Option<&Path>) -> Result<Self, Failure> {
        Self::with(Tokenizer::bytes(), None, template)
    }

    fn with(
        tokenizer: Tokenizer,
        own: Option<&str>,
        replaced: Option<&Path>,
    ) -> Result<Self, Failure> {
        let template = match replaced {
            Some(path) => {
                let source = read(path, TEMPLATE)?;
                let compiled = Template::compile(&source, Origin::File, &tokenizer, None);
                compiled
                    .with_context(|| path.display().to_string())
                    .or_exit(Exit::BadInput)?
            }
            // No date is given: a template that writes one would make training depend on the day.
            None => Template::choose(own, &tokenizer, None).or_exit(Exit::BadInput)?,
        };
        Ok(Self {
            tokenizer,
            template,
        })
    }

    /// The tokens to continue for an answer to a conversation.
    ///
    /// # Errors
    /// [`Exit::BadInput`] when the template refuses it.
    pub(crate) fn chat_prompt(&self, messages: &[Message]) -> Result<Vec<u32>, Failure> {
        let encoder = Encoder {
            tokenizer: &self.tokenizer,
            template: &self.template,
            special: Special::Plain,
            train_on_inputs: false,
        };
        encoder.prompt(messages).or_exit(Exit::BadInput)
    }

    /// The tokens of a text to continue as it is.
    ///
    /// # Errors
    /// [`Exit::BadInput`] when the tokenizer refuses it.
    pub(crate) fn raw_prompt(&self, text: &str) -> Result<Vec<u32>, Failure> {
        self.tokenizer
            .encode_raw(text, Special::Plain)
            .or_exit(Exit::BadInput)
    }
}

fn tokenizer(source: &TokenizerSource) -> Result<Tokenizer, Failure> {
    match source {
        TokenizerSource::Missing => Err(Failure::new(
            Exit::BadInput,
            "the model has no tokenizer.json",
        )
        .hint("put the tokenizer.json of its origin beside the weights")),
        TokenizerSource::Gguf { file, parts } => Tokenizer::from_gguf(parts)
            .with_context(|| file.display().to_string())
            .or_exit(Exit::BadInput),
        TokenizerSource::Files {
            tokenizer, config, ..
        } => {
            let json = read(tokenizer, TOKENIZER)?;
            let config = config
                .as_deref()
                .map(|path| read(path, TOKENIZER))
                .transpose()?;
            Tokenizer::from_json(json.as_bytes(), config.as_ref().map(String::as_bytes))
                // The message names the file of the two that is wrong.
                .with_context(|| {
                    tokenizer
                        .parent()
                        .unwrap_or(tokenizer)
                        .display()
                        .to_string()
                })
                .or_exit(Exit::BadInput)
        }
    }
}

fn read(path: &Path, limit: u64) -> Result<String, Failure> {
    regular::read_text(path, limit)
        .with_context(|| format!("cannot read {}", path.display()))
        .or_exit(Exit::BadInput)
}
