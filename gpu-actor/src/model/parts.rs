//! The files that make a model, by the names that they have in its folder: what another machine needs to open the same.

use std::fs;
use std::path::{Path, PathBuf};

use super::ModelError;
use super::locate::{Located, TEXT_LIMIT, inside, locate, names, read_text};
use super::shards::Index;

/// Ends of names of what belongs to a model beside its weights: configuration, tokenizer, templates.
const BESIDE: &[&str] = &[".json", ".jinja", ".model", ".txt"];

/// Names and places of a model's files, in the order of names.
///
/// # Errors
/// When there is no model at the path, or its index is damaged.
pub fn files(path: &Path) -> Result<Vec<(String, PathBuf)>, ModelError> {
    let mut found = Vec::new();
    let folder = match locate(path)? {
        Located::Gguf { file } => {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            // A hub cache names it by its hash, without the ending that says what it is.
            let name = match name.to_ascii_lowercase().ends_with(".gguf") {
                true => name.into_owned(),
                false => "model.gguf".to_owned(),
            };
            return Ok(vec![(name, file)]);
        }
        Located::Single { folder, weights } => {
            found.push(("model.safetensors".to_owned(), weights));
            folder
        }
        Located::Sharded { folder, index } => {
            let wrong = |source| ModelError::Index {
                path: index.clone(),
                source,
            };
            let parsed = Index::parse(&read_text(&index)?).map_err(wrong)?;
            for shard in parsed.shards() {
                found.push((shard.to_owned(), inside(&folder, shard)?));
            }
            folder
        }
    };
    for name in names(&folder)? {
        if !BESIDE.iter().any(|end| name.ends_with(end)) || name.starts_with('.') {
            continue;
        }
        let place = inside(&folder, &name)?;
        let small = fs::metadata(&place).is_ok_and(|of| of.is_file() && of.len() <= TEXT_LIMIT);
        if small {
            found.push((name, place));
        }
    }
    found.sort();
    Ok(found)
}
