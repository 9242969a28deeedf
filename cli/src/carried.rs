//! Commands that are named to a user after another: they mean the cluster that the user's own command named.

use std::borrow::Cow;

/// Before every command that is named.
const PROGRAM: &str = "spotmux ";

/// Commands that are named to users and take the file of a cluster.
const TAKERS: [&str; 25] = [
    "ca init",
    "ca issue",
    "ca renew",
    "ca token",
    "cancel",
    "config check",
    "config show",
    "doctor",
    "down",
    "drain",
    "events",
    "fetch",
    "job",
    "jobs",
    "market bill",
    "market orphans",
    "migrate",
    "nodes",
    "pause",
    "resume",
    "sample",
    "status",
    "submit",
    "trace",
    "up",
];

/// The options with which a command named its cluster, as a shell reads them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Carried(String);

impl Carried {
    /// By these words.
    pub(crate) fn new(words: &[String]) -> Self {
        Self(words.iter().map(|word| format!(" {word}")).collect())
    }

    /// A text whose commands name the cluster too, where they do not do so already.
    pub(crate) fn within<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.0.is_empty() || !text.contains(PROGRAM) {
            return Cow::Borrowed(text);
        }
        let mut parts = text.split_inclusive(PROGRAM);
        let mut carried = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            // The part ends with the next command's first word.
            let taker = TAKERS.iter().find(|taker| {
                let rest = part.strip_prefix(**taker);
                rest.is_some_and(|rest| {
                    let ends = !rest.starts_with(|c: char| c.is_alphanumeric() || c == '-');
                    ends && !rest.trim_start().starts_with("--config")
                })
            });
            let (word, rest) = part.split_at(taker.map_or(0, |taker| taker.len()));
            carried.push_str(word);
            if taker.is_some() {
                carried.push_str(&self.0);
            }
            carried.push_str(rest);
        }
        Cow::Owned(carried)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use clap::CommandFactory;

    use super::*;
    use crate::args::Args;

    #[test]
    fn every_command_that_carries_takes_the_option() {
        for taker in TAKERS {
            let mut command = &Args::command();
            for word in taker.split(' ') {
                command = command.find_subcommand(word).unwrap();
            }
            let mut options = command.get_arguments();
            let config = options.any(|option| option.get_long() == Some("config"));
            assert!(config, "{taker}");
        }
    }

    #[test]
    fn commands_that_are_named_mean_the_cluster_that_was_named() {
        let words = ["--config", "'my x/c.toml'", "--set", "plan.stages=1"];
        let carried = Carried::new(&words.map(str::to_owned));
        for (text, expected) in [
            (
                "spotmux drain n1   # if it does not come back",
                "spotmux drain WORDS n1   # if it does not come back",
            ),
            (
                "is it running? spotmux up starts one; spotmux doctor looks for more",
                "is it running? spotmux up WORDS starts one; spotmux doctor WORDS looks for more",
            ),
            ("`spotmux jobs`", "`spotmux jobs WORDS`"),
            (
                "spotmux status --config b.toml",
                "spotmux status --config b.toml",
            ),
            ("spotmux adapter inspect out", "spotmux adapter inspect out"),
            ("spotmux upset", "spotmux upset"),
            ("nothing", "nothing"),
        ] {
            assert_eq!(
                carried.within(text),
                expected.replace("WORDS", &words.join(" "))
            );
            assert_eq!(Carried::default().within(text), text);
        }
    }
}
