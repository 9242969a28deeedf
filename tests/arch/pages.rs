//! What the pages at the root say is true: examples parse, and the maps name files that exist.

use std::fs;
use std::path::{Path, PathBuf};

use shared::job::JobFile;

const PAGES: [&str; 4] = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "docs/adr",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The text of each fenced block of one language.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    let parts = page.split(fence.as_str()).skip(1);
    parts
        .map(|rest| rest.split("```").next().unwrap_or_default().to_owned())
        .collect()
}

/// Words in backticks that look like a path from the root: they start with a folder of the root.
fn paths(page: &str) -> Vec<&str> {
    let tops = [
        "cli/",
        "data/",
        "docs/",
        "gpu-actor/",
        "kernels/",
        "shared/",
        "tests/",
        "xtask/",
        ".ci/",
    ];
    let words = page.split('`').skip(1).step_by(2);
    let paths = words.filter(|word| tops.iter().any(|top| word.starts_with(top)));
    paths
        .filter(|word| !word.contains(' ') && !word.contains("NAME"))
        .collect()
}

#[test]
fn the_example_of_the_readme_is_a_file_of_jobs() {
    let examples = blocks(&read(&root().join("README.md")), "toml");
    assert_eq!(examples.len(), 1);
    let file = JobFile::parse(&examples[0]).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(file.jobs.len(), 2);
}

#[test]
fn the_maps_name_files_that_exist() {
    let mut pages = Vec::new();
    for page in PAGES {
        let path = root().join(page);
        if path.is_dir() {
            let entries = fs::read_dir(&path).expect("docs/adr can be read");
            pages.extend(entries.map(|entry| entry.expect("an entry").path()));
        } else {
            pages.push(path);
        }
    }
    let mut gone = Vec::new();
    let mut seen = 0;
    for page in pages {
        for path in paths(&read(&page)) {
            seen += 1;
            if !root().join(path).exists() {
                gone.push(format!("{}: {path}", page.display()));
            }
        }
    }
    assert!(
        seen > 20,
        "only {seen} paths were seen: the reader is broken"
    );
    gone.sort();
    assert!(gone.is_empty(), "\n{}", gone.join("\n"));
}
