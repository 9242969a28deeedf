//! Token by token with kept keys and values.

use shared::model::ModelShape;
use thiserror::Error;

use super::choice::{Sampling, SamplingError};
use crate::batch::Batch;
use crate::peft::layout::Layout;
use crate::stage::cache::KeyValueCache;
use crate::stage::step::Stage;

/// The slot that means the bare backbone.
pub const BARE: usize = usize::MAX;

/// Says why no text was sampled.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum GenerateError {
    /// Nothing to continue.
    #[error("the prompt has no token: give at least one")]
    EmptyPrompt,
    /// A token outside the vocabulary.
    #[error("token {token} is outside the vocabulary of {vocab}")]
    UnknownToken {
        /// The token.
        token: u32,
        /// Size of the vocabulary.
        vocab: usize,
    },
    /// Longer than the model's context.
    #[error(
        "{wanted} positions (prompt, virtual tokens and new tokens) exceed the model's context of {context}: shorten the prompt or ask for fewer tokens"
    )]
    TooLong {
        /// Positions needed.
        wanted: usize,
        /// Positions there are.
        context: usize,
    },
    /// Settings or numbers.
    #[error(transparent)]
    Sampling(#[from] SamplingError),
}

/// Most rows of a prompt that pass at once, so that a long one needs bounded memory.
pub const PORTION: usize = 512;

/// What is read before the first token is chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Virtual tokens of a prompt that is trained, and the prompt.
    pub rows: Vec<u32>,
    /// Positions taken by a prefix in front of them.
    pub prefix_tokens: usize,
}

impl Reading {
    /// Of a prompt behind which at most `limit` tokens will be made, with the adapter of this layout.
    ///
    /// # Errors
    /// [`GenerateError`] for an empty or too long prompt, an unknown token or bad settings.
    pub fn new(
        shape: &ModelShape,
        layout: Option<&Layout>,
        prompt: &[u32],
        sampling: &Sampling,
        limit: usize,
    ) -> Result<Self, GenerateError> {
        sampling.check()?;
        if prompt.is_empty() {
            return Err(GenerateError::EmptyPrompt);
        }
        if let Some(&token) = prompt.iter().find(|&&token| token as usize >= shape.vocab) {
            return Err(GenerateError::UnknownToken {
                token,
                vocab: shape.vocab,
            });
        }
        let prefix = layout.and_then(|layout| layout.prefix.as_ref());
        let prefix_tokens = prefix.map_or(0, |prefix| prefix.tokens);
        let own = layout.and_then(|layout| layout.prompt.as_ref());
        let own = own.map_or(0, |prompt| prompt.tokens);
        let read = prefix_tokens + own + prompt.len();
        let wanted = read.saturating_add(limit);
        if wanted > shape.max_positions {
            return Err(GenerateError::TooLong {
                wanted,
                context: shape.max_positions,
            });
        }
        let own = own as u32;
        let mut rows: Vec<u32> = (0..own).map(|i| crate::batch::VIRTUAL | i).collect();
        rows.extend_from_slice(prompt);
        Ok(Self {
            rows,
            prefix_tokens,
        })
    }
}

/// A text in the making.
#[derive(Debug)]
pub struct Generator<'a> {
    stage: &'a mut Stage,
    slot: usize,
    sampling: Sampling,
    cache: Vec<KeyValueCache>,
    prefix_tokens: usize,
    logits: Vec<f32>,
    made: u32,
    limit: usize,
    ends: Vec<u32>,
}

impl<'a> Generator<'a> {
    /// Reads a prompt; `slot` names the adapter ([`BARE`] for none); at most `limit` tokens will be made.
    ///
    /// # Errors
    /// [`GenerateError`] for an empty or too long prompt, an unknown token or bad settings.
    pub fn new(
        stage: &'a mut Stage,
        slot: usize,
        prompt: &[u32],
        sampling: Sampling,
        limit: usize,
    ) -> Result<Self, GenerateError> {
        let shape = stage.model().shape.clone();
        let layout = stage.adapter(slot).map(|adapter| adapter.layout.clone());
        let reading = Reading::new(&shape, layout.as_deref(), prompt, &sampling, limit)?;
        let ends = shape.eos.clone();
        let mut generator = Self {
            stage,
            slot,
            sampling,
            cache: vec![KeyValueCache::new(&shape)],
            prefix_tokens: reading.prefix_tokens,
            logits: Vec::new(),
            made: 0,
            limit,
            ends,
        };
        generator.read(&reading.rows);
        Ok(generator)
    }

    /// Passes tokens in portions.
    fn read(&mut self, tokens: &[u32]) {
        for portion in tokens.chunks(PORTION) {
            let shape = &self.stage.model().shape;
            let start = self.cache[0].tokens(shape);
            let mut batch = Batch::default();
            batch.push_continuation(self.slot, portion, start, self.prefix_tokens);
            let last = [portion.len() - 1];
            self.logits = self.stage.logits(&batch, &last, Some(&mut self.cache));
        }
    }

    /// Logits of the next token, `(vocab)`.
    #[must_use]
    pub fn logits(&self) -> &[f32] {
        &self.logits
    }

    /// Makes the next token; `None` after an end token or at the limit.
    ///
    /// # Errors
    /// [`GenerateError::Sampling`] when the logits are not finite.
    pub fn next_token(&mut self) -> Result<Option<u32>, GenerateError> {
        if self.made as usize >= self.limit {
            return Ok(None);
        }
        let token = self.sampling.choose(&self.logits, self.made)?;
        if self.ends.contains(&token) {
            self.limit = 0;
            return Ok(None);
        }
        self.made += 1;
        if (self.made as usize) < self.limit {
            self.read(&[token]);
        }
        Ok(Some(token))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use shared::model::Family;

    use super::*;
    use crate::model::tiny::TinySpec;

    #[test]
    fn no_limit_is_too_large_to_be_refused() {
        let shape = TinySpec::smallest(Family::Llama).shape();
        let read = |limit| Reading::new(&shape, None, &[1, 2], &Sampling::default(), limit);
        assert!(read(shape.max_positions - 2).is_ok());
        for limit in [shape.max_positions - 1, usize::MAX - 1, usize::MAX] {
            assert!(
                matches!(read(limit), Err(GenerateError::TooLong { .. })),
                "{limit}"
            );
        }
    }
}
