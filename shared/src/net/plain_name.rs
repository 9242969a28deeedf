//! Names of files that came over the wire: plain ones only, so that none leaves its folder or hides in it.

use std::path::{Path, PathBuf};

/// Where a file of this name goes in a folder; nothing when the name is a path, or a hidden one.
pub(super) fn within(name: &str, folder: &Path) -> Option<PathBuf> {
    let plain = Path::new(name)
        .file_name()
        .is_some_and(|last| *last == *name);
    (plain && !name.starts_with('.')).then(|| folder.join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names_have_a_place() {
        let place = |name| within(name, Path::new("in"));
        assert_eq!(
            place("a.safetensors"),
            Some(PathBuf::from("in/a.safetensors"))
        );
        for name in ["", ".", "..", ".a", "../a", "/a", "a/b", "a/"] {
            assert_eq!(place(name), None, "{name}");
        }
    }
}
