//! Which tokens of a sample count in the loss.
//!
//! A conversation is rendered once as a whole and tokenised once. For each assistant turn that counts, two shorter
//! renderings say where it lies in the text: up to the turn with the beginning of an answer, and up to and with the
//! turn. Both must be beginnings of the whole text; a template that writes earlier turns another way (it strips
//! thinking, say) is refused, unless its `{% generation %}` blocks mark the answers. The span ends after the special
//! token that closes the turn. A token counts when it begins inside a span: one that begins before it stays with the
//! prompt.

mod rendering;

use crate::message::{Message, Role};
use crate::template::{Ask, Template, TemplateError};
use crate::tokenizer::{Piece, Special, Tokenizer, TokenizerError};

pub use crate::escape::Unbreakable;
use rendering::Rendering;

/// The label of a token that does not count in the loss.
pub const NOT_TRAINED: i32 = -100;

/// Why a sample cannot become labelled tokens.
#[derive(Debug, thiserror::Error)]
pub enum MaskError {
    /// The template failed.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// The tokenizer failed.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The rendering up to a turn is not how the whole conversation begins.
    #[error(
        "the chat template writes message {turn} another way when more follows, so its tokens cannot be told apart; \
         set \"weight\": 0 on all but the last answer, split the conversation, or use a template with generation blocks"
    )]
    NotPrefix {
        /// Index of the message.
        turn: usize,
    },
    /// The messages use up the characters that mark places in them.
    #[error(
        "the conversation holds nearly all private-use characters U+100000 to U+10FFFD; three must be free to mark places in it"
    )]
    NoMark,
    /// A special token of one character stands in the text.
    #[error(transparent)]
    Unbreakable(#[from] Unbreakable),
    /// Generation blocks and assistant turns do not correspond.
    #[error(
        "the chat template marks {blocks} generation blocks for {turns} assistant messages; they must be as many"
    )]
    Blocks {
        /// Number of blocks in the rendering.
        blocks: usize,
        /// Number of assistant messages.
        turns: usize,
    },
    /// With marks around its generation blocks the rendering is another text.
    #[error(
        "the chat template filters the text of its generation blocks, so that answers cannot be found in what it writes: put \
         the filter inside the block"
    )]
    Filtered,
}

/// A sample as tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labelled {
    /// Token ids.
    pub ids: Vec<u32>,
    /// For each token its own id, or [`NOT_TRAINED`]; not shifted.
    pub labels: Vec<i32>,
    /// Special tokens that the sample's own text spells, read by the encoder's [`Special`].
    pub spelled: usize,
    /// Whether the vocabulary lacks bytes of the text.
    pub lossy: bool,
}

/// Turns samples into labelled tokens, and prompts into tokens, by the same steps.
#[derive(Clone, Copy, Debug)]
pub struct Encoder<'a> {
    /// The tokenizer.
    pub tokenizer: &'a Tokenizer,
    /// The chat template.
    pub template: &'a Template,
    /// How special tokens spelled in the samples' own text are read.
    pub special: Special,
    /// Whether prompts and user turns count in the loss too.
    pub train_on_inputs: bool,
}

