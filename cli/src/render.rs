//! What people and programs see: results on standard output, talk on standard error.
//!
//! With `--json` each result is one JSON object a line and the talk is silent, so that a program reads standard
//! output alone.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use crate::args::ClusterArgs;
use crate::carried::Carried;
use crate::remark::{self, harmless};

/// Where results and talk go.
#[derive(Debug)]
pub(crate) struct Output {
    json: bool,
    quiet: bool,
    /// Why events are no longer written: standard output refused one.
    deaf: Mutex<Option<io::ErrorKind>>,
    carried: Carried,
}

impl Output {
    /// `json` for programs; `quiet` leaves out the talk.
    pub(crate) fn new(json: bool, quiet: bool) -> Self {
        Self {
            json,
            quiet,
            deaf: Mutex::new(None),
            carried: Carried::default(),
        }
    }

    /// The same for a command that named its cluster: the commands that it names mean that one.
    pub(crate) fn naming(self, cluster: Option<&ClusterArgs>) -> Self {
        let mut words = Vec::new();
        if let Some(cluster) = cluster {
            if let Some(path) = &cluster.config {
                words.extend(["--config".into(), shell_word(&path.display().to_string())]);
            }
            for set in &cluster.set {
                words.extend(["--set".into(), shell_word(set)]);
            }
        }
        Self {
            carried: Carried::new(&words),
            ..self
        }
    }

    /// A text with commands for the user, which name the cluster that the user named.
    pub(crate) fn carried<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.carried.within(text)
    }

    /// Whether a program reads.
    pub(crate) fn json(&self) -> bool {
        self.json
    }

    /// Whether talk is wanted.
    pub(crate) fn talks(&self) -> bool {
        !self.json && !self.quiet
    }

    /// Whether a person watches: then progress may draw over itself.
    pub(crate) fn watched(&self) -> bool {
        self.talks() && io::stderr().is_terminal()
    }

    /// Shows a result: `text` for people, `value` for programs.
    ///
    /// A reader who has had enough is no error: the command ends with its own code.
    ///
    /// # Errors
    /// When standard output is full, or an event before could not be written for another reason than a closed pipe.
    pub(crate) fn result(&self, value: &impl Serialize, text: &str) -> io::Result<()> {
        let shown = if self.json {
            self.line(&serde_json::to_string(value).map_err(io::Error::other)?)
        } else {
            self.line(harmless(text).trim_end_matches('\n'))
        };
        let lost = *self.deaf.lock().unwrap_or_else(PoisonError::into_inner);
        match (shown, lost) {
            (Err(error), _) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
            (_, Some(kind)) if kind != io::ErrorKind::BrokenPipe => {
                Err(io::Error::other(format!("events were lost: {kind}")))
            }
            _ => Ok(()),
        }
    }

    /// Shows an event to programs only. Work does not wait for its listener: after the first event that cannot be
    /// written, all are left out.
    pub(crate) fn event(&self, value: &impl Serialize) {
        if !self.json {
            return;
        }
        let mut deaf = self.deaf.lock().unwrap_or_else(PoisonError::into_inner);
        if deaf.is_some() {
            return;
        }
        let line = serde_json::to_string(value).map_err(io::Error::other);
        if let Err(error) = line.and_then(|line| self.line(&line)) {
            *deaf = Some(error.kind());
            remark::say(&format!(
                "standard output is no longer written ({error}); the work goes on"
            ));
        }
    }

    /// Writes text as it comes, without a line's end.
    ///
    /// # Errors
    /// When standard output is closed or full.
    pub(crate) fn stream(&self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if out.is_terminal() {
            out.write_all(harmless(text).as_bytes())?;
        } else {
            out.write_all(text.as_bytes())?;
        }
        out.flush()
    }

    fn line(&self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "{text}")?;
        out.flush()
    }

    /// Says something in passing.
    pub(crate) fn note(&self, text: impl AsRef<str>) {
        if self.talks() {
            remark::say(&self.carried(text.as_ref()));
        }
    }

    /// Names the commands that are useful now.
    pub(crate) fn next(&self, commands: &[String]) {
        if self.talks() && !commands.is_empty() {
            remark::say("\nNext:");
            for command in commands {
                remark::say(&format!("  {}", one_line(&self.carried(command))));
            }
        }
    }
}

