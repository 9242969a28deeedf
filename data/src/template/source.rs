//! The text of a template, made readable for the engine.
//!
//! Two things differ from Jinja: the engine knows no `{% generation %}` tag, and a backslash before a line end inside
//! a string is no continuation to it. Tags, expressions, comments, raw blocks and strings are told apart, so that only
//! what is meant is replaced.

use super::generation::FILTER;

/// What the engine is given, and what the text was found to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) text: String,
    /// Whether there are `{% generation %}` tags.
    pub(super) has_generation: bool,
    /// Whether the date is asked for without asking first whether there is one.
    pub(super) needs_date: bool,
}

/// Rewrites a template.
pub(super) fn rewrite(source: &str) -> Source {
    let mut text = String::with_capacity(source.len());
    let mut has_generation = false;
    let mut rest = source;
    while let Some(Part {
        before,
        kind,
        part,
        after,
    }) = Part::next(rest)
    {
        text.push_str(before);
        rest = after;
        let word = match kind {
            b'%' => tag_word(part),
            _ => "",
        };
        match word {
            "generation" => text.push_str(&part.replacen(word, &format!("filter {FILTER}"), 1)),
            "endgeneration" => text.push_str(&part.replacen(word, "endfilter", 1)),
            _ if kind == b'#' => text.push_str(part),
            _ => push_continued(part, &mut text),
        }
        has_generation |= word == "generation";
        if word == "raw" {
            let end = end_of_raw(rest);
            text.push_str(&rest[..end]);
            rest = &rest[end..];
        }
    }
    text.push_str(rest);
    let needs_date =
        source.contains("strftime_now(") && !source.contains("strftime_now is defined");
    Source {
        text,
        has_generation,
        needs_date,
    }
}

/// The next comment, tag or expression of a template.
pub(super) struct Part<'a> {
    /// Plain text in front of it.
    pub(super) before: &'a str,
    /// `#` for a comment, `%` for a tag, `{` for an expression.
    pub(super) kind: u8,
    /// With its opening and closing.
    pub(super) part: &'a str,
    /// What follows.
    pub(super) after: &'a str,
}

impl<'a> Part<'a> {
    /// `None` when there is none, or when it has no end.
    pub(super) fn next(rest: &'a str) -> Option<Self> {
        let (before, kind) = next_opening(rest)?;
        let opened = &rest[before.len()..];
        let length = match kind {
            b'#' => opened.find("#}").map(|at| at + 2),
            b'%' => closing(opened, "%}"),
            _ => closing(opened, "}}"),
        };
        let (part, after) = opened.split_at(length?);
        Some(Self {
            before,
            kind,
            part,
            after,
        })
    }
}

/// The text before the next tag, expression or comment, and the second character of its opening.
fn next_opening(text: &str) -> Option<(&str, u8)> {
    let bytes = text.as_bytes();
    let at = bytes
        .windows(2)
        .position(|pair| pair[0] == b'{' && matches!(pair[1], b'{' | b'%' | b'#'))?;
    Some((&text[..at], bytes[at + 1]))
}

/// What follows the first opening of a tag, expression or comment, with it.
pub(super) fn opening(text: &str) -> Option<&str> {
    next_opening(text).map(|(before, _)| &text[before.len()..])
}

/// Length of a tag or expression with its closing, which does not count inside strings and brackets.
fn closing(text: &str, close: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut quote: Option<u8> = None;
    let mut balance = 0_i64;
    let mut at = 2;
    while at < bytes.len() {
        match (quote, bytes[at]) {
            (Some(_), b'\\') => at += 1,
            (Some(open), byte) if byte == open => quote = None,
            (None, byte @ (b'"' | b'\'')) => quote = Some(byte),
            (None, _) if balance == 0 && bytes[at..].starts_with(close.as_bytes()) => {
                return Some(at + close.len());
            }
            (None, b'(' | b'[' | b'{') => balance += 1,
            (None, b')' | b']' | b'}') => balance -= 1,
            _ => {}
        }
        at += 1;
    }
    None
}

/// The name of a tag that has nothing but a name, else nothing.
fn tag_word(tag: &str) -> &str {
    let inner = &tag[2..tag.len() - 2];
    inner.trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+')
}

/// Copies a tag or expression, joining lines that a string continues by a backslash.
fn push_continued(part: &str, text: &mut String) {
    let mut quote: Option<char> = None;
    let mut characters = part.chars();
    while let Some(c) = characters.next() {
        match (quote, c) {
            (Some(_), '\\') => match characters.next() {
                Some('\n') => {}
                Some(escaped) => text.extend([c, escaped]),
                None => text.push(c),
            },
            (Some(open), _) if c == open => {
                quote = None;
                text.push(c);
            }
            (None, '"' | '\'') => {
                quote = Some(c);
                text.push(c);
            }
            _ => text.push(c),
        }
    }
}

/// Where the tag that ends a raw block begins; the end of the text when there is none.
pub(super) fn end_of_raw(text: &str) -> usize {
    let mut from = 0;
    while let Some(at) = text[from..].find("{%") {
        let start = from + at;
        let tag = text[start..]
            .find("%}")
            .map(|end| &text[start..start + end + 2]);
        if tag.is_some_and(|tag| tag_word(tag) == "endraw") {
            return start;
        }
        from = start + 2;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tags_keep_their_white_space_control() {
        let source = "{%- for m in x %}a{%- generation -%} b {%endgeneration%}{% endfor %}";
        let rewritten = rewrite(source);
        assert!(rewritten.has_generation);
        assert_eq!(
            rewritten.text,
            "{%- for m in x %}a{%- filter spotmux_generation -%} b {%endfilter%}{% endfor %}"
        );
    }

    #[test]
    fn other_text_stays() {
        let texts = [
            "",
            "{% if generation %}x{% endif %}",
            "{{ generation }}",
            "{% open",
            "%} {%",
            "{# {% generation %} #}",
            "{% raw %}{% generation %}{{ 'a\\\nb' }}{% endraw %}",
            "{{ '{% generation %}' }}",
            "{% set x = '%}{% generation %}' %}",
            "{{ {'a': {'b': {}}} ~ '{% generation %}' }}",
            "{% set x = [1 %} {% generation %}",
            "a\\\nb",
            "{{ 'é' }}{",
        ];
        for source in texts {
            let rewritten = rewrite(source);
            assert_eq!(rewritten.text, source);
            assert!(!rewritten.has_generation, "{source}");
        }
    }

    #[test]
    fn strings_continue_over_a_backslash_at_the_line_end() {
        assert_eq!(rewrite("{{ \"a\\\nb\" }}").text, "{{ \"ab\" }}");
        assert_eq!(
            rewrite("{% set x = 'a\\\\\n\\'b' %}").text,
            "{% set x = 'a\\\\\n\\'b' %}"
        );
    }

    #[test]
    fn a_date_is_needed_unless_asked_for_first() {
        assert!(rewrite("{{ strftime_now('%Y') }}").needs_date);
        let asks = "{% if strftime_now is defined %}{{ strftime_now('%Y') }}{% endif %}";
        assert!(!rewrite(asks).needs_date);
    }

    proptest! {
        #[test]
        fn never_panics_and_keeps_text_without_its_tags(text in "([{}%#'\"é\n-]|raw|endraw| ){0,40}") {
            prop_assert_eq!(rewrite(&text).text, text);
        }
    }
}
