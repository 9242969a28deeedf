//! Names and texts of files from elsewhere, made fit for the inside of a sentence.

/// Characters that are shown at most.
const MOST: usize = 120;
/// Of a longer text, how many of its end.
const TAIL: usize = 30;

/// A text of a foreign file in one line of bounded length: control characters, and those that turn the order of letters, are
/// told by their escapes, and of a long text the middle is left out.
///
/// ```
/// assert_eq!(shared::excerpt::excerpt("a\u{1b}[2J\n"), r"a\u{1b}[2J\n");
/// ```
#[must_use]
pub fn excerpt(text: &str) -> String {
    let length = text.chars().count();
    if length <= MOST {
        return text.chars().map(shown).collect();
    }
    let head = text.chars().take(MOST - TAIL);
    let tail = text.chars().skip(length - TAIL);
    let (head, tail): (String, String) = (head.map(shown).collect(), tail.map(shown).collect());
    format!("{head}...{tail} ({length} characters)")
}

fn shown(c: char) -> String {
    let turns =
        matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if c.is_control() || turns {
        c.escape_default().to_string()
    } else {
        c.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_one_line_of_bounded_length_that_commands_nothing() {
        assert_eq!(excerpt("model.layers.0.서울"), "model.layers.0.서울");
        assert_eq!(excerpt("a\r\u{7f}\u{202e}b"), r"a\r\u{7f}\u{202e}b");
        let long = format!("a{}b", "\u{1b}".repeat(1_000_000));
        let told = excerpt(&long);
        assert!(told.len() < 1000 && !told.contains('\u{1b}'), "{told}");
        assert!(told.starts_with("a\\u{1b}") && told.ends_with("b (1000002 characters)"));
        assert_eq!(excerpt(&"x".repeat(MOST)).len(), MOST);
    }
}
