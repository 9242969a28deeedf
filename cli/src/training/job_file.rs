//! A file of jobs on disk.

use std::path::{Path, PathBuf};

use anyhow::Context;
use data::regular;
use shared::job::JobFile;

use crate::exit::{Exit, Failure, OrExit};

/// Largest file of jobs read.
const LIMIT: u64 = 16 << 20;

/// A file of jobs, and where its paths start.
#[derive(Clone, Debug)]
pub(crate) struct Jobs {
    /// What it says.
    pub(crate) file: JobFile,
    /// The file, for messages.
    pub(crate) path: PathBuf,
    /// Folder that the paths of data and adapters are relative to.
    pub(crate) folder: PathBuf,
    /// Folder that a model's path is relative to.
    pub(crate) model_folder: PathBuf,
    /// Folder of the results.
    pub(crate) output: PathBuf,
}

impl Jobs {
    /// Reads a file of jobs.
    ///
    /// # Errors
    /// [`Exit::NotFound`] when it is absent, [`Exit::BadInput`] when it cannot be read or is wrong, with line and column.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let bytes = regular::read(path, LIMIT)
            .with_context(|| format!("cannot read the file of jobs {}", path.display()))
            .or_exit(Exit::BadInput)?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            Failure::new(
                Exit::BadInput,
                format!(
                    "{} is not UTF-8: invalid byte at offset {at}",
                    path.display()
                ),
            )
        })?;
        // Editors of some systems put a mark in front that is no part of the text.
        let file = JobFile::parse(text.trim_start_matches('\u{feff}')).map_err(|error| {
            Failure::new(
                Exit::BadInput,
                format!("{}: {}", path.display(), error.to_string().trim_end()),
            )
            .hint("a file of jobs is shown by: spotmux train --help")
        })?;
        let folder = path.parent().map(Path::to_path_buf).unwrap_or_default();
        Ok(Self {
            output: folder.join(&file.output),
            model_folder: folder.clone(),
            folder,
            path: path.to_path_buf(),
            file,
        })
    }

    /// The model as one names it from where one stands: the path that the file means, or the name of a fetched one.
    pub(crate) fn model_from_here(&self) -> String {
        let path = self.model_folder.join(&self.file.model);
        match path.exists() {
            true => path.display().to_string(),
            false => self.file.model.clone(),
        }
    }

    /// Puts a model of the command line in the place of the file's; its path starts where the command was given.
    pub(crate) fn use_model(&mut self, model: &str) {
        model.clone_into(&mut self.file.model);
        self.model_folder = PathBuf::new();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::fs;

    use super::*;

    const ONE: &str = "model = 'm'\n[[job]]\nname = 'a'\nadapter = { method = 'ia3' }\ndata = { train = 'a.jsonl' }\n";

    #[test]
    fn paths_start_at_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("jobs.toml");
        fs::write(&path, format!("\u{feff}{ONE}")).unwrap();
        let mut jobs = Jobs::read(&path).unwrap();
        assert_eq!(jobs.output, folder.path().join("adapters"));
        assert_eq!(jobs.model_folder, folder.path());
        // A name means the same everywhere, a path what lies beside the file.
        assert_eq!(jobs.model_from_here(), "m");
        fs::create_dir(folder.path().join("m")).unwrap();
        let beside = folder.path().join("m").display().to_string();
        assert_eq!(jobs.model_from_here(), beside);
        jobs.use_model("other");
        assert_eq!(
            (jobs.file.model.as_str(), jobs.model_folder),
            ("other", PathBuf::new())
        );
    }

    #[test]
    fn faults_have_their_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("jobs.toml");
        fs::write(&path, ONE.replace("ia3", "magic")).unwrap();
        let failure = Jobs::read(&path).unwrap_err();
        assert_eq!(failure.exit, Exit::BadInput);
        assert!(
            failure.message().contains("line 4"),
            "{}",
            failure.message()
        );
        fs::write(&path, b"model = '\xff'").unwrap();
        assert!(
            Jobs::read(&path)
                .unwrap_err()
                .message()
                .contains("offset 9")
        );
        assert_eq!(
            Jobs::read(&folder.path().join("no")).unwrap_err().exit,
            Exit::NotFound
        );
    }
}