impl Encoder<'_> {
    /// The tokens to continue for an answer to `messages`.
    ///
    /// # Errors
    /// When template or tokenizer fail.
    pub fn prompt(&self, messages: &[Message]) -> Result<Vec<u32>, MaskError> {
        let text = Rendering::new(self, messages)?;
        let ask = Ask {
            generation_prompt: true,
            marks: None,
        };
        let pieces = text.pieces(&self.template.render_values(&text.values, ask)?)?;
        Ok(pieces.iter().map(|piece| piece.id).collect())
    }

    /// A conversation: assistant turns count, each with the token that closes it, unless their message says not.
    ///
    /// # Errors
    /// When template or tokenizer fail, or the template does not let turns be told apart.
    pub fn chat(&self, messages: &[Message]) -> Result<Labelled, MaskError> {
        let text = Rendering::new(self, messages)?;
        let whole = self.template.render_values(&text.values, Ask::default())?;
        let pieces = text.pieces(&whole)?;
        let chosen = self.chosen(messages);
        let spans = text.spans(&whole, messages, &chosen)?;
        let mut labelled = Labelled {
            spelled: text.spelled,
            lossy: messages
                .iter()
                .any(|message| self.tokenizer.loses_text(&message.content)),
            ..Labelled::default()
        };
        for piece in pieces {
            let inside = spans.iter().any(|span| span.contains(&piece.start));
            labelled.push(piece.id, inside != self.train_on_inputs);
        }
        Ok(labelled)
    }

    /// The turns whose place in the text is asked for: those that count, or, with inputs, those that do not.
    fn chosen(&self, messages: &[Message]) -> Vec<usize> {
        (0..messages.len())
            .filter(|&turn| messages[turn].role == Role::Assistant)
            .filter(|&turn| messages[turn].trained != self.train_on_inputs)
            .collect()
    }

    /// What the template writes before the content of the first answer and what counts in the loss, because it is no part of
    /// the beginning of an answer; none where inputs count anyway.
    ///
    /// # Errors
    /// When the template fails.
    pub fn learned_header(&self, messages: &[Message]) -> Result<Option<String>, MaskError> {
        if self.train_on_inputs {
            return Ok(None);
        }
        let text = Rendering::new(self, messages)?;
        Ok(text.learned_header(messages, &self.chosen(messages)))
    }

    /// A prompt and its completion, no template: the completion counts, and the end token after it.
    ///
    /// The prompt's tokens are those it has alone, since that is what the completion will follow when sampling.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub fn pair(&self, prompt: &str, completion: &str) -> Result<Labelled, MaskError> {
        let text = format!("{prompt}{completion}");
        let before = self.tokenizer.encode(prompt, self.special)?;
        let joined = self.tokenizer.pieces(&text, self.special)?;
        let parts: Vec<(u32, bool)> = if joined
            .iter()
            .map(|p| p.id)
            .take(before.len())
            .eq(before.iter().copied())
        {
            joined
                .iter()
                .map(|p| p.id)
                .zip((0..).map(|at| at >= before.len()))
                .collect()
        } else {
            self.apart(&text, prompt.len(), &before, completion, &joined)?
        };
        self.raw(&text, parts)
    }

    /// Tokens of prompt and completion cut at the boundary, where the vocabulary would merge across it. A vocabulary
    /// that cannot spell the completion alone without changing it keeps the merged token, with the prompt.
    fn apart(
        &self,
        text: &str,
        boundary: usize,
        before: &[u32],
        completion: &str,
        joined: &[Piece],
    ) -> Result<Vec<(u32, bool)>, MaskError> {
        let after = self.tokenizer.encode(completion, self.special)?;
        let both = [before, &after].concat();
        if self.tokenizer.decode(&both, false)? == text {
            return Ok(both
                .into_iter()
                .zip((0..).map(|at| at >= before.len()))
                .collect());
        }
        Ok(joined
            .iter()
            .map(|piece| (piece.id, piece.start >= boundary))
            .collect())
    }

    /// Plain text: every token counts, and the end token after it.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub fn text(&self, text: &str) -> Result<Labelled, MaskError> {
        let ids = self.tokenizer.encode(text, self.special)?;
        self.raw(text, ids.into_iter().map(|id| (id, true)).collect())
    }

    /// Puts the start token in front where the model wants it, and the end token after the text.
    fn raw(&self, text: &str, parts: Vec<(u32, bool)>) -> Result<Labelled, MaskError> {
        let mut labelled = Labelled {
            spelled: self.tokenizer.special_spans(text).len(),
            lossy: self.tokenizer.loses_text(text),
            ..Labelled::default()
        };
        if let Some(bos) = self.tokenizer.raw_start(parts.first().map(|part| part.0)) {
            labelled.push(bos, false);
        }
        let last = parts.last().map(|part| part.0);
        for (id, trained) in parts {
            labelled.push(id, trained || self.train_on_inputs);
        }
        if let Some(eos) = self.tokenizer.eos().filter(|&eos| last != Some(eos)) {
            labelled.push(eos, true);
        }
        Ok(labelled)
    }
}

impl Labelled {
    fn push(&mut self, id: u32, trained: bool) {
        let label = i32::try_from(id).expect("vocabularies have fewer than 2^31 tokens");
        self.ids.push(id);
        self.labels.push(if trained { label } else { NOT_TRAINED });
    }
}
