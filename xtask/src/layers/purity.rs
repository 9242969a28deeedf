//! Pure folders name no clock, no environment, no file, no network, no process, and do not print.

use super::table::{IMPURE, IMPURE_MACROS, PURE, PURE_ALL_THE_SAME, SHELL, lies_in};
use crate::finding::Finding;
use crate::source::{Mention, MentionKind, Modules, Resolved, Workspace};

pub(super) fn check(workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    for member in &workspace.crates {
        let modules = Modules::of(member);
        for (module, path, scan) in modules.files() {
            if !is_pure(path) || modules.is_test(module) {
                continue;
            }
            for mention in scan.mentions.iter().filter(|mention| !mention.test) {
                // A module of ours called `config` is not the crate `config`.
                let local = modules.resolve(module, mention) != Resolved::Elsewhere;
                if let Some(advice) = impure(mention).filter(|_| !local) {
                    findings.push(Finding::failure(
                        "pure",
                        format!("{path}:{}", mention.line),
                        format!("pure code names {}: {advice}", mention.path.join("::")),
                    ));
                }
            }
        }
    }
    findings
}

fn is_pure(path: &str) -> bool {
    PURE.iter().any(|place| lies_in(path, place))
        && !SHELL.iter().any(|(place, _)| lies_in(path, place))
}

fn impure(mention: &Mention) -> Option<&'static str> {
    let last = mention.path.last()?;
    if mention.kind == MentionKind::Macro && IMPURE_MACROS.contains(&last.as_str()) {
        return Some("return the text, and print it in the shell");
    }
    let starts_with = |prefix: &str| {
        let mut segments = mention.path.iter();
        prefix.split("::").all(|word| match segments.next() {
            Some(segment) => segment == word || (word == "std" && segment == "core"),
            None => false,
        })
    };
    // A single word is a macro call: `config!` is not the crate `config`.
    if mention.path.len() < 2 && mention.kind == MentionKind::Macro
        || PURE_ALL_THE_SAME.iter().any(|path| starts_with(path))
    {
        return None;
    }
    let rule = IMPURE.iter().find(|(prefix, _)| starts_with(prefix))?;
    Some(rule.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::testing::workspace;

    fn places(text: &str) -> Vec<String> {
        let workspace = workspace(&[("shared", &[])], &[("shared/src/lib.rs", text)]);
        check(&workspace).into_iter().map(|f| f.place).collect()
    }

    #[test]
    fn clocks_files_networks_and_printing_are_found() {
        let text = "use std::{fs, time::Duration};
            use std::time::Instant;
            fn f() { core::time::x(); tokio::spawn(g); println!(); std::io::stdout(); }
            use std::io::Read;";
        let lines: Vec<String> = [1, 2, 3, 3, 3, 3]
            .iter()
            .map(|line| format!("shared/src/lib.rs:{line}"))
            .collect();
        assert_eq!(places(text), lines);
    }

    #[test]
    fn tests_may_touch_the_world_and_a_module_called_config_is_no_crate() {
        let text = "mod config;
            use config::Limits;
            use crate::tokio;
            fn f() { tokio::spawn() }
            #[cfg(test)]
            mod tests { use std::fs; }";
        let files = [
            ("shared/src/lib.rs", text),
            ("shared/src/config.rs", ""),
            ("shared/src/tokio.rs", ""),
        ];
        assert_eq!(check(&workspace(&[("shared", &[])], &files)), []);
    }

    #[test]
    fn shell_folders_are_not_read() {
        let workspace = workspace(&[("cli", &[])], &[("cli/src/main.rs", "use std::fs;")]);
        assert_eq!(check(&workspace), []);
    }
}
