//! Other files of a market actor: what it keeps over a restart, and what was decided, for who asks why.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use super::error::RunError;
use crate::broker::kept::Kept;
use crate::broker::told::Decided;

/// Largest file of decisions: then it is put aside, and the one that was aside before is gone.
const MOST_BYTES: u64 = 8 << 20;

/// Writes a file beside, syncs it and puts it in the place of the one before: when this returns it survives a crash, and a reader
/// sees the one or the other.
///
/// # Errors
/// When the system refuses.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("part");
    let mut file = File::create(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    // The name is in the folder.
    match path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

/// Keeps what a restart must know.
///
/// # Errors
/// When the system refuses.
pub(super) fn keep(path: &Path, kept: &Kept) -> Result<(), RunError> {
    replace(path, &kept.to_json()).map_err(|source| RunError::File {
        path: path.to_owned(),
        source,
    })
}

/// What was kept; nothing where nothing was.
///
/// # Errors
/// When it cannot be read.
pub fn kept(path: &Path) -> Result<Option<Kept>, RunError> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => {
            return Err(RunError::File {
                path: path.to_owned(),
                source,
            });
        }
    };
    let kept = Kept::from_json(&bytes).map_err(|source| RunError::Kept {
        path: path.to_owned(),
        source,
    })?;
    Ok(Some(kept))
}

/// Appends a decision as a line of JSON. It is not synced: it explains, nothing rests on it.
///
/// # Errors
/// When the system refuses.
pub(super) fn note(path: &Path, decided: &Decided) -> io::Result<()> {
    let mut line = serde_json::to_string(decided)?;
    line.push('\n');
    append(path, line.as_bytes(), MOST_BYTES).map(|_| ())
}

/// Cuts off a last line that has no end: it was torn while it was written. A file that is absent is whole.
///
/// # Errors
/// When the system refuses.
pub(super) fn cut_torn_line(path: &Path) -> io::Result<()> {
    let mut file = match OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut end = file.metadata()?.len();
    let mut block = [0; 4096];
    while end > 0 {
        let from = end.saturating_sub(block.len() as u64);
        let part = &mut block[..(end - from) as usize];
        file.seek(SeekFrom::Start(from))?;
        file.read_exact(part)?;
        if let Some(at) = part.iter().rposition(|byte| *byte == b'\n') {
            end = from + at as u64 + 1;
            break;
        }
        end = from;
    }
    file.set_len(end)
}

/// Appends to a file of lines; one that is as large as `most` after that is put aside, and whether it was.
///
/// # Errors
/// When the system refuses.
pub(super) fn append(path: &Path, lines: &[u8], most: u64) -> io::Result<bool> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    file.write_all(lines)?;
    let full = file.metadata()?.len() >= most;
    if full {
        fs::rename(path, path.with_extension("1.jsonl"))?;
    }
    Ok(full)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_grows_is_put_aside() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("decisions.jsonl");
        for (line, full) in [(b"one\n", false), (b"two\n", true), (b"six\n", false)] {
            assert_eq!(append(&path, line, 8).unwrap(), full);
        }
        assert_eq!(fs::read(&path).unwrap(), b"six\n");
        let aside = folder.path().join("decisions.1.jsonl");
        assert_eq!(fs::read(aside).unwrap(), b"one\ntwo\n");
    }

    #[test]
    fn what_is_replaced_is_whole_and_what_is_absent_is_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        assert!(kept(&path).unwrap().is_none());
        replace(&path, b"{").unwrap();
        let told = kept(&path).unwrap_err().to_string();
        assert!(
            told.contains("state.json") && told.contains("Move it away"),
            "{told}"
        );
        replace(&path, b"{\"spotmux_market_state\":9}").unwrap();
        assert!(kept(&path).unwrap_err().to_string().contains("form 9"));
    }
}
