//! Questions about a run of tokens: is this an attribute, where does this item end.

use proc_macro2::{Delimiter, Group, Spacing, TokenTree};

pub(super) fn inside(group: &Group) -> Vec<TokenTree> {
    group.stream().into_iter().collect()
}

pub(super) fn is_punct(tokens: &[TokenTree], at: usize, character: char) -> bool {
    matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == character)
}

pub(super) fn is_double_colon(tokens: &[TokenTree], at: usize) -> bool {
    is_punct(tokens, at, ':') && is_punct(tokens, at + 1, ':')
}

/// Whether `!` follows that is no `!=`.
pub(super) fn is_macro_call(tokens: &[TokenTree], at: usize) -> bool {
    match tokens.get(at) {
        Some(TokenTree::Punct(punct)) => {
            punct.as_char() == '!'
                && (punct.spacing() == Spacing::Alone || !is_punct(tokens, at + 1, '='))
        }
        _ => false,
    }
}

/// The attribute that starts at `#`, whether it is an inner one, and where it ends.
pub(super) fn read_attribute(tokens: &[TokenTree], at: usize) -> (Option<&Group>, bool, usize) {
    let inner = is_punct(tokens, at + 1, '!');
    let at = at + if inner { 2 } else { 1 };
    match tokens.get(at) {
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Bracket => {
            (Some(group), inner, at + 1)
        }
        _ => (None, inner, at),
    }
}

/// Whether an attribute is `cfg(..)` with the word `test` outside any `not(..)`.
pub(super) fn is_test_only(attribute: &Group) -> bool {
    fn says_test(tokens: &[TokenTree]) -> bool {
        tokens
            .iter()
            .enumerate()
            .any(|(at, token)| match (token, tokens.get(at + 1)) {
                (TokenTree::Ident(word), Some(TokenTree::Group(group))) => {
                    *word != "not" && says_test(&inside(group))
                }
                (TokenTree::Ident(word), _) => *word == "test",
                _ => false,
            })
    }
    match inside(attribute).as_slice() {
        [TokenTree::Ident(word), TokenTree::Group(condition)] => {
            *word == "cfg" && says_test(&inside(condition))
        }
        _ => false,
    }
}

pub(super) fn past_semicolon(tokens: &[TokenTree], from: usize) -> usize {
    (from..tokens.len())
        .find(|&at| is_punct(tokens, at, ';'))
        .map_or(tokens.len(), |at| at + 1)
}

/// Where the item that starts at `from` ends: after its body in braces, or after its semicolon.
pub(super) fn item_end(tokens: &[TokenTree], from: usize) -> usize {
    for at in from..tokens.len() {
        match &tokens[at] {
            TokenTree::Ident(word) if *word == "use" => return past_semicolon(tokens, at),
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => return at + 1,
            _ if is_punct(tokens, at, ';') => return at + 1,
            _ => {}
        }
    }
    tokens.len()
}
