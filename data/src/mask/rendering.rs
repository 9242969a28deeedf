//! A conversation on its way into text, and where its turns lie in that text.

use std::ops::Range;

use minijinja::value::Value;

use crate::escape;
use crate::message::{Message, Role};
use crate::template::{Ask, values};
use crate::tokenizer::{Piece, Special, TokenizerError};

use super::{Encoder, MaskError};

/// Messages on their way into text.
pub(super) struct Rendering<'a> {
    encoder: &'a Encoder<'a>,
    pub(super) values: Vec<Value>,
    hidden: Option<char>,
    marks: (char, char),
    pub(super) spelled: usize,
}

impl<'a> Rendering<'a> {
    pub(super) fn new(encoder: &'a Encoder<'a>, messages: &[Message]) -> Result<Self, MaskError> {
        let source = encoder.template.source();
        let mut texts = vec![source.as_str()];
        for message in messages {
            texts.push(&message.content);
            texts.extend(message.name.as_deref());
        }
        let [hidden, open, close] = escape::unused_characters(&texts).ok_or(MaskError::NoMark)?;
        let escaped = match encoder.special {
            Special::Plain => escape::escape(encoder.tokenizer, messages, hidden)?,
            Special::Parse => None,
        };
        Ok(Self {
            encoder,
            values: values(
                escaped
                    .as_ref()
                    .map_or(messages, |escaped| &escaped.messages),
            ),
            hidden: escaped.as_ref().map(|escaped| escaped.hidden),
            marks: (open, close),
            spelled: match &escaped {
                Some(escaped) => escaped.count,
                None => escape::count(encoder.tokenizer, messages),
            },
        })
    }

    pub(super) fn pieces(&self, text: &str) -> Result<Vec<Piece>, TokenizerError> {
        match self.hidden {
            Some(hidden) => self.encoder.tokenizer.pieces_hiding(text, hidden),
            None => self.encoder.tokenizer.pieces(text, Special::Parse),
        }
    }

    /// What stands before the content of the first of the chosen turns and counts in the loss, because the template does not
    /// write it when it is asked for the beginning of an answer.
    pub(super) fn learned_header(&self, messages: &[Message], chosen: &[usize]) -> Option<String> {
        let turn = *chosen.first()?;
        let (mark, _) = self.marks;
        let render = |messages: &[Message], generation_prompt| {
            let ask = Ask {
                generation_prompt,
                marks: None,
            };
            let template = self.encoder.template;
            template.render_values(&values(messages), ask).ok()
        };
        let before = &messages[..turn];
        let plain = render(before, false)?;
        if plain != render(before, true)? {
            return None;
        }
        let mut marked = messages[..=turn].to_vec();
        marked[turn].content = mark.to_string();
        let marked = render(&marked, false)?;
        let turn = marked.strip_prefix(&plain)?;
        let header = turn[..turn.find(mark)?].trim();
        (!header.is_empty()).then(|| header.to_owned())
    }

    /// Byte ranges of the chosen turns in the whole text.
    pub(super) fn spans(
        &self,
        whole: &str,
        messages: &[Message],
        chosen: &[usize],
    ) -> Result<Vec<Range<usize>>, MaskError> {
        let by_prefix: Result<Vec<_>, MaskError> = chosen
            .iter()
            .map(|&turn| self.span_by_prefix(whole, turn))
            .collect();
        match by_prefix {
            Err(MaskError::NotPrefix { .. }) if self.encoder.template.has_generation() => {
                self.spans_by_blocks(whole, messages, chosen)
            }
            other => other,
        }
    }

    fn span_by_prefix(&self, whole: &str, turn: usize) -> Result<Range<usize>, MaskError> {
        let template = self.encoder.template;
        let ask = Ask {
            generation_prompt: true,
            marks: None,
        };
        let before = template.render_values(&self.values[..turn], ask)?;
        let end = if turn + 1 == self.values.len() {
            whole.len()
        } else {
            let with = template.render_values(&self.values[..=turn], Ask::default())?;
            if !whole.starts_with(&with) {
                return Err(MaskError::NotPrefix { turn });
            }
            with.len()
        };
        if before.len() > end || !whole.starts_with(&before) {
            return Err(MaskError::NotPrefix { turn });
        }
        Ok(before.len()..self.closed(whole, before.len(), end))
    }

    /// Ends the span after the special token that closes the turn, when only white space follows it.
    fn closed(&self, whole: &str, start: usize, end: usize) -> usize {
        let tail = &whole[start..end];
        match self.encoder.tokenizer.special_spans(tail).last() {
            Some(last) if tail[last.end..].trim().is_empty() => {
                start + last.start + tail[last.clone()].trim_end().len()
            }
            _ => end,
        }
    }

    fn spans_by_blocks(
        &self,
        whole: &str,
        messages: &[Message],
        chosen: &[usize],
    ) -> Result<Vec<Range<usize>>, MaskError> {
        let (open, close) = self.marks;
        let ask = Ask {
            generation_prompt: false,
            marks: Some(self.marks),
        };
        let marked = self.encoder.template.render_values(&self.values, ask)?;
        // A filter around a block sees the marks: it may leave another text between them.
        if !marked
            .chars()
            .filter(|&c| c != open && c != close)
            .eq(whole.chars())
        {
            return Err(MaskError::Filtered);
        }
        let (mut spans, mut at, mut start) = (Vec::new(), 0, 0);
        for c in marked.chars() {
            if c == open {
                start = at;
            } else if c == close {
                spans.push(start..at);
            } else {
                at += c.len_utf8();
            }
        }
        let turns: Vec<usize> = (0..messages.len())
            .filter(|&turn| messages[turn].role == Role::Assistant)
            .collect();
        if spans.len() != turns.len() {
            return Err(MaskError::Blocks {
                blocks: spans.len(),
                turns: turns.len(),
            });
        }
        Ok(spans
            .into_iter()
            .zip(turns)
            .filter(|(_, turn)| chosen.contains(turn))
            .map(|(span, _)| span)
            .collect())
    }
}
