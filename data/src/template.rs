//! Chat templates: conversations to text, as the model's makers wrote them down in Jinja.
//!
//! The environment is that of the transformers library: `trim_blocks` and `lstrip_blocks`, Python's string and
//! dictionary methods, `tojson` in Python's form, `raise_exception`, loop controls, and `{% generation %}` blocks.
//! `strftime_now` tells the time that is given. Without one, templates that ask whether it exists fall back to the
//! fixed date in their text, and those that do not ask get 2024-07-26: so training does not depend on the day.
//!
//! A template runs with a budget of instructions, of output bytes and of intermediate values (`budget`). Templates come from the model, never from a
//! request.

mod budget;
mod clock;
mod generation;
mod guard;
mod json;
mod output;
mod signs;
mod source;

use std::collections::BTreeMap;

use minijinja::value::Value;
use minijinja::{AutoEscape, Environment, ErrorKind, context};

use crate::message::Message;
use crate::tokenizer::Tokenizer;

use output::CappedOutput;

/// Instructions one rendering may run.
const FUEL: u64 = 2_000_000;
/// Bytes one rendering may give, beyond a multiple of what was put in.
const OUTPUT_BYTES: usize = 1 << 20;
/// The date that templates write when none is given and they have none of their own: 2024-07-26 00:00 UTC.
const FIXED_DATE: i64 = 1_721_952_000;
/// Longest accepted template.
const SOURCE_BYTES: usize = 1 << 18;

/// Used when a tokenizer knows `<|im_start|>` and `<|im_end|>` but brings no template.
const CHATML: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + \
'<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/// Used when there is neither a template nor ChatML: `Role: text` paragraphs, an answer ended by the end token.
const PLAIN: &str = "{% for message in messages %}{{ message['role'] | capitalize + ': ' + message['content'] }}\
{% if message['role'] == 'assistant' and eos_token %}{{ eos_token }}{% endif %}{{ '\\n' }}{% endfor %}\
{% if add_generation_prompt %}{{ 'Assistant: ' }}{% endif %}";

/// Where a template came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// `chat_template.jinja` beside the model.
    File,
    /// `tokenizer_config.json` or GGUF metadata.
    Tokenizer,
    /// The built-in ChatML form.
    ChatMl,
    /// The built-in plain form: `User: text` and `Assistant: text` lines, an answer closed by the end token if there
    /// is one.
    Plain,
}

/// Why a conversation cannot become text.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// The template is not valid, or uses what is not supported.
    #[error("the chat template does not compile: {reason}")]
    Compile {
        /// What and where, by the engine.
        reason: String,
    },
    /// The template is longer than accepted.
    #[error("the chat template has {bytes} bytes; the limit is {limit}")]
    Source {
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The template itself refused the conversation.
    #[error("the chat template refuses the conversation: {reason}")]
    Refused {
        /// Its own words.
        reason: String,
    },
    /// The template ran longer or wrote more than allowed.
    #[error("the chat template exceeds its budget: {reason}")]
    Budget {
        /// Which one.
        reason: String,
    },
    /// Anything else that went wrong in rendering.
    #[error("the chat template fails: {reason}")]
    Render {
        /// What and where, by the engine.
        reason: String,
    },
}

/// A compiled chat template with the special tokens it may write.
#[derive(Debug)]
pub struct Template {
    environment: Environment<'static>,
    origin: Origin,
    has_generation: bool,
    tokens: BTreeMap<&'static str, String>,
}

/// What a rendering is asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ask {
    /// Ends with the beginning of an answer.
    pub(crate) generation_prompt: bool,
    /// Characters to put around what a `{% generation %}` block writes.
    pub(crate) marks: Option<(char, char)>,
}

impl Template {
    /// Picks the template of a model: `file` (the text of `chat_template.jinja`), then the one that came with the
    /// tokenizer, then ChatML where its tokens exist, then the plain form. `now` is the time in seconds since 1970
    /// (UTC) for templates that write the date; without it the date is a fixed one.
    ///
    /// # Errors
    /// When the chosen template does not compile.
    pub fn choose(
        file: Option<&str>,
        tokenizer: &Tokenizer,
        now: Option<i64>,
    ) -> Result<Self, TemplateError> {
        let chat_ml = ["<|im_start|>", "<|im_end|>"];
        let (source, origin) = match (file, tokenizer.chat_template()) {
            (Some(file), _) => (file, Origin::File),
            (None, Some(own)) => (own, Origin::Tokenizer),
            (None, None) if chat_ml.iter().all(|t| tokenizer.token_to_id(t).is_some()) => {
                (CHATML, Origin::ChatMl)
            }
            (None, None) => (PLAIN, Origin::Plain),
        };
        Self::compile(source, origin, tokenizer, now)
    }

