//! Machines that are processes of the test.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use super::*;
use crate::provider::Kind;

fn local(folder: &Path, start: &[&str]) -> Local {
    let launch = Launch {
        program: "/bin/sh".into(),
        prepare: vec!["-c".into(), "test {name} != bad".into()],
        start: start.iter().map(ToString::to_string).collect(),
        machines: folder.join("machines"),
        processes: folder.join("run"),
        logs: folder.join("logs"),
        made: Some(folder.join("node-{name}.pem")),
        kept_logs: 2,
    };
    let stock = Stock {
        most: 2,
        spot_price: MicroUsd(1),
        on_demand_price: MicroUsd(2),
        notice: Micros(0),
    };
    Local::new(launch, stock).unwrap()
}

fn want(token: &str) -> Want {
    Want {
        token: NodeName::new(token).unwrap(),
        pool: pool(),
        kind: Kind::Spot,
    }
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(future)
}

/// Lists until so many machines are shown.
async fn until(local: &mut Local, count: usize) {
    for _ in 0..1_000_000 {
        if local.list().await.unwrap().len() == count {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("never {count} machines: {:?}", local.list().await);
}

async fn until_there(path: &Path) {
    while !path.exists() {
        tokio::task::yield_now().await;
    }
}

#[test]
fn a_machine_is_a_process_that_is_started_once_and_ended() {
    let folder = tempfile::tempdir().unwrap();
    run(async {
        let mut local = local(folder.path(), &["-c", "exec sleep 600"]);
        let first = local.acquire(&want("a")).await.unwrap();
        assert_eq!(local.acquire(&want("a")).await.unwrap(), first);
        assert_eq!(local.list().await.unwrap(), [first]);
        local.acquire(&want("b")).await.unwrap();
        let full = local.acquire(&want("c")).await.unwrap_err();
        assert!(full.is_certain(), "{full}");
        local.release("a").await.unwrap();
        until(&mut local, 1).await;
        local.release("a").await.unwrap();
        local.release("b").await.unwrap();
        until(&mut local, 0).await;
    });
}

#[test]
fn one_that_comes_back_finds_its_machines_also_those_it_had_no_time_to_note() {
    let folder = tempfile::tempdir().unwrap();
    run(async {
        let mut before = local(folder.path(), &["-c", "exec sleep 600"]);
        before.acquire(&want("a")).await.unwrap();
        before.acquire(&want("b")).await.unwrap();
        // As if it had ended between the start and the note.
        let lost = Kept {
            want: want("b"),
            process: None,
            found: false,
        };
        before.shelf.keep(&lost).unwrap();
        let mut after = local(folder.path(), &["-c", "exec sleep 600"]);
        let shown = after.list().await.unwrap();
        assert_eq!(shown.len(), 2, "{shown:?}");
        for id in ["a", "b"] {
            after.take_away(id);
        }
        // The one that started them waits for them.
        until(&mut before, 0).await;
        until(&mut after, 0).await;
    });
}

#[test]
fn a_machine_of_another_cluster_is_not_taken_for_one_of_the_same_name() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    run(async {
        let [mut one, mut other] = folders
            .each_ref()
            .map(|folder| local(folder.path(), &["-c", "exec sleep 600"]));
        one.acquire(&want("a")).await.unwrap();
        // As if it had ended before its start.
        let lost = Kept {
            want: want("a"),
            process: None,
            found: false,
        };
        other.shelf.keep(&lost).unwrap();
        assert_eq!(other.list().await.unwrap(), []);
        assert_eq!(one.list().await.unwrap().len(), 1);
        one.take_away("a");
        until(&mut one, 0).await;
    });
}

#[test]
fn one_that_does_not_listen_is_ended_when_it_is_asked_again() {
    let folder = tempfile::tempdir().unwrap();
    run(async {
        let deaf = folder.path().join("deaf");
        let stubborn = "trap '' TERM; : > \"$0\"; while :; do sleep 600 & wait; done";
        let mut local = local(folder.path(), &["-c", stubborn, deaf.to_str().unwrap()]);
        local.acquire(&want("a")).await.unwrap();
        // A shell that is asked to end before it has set its trap ends.
        until_there(&deaf).await;
        local.release("a").await.unwrap();
        let shown = local.list().await.unwrap();
        assert_eq!(shown.len(), 1);
        assert_eq!(shown[0].state, MachineState::Ending);
        local.release("a").await.unwrap();
        until(&mut local, 0).await;
    });
}

#[test]
fn of_a_machine_that_is_gone_a_log_stays_while_it_is_among_the_newest() {
    let folder = tempfile::tempdir().unwrap();
    let names = |of: &str| {
        let entries = fs::read_dir(folder.path().join(of)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| !name.ends_with(".gone")).collect();
        names.sort();
        names
    };
    run(async {
        let mut local = local(folder.path(), &["-c", "exec sleep 600"]);
        // Of a node that is no machine of these.
        fs::write(folder.path().join("logs/n1.log"), "mine").unwrap();
        for token in ["a", "b", "c", "d"] {
            // As what is run first makes it.
            let made = folder.path().join(format!("node-{token}.pem"));
            fs::write(&made, "key").unwrap();
            local.acquire(&want(token)).await.unwrap();
            assert!(made.exists(), "{token}");
            local.take_away(token);
            until(&mut local, 0).await;
            assert!(!made.exists(), "{token}");
        }
        assert_eq!(names("logs"), ["c.log", "d.log", "n1.log"]);
        assert_eq!(names("machines"), [""; 0]);
        assert_eq!(names("run"), [""; 0]);
    });
}

#[test]
fn what_cannot_be_prepared_is_not_started() {
    let folder = tempfile::tempdir().unwrap();
    run(async {
        let mut local = local(folder.path(), &["-c", "exec sleep 600"]);
        assert!(local.acquire(&want("bad")).await.is_err());
        assert_eq!(local.list().await.unwrap(), []);
    });
}

/// All files under a folder, with what is in them.
fn everything(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(everything(&path));
        } else {
            found.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
    found
}

#[test]
fn who_only_looks_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    run(async {
        let mut local = local(folder.path(), &["-c", "exec sleep 600"]);
        local.acquire(&want("a")).await.unwrap();
        // One that died, and one whose number was not noted.
        for token in ["b", "c"] {
            let kept = Kept {
                want: want(token),
                process: None,
                found: false,
            };
            local.shelf.keep(&kept).unwrap();
        }
        let before = everything(folder.path());
        let seen = look(&local.launch).unwrap();
        assert_eq!(seen.len(), 1);
        assert_eq!(everything(folder.path()), before);
        local.take_away("a");
        until(&mut local, 0).await;
        let absent = Launch {
            machines: folder.path().join("nowhere"),
            ..local.launch.clone()
        };
        assert_eq!(look(&absent).unwrap(), []);
        assert!(!absent.machines.exists());
    });
}

#[test]
fn what_was_made_in_a_folder_of_the_machine_goes_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let made = |token: &str| folder.path().join(token).join("key.pem");
    let shelf = Shelf {
        machines: folder.path().join("machines"),
        processes: folder.path().join("run"),
        logs: folder.path().join("logs"),
        made: Some(made("{name}")),
        kept_logs: 2,
    };
    for token in ["m-1", "m-2"] {
        fs::create_dir_all(folder.path().join(token)).unwrap();
        fs::write(made(token), "key").unwrap();
    }
    shelf.forget(&NodeName::new("m-1").unwrap());
    assert!(!made("m-1").exists() && made("m-2").exists());
}
