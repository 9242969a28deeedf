//! One fetched model on disk, and how it gets there whole.

#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};

use data::regular;
use rustix::fs::{CWD, RenameFlags};
use serde::{Deserialize, Serialize};

use super::hash;
use crate::beside::Beside;
use crate::exit::{Exit, Failure, OrExit};
use crate::render;

const RECORD: &str = "entry.json";
const VERSION: u32 = 1;
/// Models up to this size have their hashes checked on every use, larger ones their sizes.
const HASHED_ON_USE: u64 = 512 << 20;

/// A fetched model.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Entry {
    version: u32,
    /// The name it was asked for by.
    pub(crate) name: String,
    /// Where it came from.
    pub(crate) source: String,
    /// Its licence, where known.
    pub(crate) licence: Option<String>,
    revision: Option<String>,
    /// Folder of the files, when it is not the entry's own.
    folder: Option<PathBuf>,
    /// What to open inside the folder; absent: the folder.
    open: Option<PathBuf>,
    /// Its files.
    pub(crate) files: Vec<FileRecord>,
    #[serde(skip)]
    place: PathBuf,
}

/// A file of a fetched model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileRecord {
    /// Name inside the folder.
    pub(crate) name: String,
    /// Size.
    pub(crate) bytes: u64,
    /// SHA-256 in hexadecimal.
    pub(crate) sha256: String,
}

/// What is wrong with a fetched model.
#[derive(Debug)]
pub(super) enum Fault {
    /// A file is absent, or another than was fetched.
    Changed(Failure),
    /// A file cannot be read, and may be sound.
    Unreadable(Failure),
}

impl Fault {
    fn told(self) -> Failure {
        match self {
            Self::Changed(failure) | Self::Unreadable(failure) => failure,
        }
    }
}

/// What a pull came to.
#[derive(Clone, Debug)]
pub(crate) struct Pulled {
    /// The model.
    pub(crate) entry: Entry,
    /// Whether it was fetched now.
    pub(crate) fresh: bool,
}

impl Entry {
    /// A model whose one file lies in the entry's folder.
    pub(super) fn of_file(name: &str, source: String, licence: &str, file: FileRecord) -> Self {
        Self {
            version: VERSION,
            name: name.into(),
            source,
            licence: Some(licence.into()),
            revision: None,
            folder: None,
            open: Some(PathBuf::from(&file.name)),
            files: vec![file],
            place: PathBuf::new(),
        }
    }

    /// A model whose files lie in a folder of another cache.
    pub(super) fn elsewhere(
        name: &str,
        source: String,
        revision: &str,
        folder: PathBuf,
        files: Vec<FileRecord>,
    ) -> Self {
        let only_gguf = files.iter().find(|file| file.name.ends_with(".gguf"));
        Self {
            version: VERSION,
            name: name.into(),
            source,
            licence: None,
            revision: Some(revision.into()),
            open: only_gguf.map(|file| PathBuf::from(&file.name)),
            folder: Some(folder),
            files,
            place: PathBuf::new(),
        }
    }

    /// Branch, tag or commit it was asked for by.
    pub(super) fn revision(&self) -> Option<&str> {
        self.revision.as_deref()
    }

    /// What to open.
    pub(crate) fn model(&self) -> PathBuf {
        let folder = self.folder.as_ref().unwrap_or(&self.place);
        match &self.open {
            Some(open) => folder.join(open),
            None => folder.clone(),
        }
    }

    /// Size of all files in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Checks size and hash of every file.
    ///
    /// # Errors
    /// [`Exit::BadInput`] naming the file that is absent or changed.
    pub(crate) fn verify(&self) -> Result<(), Failure> {
        self.check(true).map_err(Fault::told)
    }

    /// What is wrong with its files, each read whole.
    pub(super) fn fault(&self) -> Option<Fault> {
        self.check(true).err()
    }

    /// The same, with sizes only where hashing would take seconds.
    ///
    /// # Errors
    /// [`Exit::BadInput`] naming the file that is absent or changed.
    pub(crate) fn verify_on_use(&self) -> Result<(), Failure> {
        let hashes = self.bytes() <= HASHED_ON_USE;
        self.check(hashes).map_err(Fault::told)
    }

