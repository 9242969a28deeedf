//! A file of results that appears whole or not at all.

use std::io::Write as _;
use std::path::Path;

use tempfile::NamedTempFile;

use crate::exit::{Exit, Failure, OrExit};

/// Writes beside the place and renames; what was there is replaced.
///
/// # Errors
/// [`Exit::Internal`] with the place when it does not take the file, [`Exit::NotFound`] when its folder is absent.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or_else(|| Path::new("."));
    if !folder.is_dir() {
        let message = format!("there is no folder {}: make it first", folder.display());
        return Err(Failure::new(Exit::NotFound, message).about(path));
    }
    let written = || -> std::io::Result<()> {
        let mut file = NamedTempFile::new_in(folder)?;
        file.write_all(text.as_bytes())?;
        file.as_file().sync_all()?;
        file.persist(path).map(drop).map_err(|error| error.error)
    };
    written()
        .or_exit(Exit::Internal)
        .map_err(|failure| failure.about(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_an_absent_folder_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.json");
        write(&path, "one").expect("written");
        write(&path, "two").expect("written");
        assert_eq!(std::fs::read_to_string(&path).expect("read"), "two");
        let failure = write(&folder.path().join("no/a.json"), "x").expect_err("no folder");
        assert_eq!(failure.exit, Exit::NotFound);
        assert_eq!(std::fs::read_dir(folder.path()).expect("read").count(), 1);
    }
}
