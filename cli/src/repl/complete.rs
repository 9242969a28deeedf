//! What may come next in a line: verbs and flags from the tree of commands, values by their kind.

use std::fs;
use std::path::Path;

use clap::{Arg, Command};

use super::words;

/// Verbs that only a line has.
pub(crate) const OWN: &[(&str, &str)] = &[
    ("watch", "Repeats a command: watch [-n SECONDS] COMMAND"),
    ("source", "Does the lines of a file: source FILE"),
    ("help", "Shows what can be done"),
    ("exit", "Ends this"),
];

/// What a value names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    /// A job.
    Jobs,
    /// A node.
    Nodes,
}

/// One thing that may come next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Next {
    /// What is written.
    pub(crate) text: String,
    /// What it is.
    pub(crate) about: String,
    /// Where the word begins that it takes the place of.
    pub(crate) start: usize,
    /// Whether the word ends with it.
    pub(crate) ends: bool,
}

/// What may come at the end of a line; `live` tells names, each with what it is.
pub(crate) fn complete(
    line: &str,
    tree: &Command,
    live: &mut dyn FnMut(Names) -> Vec<(String, String)>,
) -> Vec<Next> {
    let (mut words, _) = words::scan(line);
    let fresh = line.is_empty() || line.ends_with(char::is_whitespace);
    let (start, text) = match words.pop() {
        Some(last) if !fresh => (last.start, last.text),
        Some(last) => {
            words.push(last);
            (line.len(), String::new())
        }
        None => (line.len(), String::new()),
    };
    let mut before: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
    if before.first() == Some(&"watch") {
        // What is repeated is a command itself.
        before.remove(0);
        if before.first() == Some(&"-n") {
            before = before.split_off(before.len().min(2));
        }
    }
    let found = if before == ["source"] {
        paths(&text)
    } else {
        candidates(&before, &text, tree, live)
    };
    let mut found: Vec<Next> = found
        .into_iter()
        .filter(|(name, _)| name.starts_with(&text))
        .map(|(text, about)| Next {
            ends: !text.ends_with('/'),
            text,
            about,
            start,
        })
        .collect();
    found.sort_by(|a, b| a.text.cmp(&b.text));
    found.dedup_by(|a, b| a.text == b.text);
    found
}

type Candidates = Vec<(String, String)>;

fn candidates(
    before: &[&str],
    text: &str,
    tree: &Command,
    live: &mut dyn FnMut(Names) -> Vec<(String, String)>,
) -> Candidates {
    let mut command = tree;
    let mut places = 0;
    let mut flag: Option<&Arg> = None;
    for word in before {
        if flag.take().is_some() {
            continue;
        }
        if let Some(inner) = command.find_subcommand(word) {
            command = inner;
        } else if word.starts_with('-') {
            flag = find_flag(command, tree, word).filter(|arg| arg.get_action().takes_values());
        } else {
            places += 1;
        }
    }
    if let Some(arg) = flag {
        return values(arg, text, live);
    }
    if text.starts_with('-') {
        return flags(command, tree);
    }
    if command.has_subcommands() {
        let verbs = command
            .get_subcommands()
            .filter(|inner| inner.get_name() != "help");
        let mut found: Candidates = verbs
            .map(|inner| (inner.get_name().to_owned(), about(inner)))
            .collect();
        if before.is_empty() {
            found.extend(
                OWN.iter()
                    .map(|(name, about)| ((*name).to_owned(), (*about).to_owned())),
            );
        }
        return found;
    }
    match command.get_positionals().nth(places) {
        Some(arg) => values(arg, text, live),
        None => flags(command, tree),
    }
}

fn about(command: &Command) -> String {
    command
        .get_about()
        .map(ToString::to_string)
        .unwrap_or_default()
}

fn find_flag<'a>(command: &'a Command, tree: &'a Command, word: &str) -> Option<&'a Arg> {
    let all = command.get_arguments().chain(tree.get_arguments());
    let mut all = all.filter(|arg| !arg.is_positional());
    match word.strip_prefix("--") {
        Some(long) => all.find(|arg| arg.get_long() == Some(long)),
        None => all.find(|arg| arg.get_short() == word.chars().nth(1)),
    }
}