    fn check(&self, hashes: bool) -> Result<(), Fault> {
        let folder = self.folder.as_ref().unwrap_or(&self.place);
        let again = format!(
            "fetch it again: spotmux model pull {}",
            render::shell_word(&self.name)
        );
        let wrong = |message: String| {
            Fault::Changed(Failure::new(Exit::BadInput, message).hint(again.clone()))
        };
        let unread = |path: &Path, error: std::io::Error| {
            let message = format!("{} of model {}: {error}", path.display(), self.name);
            match error.kind() {
                std::io::ErrorKind::NotFound => wrong(message),
                _ => Fault::Unreadable(Failure::new(Exit::BadInput, message).hint(format!(
                    "make it readable, or remove {} and {again}",
                    self.place.display()
                ))),
            }
        };
        for file in &self.files {
            let path = folder.join(&file.name);
            let size = fs::metadata(&path)
                .map_err(|error| unread(&path, error))?
                .len();
            if size != file.bytes {
                let (name, want) = (path.display(), file.bytes);
                return Err(wrong(format!(
                    "{name} has {size} bytes, {want} were fetched: it was changed"
                )));
            }
            if hashes {
                let (_, found) = hash::file(&path).map_err(|error| unread(&path, error))?;
                if found != file.sha256 {
                    let (name, want) = (path.display(), &file.sha256);
                    return Err(wrong(format!(
                        "{name} has SHA-256 {found}, fetched was {want}: it was changed"
                    )));
                }
            }
        }
        Ok(())
    }
}

/// The entry of a key, if there is one.
///
/// # Errors
/// When its record cannot be read.
pub(super) fn open(models: &Path, key: &str) -> Result<Option<Entry>, Failure> {
    let place = models.join(key);
    let path = place.join(RECORD);
    let text = match regular::read_text(&path, 1 << 20) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(Failure::new(
                Exit::BadInput,
                format!("cannot read {}: {error}", path.display()),
            ));
        }
    };
    let broken = |why: String| {
        Failure::new(
            Exit::BadInput,
            format!(
                "{} is not a record of a fetched model: {why}",
                path.display()
            ),
        )
        .hint(format!(
            "remove {} and fetch the model again",
            place.display()
        ))
    };
    let mut entry: Entry =
        serde_json::from_str(&text).map_err(|error| broken(error.to_string()))?;
    if entry.version != VERSION {
        return Err(broken(format!(
            "version {} is not {VERSION}",
            entry.version
        )));
    }
    entry.place = place;
    Ok(Some(entry))
}

/// Makes an entry: filled in a folder beside, synced, then renamed into place. With `replaces`, the one that is there
/// goes when the new one is whole, and not before.
///
/// # Errors
/// What `fill` says, or that the system refuses to write; nothing half written stays.
pub(super) fn install(
    models: &Path,
    key: &str,
    replaces: bool,
    fill: impl FnOnce(&Path) -> Result<Entry, Failure>,
) -> Result<Entry, Failure> {
    let refused = |error: std::io::Error| {
        Failure::new(
            Exit::Internal,
            format!("cannot write to {}: {error}", models.display()),
        )
        .hint(format!(
            "free some space there, or set {} to another folder",
            crate::settings::CACHE
        ))
    };
    fs::create_dir_all(models).map_err(refused)?;
    let beside = Beside::new(models, &format!(".{key}-")).map_err(refused)?;
    let mut entry = fill(beside.path())?;
    let text = serde_json::to_vec_pretty(&entry).or_exit(Exit::Internal)?;
    fs::write(beside.path().join(RECORD), text).map_err(refused)?;
    for file in fs::read_dir(beside.path()).map_err(refused)? {
        fs::File::open(file.map_err(refused)?.path())
            .and_then(|file| file.sync_all())
            .map_err(refused)?;
    }
    let place = models.join(key);
    if !put(models, key, beside.path(), replaces).map_err(refused)? {
        // Another process was faster; what it fetched has the same hashes.
        return open(models, key)?.ok_or_else(|| refused(std::io::ErrorKind::NotFound.into()));
    }
    entry.place = place;
    Ok(entry)
}

/// Moves a whole entry into its place; false when a whole one is there that is not to be replaced. Anything else in the
/// place, such as what is left of a removal that was cut off, goes.
fn put(models: &Path, key: &str, whole: &Path, replaces: bool) -> std::io::Result<bool> {
    let place = models.join(key);
    match fs::rename(whole, &place) {
        Ok(()) => return Ok(true),
        Err(_) if !replaces && place.join(RECORD).exists() => return Ok(false),
        Err(error) if place.symlink_metadata().is_err() => return Err(error),
        Err(_) => {}
    }
    // At no time is neither there; the old one goes with the folder in which the new one was made.
    let exchanged = || rustix::fs::renameat_with(CWD, whole, CWD, &place, RenameFlags::EXCHANGE);
    if place.is_dir() && exchanged().is_ok() {
        return Ok(true);
    }
    // Not every file system can.
    let aside = Beside::new(models, &format!(".{key}-old-"))?;
    let old = aside.path().join(key);
    fs::rename(&place, &old)?;
    if let Err(error) = fs::rename(whole, &place) {
        // The old one is better than none.
        let _ = fs::rename(&old, &place);
        return Err(error);
    }
    Ok(true)
}
