//! `spotmux generate`: writes text, token by token.

use std::io::Read;
use std::path::Path;

use anyhow::Context;
use data::message::{Message, Role};
use gpu_actor::sample::choice::Sampling;
use gpu_actor::sample::generator::BARE;
use gpu_actor::stage::step::Stage;
use serde::Serialize;
use shared::job::BackboneFormat;

use crate::adapter_folder;
use crate::args::GenerateArgs;
use crate::backbone::{self, Backbone};
use crate::clock::Stopwatch;
use crate::exit::{Exit, Failure, OrExit};
use crate::render::Output;
use crate::settings::Settings;
use crate::store::Store;
use crate::writer;

/// No tokenizer makes fewer tokens of a text than one for so many bytes, but for runs of blanks.
const BYTES_OF_A_TOKEN: usize = 64;
/// Bytes of a prompt that are taken, whatever the context.
const LONGEST: usize = 16 << 20;

/// What a program is told.
#[derive(Debug, Serialize)]
struct Told<'a> {
    text: &'a str,
    prompt_tokens: usize,
    tokens: usize,
    finish_reason: &'a str,
    seconds: f64,
    /// What is said when the adapter names another base model.
    other_base: Option<&'a str>,
}

/// Runs the command.
pub(crate) fn run(
    args: &GenerateArgs,
    settings: &Settings,
    output: &Output,
) -> Result<Exit, Failure> {
    let sampling = Sampling {
        temperature: args.temperature,
        top_k: args.top_k,
        top_p: args.top_p,
        seed: args.seed,
    };
    sampling.check().or_exit(Exit::Usage)?;
    let cpu = backbone::cpu(args.threads)?;
    let store = Store::new(settings)?;
    let here = Path::new(".");
    let backbone = Backbone::open(&store, &args.model, here, BackboneFormat::AsShipped, &cpu)?;
    let mut stage = Stage::new(backbone.model.clone(), cpu);
    let mut other_base = None;
    let slot = match &args.adapter {
        Some(folder) => {
            let opened = adapter_folder::open(folder, &backbone.model.shape)?;
            let compared = opened.compared_for_reading(&backbone.model);
            other_base = compared.other().map(str::to_owned);
            if let Some(said) = compared.noted() {
                output.note(format!("note: {said}"));
            }
            stage.attach(opened.adapter())
        }
        None => BARE,
    };
    let language = &backbone.language;
    let prompt = prompt(&args.prompt, backbone.model.shape.max_positions)?;
    let tokens = if args.raw {
        language.raw_prompt(&prompt)?
    } else {
        let system = args
            .system
            .iter()
            .map(|text| Message::new(Role::System, text.clone()));
        let messages: Vec<Message> = system.chain([Message::user(prompt)]).collect();
        language.chat_prompt(&messages)?
    };
    let vocabulary = backbone.model.shape.vocab;
    let tokens = language
        .tokenizer
        .within(tokens, vocabulary)
        .or_exit(Exit::BadInput)?;
    let clock = Stopwatch::start();
    let stream = |piece: &str| {
        if output.json() {
            Ok(())
        } else {
            output.stream(piece)
        }
    };
    let written = writer::write(
        &mut stage,
        slot,
        language,
        &tokens,
        sampling,
        args.max_tokens,
        stream,
    )?;
    let seconds = clock.seconds();
    let told = Told {
        text: &written.text,
        prompt_tokens: tokens.len(),
        tokens: written.tokens,
        finish_reason: if written.ended { "stop" } else { "length" },
        seconds,
        other_base: other_base.as_deref(),
    };
    // The text is out already, piece by piece.
    output.result(&told, "")?;
    output.note(format!(
        "{} tokens in {seconds:.1} s ({})",
        told.tokens, told.finish_reason
    ));
    Ok(Exit::Done)
}

/// The prompt, kept to what a context of so many tokens could hold: longer ones are refused before they are read.
fn prompt(given: &str, context: usize) -> Result<String, Failure> {
    let limit = context.saturating_mul(BYTES_OF_A_TOKEN).min(LONGEST);
    let mut bytes = given.as_bytes().to_vec();
    if given == "-" {
        bytes.clear();
        std::io::stdin()
            .take(limit as u64 + 1)
            .read_to_end(&mut bytes)
            .context("cannot read the prompt from standard input")
            .or_exit(Exit::BadInput)?;
    }
    if bytes.len() > limit {
        let message = format!(
            "the prompt has more than {limit} bytes: it cannot fit the model's context of {context} tokens"
        );
        return Err(Failure::new(Exit::BadInput, message));
    }
    String::from_utf8(bytes)
        .context("the prompt is not UTF-8")
        .or_exit(Exit::BadInput)
}
