//! Whether disks have room for what a cluster writes.

use std::path::Path;

use shared::config::load::Loaded;
use shared::units::Bytes;

use super::Check;
use super::store::{self, nearest};

/// With less it will not go well for long.
const LITTLE: u64 = 2 << 30;
/// With less the next state or record may not be written.
const NONE: u64 = 64 << 20;

/// A check for each disk that something is written to.
pub(super) fn check(loaded: &Loaded) -> Vec<Check> {
    let config = &loaded.config;
    let mut places = vec![
        ("cluster.state", loaded.path_of(&config.cluster.state)),
        (
            "coordinator.journal",
            loaded.path_of(&config.coordinator.journal),
        ),
    ];
    if let Some(folder) = store::folder(loaded) {
        places.push(("store.url", folder));
    }
    places
        .into_iter()
        .map(|(key, place)| {
            let said = loaded.origin(key).to_string();
            in_the_way(key, &place, &said).unwrap_or_else(|| one(key, &nearest(&place), &said))
        })
        .collect()
}

/// What is there and cannot be what a key wants there.
fn in_the_way(key: &str, place: &Path, said: &str) -> Option<Check> {
    let file = key == "coordinator.journal";
    if file && place.is_dir() {
        let found = format!("{} is a folder ({key})", place.display());
        let remedy = format!("name a file of it, or change {key} ({said})");
        return Some(Check::fail("place", found, remedy));
    }
    let folder = match file {
        true => place.parent().unwrap_or(place),
        false => place,
    };
    let there = folder.ancestors().find(|path| path.exists())?;
    if there.is_dir() {
        return None;
    }
    let found = format!("{} is no folder ({key})", there.display());
    Some(Check::fail(
        "place",
        found,
        format!("move it away, or change {key} ({said})"),
    ))
}

fn one(key: &str, folder: &Path, said: &str) -> Check {
    const WHAT: &str = "disk";
    let shown = folder.display();
    match rustix::fs::statvfs(folder) {
        Ok(of) => judge(
            key,
            &shown.to_string(),
            of.f_bavail.saturating_mul(of.f_frsize),
            said,
        ),
        Err(error) => Check::warn(
            WHAT,
            format!("the system does not say how much is free at {shown} ({key}): {error}"),
            "look yourself",
        ),
    }
}

fn judge(key: &str, shown: &str, free: u64, said: &str) -> Check {
    const WHAT: &str = "disk";
    let mut text = format!("{} are free at {shown} ({key})", Bytes(free));
    if free < LITTLE {
        let wanted = if free < NONE { NONE } else { LITTLE };
        text = format!("{text}, less than {}", Bytes(wanted));
    }
    let remedy = format!("make room there, or change {key} ({said})");
    if free < NONE {
        Check::fail(WHAT, text, remedy)
    } else if free < LITTLE {
        Check::warn(WHAT, text, remedy)
    } else {
        Check::ok(WHAT, text)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::super::Verdict;
    use super::*;

    #[test]
    fn room_is_enough_little_or_none() {
        let verdict = |free| judge("cluster.state", "/", free, "default").verdict;
        assert_eq!(
            [0, NONE, LITTLE].map(verdict),
            [Verdict::Fail, Verdict::Warn, Verdict::Ok]
        );
        let found = judge("store.url", "/", NONE - 1, "c.toml:3").found;
        assert!(
            found.ends_with("are free at / (store.url), less than 64.0 MiB"),
            "{found}"
        );
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let told = |key: &str, place: &Path| in_the_way(key, place, "c.toml:3");
        for (key, place) in [
            ("cluster.state", file.join("a")),
            ("cluster.state", file.clone()),
            ("coordinator.journal", folder.path().to_path_buf()),
            ("coordinator.journal", file.join("journal")),
        ] {
            let check = told(key, &place).unwrap();
            assert_eq!(check.verdict, Verdict::Fail);
            assert!(check.remedy.contains("(c.toml:3)"), "{check:?}");
        }
        assert_eq!(told("coordinator.journal", &file), None);
        assert_eq!(
            told("cluster.state", &folder.path().join("new/state")),
            None
        );
        assert_eq!(nearest(&folder.path().join("a/b")), folder.path());
        let found = one("cluster.state", folder.path(), "default");
        assert!(found.found.contains("are free at"), "{found:?}");
    }
}