fn flags(command: &Command, tree: &Command) -> Candidates {
    let all = command.get_arguments().chain(tree.get_arguments());
    all.filter_map(|arg| {
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        Some((format!("--{}", arg.get_long()?), help))
    })
    .collect()
}

fn values(
    arg: &Arg,
    text: &str,
    live: &mut dyn FnMut(Names) -> Vec<(String, String)>,
) -> Candidates {
    let possible: Candidates = arg
        .get_possible_values()
        .iter()
        .map(|value| {
            let help = value
                .get_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            (value.get_name().to_owned(), help)
        })
        .collect();
    if !possible.is_empty() {
        return possible;
    }
    let names = arg.get_value_names().unwrap_or_default();
    match names.first().map(|name| name.as_str()) {
        Some("JOB") => live(Names::Jobs),
        Some("NODE") => live(Names::Nodes),
        Some("FILE" | "DIR" | "JOBS.toml" | "JOBS.TOML" | "DATA.jsonl") => paths(text),
        _ => Vec::new(),
    }
}

/// Files and folders that begin so.
fn paths(text: &str) -> Candidates {
    let (folder, _) = text
        .rsplit_once('/')
        .map_or(("", text), |(folder, name)| (folder, name));
    let place = match (folder, text.starts_with('/')) {
        ("", true) => Path::new("/"),
        ("", false) => Path::new("."),
        (folder, _) => Path::new(folder),
    };
    let Ok(entries) = fs::read_dir(place) else {
        return Vec::new();
    };
    let lead = text.rfind('/').map_or("", |at| &text[..=at]);
    entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let folder = entry.path().is_dir();
            let hidden = name.starts_with('.') && lead.len() == text.len();
            (!hidden).then(|| {
                (
                    format!("{lead}{name}{}", if folder { "/" } else { "" }),
                    String::new(),
                )
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use clap::CommandFactory;

    use super::*;
    use crate::args::Args;

    fn texts(line: &str) -> Vec<String> {
        let mut live = |names| match names {
            Names::Jobs => vec![
                ("j3".to_owned(), "support".to_owned()),
                ("j12".into(), String::new()),
            ],
            Names::Nodes => vec![("n1".to_owned(), "alive".to_owned())],
        };
        let mut tree = Args::command();
        tree.build();
        complete(line, &tree, &mut live)
            .into_iter()
            .map(|next| next.text)
            .collect()
    }

    #[test]
    fn verbs_flags_and_live_names() {
        assert_eq!(texts("ca"), ["ca", "cancel"]);
        assert_eq!(texts("ca "), ["init", "issue", "renew", "token"]);
        assert_eq!(texts("cancel j"), ["j12", "j3"]);
        assert_eq!(texts("cancel j3 --w"), ["--wait"]);
        assert_eq!(texts("events --job "), ["j12", "j3"]);
        assert_eq!(texts("drain "), ["n1"]);
        assert_eq!(texts("migrate n1 --to n"), ["n1"]);
        assert_eq!(texts("watch -n 2 jo"), ["job", "jobs", "join"]);
        assert_eq!(texts("wa"), ["watch"]);
        assert_eq!(texts("nonsense x"), [""; 0]);
        assert!(texts("").contains(&"source".to_owned()));
        assert!(texts("jobs --").contains(&"--json".to_owned()));
        assert!(texts("adapter merge x --format ").contains(&"bf16".to_owned()));
    }

    #[test]
    fn paths_go_on() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("data")).unwrap();
        fs::write(folder.path().join("jobs.toml"), "").unwrap();
        let place = folder.path().display();
        assert_eq!(
            texts(&format!("submit {place}/j")),
            [format!("{place}/jobs.toml")]
        );
        assert_eq!(
            texts(&format!("source {place}/d")),
            [format!("{place}/data/")]
        );
    }
}
