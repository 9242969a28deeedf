//! A file of samples as token rows, or everything that is wrong with it.

mod loader;
mod record;

use std::io::BufRead;

use shared::job::{DataSpec, Overlong};

use crate::check::Problem;
use crate::lines::Lines;
use crate::report::Report;
use crate::rows::TokenRow;
use crate::template::Template;
use crate::tokenizer::{Special, Tokenizer};

use loader::Loader;

/// Longest accepted line in bytes: about a million tokens, for whose text and places the tokenizer takes 0.6 GB.
const LONGEST_LINE: usize = 4 << 20;

/// How samples become rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Longest row in tokens; absent: `context`.
    pub max_length: Option<usize>,
    /// Longest row that the model and the adapter can take.
    pub context: usize,
    /// Rows of the model's embedding: a token from there on cannot be trained. Absent: there is no model.
    pub vocabulary: Option<usize>,
    /// What happens to a longer one.
    pub overlong: Overlong,
    /// Whether prompts and user turns count in the loss too.
    pub train_on_inputs: bool,
    /// Largest share of rows that may be dropped.
    pub max_dropped: f64,
    /// How special tokens spelled in the samples' own text are read.
    pub special: Special,
    /// Longest accepted line in bytes.
    pub max_line_bytes: usize,
}

impl Options {
    /// The options of a job on a model whose longest row is `context` tokens, of a `vocabulary` of so many.
    #[must_use]
    pub fn of(spec: &DataSpec, context: usize, vocabulary: Option<usize>) -> Self {
        Self {
            max_length: spec.max_length,
            context,
            vocabulary,
            overlong: spec.overlong,
            train_on_inputs: spec.train_on_inputs,
            max_dropped: spec.max_dropped,
            special: Special::Plain,
            max_line_bytes: LONGEST_LINE,
        }
    }
}

/// Why a file gives no rows.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be opened.
    #[error("{path} cannot be opened: {source}")]
    Open {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// Reading broke off.
    #[error("reading {name} failed after byte {byte_offset}: {source}")]
    Read {
        /// The file.
        name: String,
        /// Bytes read before.
        byte_offset: u64,
        /// Why.
        source: std::io::Error,
    },
    /// The file has problems; the report lists them.
    #[error("{name} has {} problem(s); the first: {}", .report.errors.count(), first(.report))]
    Rejected {
        /// The file.
        name: String,
        /// The problems and the counts.
        report: Box<Report>,
    },
}

fn first(report: &Report) -> String {
    report
        .errors
        .listed
        .first()
        .map_or_else(String::new, Problem::to_string)
}

/// Samples as token rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset {
    /// The rows to use, in the order of the file.
    pub rows: Vec<TokenRow>,
    /// What became of the file.
    pub report: Report,
}

impl Dataset {
    /// Reads JSONL samples; `name` is what errors call the file.
    ///
    /// # Errors
    /// When reading fails, or the file has problems: then all of them, up to a cap, with their places.
    pub fn load(
        reader: impl BufRead,
        name: &str,
        options: &Options,
        tokenizer: &Tokenizer,
        template: &Template,
    ) -> Result<Self, LoadError> {
        let dataset = Self::check(reader, name, options, tokenizer, template)?;
        if dataset.report.errors.is_empty() {
            return Ok(dataset);
        }
        Err(LoadError::Rejected {
            name: name.to_owned(),
            report: Box::new(dataset.report),
        })
    }

    /// As [`Self::load`], but problems of the file are no error: they are in the report, and the sound rows are given.
    ///
    /// # Errors
    /// When reading fails.
    pub fn check(
        reader: impl BufRead,
        name: &str,
        options: &Options,
        tokenizer: &Tokenizer,
        template: &Template,
    ) -> Result<Self, LoadError> {
        let mut lines = Lines::new(reader, options.max_line_bytes);
        let mut loader = Loader::new(options, tokenizer, template);
        let read = loop {
            match lines.next_line() {
                Ok(Some(line)) if loader.take(&line) => {}
                Ok(_) => break Ok(()),
                Err(source) => break Err(source),
            }
        };
        read.map_err(|source| LoadError::Read {
            name: name.to_owned(),
            byte_offset: lines.offset(),
            source,
        })?;
        Ok(loader.finish(lines.offset()))
    }
}
