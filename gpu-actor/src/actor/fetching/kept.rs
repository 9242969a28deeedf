//! The folder of a backbone that was fetched, and the one beside it while it is.
//!
//! - `KB-1` A folder's name is a hash over the backbone's identity and each file's name, size and hash: other files,
//!   if only another `config.json`, are another folder.
//! - `KB-2` While it is fetched it is this node's alone; nodes of one machine share it once it is whole.

use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use shared::hexadecimal;
use shared::ids::NodeName;
use shared::net::client::ClientError;
use shared::net::resume::is_there;
use shared::wire::request::{BackboneView, FileRef};
use tokio::fs;

/// Digits of the hash that name the folder.
const DIGITS: usize = 16;

/// Where a fetched backbone is kept.
#[derive(Debug)]
pub(super) struct Kept {
    /// Whole, by what it is.
    pub(super) whole: PathBuf,
    /// What this node has of it.
    pub(super) beside: PathBuf,
}

impl Kept {
    /// In a folder of backbones, for a node.
    pub(super) fn of(view: &BackboneView, node: &NodeName, folder: &Path) -> Self {
        let name = name(view);
        Self {
            beside: folder.join(format!("{name}.{node}.partial")),
            whole: folder.join(name),
        }
    }

    /// Whether it is whole, each file being what was said of it. The content hash, which is looked at later, covers the
    /// tensors alone.
    ///
    /// # Errors
    /// [`ClientError::Local`] when a file cannot be read.
    pub(super) async fn is_whole(&self, files: &[FileRef]) -> Result<bool, ClientError> {
        for file in files {
            if !is_there(file, &self.whole).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Makes the folder beside; what stands there as whole and is not becomes it, so that its sound files stay.
    ///
    /// # Errors
    /// Of the system.
    pub(super) async fn begin(&self) -> Result<(), Error> {
        if fs::try_exists(&self.whole).await? {
            if fs::try_exists(&self.beside).await? {
                fs::remove_dir_all(&self.beside).await?;
            }
            match fs::rename(&self.whole, &self.beside).await {
                // Another node of this machine took it: this one fetches all.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                outcome => return outcome,
            }
        }
        fs::create_dir_all(&self.beside).await
    }

    /// Gives the folder beside its name. Where another node of this machine was first, its folder is the one.
    ///
    /// # Errors
    /// Of the system.
    pub(super) async fn settle(&self) -> Result<(), Error> {
        match fs::rename(&self.beside, &self.whole).await {
            Err(_) if fs::try_exists(&self.whole).await.unwrap_or(false) => {
                fs::remove_dir_all(&self.beside).await
            }
            outcome => outcome,
        }
    }
}

/// By `KB-1`. Sizes stand before what they count, so no two backbones write the same stream.
fn name(view: &BackboneView) -> String {
    let mut hash = Sha256::new();
    let mut word = |word: &str| {
        hash.update((word.len() as u64).to_le_bytes());
        hash.update(word);
    };
    word(&view.identity);
    let mut files: Vec<_> = view.files.iter().collect();
    files.sort_by(|one, other| one.path.cmp(&other.path));
    for file in files {
        word(&file.path);
        word(&file.sha256);
        word(&file.bytes.0.to_string());
    }
    let digits = hexadecimal::lower(&hash.finalize());
    digits.chars().take(DIGITS).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use shared::units::Bytes;

    use super::*;

    fn file(path: &str, body: &str) -> FileRef {
        FileRef {
            path: path.into(),
            sha256: hexadecimal::lower(&Sha256::digest(body)),
            bytes: Bytes(body.len() as u64),
        }
    }

    fn view(config: &str) -> BackboneView {
        BackboneView {
            identity: "0123456789abcdef0123".into(),
            base: "a model".into(),
            files: vec![
                file("config.json", config),
                file("model.safetensors", "tensors"),
            ],
            nodes: Vec::new(),
        }
    }

    fn kept(config: &str, node: &str, folder: &Path) -> Kept {
        Kept::of(&view(config), &NodeName::new(node).unwrap(), folder)
    }

    #[test]
    fn kb_1_another_config_json_is_another_folder() {
        let folder = Path::new("backbones");
        let one = kept("{}", "n1", folder);
        assert_eq!(one.whole, kept("{}", "n2", folder).whole);
        assert_ne!(one.whole, kept("[]", "n1", folder).whole);
        let mut turned = view("{}");
        turned.files.reverse();
        assert_eq!(name(&turned), name(&view("{}")));
        turned.identity.push('0');
        assert_ne!(name(&turned), name(&view("{}")));
        turned = view("{}");
        turned.files[0].path = "tokenizer.json".into();
        assert_ne!(name(&turned), name(&view("{}")));
    }

    #[tokio::test]
    async fn kb_2_two_nodes_of_a_machine_fetch_apart_and_share_what_is_whole() {
        let root = tempfile::tempdir().unwrap();
        let both = ["n1", "n2"].map(|node| kept("{}", node, root.path()));
        for kept in &both {
            kept.begin().await.unwrap();
        }
        assert_ne!(both[0].beside, both[1].beside);
        for kept in &both {
            std::fs::write(kept.beside.join("config.json"), "{}").unwrap();
            std::fs::write(kept.beside.join("model.safetensors"), "tensors").unwrap();
        }
        for kept in &both {
            kept.settle().await.unwrap();
            assert!(kept.is_whole(&view("{}").files).await.unwrap());
        }
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 1);
    }

    #[tokio::test]
    async fn a_folder_whose_file_was_spoiled_is_not_whole_and_keeps_its_sound_files() {
        let root = tempfile::tempdir().unwrap();
        let kept = kept("{}", "n1", root.path());
        let files = view("{}").files;
        assert!(!kept.is_whole(&files).await.unwrap());
        std::fs::create_dir(&kept.whole).unwrap();
        std::fs::write(kept.whole.join("config.json"), "[]").unwrap();
        std::fs::write(kept.whole.join("model.safetensors"), "tensors").unwrap();
        assert!(!kept.is_whole(&files).await.unwrap());
        kept.begin().await.unwrap();
        assert!(!kept.whole.exists());
        assert!(kept.beside.join("model.safetensors").exists());
    }
}
