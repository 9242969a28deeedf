//! The metrics of an earlier run, as far as a later one can go on with them.

use std::io::{Error, ErrorKind};
use std::path::Path;

use data::regular;

/// Largest file of metrics read.
const LARGEST: u64 = 4 << 30;

/// The metrics up to their last whole line; none where there are none.
///
/// # Errors
/// Of the system, and [`ErrorKind::InvalidData`] with the line that is not UTF-8.
pub(super) fn told(path: &Path) -> Result<Option<String>, Error> {
    let mut bytes = match regular::read(path, LARGEST) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    // What is behind the last line end was cut off in writing, maybe within a character, and tells nothing.
    let end = bytes.iter().rposition(|byte| *byte == b'\n');
    bytes.truncate(end.map_or(0, |end| end + 1));
    String::from_utf8(bytes).map(Some).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let before = error.as_bytes().iter().take(at);
        let line = before.filter(|byte| **byte == b'\n').count() + 1;
        let told = format!("line {line} is not UTF-8 (byte {at})");
        Error::new(ErrorKind::InvalidData, told)
    })
}

/// Whether they are text.
///
/// # Errors
/// The file, the line that is none, and what to do.
pub(super) fn are_text(path: &Path) -> Result<(), String> {
    match told(path) {
        Err(error) if error.kind() == ErrorKind::InvalidData => Err(format!(
            "{}: {error}: the file was damaged, take that line out, or move the file away to go on without what it tells",
            path.display()
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::fs;

    use super::*;

    /// Cut off within a character it is a torn last line; anywhere else it is damage, told by its place.
    #[test]
    fn metrics_that_are_no_text_are_told_by_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        assert_eq!(told(&path).unwrap(), None);
        let step = "{\"event\":\"step\",\"step\":1}\n";
        fs::write(&path, [step.as_bytes(), b"{\"event\": \"\xed\x95"].concat()).unwrap();
        assert_eq!(told(&path).unwrap().as_deref(), Some(step));
        assert_eq!(are_text(&path), Ok(()));
        fs::write(&path, [step.as_bytes(), b"{\"\xff\"}\n{}\n"].concat()).unwrap();
        let message = are_text(&path).unwrap_err();
        let place = format!(
            "metrics.jsonl: line 2 is not UTF-8 (byte {})",
            step.len() + 2
        );
        assert!(message.contains(&place), "{message}");
    }
}
