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
use crate::writer::{self, Written};

/// What a program is told.
#[derive(Debug, Serialize)]
struct Told<'a> {
    text: &'a str,
    prompt_tokens: usize,
    tokens: usize,
    finish_reason: &'a str,
    seconds: f64,
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
    let prompt = prompt(&args.prompt)?;
    let cpu = backbone::cpu(args.threads)?;
    let store = Store::new(settings)?;
    let here = Path::new(".");
    let backbone = Backbone::open(&store, &args.model, here, BackboneFormat::AsShipped, &cpu)?;
    let mut stage = Stage::new(backbone.model.clone(), cpu);
    let slot = match &args.adapter {
        Some(folder) => {
            stage.attach(adapter_folder::open(folder, &backbone.model.shape)?.adapter())
        }
        None => BARE,
    };
    let language = &backbone.language;
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
    finish(&written, &tokens, clock.seconds(), output)?;
    Ok(Exit::Done)
}

fn finish(written: &Written, prompt: &[u32], seconds: f64, output: &Output) -> Result<(), Failure> {
    let told = Told {
        text: &written.text,
        prompt_tokens: prompt.len(),
        tokens: written.tokens,
        finish_reason: if written.ended { "stop" } else { "length" },
        seconds,
    };
    // The text is out already, piece by piece.
    output.result(&told, "")?;
    output.note(format!(
        "{} tokens in {seconds:.1} s ({})",
        told.tokens, told.finish_reason
    ));
    Ok(())
}

fn prompt(given: &str) -> Result<String, Failure> {
    if given != "-" {
        return Ok(given.to_owned());
    }
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .context("cannot read the prompt from standard input")
        .or_exit(Exit::BadInput)?;
    Ok(text)
}
