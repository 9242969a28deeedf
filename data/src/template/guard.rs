//! The text of a template, with checks put in wherever a value could grow from one round of a loop to the next.
//!
//! The engine counts instructions, and a few hundred of them can double a string beyond any memory. Growth needs a name
//! that carries a value on: `set`, the variable of a loop, the parameter of a macro. What is set passes a filter, loops
//! and macros begin with a check of their names ([`super::budget`]). Within one tag, growth is bounded by the number of
//! signs that can make a value longer.

use super::budget::{CHECK, HOLD, INPUT, KEEP, PASS};
use super::signs;
use super::source::{Part, end_of_raw, opening};

/// Branches of all conditions together: the engine goes into itself for each.
const BRANCHES: usize = 512;

/// A block that is open.
struct Open {
    /// What closes it.
    end: &'static str,
    /// Where its check goes, with the names it checks.
    check: Option<(usize, String, String)>,
    /// The name that a block sets.
    sets: Option<String>,
    /// Bytes of plain text before it.
    plain: usize,
}

/// Puts the checks in.
///
/// # Errors
/// What the template does that cannot be bounded.
pub(super) fn guard(source: &str) -> Result<String, String> {
    let mut text = String::with_capacity(source.len() * 2);
    let mut checks: Vec<(usize, String)> = Vec::new();
    let mut open: Vec<Open> = Vec::new();
    let (mut rest, mut plain, mut branches) = (source, 0, 0);
    while let Some(Part {
        before,
        kind,
        part,
        after,
    }) = Part::next(rest)
    {
        text.push_str(before);
        plain += before.len();
        rest = after;
        if kind != b'#' {
            signs::check(part)?;
        }
        if kind != b'%' {
            text.push_str(part);
            continue;
        }
        let tag = Tag::new(part);
        match tag.word {
            "set" => match tag.assigned() {
                Some((target, value)) => {
                    let filter = if target.contains('.') { KEEP } else { PASS };
                    text.push_str(&tag.with(&format!("{target}= ({value})|{filter} ")));
                }
                None => {
                    text.push_str(part);
                    let name = tag.rest.split('|').next().unwrap_or("").trim();
                    open.push(Open::new("endset", plain, None, Some(name.to_owned())));
                }
            },
            "for" | "macro" => {
                text.push_str(part);
                let names = tag.names();
                let end = if tag.word == "for" {
                    "endfor"
                } else {
                    "endmacro"
                };
                let check = Some((text.len(), tag.close.to_owned(), names));
                open.push(Open::new(end, plain, check, None));
            }
            "with" | "call" => {
                return Err(format!(
                    "`{{% {} %}}` is not supported, since what it carries on cannot be bounded",
                    tag.word
                ));
            }
            "elif" => {
                branches += 1;
                if branches > BRANCHES {
                    return Err(format!(
                        "there are more than {BRANCHES} `elif` tags: ask a dictionary instead"
                    ));
                }
                text.push_str(part);
            }
            "raw" => {
                text.push_str(part);
                let end = end_of_raw(rest);
                text.push_str(&rest[..end]);
                plain += end;
                rest = &rest[end..];
            }
            word => {
                text.push_str(part);
                if open.last().is_some_and(|last| last.end == word)
                    && let Some(last) = open.pop()
                {
                    if let Some((at, close, names)) = last.check {
                        let bytes = plain - last.plain;
                        let call = format!("{CHECK}({INPUT}, {bytes}{names})");
                        checks.push((at, nothing(&call, &close)));
                    }
                    if let Some(name) = last.sets {
                        text.push_str(&nothing(&format!("{HOLD}({name})"), tag.close));
                    }
                }
            }
        }
    }
    // The engine reads a tag that has no end too, before it says so.
    if let Some(unclosed) = opening(rest)
        && signs::check(unclosed).is_err()
    {
        return Err(format!("a tag has no end: {}", signs::shown(unclosed)));
    }
    text.push_str(rest);
    checks.sort_unstable_by_key(|(at, _)| std::cmp::Reverse(*at));
    for (at, check) in checks {
        text.insert_str(at, &check);
    }
    Ok(text)
}

impl Open {
    fn new(
        end: &'static str,
        plain: usize,
        check: Option<(usize, String, String)>,
        sets: Option<String>,
    ) -> Self {
        Self {
            end,
            check,
            sets,
            plain,
        }
    }
}

/// A tag that writes nothing, closed as the one before it.
fn nothing(call: &str, close: &str) -> String {
    format!("{{% if {call} {close}{{% endif {close}")
}

