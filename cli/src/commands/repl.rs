//! `spotmux repl`: takes commands line by line, from a person or a pipe.

use std::borrow::Cow;
use std::fs::DirBuilder;
use std::io::{self, BufRead, BufReader, IsTerminal};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::time::Duration;

use reedline::{
    ColumnarMenu, DefaultHinter, Emacs, FileBackedHistory, KeyCode, KeyModifiers, MenuBuilder,
    Prompt, PromptEditMode, PromptHistorySearch, Reedline, ReedlineEvent, ReedlineMenu, Signal,
    default_emacs_keybindings,
};
use shared::config::load::Loaded;

use crate::args::{Args, ReplArgs};
use crate::cluster_file;
use crate::desk::{Asker, Terminal};
use crate::exit::{Exit, Failure};
use crate::input::{self, Input};
use crate::interrupt::Interrupt;
use crate::remark;
use crate::render::Output;
use crate::repl::line::{self, Done, Hands};
use crate::repl::live::Live;
use crate::session::Session;

/// Lines remembered.
const HISTORY: usize = 2000;
/// Name of the menu of completions.
const MENU: &str = "completions";
/// How often a pause looks whether the user has enough.
const LOOK: Duration = Duration::from_millis(100);

/// Says yes for those who said so before.
struct Agreed;

impl Asker for Agreed {
    fn agrees(&self, _: &str, _: &Interrupt) -> bool {
        true
    }
}

/// Runs the command: its code is that of the last line that failed, or was interrupted, for a pipe; 0 for a person.
pub(crate) fn run(args: &ReplArgs, outer: &Session<'_>) -> Result<Exit, Failure> {
    let cluster = outer.cluster(&args.cluster);
    let asker: &dyn Asker = if args.consent.yes { &Agreed } else { &Terminal };
    let mut hands = Lines {
        session: outer.within(asker, cluster.clone()),
        interrupt: Interrupt::listen()?,
    };
    hands.interrupt.silently();
    if !io::stdin().is_terminal() {
        return from_pipe(&mut hands);
    }
    let loaded = cluster_file::load(&cluster, outer.settings);
    if let Err(failure) = &loaded {
        crate::tell(failure, outer.output);
        remark::say("commands that need no cluster work all the same");
    }
    from_person(&mut hands, loaded.ok(), outer)
}

fn from_pipe(hands: &mut Lines<'_>) -> Result<Exit, Failure> {
    let interrupt = hands.interrupt.clone();
    let input = Input::standard(&interrupt)?;
    from_lines(BufReader::new(input), hands, &interrupt)
}

/// Does line after line. Who interrupts one ends them all: nobody is there to say whether the next are still meant.
fn from_lines(
    lines: impl BufRead,
    hands: &mut dyn Hands,
    interrupt: &Interrupt,
) -> Result<Exit, Failure> {
    let mut last = Exit::Done;
    for line in lines.lines() {
        input::ended_by_user(interrupt)?;
        match line::run(&line?, hands) {
            Done::Next(Exit::Done) => {}
            Done::Next(Exit::Interrupted) => return Ok(Exit::Interrupted),
            Done::Next(exit) => last = exit,
            Done::Leave => break,
        }
        // A line that looks until it is stopped ended as it should.
        interrupt.forget();
    }
    Ok(last)
}

fn from_person(
    hands: &mut Lines<'_>,
    loaded: Option<Loaded>,
    outer: &Session<'_>,
) -> Result<Exit, Failure> {
    let name = loaded
        .as_ref()
        .map(|loaded| loaded.config.cluster.name.to_string());
    let prompt = Name(name.unwrap_or_else(|| "spotmux".into()));
    let mut editor = editor(loaded, outer);
    outer.output.note(
        "Tab completes, help lists, Ctrl-D ends; `spotmux` in front of a command may be left out.",
    );
    Interrupt::listen()?.at_terminal();
    loop {
        match editor.read_line(&prompt) {
            Ok(Signal::Success(line)) => {
                if line::run(&line, hands) == Done::Leave {
                    return Ok(Exit::Done);
                }
                // What was meant for that line is over.
                let interrupt = Interrupt::listen()?;
                interrupt.silently();
                interrupt.at_terminal();
            }
            Ok(Signal::CtrlD) => return Ok(Exit::Done),
            Ok(_) => {}
            Err(error) => {
                return Err(Failure::new(
                    Exit::Internal,
                    format!("the terminal: {error}"),
                ));
            }
        }
    }
}

