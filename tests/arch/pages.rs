//! What the pages at the root say is true: examples parse, and the maps name files that exist.

use std::fs;
use std::path::{Path, PathBuf};

use shared::job::JobFile;

const PAGES: [&str; 6] = [
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "docs",
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

/// Whole examples parse; what is not a whole file of jobs has no `[[job]]`.
#[test]
fn the_example_of_the_manual_is_a_file_of_jobs() {
    let page = read(&root().join("docs/training.md"));
    let examples = blocks(&page, "toml");
    let whole = examples.iter().filter(|text| text.contains("[[job]]"));
    let parsed: Vec<JobFile> = whole
        .map(|text| JobFile::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}")))
        .collect();
    assert!(!parsed.is_empty(), "the manual has no example");
}

/// Links between pages lead to files and headings that exist.
#[test]
fn links_lead_somewhere() {
    let mut lost = Vec::new();
    for page in [
        "README.md",
        "CHANGELOG.md",
        "docs/training.md",
        "docs/performance.md",
        "docs/output.md",
    ] {
        let text = read(&root().join(page));
        let folder = root()
            .join(page)
            .parent()
            .expect("a page lies in a folder")
            .to_path_buf();
        for link in text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            if link.starts_with("http") {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() {
                root().join(page)
            } else {
                folder.join(file)
            };
            let known = target.exists()
                && (heading.is_empty() || headings(&read(&target)).contains(&heading.to_owned()));
            if !known {
                lost.push(format!("{page}: {link}"));
            }
        }
    }
    assert!(lost.is_empty(), "{}", lost.join("\n"));
}

/// The anchors of a page's headings.
fn headings(page: &str) -> Vec<String> {
    let titles = page.lines().filter(|line| line.starts_with('#'));
    let anchor = |title: &str| -> String {
        let words = title.trim_start_matches('#').trim().to_lowercase();
        let kept = words
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    titles.map(anchor).collect()
}

#[test]
fn the_maps_name_files_that_exist() {
    let mut pages = Vec::new();
    for page in PAGES {
        let path = root().join(page);
        if path.is_dir() {
            let entries = fs::read_dir(&path).expect("docs can be read");
            let files = entries.map(|entry| entry.expect("an entry").path());
            pages.extend(files.filter(|path| path.is_file()));
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
