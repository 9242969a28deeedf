//! The record beside an adapter, `spotmux.json`: which job wrote it, and what its files must be.

use std::path::Path;

use data::regular;
use gpu_actor::durable;
use gpu_actor::peft::files::{AdapterFileError, Export};
use gpu_actor::train::identity::Identity;
use gpu_actor::train::progress::Progress;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use shared::hexadecimal;
use shared::wire::request::FileRef;

use super::place::PROVENANCE;
use crate::exit::{Exit, Failure, OrExit};
use crate::store::hash;

/// Largest record read.
const LARGEST: u64 = 1 << 20;

/// Where an adapter came from.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) spotmux: String,
    pub(crate) job: String,
    /// Of one that was fetched: the cluster, the job's id there, and the name of its submission in all logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cluster: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) trace: Option<String>,
    /// SHA-256 over all that the job's results depend on; absent where that is not known, as of one that was fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) job_sha256: Option<String>,
    pub(crate) base: String,
    /// Content hash of the backbone; absent as `job_sha256`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) base_sha256: Option<String>,
    pub(crate) data_sha256: String,
    /// Content hash of the adapter that the job started from; absent where it started from none, and as `job_sha256`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) start_sha256: Option<String>,
    pub(crate) seed: u64,
    pub(crate) step: u64,
    pub(crate) tokens: u64,
    pub(crate) first_loss: Option<f64>,
    pub(crate) last_loss: Option<f64>,
    pub(crate) first_eval: Option<f64>,
    pub(crate) last_eval: Option<f64>,
    /// The files beside it that make the adapter.
    pub(crate) files: Vec<FileRecord>,
}

/// A file and what it must be.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub(crate) struct FileRecord {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
}

impl FileRecord {
    /// The record of a file that was fetched and checked.
    pub(crate) fn of_fetched(file: &FileRef) -> Self {
        Self {
            name: file.path.clone(),
            bytes: file.bytes.0,
            sha256: file.sha256.clone(),
        }
    }

    /// The record of these bytes.
    pub(super) fn of(name: &str, bytes: &[u8]) -> Self {
        Self {
            name: name.to_owned(),
            bytes: bytes.len() as u64,
            sha256: hexadecimal::lower(&Sha256::digest(bytes)),
        }
    }
}

impl Record {
    /// That of a run of this process.
    pub(crate) fn of_run(
        identity: &Identity,
        progress: &Progress,
        base: &str,
        files: Vec<FileRecord>,
    ) -> Self {
        Self {
            spotmux: env!("CARGO_PKG_VERSION").into(),
            job: identity.spec.name.to_string(),
            cluster: None,
            id: None,
            trace: None,
            job_sha256: Some(identity.hash()),
            base: base.into(),
            base_sha256: Some(identity.backbone.clone()),
            data_sha256: identity.data.clone(),
            start_sha256: identity.start.clone(),
            seed: identity.spec.seed,
            step: progress.step,
            tokens: progress.tokens,
            first_loss: progress.first_loss,
            last_loss: progress.last_loss,
            first_eval: progress.first_eval,
            last_eval: progress.last_eval,
            files,
        }
    }

    /// As it is written.
    ///
    /// # Errors
    /// Never: it has a JSON form.
    pub(crate) fn bytes(&self) -> Result<Vec<u8>, Failure> {
        serde_json::to_vec_pretty(self).or_exit(Exit::Internal)
    }

    /// The record of an adapter folder; none where there is none of this version.
    ///
    /// # Errors
    /// What is wrong with one that is torn, or cannot be read.
    pub(super) fn read(adapter: &Path) -> Result<Option<Self>, String> {
        let Some(text) = text_in(adapter)? else {
            return Ok(None);
        };
        let value: Value = serde_json::from_str(&text).map_err(torn)?;
        Ok(serde_json::from_value(value).ok())
    }

