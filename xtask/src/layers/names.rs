//! Files are named after one noun of the field.

use super::table::EMPTY_NAMES;
use crate::finding::Finding;
use crate::source::Workspace;

pub(super) fn check(workspace: &Workspace) -> Vec<Finding> {
    workspace
        .lines
        .keys()
        .filter_map(|path| {
            let word = path
                .split(['/', '.', '_', '-'])
                .find(|word| EMPTY_NAMES.contains(word))?;
            let message = format!("{word:?} names no thing: call the file by the noun it holds");
            Some(Finding::failure("name", path, message))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_name_nothing_are_refused_anywhere_in_a_path() {
        let mut workspace = Workspace::default();
        for path in [
            "cli/src/utils.rs",
            "data/src/common/x.rs",
            "cli/src/utility.rs",
            "a/json_helpers.py",
        ] {
            workspace.lines.insert(path.into(), 1);
        }
        let places: Vec<String> = check(&workspace).into_iter().map(|f| f.place).collect();
        assert_eq!(
            places,
            [
                "a/json_helpers.py",
                "cli/src/utils.rs",
                "data/src/common/x.rs"
            ]
        );
    }
}
