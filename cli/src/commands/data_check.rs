//! `spotmux data check`: reads a data set as training would.

use std::fmt::Write as _;
use std::io::BufReader;

use anyhow::Context;
use data::dataset::{Dataset, Options};
use data::mask_view::{self, ShownToken};
use data::regular;
use data::report::Report;
use data::rows::TokenRow;
use serde::Serialize;
use shared::job::{DataSpec, Overlong};

use crate::args::{CheckArgs, LongRows};
use crate::backbone;
use crate::exit::{Exit, Failure, OrExit};
use crate::language::Language;
use crate::remark;
use crate::render::{self, Output};
use crate::settings::Settings;

/// Longest row when no model says: long enough to show every real one.
const CONTEXT_WITHOUT_MODEL: usize = 1 << 20;

/// What a program is told.
#[derive(Debug, Serialize)]
struct Told<'a> {
    file: String,
    tokenizer: &'a str,
    sound: bool,
    report: &'a Report,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    shown: Vec<ShownRow>,
}

#[derive(Debug, Serialize)]
struct ShownRow {
    line: u64,
    tokens: Vec<ShownToken>,
}

/// Runs the command.
pub(crate) fn run(args: &CheckArgs, settings: &Settings, output: &Output) -> Result<Exit, Failure> {
    let (language, context, vocabulary) = language(args, settings)?;
    let options = options(args, context, vocabulary)?;
    let file = regular::open(&args.file)
        .with_context(|| format!("cannot read {}", args.file.display()))
        .or_exit(Exit::BadInput)?;
    let name = args.file.display().to_string();
    let reader = BufReader::new(file);
    let found = Dataset::check(
        reader,
        &name,
        &options,
        &language.tokenizer,
        &language.template,
    );
    let Dataset { rows, report } = found.or_exit(Exit::BadInput)?;
    let shown = shown(&language, &rows, args.show_mask.unwrap_or(0))?;
    let sound = report.errors.is_empty();
    let tokenizer = args.model.as_deref().unwrap_or("bytes");
    let mut text = format!(
        "file        {name}, tokens of {tokenizer}\n{}",
        remark::short(&report.to_string())
    );
    for row in &shown {
        write_row(&mut text, row);
    }
    output.result(
        &Told {
            file: name,
            tokenizer,
            sound,
            report: &report,
            shown,
        },
        &text,
    )?;
    if !sound {
        return Ok(Exit::BadInput);
    }
    suggest(args, output);
    Ok(Exit::Done)
}

fn suggest(args: &CheckArgs, output: &Output) {
    let file = render::shell_word(&args.file.display().to_string());
    let Some(model) = &args.model else {
        let mask = format!("spotmux data check {file} --model MODEL --show-mask 3");
        output.next(&[mask]);
        return;
    };
    let model = render::shell_word(model);
    let mask = format!("spotmux data check {file} --model {model} --show-mask 3");
    let train = format!("spotmux train jobs.toml --model {model} --check");
    if args.show_mask.is_none() {
        output.next(&[mask, train]);
    } else {
        output.next(&[train]);
    }
}

/// The language of the model, its longest row and the rows of its embedding.
type Read = (Language, usize, Option<usize>);

fn language(args: &CheckArgs, settings: &Settings) -> Result<Read, Failure> {
    let template = args.template.as_deref();
    let Some(name) = &args.model else {
        return Ok((Language::bytes(template)?, CONTEXT_WITHOUT_MODEL, None));
    };
    let model = backbone::as_shipped(settings, name)?;
    Ok((
        Language::of(&model.tokenizer, template)?,
        model.shape.max_positions,
        Some(model.shape.vocab),
    ))
}

fn options(
    args: &CheckArgs,
    context: usize,
    vocabulary: Option<usize>,
) -> Result<Options, Failure> {
    if !(0.0..=1.0).contains(&args.max_dropped) {
        let message = format!("--max-dropped {} is outside 0 to 1", args.max_dropped);
        return Err(Failure::new(Exit::Usage, message));
    }
    let spec = DataSpec {
        train: args.file.display().to_string(),
        eval: None,
        eval_split: 0.0,
        max_length: args.max_length,
        overlong: match args.overlong {
            LongRows::Drop => Overlong::Drop,
            LongRows::Truncate => Overlong::Truncate,
            LongRows::Error => Overlong::Error,
        },
        train_on_inputs: args.train_on_inputs,
        max_dropped: args.max_dropped,
    };
    Ok(Options::of(&spec, context, vocabulary))
}

fn shown(language: &Language, rows: &[TokenRow], count: usize) -> Result<Vec<ShownRow>, Failure> {
    rows.iter()
        .take(count)
        .map(|row| {
            let tokens = mask_view::show_mask(&language.tokenizer, row).or_exit(Exit::BadInput)?;
            Ok(ShownRow {
                line: row.line,
                tokens,
            })
        })
        .collect()
}

/// A row as text: what is learned stands between `[[` and `]]`.
fn write_row(text: &mut String, row: &ShownRow) {
    let tokens: usize = row.tokens.iter().map(|token| token.ids.len()).sum();
    let trained: usize = row
        .tokens
        .iter()
        .filter(|t| t.trained)
        .map(|t| t.ids.len())
        .sum();
    let _ = writeln!(
        text,
        "\nline {}: {tokens} tokens, {trained} learned",
        row.line
    );
    let mut inside = false;
    for token in &row.tokens {
        if token.trained != inside {
            text.push_str(if token.trained { "[[" } else { "]]" });
            inside = token.trained;
        }
        text.push_str(&token.text);
    }
    text.push_str(if inside { "]]\n" } else { "\n" });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_open_and_close_around_what_is_learned() {
        let token = |text: &str, trained| ShownToken {
            text: text.into(),
            ids: vec![0],
            trained,
        };
        let row = ShownRow {
            line: 4,
            tokens: vec![token("Hi ", false), token("the", true), token("re", true)],
        };
        let mut text = String::new();
        write_row(&mut text, &row);
        assert_eq!(text, "\nline 4: 3 tokens, 2 learned\nHi [[there]]\n");
    }
}
