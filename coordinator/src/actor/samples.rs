//! Texts to tokens and back, for clients that want one continued.

use data::mask::Encoder;
use data::message::{Message, Role};
use data::tokenizer::{Special, Stream};
use shared::model::ModelShape;
use shared::wire::order::SampleOrder;
use shared::wire::request::{Refusal, RefusalCode, SampleRequest};

use super::files::refusal;
use super::settings::Language;

/// The order that a request becomes; its number and job are filled in by the machine.
pub(super) fn order(
    request: &SampleRequest,
    language: &Language,
    shape: &ModelShape,
) -> Result<SampleOrder, Refusal> {
    let invalid = |error: &dyn std::fmt::Display| {
        refusal(RefusalCode::Invalid, format!("the prompt: {error}"))
    };
    let encoder = Encoder {
        tokenizer: &language.tokenizer,
        template: &language.template,
        special: Special::Plain,
        train_on_inputs: false,
    };
    let prompt = match (&request.system, request.raw) {
        (Some(_), true) => {
            return Err(refusal(
                RefusalCode::Invalid,
                "a raw prompt has no turns: leave the system's out, or raw".into(),
            ));
        }
        (None, true) => language
            .tokenizer
            .encode_raw(&request.prompt, Special::Plain)
            .map_err(|error| invalid(&error))?,
        (system, false) => {
            let system = system
                .iter()
                .map(|text| Message::new(Role::System, text.clone()));
            let user = Message::user(request.prompt.clone());
            let messages: Vec<Message> = system.chain([user]).collect();
            encoder.prompt(&messages).map_err(|error| invalid(&error))?
        }
    };
    let prompt = language
        .tokenizer
        .within(prompt, shape.vocab)
        .map_err(|error| invalid(&error))?;
    let (tokens, most) = (prompt.len(), shape.max_positions);
    if tokens >= most {
        let message = format!(
            "the prompt has {tokens} tokens, and the model's context {most}, the text's own among them: shorten it"
        );
        return Err(refusal(RefusalCode::Invalid, message));
    }
    Ok(SampleOrder {
        number: 0,
        job: None,
        prompt,
        max_tokens: request.max_tokens,
        temperature: request.temperature,
        top_p: request.top_p,
        top_k: request.top_k,
        seed: request.seed,
        stops: language.tokenizer.stop_ids(),
    })
}

/// Tokens to text, as far as they make whole characters.
pub(super) fn text(stream: &mut Stream<'_>, tokens: &[u32]) -> String {
    let mut text = String::new();
    for &token in tokens {
        // A token outside of the vocabulary has no text.
        text.push_str(&stream.push(token).unwrap_or_default());
    }
    text
}