/// How a column is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// A table of text cells.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    heads: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns.
    pub(crate) fn new(heads: &[(&'static str, Align)]) -> Self {
        Self {
            heads: heads.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a row, a cell a column.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows
            .push(cells.into_iter().map(|text| cell(&text)).collect());
    }

    /// The table as lines; columns two spaces apart, nothing behind the last one.
    pub(crate) fn text(&self) -> String {
        let heads: Vec<String> = self
            .heads
            .iter()
            .map(|(head, _)| (*head).to_owned())
            .collect();
        let all = || std::iter::once(&heads).chain(&self.rows);
        let widths: Vec<usize> = (0..heads.len())
            .map(|column| {
                let cells = all().filter_map(|row| row.get(column));
                cells.map(|cell| width(cell)).max().unwrap_or(0)
            })
            .collect();
        let mut text = String::new();
        for row in all() {
            let mut line = String::new();
            for ((cell, width_of_column), (_, align)) in row.iter().zip(&widths).zip(&self.heads) {
                let space = " ".repeat(width_of_column - width(cell));
                let gap = if line.is_empty() { "" } else { "  " };
                let _ = match align {
                    Align::Left => write!(line, "{gap}{cell}{space}"),
                    Align::Right => write!(line, "{gap}{space}{cell}"),
                };
            }
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text
    }
}

/// Harmless text of one line for a cell of a table or a list of facts, kept to a length.
fn cell(text: &str) -> String {
    remark::short(&one_line(text))
}

/// Harmless text for a place that holds one line.
fn one_line(text: &str) -> String {
    harmless(text).replace(['\n', '\t'], "\u{fffd}")
}

/// Columns a terminal uses: wide letters take two, so that Korean lines up.
fn width(text: &str) -> usize {
    console::measure_text_width(text)
}

/// Lines of `name  value`, names padded alike; the further lines of a value below its first.
pub(crate) fn facts(pairs: &[(&str, String)]) -> String {
    let longest = pairs.iter().map(|(name, _)| width(name)).max().unwrap_or(0);
    let mut text = String::new();
    for (name, value) in pairs {
        let mut name = *name;
        // What has several lines stays below its name: none of them can be taken for another fact.
        for line in remark::short(value).split('\n') {
            let (line, space) = (one_line(line), " ".repeat(longest - width(name)));
            let _ = writeln!(text, "{name}{space}  {line}");
            name = "";
        }
    }
    text
}

/// Bytes in a unit that people read: `512 B`, `93.8 MiB`.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let (mut value, mut unit) = (count as f64 / 1024.0, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// A count with its thousands apart: `134,515,008`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A path or text as one word of a shell.
pub(crate) fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/=:,+@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A text as TOML has it. A text of JSON is one, but for the one control character that JSON leaves as it is.
pub(crate) fn toml_text(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted.replace('\u{7f}', "\\u007F")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_with_wide_letters() {
        let mut table = Table::new(&[("job", Align::Left), ("loss", Align::Right)]);
        table.row(["서울".into(), "1.5".into()]);
        table.row(["style".into(), "10.25".into()]);
        assert_eq!(table.text(), "job     loss\n서울     1.5\nstyle  10.25\n");
    }

    #[test]
    fn a_model_does_not_command_the_terminal() {
        assert_eq!(harmless("a\u{1b}[2Jb\r\n"), "a\u{fffd}[2Jb\u{fffd}\n");
        assert_eq!(
            harmless("\u{9b}1m\u{7}\u{202e}"),
            "\u{fffd}1m\u{fffd}\u{fffd}"
        );
        let mut table = Table::new(&[("name", Align::Left)]);
        table.row(["a\nb\u{1b}".into()]);
        assert_eq!(table.text(), "name\na\u{fffd}b\u{fffd}\n");
        assert_eq!(facts(&[("n", "a\nb\tc".into())]), "n  a\n   b\u{fffd}c\n");
    }

    #[test]
    fn numbers_are_readable() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(98_362_432), "93.8 MiB");
        assert_eq!(count(134_515_008), "134,515,008");
        assert_eq!(count(7), "7");
    }

    #[test]
    fn toml_reads_the_text_back() {
        assert_eq!(toml_text("a/\u{301}b"), "\"a/\u{301}b\"");
        assert_eq!(toml_text("a\"\\\n\u{1b}\u{7f}"), r#""a\"\\\n\u001b\u007F""#);
    }

    #[test]
    fn a_shell_reads_the_word_back() {
        assert_eq!(shell_word("a/b-1.toml"), "a/b-1.toml");
        assert_eq!(shell_word("it's"), r"'it'\''s'");
        assert_eq!(shell_word(""), "''");
    }
}
