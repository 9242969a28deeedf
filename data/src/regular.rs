//! Opening files of users: regular ones only, never more than a limit.
//!
//! A pipe may never end, a device may be endless, and a folder is a mistake: each is refused before it is opened.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Opens a regular file of any length.
///
/// # Errors
/// When it is absent, no regular file, or cannot be opened.
pub fn open(path: &Path) -> io::Result<File> {
    // Opening a pipe would wait for its other end, so the look comes first; the second look is at what was opened.
    regular(path.metadata()?.is_file())?;
    let file = File::open(path)?;
    regular(file.metadata()?.is_file())?;
    Ok(file)
}

/// Reads a regular file of at most so many bytes.
///
/// # Errors
/// As [`open`], and when it is longer.
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    let length = file.metadata()?.len();
    within(length, limit)?;
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
    // It may grow while it is read.
    file.take(limit + 1).read_to_end(&mut bytes)?;
    within(bytes.len() as u64, limit)?;
    Ok(bytes)
}

/// Reads a regular file of at most so many bytes as text.
///
/// # Errors
/// As [`read`], and when it is not UTF-8: then with the offset of the first wrong byte.
pub fn read_text(path: &Path, limit: u64) -> io::Result<String> {
    String::from_utf8(read(path, limit)?).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let message = format!("is not UTF-8: invalid byte at offset {at}");
        io::Error::new(io::ErrorKind::InvalidData, message)
    })
}

fn regular(is: bool) -> io::Result<()> {
    if is {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        "is not a regular file",
    ))
}

fn within(length: u64, limit: u64) -> io::Result<()> {
    if length <= limit {
        return Ok(());
    }
    let message = format!("has {length} bytes or more, the limit is {limit}");
    Err(io::Error::new(io::ErrorKind::FileTooLarge, message))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn only_regular_files_within_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, b"abc\xff").unwrap();
        assert_eq!(read(&path, 4).unwrap(), b"abc\xff");
        let said = |error: io::Error| error.to_string();
        assert!(said(read(&path, 3).unwrap_err()).contains("the limit is 3"));
        assert!(said(read_text(&path, 9).unwrap_err()).contains("offset 3"));
        assert!(said(read(folder.path(), 9).unwrap_err()).contains("not a regular file"));
        assert!(said(read(Path::new("/dev/zero"), 9).unwrap_err()).contains("not a regular file"));
        let absent = read(&folder.path().join("absent"), 9).unwrap_err();
        assert_eq!(absent.kind(), io::ErrorKind::NotFound);
    }
}
