//! A line as words: blanks part them, quotes and `\` keep blanks, `#` begins a remark.

/// A word and where it stands, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    /// Without its quotes.
    pub(crate) text: String,
    /// Its start, quotes included.
    pub(crate) start: usize,
}

/// The words of a line; the message says which quote is open.
pub(crate) fn split(line: &str) -> Result<Vec<String>, String> {
    let (words, open) = scan(line);
    match open {
        Some(quote) => Err(format!("the quote {quote} is not closed")),
        None => Ok(words.into_iter().map(|word| word.text).collect()),
    }
}

/// The words of a line that may still be written at, and whether a quote is open.
pub(crate) fn scan(line: &str) -> (Vec<Word>, Option<char>) {
    let mut words: Vec<Word> = Vec::new();
    let mut word: Option<Word> = None;
    let mut open = None;
    let mut letters = line.char_indices();
    while let Some((at, c)) = letters.next() {
        if open.is_none() && c.is_whitespace() {
            words.extend(word.take());
            continue;
        }
        if c == '#' && open.is_none() && word.is_none() {
            break;
        }
        let word = word.get_or_insert(Word {
            text: String::new(),
            start: at,
        });
        match (open, c) {
            (Some(quote), c) if c == quote => open = None,
            (None, '\'' | '"') => open = Some(c),
            (None | Some('"'), '\\') => word.text.extend(letters.next().map(|(_, next)| next)),
            _ => word.text.push(c),
        }
    }
    words.extend(word);
    (words, open)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn words_quotes_and_remarks() {
        assert_eq!(split("  jobs --all ").unwrap(), ["jobs", "--all"]);
        assert_eq!(
            split(r#"sample 'a b' "c\"d" e\ f"#).unwrap(),
            ["sample", "a b", "c\"d", "e f"]
        );
        assert_eq!(split("jobs # all of them").unwrap(), ["jobs"]);
        assert_eq!(split("# nothing").unwrap(), [""; 0]);
        assert_eq!(split("sample ''").unwrap(), ["sample", ""]);
        assert_eq!(split("a#b").unwrap(), ["a#b"]);
        assert!(split("sample 'a").unwrap_err().contains("is not closed"));
        let (words, _) = scan("job 서울 x");
        assert_eq!(words[2].start, 11);
    }
}
