//! The same promises, whatever keeps the journal.

use std::path::Path;

use shared::ids::NodeName;

use super::memory::Memory;
use super::sqlite::Sqlite;
use super::*;
use crate::record::Change;

const HOUR: Micros = Micros(3_600_000_000);

fn record(number: u64) -> Record {
    Record {
        number: EventNumber(number),
        at: Micros(number * 10),
        change: Change::NodeJoined {
            node: NodeName::new("a").unwrap(),
            incarnation: number,
        },
    }
}

/// One journal, opened anew for each coordinator.
fn keeps_its_promises<J: Journal>(mut first: J, mut expire: impl FnMut(&mut J)) {
    let lease = first.take_lease("one", HOUR).unwrap();
    first.append(&lease, &[record(1), record(2)]).unwrap();

    // ST-2: while one leads, no other does.
    let led = first.take_lease("two", HOUR);
    assert!(
        matches!(&led, Err(JournalError::Led { owner, .. }) if owner == "one"),
        "{led:?}"
    );
    first.renew(&lease, HOUR).unwrap();

    // ST-3: all or nothing, without gaps.
    assert!(matches!(
        first.append(&lease, &[record(4)]),
        Err(JournalError::Gap(_))
    ));
    assert!(matches!(
        first.append(&lease, &[record(2)]),
        Err(JournalError::Gap(_))
    ));
    assert!(matches!(
        first.append(&lease, &[record(3), record(5)]),
        Err(JournalError::Gap(_))
    ));
    assert_eq!(first.load().unwrap().records.len(), 2);

    // ST-2: a lease that was seen before its renewal is not taken over.
    let seen = first.led().unwrap().unwrap();
    assert_eq!((seen.owner.as_str(), seen.term), ("one", lease.term));
    first.renew(&lease, Micros(2 * HOUR.0)).unwrap();
    let renewed = first.take_over("two", HOUR, &seen);
    assert!(
        matches!(&renewed, Err(JournalError::Led { owner, .. }) if owner == "one"),
        "{renewed:?}"
    );

    // ST-1: what expired is no less its owner's until another takes it; who was deposed writes nothing.
    expire(&mut first);
    first.renew(&lease, HOUR).unwrap();
    expire(&mut first);
    let next = first.take_lease("two", HOUR).unwrap();
    assert_eq!(next.term, lease.term.next());
    for refused in [
        first.append(&lease, &[record(3)]),
        first.renew(&lease, HOUR),
        first.give_back(&lease),
        first.snapshot(&lease, &Book::default(), u64::MAX),
    ] {
        assert!(
            matches!(refused, Err(JournalError::Deposed { .. })),
            "{refused:?}"
        );
    }
    first.append(&next, &[record(3)]).unwrap();

    // A snapshot and what follows it come to the same as all records; the history stays.
    let all = first.load().unwrap();
    let book = all.clone().book().unwrap();
    first.snapshot(&next, &book, u64::MAX).unwrap();
    first.append(&next, &[record(4)]).unwrap();
    let loaded = first.load().unwrap();
    assert_eq!(loaded.snapshot.as_ref(), Some(&book));
    assert_eq!(loaded.records, [record(4)]);
    assert_eq!(loaded.book().unwrap().last, EventNumber(4));
    assert_eq!(
        first.records(EventNumber(1), 2).unwrap(),
        [record(2), record(3)]
    );

    first.give_back(&next).unwrap();
    assert_eq!(first.led().unwrap(), None);
    assert!(first.renew(&next, HOUR).is_err(), "it was given back");
    let third = first.take_lease("three", HOUR).unwrap();
    assert_eq!(third.term, next.term.next());
    // One that is as it was seen is taken over, whatever the journal's clock says.
    let seen = first.led().unwrap().unwrap();
    assert!(seen.left > Micros(0));
    let fourth = first.take_over("four", HOUR, &seen).unwrap();
    assert_eq!(fourth.term, third.term.next());
    assert!(first.renew(&third, HOUR).is_err(), "it is fenced");
}

#[test]
fn in_memory() {
    let mut hours = 0;
    keeps_its_promises(Memory::default(), |memory| {
        hours += 3;
        memory.set_clock(Micros(hours * HOUR.0));
    });
}

fn sql(path: &Path, text: &str) {
    rusqlite::Connection::open(path)
        .unwrap()
        .execute_batch(text)
        .unwrap();
}

