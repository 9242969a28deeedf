#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::Path;

use shared::actor::budget::Budget;
use shared::config::load;

use super::*;

/// Tells what was told, and does something when all are ready.
struct Seen<'a> {
    ready_when: PathBuf,
    then: Box<dyn FnMut() + 'a>,
    told: Vec<String>,
    /// Times that the coordinator does not hear.
    deaf: usize,
}

impl Seen<'_> {
    /// Sees nobody become ready.
    fn waiting(folder: &Path) -> Self {
        Self {
            ready_when: folder.join("never"),
            then: Box::new(|| {}),
            told: Vec::new(),
            deaf: 0,
        }
    }
}

impl Around for Seen<'_> {
    fn is_ready(&mut self) -> Result<bool, Failure> {
        Ok(self.ready_when.exists())
    }

    fn ask_end(&mut self) -> bool {
        self.told.push("asked".into());
        self.deaf = self.deaf.saturating_sub(1);
        self.deaf == 0
    }

    fn ready(&mut self, processes: &[(String, u32)]) {
        self.told.push(format!("{} ready", processes.len()));
        (self.then)();
    }

    fn restarted(&mut self, name: &str, times: usize, words: &str) {
        self.told.push(format!(
            "{name} again {times}: {}",
            words.lines().last().unwrap_or("")
        ));
        (self.then)();
    }
}

fn script(name: &str, text: &str) -> Member {
    Member {
        name: name.into(),
        program: "/bin/sh".into(),
        arguments: vec!["-c".into(), text.into()],
        unset: Vec::new(),
    }
}

fn state(folder: &Path) -> State {
    let path = folder.join("cluster.toml");
    fs::write(&path, "").unwrap();
    State::of(&load::load(&path, [], &[]).unwrap())
}

fn patience() -> Patience {
    Patience {
        saving: Micros::of_millis(2_000),
        end: Micros::of_millis(2_000),
        ready: Micros::of_millis(20_000),
        restarts: Budget {
            pause: Micros::of_millis(1),
            ..Patience::default().restarts
        },
    }
}

/// A script that says when it was asked to end, and ends.
fn obedient(order: &Path, name: &str) -> String {
    let order = order.display();
    format!(
        "trap 'echo {name} >> {order}; exit 0' TERM; echo started; while :; do sleep 0.05; done"
    )
}

#[test]
fn one_that_never_starts_leaves_nothing_and_its_last_words_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let state = state(folder.path());
    let watcher = state.watch().unwrap();
    let order = folder.path().join("order");
    let members = [
        script("coordinator", &obedient(&order, "coordinator")),
        script("n1", &obedient(&order, "n1")),
        script("n2", "echo 'no such model' >&2; exit 3"),
    ];
    let mut seen = Seen::waiting(folder.path());
    let interrupt = Interrupt::default();
    let failure = run(&members, &state, patience(), &interrupt, &mut seen).unwrap_err();
    let message = failure.message();
    assert!(
        message.starts_with("n2 ended before the cluster was ready: exit status: 3"),
        "{message}"
    );
    assert!(message.contains("no such model"), "{message}");
    assert!(state.living().is_empty());
    assert!(seen.told.is_empty());
    drop(watcher);
}

#[test]
fn one_whose_id_cannot_be_kept_does_not_run_beside_the_next_try() {
    let folder = tempfile::tempdir().unwrap();
    let state = state(folder.path());
    let _watcher = state.watch().unwrap();
    // A folder where its id would be written.
    fs::create_dir_all(state.id_file("coordinator").join("in the way")).unwrap();
    let pids = folder.path().join("pids");
    let text = format!(
        "echo $$ >> {}; while :; do sleep 0.05; done",
        pids.display()
    );
    let mut seen = Seen::waiting(folder.path());
    let interrupt = Interrupt::default();
    let members = [script("coordinator", &text)];
    let failure = run(&members, &state, patience(), &interrupt, &mut seen).unwrap_err();
    assert!(
        failure.message().contains("cannot write"),
        "{}",
        failure.message()
    );
    let started = fs::read_to_string(&pids).unwrap_or_default();
    for pid in started.lines() {
        let lives = Path::new("/proc").join(pid).exists();
        assert!(!lives, "{pid} was left running");
    }
}

#[test]
fn a_program_that_is_absent_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let state = state(folder.path());
    let _watcher = state.watch().unwrap();
    let mut absent = script("coordinator", "");
    absent.program = folder.path().join("absent");
    let mut seen = Seen::waiting(folder.path());
    let interrupt = Interrupt::default();
    let failure = run(&[absent], &state, patience(), &interrupt, &mut seen).unwrap_err();
    assert!(
        failure.message().contains("cannot start coordinator"),
        "{}",
        failure.message()
    );
}

#[test]
fn the_end_is_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let state = state(folder.path());
    let _watcher = state.watch().unwrap();
    let order = folder.path().join("order");
    let members = ["coordinator", "n1"].map(|name| script(name, &obedient(&order, name)));
    let interrupt = Interrupt::default();
    let logs = [state.log("coordinator"), state.log("n1")];
    let mut seen = Seen {
        ready_when: folder.path().join("cluster.toml"),
        then: Box::new(|| {
            // Whoever is asked to end must have set its trap.
            while !logs
                .iter()
                .all(|log| fs::read_to_string(log).unwrap().contains("started"))
            {
                std::thread::yield_now();
            }
            interrupt.ask();
        }),
        told: Vec::new(),
        deaf: 2,
    };
    run(&members, &state, patience(), &interrupt, &mut seen).unwrap();
    // Who did not hear is asked again.
    assert_eq!(seen.told, ["2 ready", "asked", "asked"]);
    assert_eq!(fs::read_to_string(&order).unwrap(), "n1\ncoordinator\n");
    assert!(state.living().is_empty());
}

#[test]
fn what_does_not_obey_is_ended_by_force_and_what_crashes_is_started_again() {
    let folder = tempfile::tempdir().unwrap();
    let state = state(folder.path());
    let _watcher = state.watch().unwrap();
    let mark = folder.path().join("mark");
    let second = format!(
        "if [ -e {mark} ]; then trap '' TERM; while :; do sleep 0.05; done; fi; touch {mark}; \
         while [ ! -e {go} ]; do sleep 0.02; done; echo crashed; exit 7",
        mark = mark.display(),
        go = folder.path().join("go").display()
    );
    let members = [
        script("coordinator", "trap '' TERM; while :; do sleep 0.05; done"),
        script("n1", &second),
    ];
    let interrupt = Interrupt::default();
    let go = folder.path().join("go");
    let mut seen = Seen {
        ready_when: mark.clone(),
        then: Box::new(|| {
            if go.exists() {
                interrupt.ask();
            } else {
                fs::write(&go, "").unwrap();
            }
        }),
        told: Vec::new(),
        deaf: 0,
    };
    run(&members, &state, patience(), &interrupt, &mut seen).unwrap();
    assert_eq!(seen.told, ["2 ready", "n1 again 1: crashed", "asked"]);
    assert!(state.living().is_empty());
}
