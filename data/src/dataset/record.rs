//! From the bytes of a line to the JSON of a record.

use serde_json::Value;

use crate::check::{Code, Problem};
use crate::lines::Line;
use crate::strict_json;

/// The JSON of a line.
pub(super) fn parse(line: &Line, limit: usize) -> Result<Value, Box<Problem>> {
    let place =
        |problem: Problem, at: usize| Box::new(problem.at(line.number, line.offset + at as u64));
    if line.too_long() {
        let message = format!("the line has {} bytes; the limit is {limit}", line.length);
        let problem = Problem::of_file(Code::LineTooLong, message);
        return Err(place(problem.hint("split the record"), 0));
    }
    if let Some((name, hint)) = foreign(line) {
        let message = format!("the file is {name}, not UTF-8 text");
        let problem = Problem::of_file(Code::WrongEncoding, message);
        return Err(place(problem.hint(hint), 0));
    }
    let text = std::str::from_utf8(&line.bytes).map_err(|error| {
        let at = error.valid_up_to();
        let message = format!("byte 0x{:02x} is not valid UTF-8 here", line.bytes[at]);
        let problem = Problem::of_file(Code::InvalidUtf8, message).snippet(&line.bytes, at);
        place(problem.hint("save the file as UTF-8"), at)
    })?;
    strict_json::parse(text).map_err(|fault| {
        let message = format!("not acceptable JSON: {}", fault.reason);
        let problem = Problem::of_file(fault.code, message).snippet(&line.bytes, fault.at);
        let problem = place(problem, fault.at);
        match hint_for(fault.code, text) {
            Some(hint) => Box::new(problem.hint(hint)),
            None => problem,
        }
    })
}

/// What else the first bytes of a file may mean, and how it becomes what is read.
fn foreign(line: &Line) -> Option<(&'static str, &'static str)> {
    const UTF_16: &str = "convert it: iconv -f UTF-16 -t UTF-8 FILE > NEW.jsonl";
    const UTF_32: &str = "convert it: iconv -f UTF-32 -t UTF-8 FILE > NEW.jsonl";
    // The longer mark first: that of UTF-32 begins as one of UTF-16.
    let marks: [(&[u8], &str, &str); 11] = [
        (b"\xFF\xFE\0\0", "UTF-32 (little endian)", UTF_32),
        (b"\0\0\xFE\xFF", "UTF-32 (big endian)", UTF_32),
        (b"\xFF\xFE", "UTF-16 (little endian)", UTF_16),
        (b"\xFE\xFF", "UTF-16 (big endian)", UTF_16),
        (
            b"{\0\0\0",
            "UTF-32 (little endian, without a mark)",
            "convert it: iconv -f UTF-32LE -t UTF-8 FILE > NEW.jsonl",
        ),
        (
            b"\0\0\0{",
            "UTF-32 (big endian, without a mark)",
            "convert it: iconv -f UTF-32BE -t UTF-8 FILE > NEW.jsonl",
        ),
        (
            b"{\0",
            "UTF-16 (little endian, without a mark)",
            "convert it: iconv -f UTF-16LE -t UTF-8 FILE > NEW.jsonl",
        ),
        (
            b"\0{",
            "UTF-16 (big endian, without a mark)",
            "convert it: iconv -f UTF-16BE -t UTF-8 FILE > NEW.jsonl",
        ),
        (b"\x1F\x8B", "gzip", "unpack it: gunzip FILE"),
        (b"\x28\xB5\x2F\xFD", "zstd", "unpack it: zstd -d FILE"),
        (
            b"PAR1",
            "Parquet",
            "write it as UTF-8 JSONL, one object a line",
        ),
    ];
    let mut marks = marks.into_iter();
    let found = marks.find(|(mark, ..)| line.bytes.starts_with(mark));
    found
        .filter(|_| line.number == 1)
        .map(|(_, name, hint)| (name, hint))
}

fn hint_for(code: Code, text: &str) -> Option<&'static str> {
    match code {
        Code::InvalidJson if text.trim_start().starts_with('\u{feff}') => {
            Some("take the byte order mark out: it may stand at the beginning of a file only")
        }
        Code::DuplicateKey => Some("keep one of the two"),
        Code::LoneSurrogate => Some("write the whole character, or U+FFFD"),
        Code::TooDeep => Some("samples are flat: an object with a list of objects"),
        Code::InvalidJson if text.contains('\0') => {
            Some("the line holds NUL bytes: the file may be damaged")
        }
        Code::InvalidJson if text.trim_start().starts_with(['[', ',']) => {
            Some("JSONL is one object per line, without a list around them")
        }
        Code::InvalidJson => Some("each line is one complete JSON object"),
        _ => None,
    }
}

pub(super) fn not_an_object(value: &Value) -> Problem {
    let problem = Problem::of_file(Code::NotAnObject, "the record is not a JSON object");
    match value {
        Value::Array(_) => problem.hint("JSONL is one object per line, without a list around them"),
        _ => problem.hint("each line is one JSON object"),
    }
}