    /// What is wrong with the files, if anything is.
    pub(super) fn damage(&self, adapter: &Path) -> Option<String> {
        damage(&self.files, adapter)
    }

    /// How far the job was.
    pub(crate) fn progress(&self) -> Progress {
        Progress {
            step: self.step,
            tokens: self.tokens,
            first_loss: self.first_loss,
            last_loss: self.last_loss,
            first_eval: self.first_eval,
            last_eval: self.last_eval,
            ..Progress::default()
        }
    }
}

/// The text of the record in an adapter folder, if there is one.
fn text_in(adapter: &Path) -> Result<Option<String>, String> {
    match regular::read_text(&adapter.join(PROVENANCE), LARGEST) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{PROVENANCE}: {error}")),
    }
}

/// What is wrong with a record that is no JSON of the form it should have.
fn torn(error: serde_json::Error) -> String {
    format!("{PROVENANCE}: {error}")
}

/// What of a record its files are held against, whatever version it is of; one that does not speak of files says nothing of them.
#[derive(Deserialize)]
struct Files {
    #[serde(default)]
    files: Option<Vec<FileRecord>>,
}

/// What is wrong in an adapter folder by the record in it; nothing where there is none.
pub(super) fn damage_in(adapter: &Path) -> Option<String> {
    let text = match text_in(adapter) {
        Ok(text) => text?,
        Err(damage) => return Some(damage),
    };
    match serde_json::from_str::<Files>(&text) {
        Ok(Files { files }) => damage(&files?, adapter),
        Err(error) => Some(torn(error)),
    }
}

fn damage(files: &[FileRecord], adapter: &Path) -> Option<String> {
    if files.is_empty() {
        return Some(format!("{PROVENANCE} lists no files"));
    }
    files.iter().find_map(|file| {
        let name = &file.name;
        if Path::new(name).components().count() != 1 || name == ".." {
            return Some(format!("{PROVENANCE} names {name:?}"));
        }
        let path = adapter.join(name);
        let length = regular::open(&path).and_then(|file| Ok(file.metadata()?.len()));
        // Of another length it need not be read.
        let found = match length {
            Ok(length) if length == file.bytes => hash::file(&path),
            Ok(length) => Ok((length, String::new())),
            Err(error) => Err(error),
        };
        match found {
            Err(error) => Some(format!("{name}: {error}")),
            Ok((bytes, sha256)) if bytes != file.bytes || sha256 != file.sha256 => {
                Some(format!("{name} is not as it was written"))
            }
            Ok(_) => None,
        }
    })
}

/// Writes an adapter with the record that goes with its files, if there is one; refuses to replace a folder that is there.
///
/// # Errors
/// [`Exit::BadInput`] when the folder exists, [`Exit::Internal`] when the disk refuses; nothing half written stays.
pub(crate) fn write(
    folder: &Path,
    export: &Export<'_>,
    record: impl FnOnce(Vec<FileRecord>) -> Result<Option<Vec<u8>>, Failure>,
) -> Result<(), Failure> {
    let mut files: Vec<(&str, Vec<u8>)> = export.files().into();
    let own = files
        .iter()
        .map(|(name, bytes)| FileRecord::of(name, bytes));
    let record = record(own.collect())?;
    files.extend(record.map(|record| (PROVENANCE, record)));
    durable::write_folder(folder, &files)
        .map_err(AdapterFileError::from)
        .or_exit(Exit::BadInput)
}

/// The content hash of the backbone that the adapter in a folder was made for, where a record has it.
pub(crate) fn base_sha256(adapter: &Path) -> Option<String> {
    let text = text_in(adapter).ok()??;
    let record: Value = serde_json::from_str(&text).ok()?;
    record.get("base_sha256")?.as_str().map(str::to_owned)
}

