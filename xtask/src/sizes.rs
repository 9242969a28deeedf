//! Files that outgrow the house style: 150 to 350 lines are right, tests included.
//!
//! Functions of more than 100 lines are clippy's to find (`too_many_lines`).

use crate::finding::Finding;
use crate::source::Workspace;

/// Lines above which a file is named in the report.
pub const WARN: usize = 400;

/// Lines above which the gate closes.
pub const FAIL: usize = 600;

/// Lists the files that are too long, the longest first.
#[must_use]
pub fn check(workspace: &Workspace) -> Vec<Finding> {
    let mut long: Vec<(&String, usize)> = workspace
        .lines
        .iter()
        .map(|(path, lines)| (path, *lines))
        .filter(|(_, lines)| *lines > WARN)
        .collect();
    long.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    long.into_iter()
        .map(|(path, lines)| {
            if lines > FAIL {
                let message = format!(
                    "{lines} lines, the limit is {FAIL}: split it by noun, or move its tests to a file of their own"
                );
                Finding::failure("size", path, message)
            } else {
                let message = format!("{lines} lines: house style is 150 to 350, {FAIL} fails");
                Finding::warning("size", path, message)
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Level;

    #[test]
    fn four_hundred_warns_and_six_hundred_fails() {
        let mut workspace = Workspace::default();
        for (path, lines) in [("a.rs", 400), ("b.rs", 401), ("c.py", 601), ("d.rs", 600)] {
            workspace.lines.insert(path.into(), lines);
        }
        let found: Vec<(String, Level)> = check(&workspace)
            .into_iter()
            .map(|finding| (finding.place, finding.level))
            .collect();
        let want = [
            ("c.py", Level::Failure),
            ("d.rs", Level::Warning),
            ("b.rs", Level::Warning),
        ];
        assert_eq!(found, want.map(|(path, level)| (path.to_owned(), level)));
    }
}
