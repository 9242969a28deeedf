//! One line of the admin shell, done.

use std::path::Path;
use std::time::Duration;

use clap::{CommandFactory, Parser};
use data::regular;

use super::complete::OWN;
use super::words;
use crate::args::{Args, Command};
use crate::exit::{Exit, Failure};

/// Largest file of lines.
const LIMIT: u64 = 1 << 20;
/// Files that name files, at most.
const DEPTH: usize = 8;
/// Seconds between two looks, unless told otherwise.
const EVERY: f64 = 2.0;

/// What came of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// The next may come.
    Next(Exit),
    /// No more of them.
    Leave,
}

/// What lines are done with.
pub(crate) trait Hands {
    /// Runs a command, and tells what went wrong.
    fn run(&mut self, args: &Args) -> Exit;

    /// Tells what went wrong with a line.
    fn wrong(&mut self, failure: &Failure);

    /// Shows a page.
    fn page(&mut self, text: &str);

    /// Waits; false when the user wants no more.
    fn pause(&mut self, time: Duration) -> bool;

    /// Clears what is seen, before it is shown anew.
    fn clear(&mut self);
}

/// Does a line.
pub(crate) fn run(line: &str, hands: &mut dyn Hands) -> Done {
    at_depth(line, hands, 0)
}

fn at_depth(line: &str, hands: &mut dyn Hands, depth: usize) -> Done {
    let words = match words::split(line) {
        Ok(words) => words,
        Err(message) => return usage(message, hands),
    };
    // Lines copied from elsewhere begin with the program's name.
    let words = match words.split_first() {
        Some((first, rest)) if first == "spotmux" => rest,
        _ => &words[..],
    };
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        [] => Done::Next(Exit::Done),
        ["exit" | "quit"] => Done::Leave,
        ["help"] => {
            hands.page(&help());
            Done::Next(Exit::Done)
        }
        ["watch", ref rest @ ..] => watch(rest, hands),
        ["source", file] => source(Path::new(file), hands, depth),
        ["source", ..] => usage("source takes one file".into(), hands),
        _ => Done::Next(command(&words, hands).unwrap_or_else(|exit| exit)),
    }
}

fn usage(message: String, hands: &mut dyn Hands) -> Done {
    hands.wrong(&Failure::new(Exit::Usage, message));
    Done::Next(Exit::Usage)
}

/// Parses and runs; pages that were asked for are shown.
fn command(words: &[&str], hands: &mut dyn Hands) -> Result<Exit, Exit> {
    let args = parse(words, hands)?;
    Ok(hands.run(&args))
}

fn parse(words: &[&str], hands: &mut dyn Hands) -> Result<Args, Exit> {
    let args = Args::try_parse_from(std::iter::once("spotmux").chain(words.iter().copied()))
        .map_err(|error| {
            if !error.use_stderr() {
                hands.page(&error.to_string());
                return Exit::Done;
            }
            let text = error.to_string();
            let text = text.trim_end();
            let message = text.strip_prefix("error: ").unwrap_or(text);
            hands.wrong(&Failure::new(Exit::Usage, message));
            Exit::Usage
        })?;
    let refused = match &args.command {
        Command::Repl(_) => Some("this is a repl already"),
        Command::Up(up) if !up.detach => Some("up stays until the end: say up --detach here"),
        _ => None,
    };
    match refused {
        Some(message) => {
            hands.wrong(&Failure::new(Exit::Usage, message));
            Err(Exit::Usage)
        }
        None => Ok(args),
    }
}

fn watch(words: &[&str], hands: &mut dyn Hands) -> Done {
    let (every, words) = match words {
        ["-n", seconds, rest @ ..] => match seconds.parse::<f64>() {
            Ok(every) if (0.1..=3600.0).contains(&every) => (every, rest),
            _ => return usage(format!("{seconds} is not 0.1 to 3600 seconds"), hands),
        },
        rest => (EVERY, rest),
    };
    if words.is_empty() {
        return usage(
            "watch repeats a command: watch [-n SECONDS] COMMAND".into(),
            hands,
        );
    }
    let args = match parse(words, hands) {
        Ok(args) => args,
        Err(exit) => return Done::Next(exit),
    };
    loop {
        hands.clear();
        hands.page(&format!(
            "every {every} s: {}   (Ctrl-C ends it)",
            words.join(" ")
        ));
        let exit = hands.run(&args);
        if exit == Exit::Interrupted || !hands.pause(Duration::from_secs_f64(every)) {
            return Done::Next(Exit::Done);
        }
    }
}

