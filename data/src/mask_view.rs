//! A row as text, to see which of its tokens are trained.

use serde::Serialize;

use crate::mask::NOT_TRAINED;
use crate::rows::TokenRow;
use crate::tokenizer::{Tokenizer, TokenizerError};

/// The text of one token, or of the few that make up one character.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ShownToken {
    /// The text.
    pub text: String,
    /// The ids behind it.
    pub ids: Vec<u32>,
    /// Whether it counts in the loss.
    pub trained: bool,
}

/// The tokens of a row in order.
///
/// # Errors
/// When the tokenizer refuses the ids.
pub fn show_mask(tokenizer: &Tokenizer, row: &TokenRow) -> Result<Vec<ShownToken>, TokenizerError> {
    let mut stream = tokenizer.stream(false);
    let mut shown = Vec::new();
    let mut waiting: Vec<u32> = Vec::new();
    let mut last = false;
    for (at, (&id, &label)) in row.ids.iter().zip(&row.labels).enumerate() {
        let trained = at > 0 && label != NOT_TRAINED;
        if trained != last && !waiting.is_empty() {
            let text = stream.finish()?;
            let ids = std::mem::take(&mut waiting);
            shown.push(ShownToken {
                text,
                ids,
                trained: last,
            });
        }
        last = trained;
        waiting.push(id);
        let text = stream.push(id)?;
        if !text.is_empty() {
            let ids = std::mem::take(&mut waiting);
            shown.push(ShownToken { text, ids, trained });
        }
    }
    if !waiting.is_empty() {
        shown.push(ShownToken {
            text: stream.finish()?,
            ids: waiting,
            trained: last,
        });
    }
    Ok(shown)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn characters_are_whole_and_flags_are_kept() {
        let tokenizer = Tokenizer::bytes();
        let ids: Vec<u32> = "é<|im_start|>"
            .bytes()
            .map(u32::from)
            .chain([258])
            .collect();
        let mut labels = vec![NOT_TRAINED; ids.len()];
        for at in [2, 3, ids.len() - 1] {
            labels[at] = ids[at] as i32;
        }
        let shown = show_mask(&tokenizer, &TokenRow::new(ids.clone(), labels)).unwrap();
        assert_eq!(shown[0].text, "é");
        assert_eq!(shown[0].ids, ids[..2]);
        let trained: String = shown
            .iter()
            .filter(|s| s.trained)
            .map(|s| s.text.as_str())
            .collect();
        assert_eq!(trained, "<|<|im_end|>");
        let all: Vec<u32> = shown.iter().flat_map(|s| s.ids.clone()).collect();
        assert_eq!(all, ids);
    }

    #[test]
    fn a_character_cut_by_the_mask_is_shown_in_two_parts() {
        let tokenizer = Tokenizer::bytes();
        let row = TokenRow::new(vec![0xC3, 0xA9], vec![NOT_TRAINED, 0xA9]);
        let shown = show_mask(&tokenizer, &row).unwrap();
        let flags: Vec<bool> = shown.iter().map(|s| s.trained).collect();
        assert_eq!(flags, [false, true]);
    }
}
