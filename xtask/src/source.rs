//! The workspace as the checks see it: each crate's manifest, each file's lines and tokens.

mod modules;
mod scan;
mod tree;

pub use modules::{ModulePath, Modules, Resolved};
pub use scan::{Child, Mention, MentionKind, Name, Scan, ScanError};
pub use tree::{ReadError, read};

use std::collections::{BTreeMap, BTreeSet};

/// Every crate of the workspace, and every source file that the size rule reads.
#[derive(Debug, Default)]
pub struct Workspace {
    /// Member crates in the order of their folders.
    pub crates: Vec<Crate>,
    /// Every source file from the root, Rust or not, with its number of lines.
    pub lines: BTreeMap<String, usize>,
}

/// One member crate.
#[derive(Debug)]
pub struct Crate {
    /// Folder from the root, such as `gpu-actor`.
    pub folder: String,
    /// Package name, such as `spotmux`.
    pub package: String,
    /// What its manifest asks for.
    pub dependencies: Dependencies,
    /// Rust files, by path from the root.
    pub files: BTreeMap<String, Scan>,
}

/// Package names a manifest asks for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Dependencies {
    /// What the code itself needs.
    pub normal: BTreeSet<String>,
    /// What only tests and build scripts need.
    pub development: BTreeSet<String>,
}

impl Dependencies {
    /// Reads the dependency tables of a manifest, those of targets included.
    ///
    /// # Errors
    /// The message of the TOML reader.
    pub fn parse(manifest: &str) -> Result<Self, String> {
        let table: toml::Table = toml::from_str(manifest).map_err(|error| error.to_string())?;
        let mut found = Self::default();
        found.collect(&table);
        if let Some(targets) = table.get("target").and_then(toml::Value::as_table) {
            for target in targets.values().filter_map(toml::Value::as_table) {
                found.collect(target);
            }
        }
        Ok(found)
    }

    fn collect(&mut self, table: &toml::Table) {
        for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let Some(entries) = table.get(section).and_then(toml::Value::as_table) else {
                continue;
            };
            let into = if section == "dependencies" {
                &mut self.normal
            } else {
                &mut self.development
            };
            for (key, value) in entries {
                let renamed = value.get("package").and_then(toml::Value::as_str);
                into.insert(renamed.unwrap_or(key).to_owned());
            }
        }
    }
}

impl Crate {
    /// The name by which Rust code knows the crate.
    #[must_use]
    pub fn ident(&self) -> String {
        self.package.replace('-', "_")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renamed_and_target_dependencies_count_by_package() {
        let manifest = r#"
            [dependencies]
            serde = "1"
            tensors = { package = "candle-core", version = "0.11" }
            [target.'cfg(unix)'.dependencies]
            nix = "0.30"
            [dev-dependencies]
            proptest = { workspace = true }
        "#;
        let found = Dependencies::parse(manifest).unwrap();
        let normal: Vec<&str> = found.normal.iter().map(String::as_str).collect();
        assert_eq!(normal, ["candle-core", "nix", "serde"]);
        assert!(found.development.contains("proptest"));
    }
}
