//! What is said on standard error: made harmless for a terminal, kept to a length, and never a reason to fail.
//!
//! A standard error that is closed or full loses remarks; it ends no command.

use std::io::{self, Write};

/// Characters of a line that are shown.
const LINE: usize = 2000;
/// Of these, how many are of its end.
const TAIL: usize = 300;
/// Lines of a text that are shown.
const LINES: usize = 200;
/// Bytes of a text that are shown, whatever its lines.
const BYTES: usize = 64 << 10;

/// Says a line, or several.
pub(crate) fn say(text: &str) {
    let text = format!("{}\n", harmless(&short(text)));
    let mut err = io::stderr().lock();
    // Nobody is left to be told that nobody listens.
    let _ = err.write_all(text.as_bytes());
    let _ = err.flush();
}

/// A text without characters that command a terminal or turn the order of letters: neither what a model writes nor
/// what a file or a name says is trusted.
pub(crate) fn harmless(text: &str) -> String {
    let shown = |c: char| {
        let breaks = matches!(c, '\u{2028}' | '\u{2029}');
        let turns = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if breaks || turns || c.is_control() && c != '\n' && c != '\t' {
            char::REPLACEMENT_CHARACTER
        } else {
            c
        }
    };
    text.chars().map(shown).collect()
}

/// A text cut to what a person reads: long lines lose their middle, long lists their end, and both say so.
pub(crate) fn short(text: &str) -> String {
    let mut kept: Vec<String> = Vec::new();
    let (mut bytes, mut left) = (0, 0);
    for line in text.split('\n') {
        if left > 0 || kept.len() >= LINES || bytes >= BYTES {
            left += 1;
            continue;
        }
        let line = short_line(line);
        bytes += line.len();
        kept.push(line);
    }
    if left > 0 {
        kept.push(format!("... and {left} more lines"));
    }
    kept.join("\n")
}

fn short_line(line: &str) -> String {
    if line.len() <= LINE {
        return line.to_owned();
    }
    let count = line.chars().count();
    if count <= LINE {
        return line.to_owned();
    }
    let head: String = line.chars().take(LINE - TAIL).collect();
    let tail: String = line.chars().skip(count - TAIL).collect();
    format!(
        "{head} ... ({} characters left out) ... {tail}",
        count - LINE
    )
}

/// Standard error for logs: what cannot be written is lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Log;

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = io::stderr().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_long_is_cut_and_says_so() {
        assert_eq!(short("a\nb"), "a\nb");
        let line = short(&format!("start{}end", "x".repeat(1_000_000)));
        assert!(line.starts_with("start") && line.ends_with("end"));
        assert!(line.contains("(998008 characters left out)"), "{line}");
        let lines = short(&"line\n".repeat(10_000));
        assert!(lines.ends_with("\n... and 9801 more lines"), "{lines}");
        assert!(short(&"\u{e9}".repeat(2000)).len() == 4000);
    }
}
