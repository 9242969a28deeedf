//! The content hash of a backbone, kept beside what the system says of its files: while those are the same files, they
//! are not read whole again at every start.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use gpu_actor::model::Model;
use serde::{Deserialize, Serialize};

/// What the system says of a file. One that was written to has another time of change, which nobody can set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Seen {
    path: PathBuf,
    bytes: u64,
    device: u64,
    inode: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// What is hashed. 2 added the numbers of the formulas.
const VERSION: u32 = 2;

/// A hash and the files that it is of.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    version: u32,
    hash: String,
    files: Vec<Seen>,
}

/// The content hash of a model, from the state folder when its files are those that were hashed before; read and kept
/// there otherwise. A folder that cannot be written costs the time of the next start, nothing else.
pub(crate) fn of(model: &Model, files: &[(String, PathBuf)], state: &Path) -> String {
    kept(files, state, || model.content_hash())
}

fn kept(files: &[(String, PathBuf)], state: &Path, hash: impl FnOnce() -> String) -> String {
    let place = state.join("backbone.json");
    let seen = files.iter().map(|(_, path)| seen(path));
    let Some(seen) = seen.collect::<Option<Vec<Seen>>>() else {
        return hash();
    };
    let text = fs::read(&place).ok();
    let kept: Option<Kept> = text.and_then(|text| serde_json::from_slice(&text).ok());
    if let Some(kept) = kept.filter(|kept| kept.version == VERSION && kept.files == seen) {
        return kept.hash;
    }
    let hash = hash();
    keep(
        &place,
        &Kept {
            version: VERSION,
            hash: hash.clone(),
            files: seen,
        },
    );
    hash
}

fn seen(path: &Path) -> Option<Seen> {
    let of = fs::metadata(path).ok()?;
    Some(Seen {
        path: path.to_path_buf(),
        bytes: of.len(),
        device: of.dev(),
        inode: of.ino(),
        modified: (of.mtime(), of.mtime_nsec()),
        changed: (of.ctime(), of.ctime_nsec()),
    })
}

fn keep(place: &Path, kept: &Kept) {
    let beside = place.with_extension(format!("{}.partial", std::process::id()));
    let Ok(text) = serde_json::to_vec(kept) else {
        return;
    };
    let written = fs::write(&beside, text).and_then(|()| fs::rename(&beside, place));
    if written.is_err() {
        // It was not there to be kept; nor is what was begun.
        let _ = fs::remove_file(&beside);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_file_is_hashed_again_when_it_is_another() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("model");
        let files = [("model".to_owned(), file.clone())];
        let never = || -> String { panic!("it was hashed before") };
        let once = |word: &str| kept(&files, folder.path(), || word.to_owned());
        fs::write(&file, "one").unwrap();
        assert_eq!(once("1"), "1");
        assert_eq!(kept(&files, folder.path(), never), "1");
        // Of the same size, in place of the old one.
        let beside = folder.path().join("beside");
        fs::write(&beside, "two").unwrap();
        fs::rename(&beside, &file).unwrap();
        assert_eq!(once("2"), "2");
        assert_eq!(kept(&files, folder.path(), never), "2");
        // What was kept is a hash of less.
        let kept_file = folder.path().join("backbone.json");
        let text = fs::read_to_string(&kept_file).unwrap();
        let before = text.replace("\"version\":2", "\"version\":1");
        assert_ne!(before, text);
        fs::write(&kept_file, before).unwrap();
        assert_eq!(once("4"), "4");
        // What was kept is no hash of it.
        fs::write(folder.path().join("backbone.json"), "{").unwrap();
        assert_eq!(once("2"), "2");
        // A folder that is not there keeps nothing.
        let absent = folder.path().join("absent");
        assert_eq!(kept(&files, &absent, || "3".into()), "3");
    }
}
