//! Entries that are whole, changed, in the way or half gone.
#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

fn fill(folder: &Path) -> Result<Entry, Failure> {
    fs::write(folder.join("m.gguf"), b"weights").unwrap();
    let (bytes, sha256) = hash::file(&folder.join("m.gguf")).unwrap();
    let file = FileRecord {
        name: "m.gguf".into(),
        bytes,
        sha256,
    };
    Ok(Entry::of_file("m", "a test".into(), "MIT", file))
}

#[test]
fn an_entry_is_whole_or_absent() {
    let models = tempfile::tempdir().unwrap();
    let failed = install(models.path(), "m", false, |folder| {
        fs::write(folder.join("half"), b"x").unwrap();
        Err(Failure::new(Exit::NotFound, "no network"))
    });
    assert_eq!(failed.unwrap_err().exit, Exit::NotFound);
    assert_eq!(fs::read_dir(models.path()).unwrap().count(), 0);
    let entry = install(models.path(), "m", false, fill).unwrap();
    assert_eq!(entry.model(), models.path().join("m/m.gguf"));
    let again = open(models.path(), "m").unwrap().unwrap();
    again.verify().unwrap();
    assert_eq!(fs::read_dir(models.path()).unwrap().count(), 1);
}

#[test]
fn an_entry_stays_until_another_is_whole() {
    let models = tempfile::tempdir().unwrap();
    let names = || fs::read_dir(models.path()).unwrap().count();
    let first = install(models.path(), "m", false, fill).unwrap();
    let failed = install(models.path(), "m", true, |_| {
        Err(Failure::new(Exit::NotFound, "no network"))
    });
    assert_eq!(failed.unwrap_err().exit, Exit::NotFound);
    first.verify().unwrap();
    let other = |folder: &Path| {
        let mut entry = fill(folder)?;
        entry.source = "another".into();
        Ok(entry)
    };
    // One that came meanwhile is taken as it is; one that is replaced goes.
    install(models.path(), "m", false, other).unwrap();
    let source = || open(models.path(), "m").unwrap().unwrap().source;
    assert_eq!((source().as_str(), names()), ("a test", 1));
    install(models.path(), "m", true, other).unwrap();
    assert_eq!((source().as_str(), names()), ("another", 1));
}

/// Whoever is killed at any time of it leaves one of them: no moment has neither in its place.
#[test]
fn an_entry_and_the_one_that_replaces_it_change_places_at_once() {
    let models = tempfile::tempdir().unwrap();
    install(models.path(), "m", false, fill).unwrap();
    let whole = models.path().join(".m-new");
    fs::create_dir(&whole).unwrap();
    fs::write(whole.join(RECORD), b"new").unwrap();
    assert!(put(models.path(), "m", &whole, true).unwrap());
    let record = |folder: &Path| fs::read(folder.join(RECORD)).unwrap();
    assert_eq!(record(&models.path().join("m")), b"new");
    assert!(
        record(&whole).starts_with(b"{"),
        "the old one is where the new one was"
    );
}

#[test]
fn what_a_removal_left_is_no_entry_and_in_nobodys_way() {
    let models = tempfile::tempdir().unwrap();
    fs::create_dir(models.path().join("m")).unwrap();
    fs::write(models.path().join("m/rest"), b"x").unwrap();
    assert!(open(models.path(), "m").unwrap().is_none());
    install(models.path(), "m", false, fill)
        .unwrap()
        .verify()
        .unwrap();
    assert!(!models.path().join("m/rest").exists());
    assert_eq!(fs::read_dir(models.path()).unwrap().count(), 1);
}

#[test]
fn a_file_that_cannot_be_read_may_be_sound() {
    let models = tempfile::tempdir().unwrap();
    let entry = install(models.path(), "m", false, fill).unwrap();
    fs::remove_file(entry.model()).unwrap();
    assert!(matches!(entry.fault(), Some(Fault::Changed(_))));
    std::os::unix::fs::symlink("m.gguf", entry.model()).unwrap();
    let Some(Fault::Unreadable(failure)) = entry.fault() else {
        panic!("it may be sound");
    };
    let remedy = failure.hints.join("");
    let place = models.path().join("m").display().to_string();
    assert!(
        remedy.contains("make it readable") && remedy.contains(&place),
        "{remedy}"
    );
}

#[test]
fn a_changed_file_is_noticed() {
    let models = tempfile::tempdir().unwrap();
    let entry = install(models.path(), "m", false, fill).unwrap();
    fs::write(entry.model(), b"weightz").unwrap();
    let failure = entry.verify_on_use().unwrap_err();
    assert_eq!(failure.exit, Exit::BadInput);
    assert!(
        failure.message().contains("was changed"),
        "{}",
        failure.message()
    );
    fs::write(entry.model(), b"w").unwrap();
    assert!(
        entry
            .verify()
            .unwrap_err()
            .message()
            .contains("has 1 bytes, 7 were fetched")
    );
}

#[test]
fn a_damaged_record_is_an_error_with_a_remedy() {
    let models = tempfile::tempdir().unwrap();
    let entry = install(models.path(), "m", false, fill).unwrap();
    fs::write(entry.place.join(RECORD), b"{").unwrap();
    let failure = open(models.path(), "m").unwrap_err();
    assert_eq!((failure.exit, failure.hints.len()), (Exit::BadInput, 1));
}
