//! A remedy that names a setting names one that there is.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use shared::config::keys::KEYS;

/// Sections of keys whose names are no words of other things; two that were never sections are among them, as remedies named
/// them once.
const SECTIONS: [&str; 9] = [
    "artifact",
    "coordinator",
    "gpu_actor",
    "limits",
    "net",
    "plan",
    "security",
    "store",
    "telemetry",
];

/// Ends of names of files, which follow the same words.
const FILES: [&str; 4] = ["json", "jsonl", "pem", "toml"];

/// Names of settings in a text.
fn named(text: &str) -> BTreeSet<String> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = BTreeSet::new();
    for word in text.split(|c: char| !is_word(c) && c != '.' && c != '/') {
        let mut parts = word.split('.');
        let (Some(section), Some(key)) = (parts.next(), parts.next()) else {
            continue;
        };
        let is_key = !key.is_empty() && key.starts_with(|c: char| c.is_ascii_lowercase());
        if SECTIONS.contains(&section) && is_key && !FILES.contains(&key) {
            found.insert(format!("{section}.{key}"));
        }
    }
    found
}

/// What stands in quotation marks in a source, up to its tests.
fn quoted(source: &str) -> Vec<String> {
    let own = source.split("\n#[cfg(test)]").next().unwrap_or(source);
    let lines = own
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    let plain: Vec<&str> = lines.collect();
    // Quotation marks that begin or end nothing.
    let plain = plain.join("\n").replace("\\\"", "").replace("'\"'", "");
    plain
        .split('"')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().and_then(|name| name.to_str());
        if name == Some("tests") {
            continue;
        }
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn remedies_name_settings_that_there_are() {
    let known: BTreeSet<&str> = KEYS.iter().map(|key| key.path).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for member in ["coordinator", "gpu-actor", "market-actor", "shared"] {
        sources(&root.join(member).join("src"), &mut files);
    }
    let (mut seen, mut wrong) = (BTreeSet::new(), Vec::new());
    for file in files {
        let source = fs::read_to_string(&file).expect("a source");
        for key in quoted(&source).iter().flat_map(|text| named(text)) {
            if !known.contains(key.as_str()) {
                wrong.push(format!("{}: {key} is no setting", file.display()));
            }
            seen.insert(key);
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    for key in [
        "limits.frame_mib",
        "limits.jobs",
        "coordinator.lease_seconds",
    ] {
        assert!(
            seen.contains(key),
            "{key} is named somewhere: the search finds nothing"
        );
    }
}

#[test]
fn a_name_that_is_no_setting_is_found() {
    let told = named(
        "over `limits.live_jobs`: net.bind moves it, or (plan.stages), not cluster/plan.json",
    );
    let told: Vec<&str> = told.iter().map(String::as_str).collect();
    assert_eq!(told, ["limits.live_jobs", "net.bind", "plan.stages"]);
    let source = "/// \"net.x\"\nlet a = \"limits.jobs \\\n  net.z\";\n#[cfg(test)]\n\"net.y\"";
    let found: BTreeSet<String> = quoted(source).iter().flat_map(|text| named(text)).collect();
    let wanted = ["limits.jobs", "net.z"].map(str::to_owned);
    assert_eq!(found, BTreeSet::from(wanted));
}
