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
        .map(|(key, place)| one(key, &nearest(&place), &loaded.origin(key).to_string()))
        .collect()
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
    let text = format!("{} are free at {shown} ({key})", Bytes(free));
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
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(nearest(&folder.path().join("a/b")), folder.path());
        let found = one("cluster.state", folder.path(), "default");
        assert!(found.found.contains("are free at"), "{found:?}");
    }
}