    /// Compiles a given template.
    ///
    /// # Errors
    /// When it does not compile or is too long.
    pub fn compile(
        source: &str,
        origin: Origin,
        tokenizer: &Tokenizer,
        now: Option<i64>,
    ) -> Result<Self, TemplateError> {
        if source.len() > SOURCE_BYTES {
            return Err(TemplateError::Source {
                bytes: source.len(),
                limit: SOURCE_BYTES,
            });
        }
        let source = source::rewrite(source);
        let guarded =
            guard::guard(&source.text).map_err(|reason| TemplateError::Compile { reason })?;
        let now = now.or_else(|| source.needs_date.then_some(FIXED_DATE));
        let mut environment = environment(now);
        environment
            .add_template_owned("chat", guarded)
            .map_err(|error| TemplateError::Compile {
                reason: describe(&error),
            })?;
        Ok(Self {
            environment,
            origin,
            has_generation: source.has_generation,
            tokens: token_names(tokenizer),
        })
    }

    /// Where the template came from.
    #[must_use]
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// Whether the template marks answers by `{% generation %}` blocks.
    #[must_use]
    pub fn has_generation(&self) -> bool {
        self.has_generation
    }

    /// The text of a conversation; `add_generation_prompt` ends it with the beginning of an answer.
    ///
    /// # Errors
    /// When the template refuses the conversation, fails, or exceeds its budget.
    pub fn render(
        &self,
        messages: &[Message],
        add_generation_prompt: bool,
    ) -> Result<String, TemplateError> {
        let ask = Ask {
            generation_prompt: add_generation_prompt,
            marks: None,
        };
        self.render_values(&values(messages), ask)
    }

    /// The text of the template, to keep clear of its characters.
    pub(crate) fn source(&self) -> String {
        self.environment
            .get_template("chat")
            .map_or_else(|_| String::new(), |template| template.source().to_owned())
    }

    pub(crate) fn render_values(
        &self,
        messages: &[Value],
        ask: Ask,
    ) -> Result<String, TemplateError> {
        let size: usize = messages.iter().filter_map(content_length).sum();
        let mut output = CappedOutput::new(OUTPUT_BYTES + 4 * size);
        let marks = ask.marks.map(|(open, close)| vec![open, close]);
        let template = self.environment.get_template("chat").map_err(sort)?;
        template
            .render_captured_to(
                context! {
                    messages => Value::from(messages.to_vec()),
                    add_generation_prompt => ask.generation_prompt,
                    tools => (), documents => (),
                    spotmux_generation_marks => marks,
                    spotmux_input => size,
                    ..Value::from_serialize(&self.tokens)
                },
                &mut output,
            )
            .map_err(sort)?;
        Ok(output.into_text())
    }
}

/// The messages as templates see them.
pub(crate) fn values(messages: &[Message]) -> Vec<Value> {
    let value = |message: &Message| match &message.name {
        Some(name) => {
            context! { role => message.role.name(), content => message.content, name => name }
        }
        None => context! { role => message.role.name(), content => message.content },
    };
    messages.iter().map(value).collect()
}

fn content_length(message: &Value) -> Option<usize> {
    message.get_attr("content").ok()?.as_str().map(str::len)
}

fn token_names(tokenizer: &Tokenizer) -> BTreeMap<&'static str, String> {
    let special = tokenizer.special();
    let roles = [
        ("bos_token", special.bos),
        ("eos_token", special.eos),
        ("unk_token", special.unk),
        ("pad_token", special.pad),
    ];
    roles
        .into_iter()
        .filter_map(|(name, id)| Some((name, tokenizer.id_to_token(id?)?)))
        .collect()
}

fn environment(now: Option<i64>) -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    budget::keep(&mut environment);
    environment.add_filter(generation::FILTER, generation::mark);
    environment.add_function("raise_exception", raise);
    if let Some(now) = now {
        environment.add_function("strftime_now", move |format: &str| {
            clock::format(now, format)
        });
    }
    environment
}

/// Marks an error as the template's own refusal.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

fn raise(message: String) -> Result<Value, minijinja::Error> {
    Err(minijinja::Error::new(ErrorKind::InvalidOperation, "raised").with_source(Raised(message)))
}

fn sort(error: minijinja::Error) -> TemplateError {
    let mut cause: Option<&dyn std::error::Error> = Some(&error);
    while let Some(current) = cause {
        if let Some(Raised(reason)) = current.downcast_ref() {
            return TemplateError::Refused {
                reason: reason.clone(),
            };
        }
        if let Some(budget::Exceeded(reason)) = current.downcast_ref() {
            return TemplateError::Budget {
                reason: reason.clone(),
            };
        }
        cause = current.source();
    }
    match error.kind() {
        ErrorKind::InvalidOperation if error.detail() == Some("recursion limit exceeded") => {
            TemplateError::Budget {
                reason: "calls within too many calls".to_owned(),
            }
        }
        ErrorKind::OutOfFuel => TemplateError::Budget {
            reason: format!("more than {FUEL} instructions"),
        },
        ErrorKind::WriteFailure => TemplateError::Budget {
            reason: "more output than four times its input and a mebibyte".to_owned(),
        },
        _ => TemplateError::Render {
            reason: describe(&error),
        },
    }
}

fn describe(error: &minijinja::Error) -> String {
    let place = error.line().map_or_else(String::new, |line| {
        format!(" (line {line} of the template)")
    });
    match error.detail() {
        Some(detail) => format!("{}: {detail}{place}", error.kind()),
        None => format!("{}{place}", error.kind()),
    }
}