/// A tag in its parts.
struct Tag<'a> {
    open: &'a str,
    word: &'a str,
    rest: &'a str,
    close: &'a str,
}

impl<'a> Tag<'a> {
    fn new(part: &'a str) -> Self {
        let control = |byte: Option<&u8>| usize::from(matches!(byte, Some(b'-' | b'+')));
        let bytes = part.as_bytes();
        let start = 2 + control(bytes.get(2));
        let end = (part.len() - 2 - control(bytes.get(part.len() - 3))).max(start);
        let inner = part[start..end].trim_start();
        let length = inner
            .find(|c: char| !c.is_alphanumeric() && c != '_')
            .unwrap_or(inner.len());
        Self {
            open: &part[..start],
            word: &inner[..length],
            rest: &inner[length..],
            close: &part[end..],
        }
    }

    /// The tag with other words after the first.
    fn with(&self, rest: &str) -> String {
        format!("{} {}{rest}{}", self.open, self.word, self.close)
    }

    /// Target and value of an assignment; nothing for a block that sets.
    fn assigned(&self) -> Option<(&'a str, &'a str)> {
        let at = self.rest.find(['=', '|'])?;
        let (target, value) = self.rest.split_at(at);
        Some((target, value.strip_prefix('=')?))
    }

    /// The names that a loop or macro brings, each after a comma.
    fn names(&self) -> String {
        let list = match self.word {
            "for" => self.rest.split(" in ").next().unwrap_or(""),
            _ => self.rest.split_once('(').map_or("", |(_, list)| list),
        };
        let mut names = String::new();
        let (mut depth, mut quote, mut fresh) = (0_usize, None, true);
        let mut characters = list.char_indices();
        while let Some((at, c)) = characters.next() {
            match (quote, c) {
                (Some(_), '\\') => drop(characters.next()),
                (Some(open), _) if c == open => quote = None,
                (Some(_), _) => {}
                (None, '"' | '\'') => quote = Some(c),
                (None, '(' | '[' | '{') if self.word == "macro" => depth += 1,
                (None, ')' | ']' | '}') => depth = depth.saturating_sub(1),
                (None, ',') if depth == 0 => fresh = true,
                (None, _) if fresh && (c.is_alphabetic() || c == '_') => {
                    let name = &list[at..];
                    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_');
                    names.push_str(", ");
                    names.push_str(&name[..end.unwrap_or(name.len())]);
                    fresh = false;
                }
                _ => {}
            }
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_that_carry_values_on_are_checked() {
        let cases = [
            (
                "{%- set ns.x = a + b -%}",
                "{%- set ns.x = ( a + b )|spotmux_keep -%}",
            ),
            (
                "{% for k, v in x %}ab{% endfor %}",
                "{% for k, v in x %}{% if spotmux_check(spotmux_input, 2, k, v) %}{% endif %}ab{% endfor %}",
            ),
            (
                "{%- macro f(a, b=[1, 'c, d'], e=g(h)) -%}{%- endmacro -%}",
                "{%- macro f(a, b=[1, 'c, d'], e=g(h)) -%}{% if spotmux_check(spotmux_input, 0, a, b, e) -%}{% endif -%}{%- endmacro -%}",
            ),
            (
                "{% set x %}a{% endset %}",
                "{% set x %}a{% endset %}{% if spotmux_hold(x) %}{% endif %}",
            ),
        ];
        for (source, guarded) in cases {
            assert_eq!(guard(source).as_deref(), Ok(guarded));
        }
    }

    #[test]
    fn what_cannot_be_bounded_is_refused() {
        let long = format!("{{{{ {} }}}}", "a ~ ".repeat(300));
        for source in [
            "{% with a = b %}{% endwith %}",
            "{% call(x) f() %}{% endcall %}",
            "{{ a * b }}",
            "{{ a * 1000 }}",
            "{{ a * 9 * 9 }}",
            &long,
            &format!("{{% if 0 %}}{}{{% endif %}}", "{% elif 0 %}".repeat(600)),
            "{{ [{'a': {'b': 1}}] ~ a * b }}",
            "{{ a * b",
        ] {
            assert!(guard(source).is_err(), "{source}");
        }
        assert_eq!(guard("{{ '-' * 20 }}").as_deref(), Ok("{{ '-' * 20 }}"));
    }

    proptest! {
        #[test]
        fn never_panics(text in "([{}%#'\"é\n|=(),-]|raw|endraw|set|for|in|endfor|macro| ){0,40}") {
            let _ = guard(&text);
        }
    }
}
