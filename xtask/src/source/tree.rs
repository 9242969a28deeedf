//! Reads the workspace from the disk.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::{Crate, Dependencies, Scan, Workspace};

/// Endings of the files whose length counts.
const SOURCES: [&str; 6] = ["rs", "cu", "cuh", "py", "js", "ts"];

/// Tells which file kept the workspace from being read.
#[derive(Debug)]
pub struct ReadError {
    /// The file or folder.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: String,
}

impl std::fmt::Display for ReadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.reason)
    }
}

impl std::error::Error for ReadError {}

/// Reads every member crate and every source file below `root`, committed or not.
///
/// # Errors
/// [`ReadError`] for an unreadable file, a manifest that is not TOML, or a Rust file that does not lex.
pub fn read(root: &Path) -> Result<Workspace, ReadError> {
    let manifest = read_text(&root.join("Cargo.toml"))?;
    let mut workspace = Workspace::default();
    for folder in members(&manifest).map_err(|reason| bad(&root.join("Cargo.toml"), reason))? {
        workspace.crates.push(read_crate(root, &folder)?);
    }
    workspace.crates.sort_by(|a, b| a.folder.cmp(&b.folder));
    let mut paths = Vec::new();
    walk(root, Path::new(""), &mut paths)?;
    for path in paths {
        let text = read_text(&root.join(&path))?;
        if path.ends_with(".rs") {
            let owner = workspace
                .crates
                .iter_mut()
                .find(|member| path.starts_with(&format!("{}/", member.folder)));
            if let Some(member) = owner {
                let scan = Scan::parse(&text).map_err(|error| {
                    bad(
                        &root.join(&path),
                        format!("line {}: not Rust, cargo check says more", error.line),
                    )
                })?;
                member.files.insert(path.clone(), scan);
            }
        }
        workspace.lines.insert(path, text.lines().count());
    }
    Ok(workspace)
}

fn members(manifest: &str) -> Result<Vec<String>, String> {
    let table: toml::Table = toml::from_str(manifest).map_err(|error| error.to_string())?;
    let members = table
        .get("workspace")
        .and_then(|workspace| workspace.get("members"))
        .and_then(toml::Value::as_array)
        .ok_or("has no workspace.members")?;
    members
        .iter()
        .map(|member| {
            let member = member.as_str().ok_or("a member is no text")?;
            Ok(member.to_owned())
        })
        .collect()
}

fn read_crate(root: &Path, folder: &str) -> Result<Crate, ReadError> {
    let path = root.join(folder).join("Cargo.toml");
    let text = read_text(&path)?;
    let table: toml::Table =
        toml::from_str(&text).map_err(|error| bad(&path, error.to_string()))?;
    let package = table
        .get("package")
        .and_then(|package| package.get("name"))
        .and_then(toml::Value::as_str)
        .ok_or_else(|| bad(&path, "has no package.name".into()))?;
    Ok(Crate {
        folder: folder.to_owned(),
        package: package.to_owned(),
        dependencies: Dependencies::parse(&text).map_err(|reason| bad(&path, reason))?,
        files: BTreeMap::new(),
    })
}

/// Collects source files from the root, in order, leaving out hidden folders and what builds leave behind.
fn walk(root: &Path, folder: &Path, paths: &mut Vec<String>) -> Result<(), ReadError> {
    let here = root.join(folder);
    let entries = fs::read_dir(&here).map_err(|error| bad(&here, error.to_string()))?;
    let mut names = entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<io::Result<Vec<String>>>()
        .map_err(|error| bad(&here, error.to_string()))?;
    names.sort();
    for name in names {
        let path = folder.join(&name);
        let full = root.join(&path);
        if full.is_dir() {
            let skipped = name.starts_with('.') || name == "target" || name == "node_modules";
            let foreign = full.is_symlink() || full.join("pyvenv.cfg").exists();
            if !skipped && !foreign {
                walk(root, &path, paths)?;
            }
        } else if SOURCES
            .iter()
            .any(|ending| path.extension().is_some_and(|e| e == *ending))
        {
            paths.push(path.to_string_lossy().replace('\\', "/"));
        }
    }
    Ok(())
}

fn read_text(path: &Path) -> Result<String, ReadError> {
    fs::read_to_string(path).map_err(|error| bad(path, error.to_string()))
}

fn bad(path: &Path, reason: String) -> ReadError {
    ReadError {
        path: path.to_owned(),
        reason,
    }
}