fn editor(loaded: Option<Loaded>, outer: &Session<'_>) -> Reedline {
    let mut keys = default_emacs_keybindings();
    let menu = ReedlineEvent::Menu(MENU.into());
    let tab = ReedlineEvent::UntilFound(vec![menu, ReedlineEvent::MenuNext]);
    keys.add_binding(KeyModifiers::NONE, KeyCode::Tab, tab);
    keys.add_binding(
        KeyModifiers::SHIFT,
        KeyCode::BackTab,
        ReedlineEvent::MenuPrevious,
    );
    let shown = ColumnarMenu::default().with_name(MENU);
    let mut editor = Reedline::create()
        .with_completer(Box::new(Live::new(loaded)))
        .with_menu(ReedlineMenu::EngineCompleter(Box::new(shown)))
        .with_quick_completions(true)
        .with_partial_completions(true)
        .with_hinter(Box::new(DefaultHinter::default()))
        .with_edit_mode(Box::new(Emacs::new(keys)));
    if let Some(path) = history_file(outer) {
        match FileBackedHistory::with_file(HISTORY, path) {
            Ok(history) => editor = editor.with_history(Box::new(history)),
            Err(error) => outer
                .output
                .note(format!("lines are not remembered: {error}")),
        }
    }
    editor
}

/// Beside the fetched models, for its owner only: lines name jobs and prompts.
fn history_file(outer: &Session<'_>) -> Option<PathBuf> {
    let folder = outer.settings.models.as_ref()?.parent()?;
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .ok()?;
    Some(folder.join("repl-history.txt"))
}

/// What lines are done with.
struct Lines<'a> {
    session: Session<'a>,
    interrupt: Interrupt,
}

impl Hands for Lines<'_> {
    fn run(&mut self, args: &Args) -> Exit {
        let own = Output::new(
            args.json || self.session.output.json(),
            args.quiet || !self.session.output.talks(),
        )
        .naming(args.command.cluster());
        let outcome = self
            .session
            .showing(&own, |session| session.run(&args.command));
        outcome.unwrap_or_else(|failure| {
            crate::tell(&failure, &own);
            failure.exit
        })
    }

    fn wrong(&mut self, failure: &Failure) {
        crate::tell(failure, self.session.output);
    }

    fn page(&mut self, text: &str) {
        remark::say(text.trim_end());
    }

    fn pause(&mut self, time: Duration) -> bool {
        let (_keep, silence) = channel::<()>();
        let mut left = time;
        while !left.is_zero() && !self.interrupt.asked() {
            let part = left.min(LOOK);
            // Never told: only waits.
            let _ = silence.recv_timeout(part);
            left -= part;
        }
        let enough = self.interrupt.asked();
        self.interrupt.forget();
        !enough
    }

    fn clear(&mut self) {
        if io::stdout().is_terminal() {
            // A terminal that does not obey shows one look below the other.
            let _ = console::Term::stdout().clear_screen();
        }
    }
}

/// The prompt: the cluster's name.
struct Name(String);

impl Prompt for Name {
    fn render_prompt_left(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.0)
    }

    fn render_prompt_right(&self) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn render_prompt_indicator(&self, _: PromptEditMode) -> Cow<'_, str> {
        Cow::Borrowed("> ")
    }

    fn render_prompt_multiline_indicator(&self) -> Cow<'_, str> {
        Cow::Borrowed(": ")
    }

    fn render_prompt_history_search_indicator(&self, search: PromptHistorySearch) -> Cow<'_, str> {
        Cow::Owned(format!("(search: {}) ", search.term))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::args::Command;

    /// Is interrupted by the user while it looks at jobs.
    #[derive(Default)]
    struct Stopped {
        ran: usize,
        interrupt: Interrupt,
    }

    impl Hands for Stopped {
        fn run(&mut self, args: &Args) -> Exit {
            self.ran += 1;
            match args.command {
                Command::Jobs(_) => {
                    self.interrupt.ask();
                    Exit::Interrupted
                }
                Command::Nodes(_) => Exit::Unreachable,
                _ => Exit::Done,
            }
        }

        fn wrong(&mut self, _: &Failure) {}

        fn page(&mut self, _: &str) {}

        fn pause(&mut self, _: Duration) -> bool {
            false
        }

        fn clear(&mut self) {}
    }

    #[test]
    fn lines_behind_one_that_is_interrupted_do_not_run() {
        for (lines, ran, exit) in [
            ("jobs\ncancel j1\n", 1, Exit::Interrupted),
            ("nodes\njobs\ndrain n1\n", 2, Exit::Interrupted),
            ("nodes\nstatus\n", 2, Exit::Unreachable),
            // What is looked at until it is stopped was not cut off.
            ("watch jobs\nstatus\n", 2, Exit::Done),
        ] {
            let mut hands = Stopped::default();
            let interrupt = hands.interrupt.clone();
            let ended = from_lines(lines.as_bytes(), &mut hands, &interrupt).unwrap();
            assert_eq!((ended, hands.ran), (exit, ran), "{lines}");
        }
    }
}
