//! What became of the samples of the jobs of a file: all records of all files in one line, and a warning for each file
//! of which not every record is used as it is.

use std::collections::BTreeMap;

use shared::samples::SampleCount;

/// All records of all files, as in "60 rows in = 40 used + 20 dropped (20 over long)".
pub(crate) fn total<'a>(files: impl IntoIterator<Item = &'a SampleCount>) -> String {
    let mut all = SampleCount::default();
    let mut dropped: BTreeMap<String, u64> = BTreeMap::new();
    for file in files {
        all.rows_in += file.rows_in;
        all.rows_used += file.rows_used;
        all.held_out += file.held_out;
        all.truncated += file.truncated;
        for (reason, count) in &file.dropped {
            *dropped.entry(reason.clone()).or_default() += count;
        }
    }
    all.dropped = dropped;
    all.counts()
}

/// One sentence for each file that is not used whole; `check` is the command that lists the lines of one.
pub(crate) fn warnings(files: &[SampleCount], check: impl Fn(&str) -> String) -> Vec<String> {
    let odd = files.iter().filter(|file| !file.is_whole());
    odd.map(|file| format!("warning: {file}; which lines: {}", check(&file.file)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, used: u64, over_long: u64, truncated: u64) -> SampleCount {
        let dropped = [("over_long".to_owned(), over_long)];
        SampleCount {
            file: name.into(),
            rows_in: used + over_long,
            rows_used: used,
            dropped: dropped
                .into_iter()
                .filter(|(_, count)| *count > 0)
                .collect(),
            truncated,
            max_length: 64,
            ..SampleCount::default()
        }
    }

    #[test]
    fn files_that_are_not_used_whole_are_warned_of() {
        let files = [file("a", 40, 20, 0), file("b", 5, 0, 0), file("c", 9, 1, 2)];
        assert_eq!(
            total(&files),
            "75 rows in = 54 used + 21 dropped (21 over long); 2 of the used cut"
        );
        let said = warnings(&files, |name| format!("look at {name}"));
        let expected = [
            "warning: a: 60 rows in = 40 used + 20 dropped (20 over long); which lines: look at a",
            "warning: c: 10 rows in = 9 used + 1 dropped (1 over long); 2 of the used cut to 64 tokens; which lines: look at c",
        ];
        assert_eq!(said, expected);
    }
}