/// The record of an adapter that is written anew for a backbone, by its name and content hash: all that it says stays, of
/// whatever version it is, but what its files and its backbone are. None where there is no record.
pub(crate) fn carried(
    adapter: &Path,
    files: &[FileRecord],
    base: &str,
    base_sha256: impl FnOnce() -> String,
) -> Result<Option<Vec<u8>>, Failure> {
    let Ok(text) = regular::read_text(&adapter.join(PROVENANCE), LARGEST) else {
        return Ok(None);
    };
    let Ok(Value::Object(mut record)) = serde_json::from_str::<Value>(&text) else {
        return Ok(None);
    };
    record.insert(
        "files".into(),
        serde_json::to_value(files).or_exit(Exit::Internal)?,
    );
    record.insert("base".into(), base.into());
    record.insert("base_sha256".into(), base_sha256().into());
    let bytes = serde_json::to_vec_pretty(&record).or_exit(Exit::Internal)?;
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::fs;

    use super::*;

    #[test]
    fn a_torn_record_is_not_an_absent_one() {
        let folder = tempfile::tempdir().unwrap();
        let adapter = folder.path();
        assert!(matches!(Record::read(adapter), Ok(None)));
        assert_eq!(damage_in(adapter), None);
        let place = adapter.join(PROVENANCE);
        for text in [&b"{\"files\": [{\"na"[..], b"", b"\xff"] {
            fs::write(&place, text).unwrap();
            let damage = Record::read(adapter).unwrap_err();
            assert!(damage.starts_with("spotmux.json: "), "{damage}");
            assert_eq!(damage_in(adapter), Some(damage));
        }
        fs::write(&place, r#"{"newer": 1}"#).unwrap();
        assert_eq!(damage_in(adapter), None, "it says nothing of files");
        fs::write(&place, r#"{"newer": 1, "files": []}"#).unwrap();
        assert!(damage_in(adapter).is_some());
        let file = FileRecord::of("weights", b"w");
        let text = serde_json::json!({"newer": 1, "files": [file]}).to_string();
        fs::write(&place, text).unwrap();
        assert!(
            matches!(Record::read(adapter), Ok(None)),
            "of another version"
        );
        assert!(damage_in(adapter).unwrap().starts_with("weights: "));
        for (bytes, sound) in [(b"w", true), (b"v", false)] {
            fs::write(adapter.join("weights"), bytes).unwrap();
            assert_eq!(damage_in(adapter).is_none(), sound);
        }
        // However long it is: of another length nothing of it is read.
        let long = fs::File::create(adapter.join("weights")).unwrap();
        long.set_len(1 << 40).unwrap();
        let damage = damage_in(adapter).unwrap();
        assert_eq!(damage, "weights is not as it was written");
    }

    #[test]
    fn a_record_is_carried_with_what_its_files_are_now() {
        let folder = tempfile::tempdir().unwrap();
        let files = [FileRecord::of("a", b"new")];
        let carried = |adapter| carried(adapter, &files, "c/d", || "ef56".to_owned());
        assert_eq!(carried(folder.path()).unwrap(), None, "there is none");
        let place = folder.path().join(PROVENANCE);
        fs::write(
            &place,
            r#"{"job":"support","step":9,"newer":[1],"files":[],"base":"a/b","base_sha256":"ab12"}"#,
        )
        .unwrap();
        assert_eq!(base_sha256(folder.path()).as_deref(), Some("ab12"));
        let bytes = carried(folder.path()).unwrap().unwrap();
        let record: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(
            (&record["job"], &record["step"]),
            (&"support".into(), &9.into())
        );
        assert_eq!(record["newer"][0], 1, "what is not understood stays");
        // It is one for another backbone now.
        assert_eq!(
            (&record["base"], &record["base_sha256"]),
            (&"c/d".into(), &"ef56".into())
        );
        assert_eq!(record["files"][0]["sha256"], files[0].sha256.as_str());
        fs::write(&place, "{").unwrap();
        assert_eq!(carried(folder.path()).unwrap(), None, "it is none");
    }
}