fn source(file: &Path, hands: &mut dyn Hands, depth: usize) -> Done {
    let refused = |message: String, exit, hands: &mut dyn Hands| {
        hands.wrong(&Failure::new(exit, message));
        Done::Next(exit)
    };
    if depth >= DEPTH {
        let message = format!(
            "{}: files name files {DEPTH} deep: does one name itself?",
            file.display()
        );
        return refused(message, Exit::BadInput, hands);
    }
    let text = match regular::read_text(file, LIMIT) {
        Ok(text) => text,
        Err(error) => {
            let message = format!("cannot read {}: {error}", file.display());
            return refused(message, Exit::NotFound, hands);
        }
    };
    for (index, line) in text.lines().enumerate() {
        match at_depth(line, hands, depth + 1) {
            Done::Next(Exit::Done) => {}
            Done::Next(exit) => {
                let message = format!(
                    "{}:{}: ended here with code {}",
                    file.display(),
                    index + 1,
                    exit.code()
                );
                hands.wrong(&Failure::new(exit, message));
                return Done::Next(exit);
            }
            Done::Leave => return Done::Leave,
        }
    }
    Done::Next(Exit::Done)
}

fn help() -> String {
    let tree = Args::command();
    let own = OWN
        .iter()
        .map(|(name, about)| ((*name).to_owned(), (*about).to_owned()));
    let verbs = tree.get_subcommands().map(|inner| {
        let about = inner
            .get_about()
            .map(ToString::to_string)
            .unwrap_or_default();
        (inner.get_name().to_owned(), about)
    });
    let mut text = String::new();
    let all: Vec<(String, String)> = verbs.chain(own).collect();
    let widest = all.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, about) in all {
        text.push_str(&format!("  {name:widest$}  {about}\n"));
    }
    text.push_str("\nOf each: COMMAND --help. Tab completes; Ctrl-D ends.");
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[derive(Default)]
    struct Log {
        ran: Vec<String>,
        wrong: Vec<String>,
        pages: Vec<String>,
        pauses: usize,
    }

    impl Hands for Log {
        fn run(&mut self, args: &Args) -> Exit {
            self.ran.push(
                format!("{:?}", args.command)
                    .chars()
                    .take_while(|c| *c != '(')
                    .collect(),
            );
            if matches!(args.command, Command::Nodes(_)) {
                Exit::Unreachable
            } else {
                Exit::Done
            }
        }

        fn wrong(&mut self, failure: &Failure) {
            self.wrong.push(failure.message());
        }

        fn page(&mut self, text: &str) {
            self.pages.push(text.into());
        }

        fn pause(&mut self, _: Duration) -> bool {
            self.pauses += 1;
            self.pauses < 3
        }

        fn clear(&mut self) {}
    }

    #[test]
    fn lines_are_commands_of_the_same_tree_and_errors_do_not_leave() {
        let mut log = Log::default();
        assert_eq!(run("status", &mut log), Done::Next(Exit::Done));
        assert_eq!(
            run("spotmux jobs --all # ours", &mut log),
            Done::Next(Exit::Done)
        );
        assert_eq!(run("", &mut log), Done::Next(Exit::Done));
        assert_eq!(log.ran, ["Status", "Jobs"]);
        for line in [
            "stats",
            "jobs --al",
            "sample 'a",
            "repl",
            "up",
            "source",
            "watch",
            "watch -n x status",
        ] {
            assert_eq!(run(line, &mut log), Done::Next(Exit::Usage), "{line}");
        }
        assert_eq!(log.wrong.len(), 8, "{:?}", log.wrong);
        assert!(log.wrong[0].contains("status"), "{}", log.wrong[0]);
        assert_eq!(run("nodes", &mut log), Done::Next(Exit::Unreachable));
        assert_eq!(run("job --help", &mut log), Done::Next(Exit::Done));
        assert_eq!(run("help", &mut log), Done::Next(Exit::Done));
        assert!(log.pages.iter().any(|page| page.contains("watch")));
        for line in ["exit", "quit"] {
            assert_eq!(run(line, &mut log), Done::Leave);
        }
    }

    #[test]
    fn watch_repeats_until_the_user_has_enough() {
        let mut log = Log::default();
        assert_eq!(run("watch -n 0.5 status", &mut log), Done::Next(Exit::Done));
        assert_eq!(log.ran, ["Status"; 3]);
    }

    #[test]
    fn a_file_ends_at_its_first_failing_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        let source = format!("source {}", path.display());
        let mut log = Log::default();
        std::fs::write(&path, "# first\nstatus\nnodes\njobs\n").unwrap();
        assert_eq!(run(&source, &mut log), Done::Next(Exit::Unreachable));
        assert_eq!(log.ran, ["Status", "Nodes"]);
        assert!(
            log.wrong[0].contains("lines:3: ended here with code 7"),
            "{:?}",
            log.wrong
        );
        std::fs::write(&path, "exit\nstatus\n").unwrap();
        assert_eq!(run(&source, &mut log), Done::Leave);
        std::fs::write(&path, &source).unwrap();
        assert_eq!(run(&source, &mut log), Done::Next(Exit::BadInput));
        assert!(
            log.wrong
                .iter()
                .any(|told| told.contains("does one name itself?"))
        );
        assert_eq!(run("source /no/such", &mut log), Done::Next(Exit::NotFound));
    }
}
