//! The table names no file that is gone: a rule about nothing looks like a rule that holds.

use super::table::{PURE, SHELL, UNSAFE, lies_in};
use crate::finding::Finding;
use crate::source::Workspace;

pub(super) fn check(workspace: &Workspace) -> Vec<Finding> {
    let shell = SHELL.iter().map(|(place, _)| *place);
    let named = UNSAFE.iter().map(|(place, _)| *place);
    missing(workspace, PURE.iter().copied().chain(shell).chain(named))
}

fn missing(workspace: &Workspace, places: impl Iterator<Item = &'static str>) -> Vec<Finding> {
    let gone = places.filter(|place| !workspace.lines.keys().any(|path| lies_in(path, place)));
    gone.map(|place| {
        let message = format!("{place} does not exist: correct or remove the entry");
        Finding::failure("table", "xtask/src/layers/table.rs", message)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_without_a_file_are_found() {
        let mut workspace = Workspace::default();
        workspace.lines.insert("data/src/mask.rs".into(), 1);
        let found = missing(
            &workspace,
            ["data/src", "data/src/mas", "data/src/mask.rs"].into_iter(),
        );
        assert_eq!(found.len(), 1);
        assert!(found[0].message.starts_with("data/src/mas does not exist"));
    }
}
