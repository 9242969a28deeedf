//! A file as numbered lines, each at most so long, with the byte it begins at.
//!
//! Lines end in LF or CRLF; a byte-order mark in front of the first one is no part of it. A line beyond the limit is
//! skipped without being held.

use std::io::{BufRead, Error};

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// Counted from 1.
    pub(crate) number: u64,
    /// Byte of the file it begins at.
    pub(crate) offset: u64,
    /// Its bytes without the line end; none when it is too long.
    pub(crate) bytes: Vec<u8>,
    /// Its length in bytes without LF.
    pub(crate) length: u64,
}

impl Line {
    /// Whether the line was skipped for its length.
    pub(crate) fn too_long(&self) -> bool {
        self.bytes.is_empty() && self.length > 1
    }

    /// Whether it holds white space only.
    pub(crate) fn is_blank(&self) -> bool {
        !self.too_long() && self.bytes.iter().all(u8::is_ascii_whitespace)
    }
}

/// Reads lines one after another.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    reader: R,
    limit: usize,
    number: u64,
    offset: u64,
}

impl<R: BufRead> Lines<R> {
    pub(crate) fn new(reader: R, limit: usize) -> Self {
        Self {
            reader,
            limit,
            number: 0,
            offset: 0,
        }
    }

    /// Bytes read so far.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// The next line; none at the end.
    pub(crate) fn next_line(&mut self) -> Result<Option<Line>, Error> {
        let start = self.offset;
        let mut bytes = Vec::new();
        let mut length = 0u64;
        let mut ended = false;
        while !ended {
            let part = match self.reader.fill_buf() {
                Ok(part) => part,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if part.is_empty() {
                break;
            }
            let end = part.iter().position(|&b| b == b'\n');
            let content = &part[..end.unwrap_or(part.len())];
            length += content.len() as u64;
            if length <= self.limit as u64 {
                bytes.extend_from_slice(content);
            } else {
                bytes = Vec::new();
            }
            ended = end.is_some();
            let used = content.len() + usize::from(ended);
            self.reader.consume(used);
            self.offset += used as u64;
        }
        if self.offset == start {
            return Ok(None);
        }
        self.number += 1;
        Ok(Some(trimmed(Line {
            number: self.number,
            offset: start,
            bytes,
            length,
        })))
    }
}

fn trimmed(mut line: Line) -> Line {
    if line.bytes.last() == Some(&b'\r') {
        line.bytes.pop();
        line.length -= 1;
    }
    if line.number == 1 && line.bytes.starts_with(BYTE_ORDER_MARK) {
        line.bytes.drain(..BYTE_ORDER_MARK.len());
        line.length -= BYTE_ORDER_MARK.len() as u64;
        line.offset += BYTE_ORDER_MARK.len() as u64;
    }
    line
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::io::BufReader;

    use super::*;

    fn lines(text: &[u8], limit: usize, buffer: usize) -> Vec<Line> {
        let mut lines = Lines::new(BufReader::with_capacity(buffer, text), limit);
        std::iter::from_fn(|| lines.next_line().unwrap()).collect()
    }

    #[test]
    fn line_ends_and_marks_are_no_part_of_a_line() {
        for buffer in [1, 2, 3, 100] {
            let all = lines(b"\xEF\xBB\xBFab\r\n\ncd\n\r\nx", 10, buffer);
            let parts: Vec<_> = all
                .iter()
                .map(|line| (line.number, line.offset, line.bytes.as_slice()))
                .collect();
            assert_eq!(
                parts,
                [
                    (1, 3, b"ab".as_slice()),
                    (2, 7, b""),
                    (3, 8, b"cd"),
                    (4, 11, b""),
                    (5, 13, b"x")
                ]
            );
        }
    }

    #[test]
    fn a_long_line_is_skipped_and_the_next_one_read() {
        for buffer in [1, 7, 100] {
            let all = lines(b"aaaaaaaaaaaaaaaaaaaa\nb\n", 10, buffer);
            assert_eq!(all.len(), 2);
            assert!(all[0].too_long() && all[0].length == 20);
            assert_eq!(
                (all[1].offset, all[1].bytes.as_slice()),
                (21, b"b".as_slice())
            );
        }
    }
}
