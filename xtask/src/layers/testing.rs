//! A workspace made up for a test.

use std::collections::BTreeMap;

use crate::source::{Crate, Dependencies, Scan, Workspace};

/// Makes a workspace of `(folder, dependencies)` and `(path, text)`; folders double as package names.
pub(super) fn workspace(crates: &[(&str, &[&str])], files: &[(&str, &str)]) -> Workspace {
    let mut workspace = Workspace::default();
    for (folder, dependencies) in crates {
        let prefix = format!("{folder}/");
        let own = files.iter().filter(|(path, _)| path.starts_with(&prefix));
        let files: BTreeMap<String, Scan> = own
            .map(|(path, text)| {
                (
                    (*path).to_owned(),
                    Scan::parse(text).expect("test text lexes"),
                )
            })
            .collect();
        workspace.crates.push(Crate {
            folder: (*folder).to_owned(),
            package: (*folder).to_owned(),
            dependencies: Dependencies {
                normal: dependencies.iter().map(|&name| name.to_owned()).collect(),
                ..Dependencies::default()
            },
            files,
        });
    }
    workspace
}