#[test]
fn st_5_what_a_snapshot_covers_is_forgotten_but_for_the_newest() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    let mut journal = Sqlite::open(&path).unwrap();
    let lease = journal.take_lease("one", HOUR).unwrap();
    let records: Vec<Record> = (1..=50).map(record).collect();
    journal.append(&lease, &records[..40]).unwrap();
    let book = journal.load().unwrap().book().unwrap();
    journal.append(&lease, &records[40..]).unwrap();
    // Of what follows the snapshot nothing goes, however few are kept.
    for (kept, first) in [(100, 1), (10, 31), (0, 40)] {
        journal.snapshot(&lease, &book, kept).unwrap();
        let left = journal.records(EventNumber(0), 100).unwrap();
        assert_eq!(left, records[first - 1..], "{kept} kept");
        let loaded = journal.load().unwrap();
        assert_eq!(
            (loaded.snapshot.as_ref(), loaded.records.len()),
            (Some(&book), 10)
        );
        assert_eq!(loaded.book().unwrap().last, EventNumber(50));
    }
    // Also when all are in it, the newest stays, and its number is not used again.
    let book = journal.load().unwrap().book().unwrap();
    journal.snapshot(&lease, &book, 0).unwrap();
    assert_eq!(journal.records(EventNumber(0), 100).unwrap(), records[49..]);
    assert!(journal.append(&lease, &[record(50)]).is_err());
    journal.append(&lease, &[record(51)]).unwrap();
}

#[test]
fn in_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    keeps_its_promises(Sqlite::open(&path).unwrap(), |_| {
        sql(&path, "UPDATE lease SET expires = 1");
    });
}

#[test]
fn two_coordinators_on_one_file_do_not_both_lead() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    let mut one = Sqlite::open(&path).unwrap();
    let mut two = Sqlite::open(&path).unwrap();
    let lease = one.take_lease("one", HOUR).unwrap();
    let refused = two.take_lease("two", HOUR).unwrap_err().to_string();
    assert!(
        refused.starts_with("one leads this cluster (term t1) for another"),
        "{refused}"
    );
    one.append(&lease, &[record(1)]).unwrap();
    sql(&path, "UPDATE lease SET expires = 1");
    let next = two.take_lease("two", HOUR).unwrap();
    two.append(&next, &[record(2)]).unwrap();
    assert!(matches!(
        one.append(&lease, &[record(3)]),
        Err(JournalError::Deposed { .. })
    ));
    assert_eq!(one.load().unwrap().records.len(), 2);
}

#[test]
fn jumps_of_the_wall_clock_end_no_leadership_and_shut_no_successor_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    let mut one = Sqlite::open(&path).unwrap();
    let mut two = Sqlite::open(&path).unwrap();
    let lease = one.take_lease("one", HOUR).unwrap();
    // Put forward: by the clock, the lease is over; by its owner, it is not.
    sql(&path, "UPDATE lease SET expires = 1");
    one.append(&lease, &[record(1)]).unwrap();
    let mut watch = watch::Watch::new(HOUR);
    let seen = two.led().unwrap().unwrap();
    assert_eq!(seen.left, Micros(0));
    assert!(!watch.is_free(&seen, Micros(0)), "it may be renewed yet");
    one.renew(&lease, HOUR).unwrap();
    assert!(two.take_over("two", HOUR, &seen).is_err());
    let seen = two.led().unwrap().unwrap();
    assert!(!watch.is_free(&seen, Micros(HOUR.0 / 3)));
    // Put back: it would hold for years; who watches it needs not wait for them.
    sql(&path, "UPDATE lease SET expires = 9000000000000000");
    let seen = two.led().unwrap().unwrap();
    assert!(!watch.is_free(&seen, HOUR), "it changed just now");
    assert!(watch.is_free(&seen, Micros(2 * HOUR.0)));
    let next = two.take_over("two", HOUR, &seen).unwrap();
    two.append(&next, &[record(2)]).unwrap();
    let refused = one.append(&lease, &[record(3)]).unwrap_err();
    assert!(matches!(refused, JournalError::Deposed { .. }), "{refused}");
}

#[test]
fn what_was_written_is_there_after_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    let mut one = Sqlite::open(&path).unwrap();
    let lease = one.take_lease("one", HOUR).unwrap();
    one.append(&lease, &[record(1)]).unwrap();
    // Never closed: as after a kill.
    std::mem::forget(one);
    assert_eq!(Sqlite::read(&path).unwrap().records, [record(1)]);
    assert_eq!(
        Sqlite::open(&path).unwrap().load().unwrap().records,
        [record(1)]
    );
}

#[test]
fn st_4_a_newer_journal_is_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    drop(Sqlite::open(&path).unwrap());
    sql(
        &path,
        "PRAGMA user_version = 7; PRAGMA journal_mode = DELETE;",
    );
    let before = std::fs::read(&path).unwrap();
    let refused = Sqlite::open(&path).unwrap_err();
    assert!(
        matches!(
            refused,
            JournalError::Newer {
                found: 7,
                known: 1,
                ..
            }
        ),
        "{refused}"
    );
    let read = Sqlite::read(&path).unwrap_err();
    assert!(
        matches!(read, JournalError::Newer { found: 7, .. }),
        "{read}"
    );
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn what_is_no_journal_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    std::fs::write(
        &path,
        "this is a letter, not a database, and long enough to be sure",
    )
    .unwrap();
    assert!(matches!(
        Sqlite::open(&path),
        Err(JournalError::Database { .. })
    ));
    assert!(matches!(
        Sqlite::read(&path),
        Err(JournalError::Database { .. })
    ));
}
