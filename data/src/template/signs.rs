//! What one tag may hold: so many words and signs, so many of those that can make a value longer.
//!
//! The engine goes into itself for each `not`, `-`, `.name` and `()` and has no bound of its own for them: tens of thousands
//! would end the process, which no error can tell.

/// Words and signs in one tag.
const WORDS: usize = 1024;
/// Signs in one tag that can make a value longer.
const SIGNS: usize = 256;
/// Largest factor of a multiplication.
const FACTOR: u32 = 128;
/// Characters of a tag that are shown.
const SHOWN: usize = 80;

/// Checks the words and signs of a tag that stand outside its strings.
///
/// # Errors
/// Which bound it exceeds.
pub(super) fn check(part: &str) -> Result<(), String> {
    let (mut count, mut products, mut words, mut within) = (0, 0, 0, false);
    let mut quote: Option<u8> = None;
    let bytes = part.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let byte = bytes[at];
        if quote.is_none() {
            let letter = byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii();
            if letter && !within && cycles_nothing(&part[at..]) {
                return Err(format!("`cycle` of nothing: {}", shown(part)));
            }
            let new = !letter || !within;
            words += usize::from(new && !byte.is_ascii_whitespace());
            within = letter;
        }
        match (quote, byte) {
            (Some(_), b'\\') => at += 1,
            (Some(open), byte) if byte == open => quote = None,
            (Some(_), _) => {}
            (None, byte @ (b'"' | b'\'')) => quote = Some(byte),
            (None, b'+' | b'~' | b'|' | b'[' | b',') => count += 1,
            (None, b'*') => {
                products += 1;
                let factor = part[at + 1..].trim_start();
                let end = factor.find(|c: char| !c.is_ascii_alphanumeric());
                let digits = &factor[..end.unwrap_or(factor.len())];
                if products > 1 || !digits.parse().is_ok_and(|factor: u32| factor <= FACTOR) {
                    return Err(format!(
                        "a tag may multiply once, by a number up to {FACTOR} on the right: {}",
                        shown(part)
                    ));
                }
            }
            _ => {}
        }
        at += 1;
    }
    let limits = [
        (words, WORDS, "words and signs"),
        (count, SIGNS, "signs of `+ ~ | [ ,`"),
    ];
    for (found, limit, of) in limits {
        if found > limit {
            return Err(format!(
                "a tag has {found} {of}; the limit is {limit}: {}",
                shown(part)
            ));
        }
    }
    Ok(())
}

/// Whether a text begins with a call of `cycle` without values, by which the engine divides.
fn cycles_nothing(text: &str) -> bool {
    let call = text.strip_prefix("cycle").map(str::trim_start);
    let values = call.and_then(|call| call.strip_prefix('('));
    values.is_some_and(|values| values.trim_start().starts_with([')', '*']))
}

/// The beginning of a tag.
pub(super) fn shown(part: &str) -> String {
    part.chars().take(SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_of_nothing_is_refused() {
        for tag in [
            "{{ loop.cycle() }}",
            "{{ l . cycle ( ) }}",
            "{{ loop.cycle(*[]) }}",
        ] {
            assert!(check(tag).is_err(), "{tag}");
        }
        for tag in [
            "{{ loop.cycle('a', 'b') }}",
            "{{ bicycle() }}",
            "{{ cycle }}",
            "{{ 'cycle()' }}",
        ] {
            assert_eq!(check(tag), Ok(()), "{tag}");
        }
    }

    #[test]
    fn words_are_counted_outside_of_strings() {
        let long = "x ".repeat(2000);
        assert_eq!(check(&format!("{{{{ '{long}' ~ \"{long}\" }}}}")), Ok(()));
        assert_eq!(check(&format!("{{{{ {} }}}}", "abc".repeat(2000))), Ok(()));
        for deep in ["not ", "-", ".a", "()", "é "] {
            let tag = |many: usize| check(&format!("{{{{ a{}", deep.repeat(many)));
            assert_eq!(tag(500), Ok(()), "{deep}");
            let said = tag(1200).unwrap_err();
            assert!(said.contains("the limit is 1024"), "{said}");
            assert!(said.chars().count() < 160, "{said}");
        }
    }
}
