//! What each step of the gate does.

use std::path::Path;

use super::Outcome;
use super::tool::Tool;
use crate::finding::{Finding, failures};
use crate::source::{self, Workspace};
use crate::{layers, sizes};

/// Where the tools come from that Rust does not bring.
const INSTALL: &str =
    "install it with: python3 -m pip install --no-deps --require-hashes -r .ci/tools.txt";

pub(super) fn format(root: &Path) -> Outcome {
    Tool::new("cargo", &["fmt", "--all", "--check"]).run(root)
}

pub(super) fn layers(root: &Path) -> Outcome {
    read_and_report(root, layers::check)
}

pub(super) fn sizes(root: &Path) -> Outcome {
    read_and_report(root, sizes::check)
}

fn read_and_report(root: &Path, check: fn(&Workspace) -> Vec<Finding>) -> Outcome {
    match source::read(root) {
        Ok(workspace) => report(&check(&workspace)),
        Err(error) => Outcome::Failed(error.to_string()),
    }
}

fn report(findings: &[Finding]) -> Outcome {
    for finding in findings {
        println!("{finding}");
    }
    match failures(findings).len() {
        0 => Outcome::Passed,
        count => Outcome::Failed(format!("{count} places break a rule")),
    }
}

pub(super) fn typos(root: &Path) -> Outcome {
    if !Tool::new("typos", &["--version"]).works(root) {
        return Outcome::Missing(INSTALL.into());
    }
    Tool::new("typos", &[]).run(root)
}

pub(super) fn deny(root: &Path) -> Outcome {
    if !has_deny(root) {
        return Outcome::Missing(INSTALL.into());
    }
    let arguments = ["deny", "--locked", "check", "bans", "licenses", "sources"];
    match Tool::new("cargo", &arguments).quiet(root) {
        Ok(()) => Outcome::Passed,
        Err(output) => {
            println!("{output}");
            Outcome::Failed("cargo deny refuses a dependency, see above".into())
        }
    }
}

pub(super) fn advisories(root: &Path) -> Outcome {
    if !has_deny(root) {
        return Outcome::Missing(INSTALL.into());
    }
    let arguments = ["deny", "--locked", "check", "advisories"];
    match Tool::new("cargo", &arguments).quiet(root) {
        Ok(()) => Outcome::Passed,
        Err(output) if is_unreachable(&output) => {
            Outcome::Skipped("the advisory database cannot be reached from here".into())
        }
        Err(output) => {
            println!("{output}");
            Outcome::Failed("a dependency has an advisory, see above".into())
        }
    }
}

fn has_deny(root: &Path) -> bool {
    Tool::new("cargo", &["deny", "--version"]).works(root)
}

/// Whether cargo-deny failed for want of its database and not for what the database says.
fn is_unreachable(output: &str) -> bool {
    output.contains("failed to fetch advisory database")
}

pub(super) fn clippy(root: &Path) -> Outcome {
    let arguments = [
        "clippy",
        "--workspace",
        "--all-targets",
        "--locked",
        "--",
        "-D",
        "warnings",
    ];
    Tool::new("cargo", &arguments).run(root)
}

pub(super) fn tests(root: &Path) -> Outcome {
    if Tool::new("cargo", &["nextest", "--version"]).works(root) {
        return Tool::new("cargo", &["nextest", "run", "--workspace", "--locked"]).run(root);
    }
    let arguments = [
        "test",
        "--workspace",
        "--locked",
        "--lib",
        "--bins",
        "--tests",
        "--no-fail-fast",
    ];
    Tool::new("cargo", &arguments).run(root)
}

pub(super) fn doc_tests(root: &Path) -> Outcome {
    Tool::new("cargo", &["test", "--workspace", "--locked", "--doc"]).run(root)
}

pub(super) fn documentation(root: &Path) -> Outcome {
    let arguments = ["doc", "--workspace", "--locked", "--no-deps"];
    let strict = Tool::new("cargo", &arguments).with("RUSTDOCFLAGS", "-D warnings");
    strict.run(root)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_advisory_is_not_taken_for_a_missing_network() {
        assert!(is_unreachable(
            "[ERROR] failed to fetch advisory database https://x with cli"
        ));
        assert!(!is_unreachable("error[vulnerability]: RUSTSEC-2020-0001"));
    }

    #[test]
    fn warnings_pass_and_failures_are_counted() {
        let warning = Finding::warning("size", "a.rs", "401 lines".into());
        let failure = Finding::failure("size", "b.rs", "601 lines".into());
        assert_eq!(report(std::slice::from_ref(&warning)), Outcome::Passed);
        assert_eq!(
            report(&[warning, failure]),
            Outcome::Failed("1 places break a rule".into())
        );
    }
}
