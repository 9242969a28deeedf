//! Takes the lines of a file one after another and keeps rows, problems and counts.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::check::{Code, MAX_PROBLEMS, Problem};
use crate::formats::{self, Findings, Format, Sample};
use crate::lines::Line;
use crate::mask::{Encoder, Labelled, MaskError};
use crate::overlap;
use crate::report::{Report, TokenStats};
use crate::rows::{DropReason, Fate, TokenRow, decide};
use crate::template::Template;
use crate::tokenizer::{Special, Tokenizer, TokenizerError};

use super::record::{not_an_object, parse};
use super::{Dataset, Options};

/// Takes lines and keeps rows, problems and counts.
pub(super) struct Loader<'a> {
    options: &'a Options,
    encoder: Encoder<'a>,
    max_length: usize,
    rows: Vec<TokenRow>,
    report: Report,
    /// Blank lines since the last record: an error only if another record follows.
    blanks: Vec<(u64, u64)>,
    /// How many more of them there were than are kept.
    more_blanks: u64,
    columns: BTreeSet<String>,
    looked_at_template: bool,
}

impl<'a> Loader<'a> {
    pub(super) fn new(
        options: &'a Options,
        tokenizer: &'a Tokenizer,
        template: &'a Template,
    ) -> Self {
        let max_length = options.max_length.unwrap_or(options.context);
        let mut report = Report::new(template.origin(), max_length);
        if max_length > options.context {
            let message = format!(
                "max_length is {max_length}, but this model and adapter take {} tokens",
                options.context
            );
            let problem = Problem::of_file(Code::MaxLength, message);
            report
                .errors
                .push(problem.hint("lower max_length or leave it out"));
        }
        Self {
            options,
            encoder: Encoder {
                tokenizer,
                template,
                special: options.special,
                train_on_inputs: options.train_on_inputs,
            },
            max_length,
            rows: Vec::new(),
            report,
            blanks: Vec::new(),
            more_blanks: 0,
            columns: BTreeSet::new(),
            looked_at_template: false,
        }
    }

    /// Takes the next line; false when there is no point in reading on.
    pub(super) fn take(&mut self, line: &Line) -> bool {
        if line.is_blank() {
            match self.blanks.len() < MAX_PROBLEMS {
                true => self.blanks.push((line.number, line.offset)),
                false => self.more_blanks += 1,
            }
            return true;
        }
        for (number, offset) in std::mem::take(&mut self.blanks) {
            let problem = Problem::of_file(Code::BlankLine, "a blank line between records");
            self.report
                .errors
                .push(problem.at(number, offset).hint("take the line out"));
        }
        let more = std::mem::take(&mut self.more_blanks);
        self.report.errors.add(Code::BlankLine, more);
        self.report.rows_in += 1;
        match self.record(line) {
            Ok(()) => true,
            Err(Refusal::Record) => {
                self.report.drop_row(DropReason::Invalid, line.number);
                true
            }
            Err(Refusal::File) => {
                self.report.drop_row(DropReason::Invalid, line.number);
                false
            }
        }
    }

    /// Reads the record of a line and turns it into a row.
    fn record(&mut self, line: &Line) -> Result<(), Refusal> {
        let value = parse(line, self.options.max_line_bytes).map_err(|problem| {
            let refusal = match problem.code {
                Code::WrongEncoding => Refusal::File,
                _ => Refusal::Record,
            };
            self.report.errors.push(*problem);
            refusal
        })?;
        let Value::Object(record) = &value else {
            self.error(line, not_an_object(&value));
            return Err(Refusal::Record);
        };
        let format = self.format(record).map_err(|problem| {
            self.error(line, problem);
            Refusal::File
        })?;
        let mut findings = Findings::after(std::mem::take(&mut self.columns));
        let sample = formats::read(format, record, &mut findings);
        let sound = findings.errors.is_empty();
        let (errors, warnings) = (&mut self.report.errors, &mut self.report.warnings);
        errors.append(findings.errors, |problem| refused(line, problem));
        warnings.append(findings.warnings, |problem| {
            problem.at(line.number, line.offset)
        });
        self.columns = findings.columns;
        let sample = sample.filter(|_| sound).ok_or(Refusal::Record)?;
        self.look_at_template(line, &sample);
        let labelled = encode(&self.encoder, &sample).map_err(|error| {
            self.error(line, failed(&error));
            Refusal::Record
        })?;
        let labelled = self.within(labelled).map_err(|error| {
            let problem = Problem::of_file(Code::TokenBeyondModel, error.to_string());
            self.error(
                line,
                problem.hint("resize the model's embedding, or take the token out of the sample"),
            );
            Refusal::Record
        })?;
        self.place(line, labelled)
    }

    /// The sample again, when the model has a row for each of its tokens.
    fn within(&self, mut labelled: Labelled) -> Result<Labelled, TokenizerError> {
        if let Some(vocabulary) = self.options.vocabulary {
            labelled.ids = self.encoder.tokenizer.within(labelled.ids, vocabulary)?;
        }
        Ok(labelled)
    }

    fn format(&mut self, record: &serde_json::Map<String, Value>) -> Result<Format, Problem> {
        match self.report.format {
            Some(format) => Ok(format),
            None => Ok(*self.report.format.insert(formats::detect(record)?)),
        }
    }

