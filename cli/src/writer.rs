//! Text from a model, piece by piece, until it ends by itself or at a limit.

use std::io;

use gpu_actor::sample::choice::Sampling;
use gpu_actor::sample::generator::Generator;
use gpu_actor::stage::step::Stage;

use crate::exit::{Exit, Failure, OrExit};
use crate::language::Language;

/// A text that was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Written {
    /// The text.
    pub(crate) text: String,
    /// Tokens made.
    pub(crate) tokens: usize,
    /// Whether it ended by itself.
    pub(crate) ended: bool,
}

/// Continues a prompt with the adapter in a slot; each piece is handed on as soon as its characters are whole.
///
/// # Errors
/// [`Exit::BadInput`] for a prompt the model cannot take, or what `hand_on` says.
pub(crate) fn write(
    stage: &mut Stage,
    slot: usize,
    language: &Language,
    prompt: &[u32],
    sampling: Sampling,
    limit: usize,
    hand_on: impl Fn(&str) -> io::Result<()>,
) -> Result<Written, Failure> {
    let ends = language.tokenizer.stop_ids();
    let mut generator =
        Generator::new(stage, slot, prompt, sampling, limit).or_exit(Exit::BadInput)?;
    let mut stream = language.tokenizer.stream(true);
    let mut written = Written::default();
    while let Some(token) = generator.next_token().or_exit(Exit::BadInput)? {
        if ends.contains(&token) {
            break;
        }
        written.tokens += 1;
        let piece = stream.push(token).or_exit(Exit::BadInput)?;
        hand_on(&piece)?;
        written.text.push_str(&piece);
    }
    written.ended = written.tokens < limit;
    let rest = stream.finish().or_exit(Exit::BadInput)?;
    hand_on(&rest)?;
    written.text.push_str(&rest);
    Ok(written)
}