    /// Tells of the first conversation whether more than its answers count: a template does it to all.
    fn look_at_template(&mut self, line: &Line, sample: &Sample) {
        let Sample::Chat(messages) = sample else {
            return;
        };
        if std::mem::replace(&mut self.looked_at_template, true) {
            return;
        }
        // An error is told where the sample is encoded.
        if let Ok(Some(header)) = self.encoder.learned_header(messages) {
            let message = format!(
                "the chat template writes {header:?} before an answer, and not when it is asked for the beginning of one: it counts \
                 in the loss"
            );
            let hint = "let the template end with it where add_generation_prompt is set";
            self.warning(
                line,
                Problem::of_file(Code::LearnedHeader, message).hint(hint),
            );
        }
    }

    /// Decides what becomes of a sample.
    fn place(&mut self, line: &Line, labelled: Labelled) -> Result<(), Refusal> {
        if labelled.spelled > 0 {
            self.report.special_text.add(line.number);
            let read_as = match self.options.special {
                Special::Plain => "read as plain text",
                Special::Parse => "read as special tokens",
            };
            let message = format!(
                "the text spells {} special token(s), {read_as}",
                labelled.spelled
            );
            self.warning(line, Problem::of_file(Code::SpecialText, message));
        }
        if labelled.lossy {
            let message = "the text holds bytes that this vocabulary cannot spell; they are lost";
            self.warning(line, Problem::of_file(Code::LostText, message));
        }
        match decide(
            labelled,
            line.number,
            self.max_length,
            self.options.overlong,
        ) {
            Fate::Used { row, truncated } => {
                if truncated {
                    self.report.truncated.add(line.number);
                }
                self.rows.push(row);
                Ok(())
            }
            Fate::Dropped(reason) => {
                self.report.drop_row(reason, line.number);
                Ok(())
            }
            Fate::TooLong { tokens } => {
                let limit = self.max_length;
                let message = format!("the sample has {tokens} tokens; the limit is {limit}");
                let problem = Problem::of_file(Code::TooLong, message);
                self.error(
                    line,
                    problem
                        .hint("shorten it, raise max_length, or set overlong to drop or truncate"),
                );
                Err(Refusal::Record)
            }
        }
    }

    fn error(&mut self, line: &Line, problem: Problem) {
        self.report.errors.push(refused(line, problem));
    }

    fn warning(&mut self, line: &Line, problem: Problem) {
        let problem = problem.at(line.number, line.offset);
        self.report.warnings.push(problem);
    }

    /// Counts what the whole file says, and judges it.
    pub(super) fn finish(mut self, bytes: u64) -> Dataset {
        self.report.bytes = bytes;
        self.report.rows_used = self.rows.len() as u64;
        self.report.tokens = TokenStats::of(&self.rows);
        self.report.duplicates = overlap::duplicates(&self.rows);
        if let Some(problem) = verdict(&self.report, self.options) {
            self.report.errors.push(problem);
        }
        debug_assert!(self.report.adds_up(), "rows in = used + dropped");
        Dataset {
            rows: self.rows,
            report: self.report,
        }
    }
}

/// A problem of a line, with its place and its beginning.
fn refused(line: &Line, problem: Problem) -> Problem {
    problem.at(line.number, line.offset).snippet(&line.bytes, 0)
}

/// How far a refusal reaches.
enum Refusal {
    Record,
    File,
}

/// What the counts of a whole file forbid.
fn verdict(report: &Report, options: &Options) -> Option<Problem> {
    if report.rows_in == 0 {
        let problem = Problem::of_file(Code::EmptyFile, "the file holds no record");
        return Some(problem.hint("write one JSON object per line"));
    }
    let invalid = report
        .dropped
        .get(&DropReason::Invalid)
        .map_or(0, |tally| tally.count);
    let dropped = report.dropped_rows() - invalid;
    if report.rows_used == 0 && invalid == 0 {
        let words = report.dropped_words();
        let message = format!("none of {} rows can be trained: {words}", report.rows_in);
        let problem = Problem::of_file(Code::NothingToTrain, message);
        return Some(problem.hint("look at the mask, the weights and max_length"));
    }
    let share = dropped as f64 / report.rows_in as f64;
    if share > options.max_dropped {
        let message = format!(
            "{dropped} of {} rows would be dropped ({}): {:.1} %, more than the {:.1} % of max_dropped",
            report.rows_in,
            report.dropped_words(),
            100.0 * share,
            100.0 * options.max_dropped
        );
        let problem = Problem::of_file(Code::TooManyDropped, message);
        return Some(
            problem.hint("raise max_length, set overlong to truncate, or raise max_dropped"),
        );
    }
    None
}

fn encode(encoder: &Encoder<'_>, sample: &Sample) -> Result<Labelled, MaskError> {
    match sample {
        Sample::Chat(messages) => encoder.chat(messages),
        Sample::Pair { prompt, completion } => encoder.pair(prompt, completion),
        Sample::Text(text) => encoder.text(text),
    }
}

fn failed(error: &MaskError) -> Problem {
    let code = match error {
        MaskError::Template(_) => Code::TemplateFailed,
        MaskError::Tokenizer(_) => Code::TokenizerFailed,
        MaskError::NotPrefix { .. } | MaskError::Blocks { .. } | MaskError::Filtered => {
            Code::MaskUndefined
        }
        MaskError::NoMark | MaskError::Unbreakable(_) => Code::Unsupported,
    };
    Problem::of_file(code, error.to_string())
}
