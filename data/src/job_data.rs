//! The rows of a job: training rows and the held-out ones it is measured on.

use std::collections::BTreeMap;
use std::io::BufReader;
use std::path::Path;

use shared::job::{AdapterSpec, DataSpec, PromptSpec};
use shared::samples::SampleCount;

use crate::dataset::{Dataset, LoadError, Options};
use crate::order;
use crate::overlap::overlap;
use crate::regular;
use crate::report::Report;
use crate::rows::TokenRow;
use crate::template::Template;
use crate::tokenizer::{Special, Tokenizer, TokenizerError};

/// What a job trains and is measured on.
#[derive(Clone, Debug, PartialEq)]
pub struct JobData {
    /// Rows for training.
    pub train: Vec<TokenRow>,
    /// Rows for measuring; empty when the job holds none out.
    pub eval: Vec<TokenRow>,
    /// What became of the training file; it counts the rows held out of it too.
    pub train_report: Report,
    /// What became of the file of held-out samples, when there is one.
    pub eval_report: Option<Report>,
}

impl JobData {
    /// Reads the files of `spec`, which are relative to `folder`. `seed` is the job's: it decides which rows are held
    /// out. `context` is the longest row that model and adapter take, `vocabulary` the rows of the model's embedding.
    ///
    /// # Errors
    /// When a file cannot be read or has problems.
    pub fn load(
        spec: &DataSpec,
        folder: &Path,
        seed: u64,
        context: usize,
        vocabulary: usize,
        tokenizer: &Tokenizer,
        template: &Template,
    ) -> Result<Self, LoadError> {
        let options = Options::of(spec, context, Some(vocabulary));
        let open = |file: &str| open(&folder.join(file), &options, tokenizer, template);
        Self::gather(spec, seed, open)
    }

    /// The same from contents that are at hand, by the path that `spec` has; errors call them so.
    ///
    /// # Errors
    /// When a content is missing or has problems.
    pub fn of_contents(
        spec: &DataSpec,
        contents: &BTreeMap<String, impl AsRef<[u8]>>,
        seed: u64,
        context: usize,
        vocabulary: usize,
        tokenizer: &Tokenizer,
        template: &Template,
    ) -> Result<Self, LoadError> {
        let options = Options::of(spec, context, Some(vocabulary));
        let read = |file: &str| match contents.get(file) {
            Some(bytes) => Dataset::load(bytes.as_ref(), file, &options, tokenizer, template),
            None => Err(LoadError::Open {
                path: file.to_owned(),
                source: std::io::ErrorKind::NotFound.into(),
            }),
        };
        Self::gather(spec, seed, read)
    }

    /// What became of every record of the files of `spec`: of training, then of measuring where that is a file of its own.
    #[must_use]
    pub fn samples(&self, spec: &DataSpec) -> Vec<SampleCount> {
        let measured = spec.eval.as_deref().zip(self.eval_report.as_ref());
        let train = self.train_report.count(&spec.train);
        let eval = measured.map(|(file, report)| report.count(file));
        [Some(train), eval].into_iter().flatten().collect()
    }

    fn gather(
        spec: &DataSpec,
        seed: u64,
        mut read: impl FnMut(&str) -> Result<Dataset, LoadError>,
    ) -> Result<Self, LoadError> {
        let Dataset { rows, report } = read(&spec.train)?;
        match &spec.eval {
            Some(file) => {
                let eval = read(file)?;
                let mut eval_report = eval.report;
                eval_report.overlap = Some(overlap(&rows, &eval.rows));
                Ok(Self {
                    train: rows,
                    eval: eval.rows,
                    train_report: report,
                    eval_report: Some(eval_report),
                })
            }
            None => Ok(Self::split(rows, report, seed, spec.eval_split)),
        }
    }

    /// Rows are moved, never copied: they may be most of what a run holds.
    fn split(mut rows: Vec<TokenRow>, mut report: Report, seed: u64, share: f64) -> Self {
        let count = u32::try_from(rows.len()).expect("each row takes more than a byte of memory");
        let held_out = order::split(seed, count, share).eval;
        let eval: Vec<TokenRow> = held_out
            .iter()
            .map(|&at| std::mem::take(&mut rows[at as usize]))
            .collect();
        let mut index = 0;
        rows.retain(|_| {
            index += 1;
            held_out.binary_search(&(index - 1)).is_err()
        });
        let train = rows;
        if !eval.is_empty() {
            report.held_out = eval.len() as u64;
            report.overlap = Some(overlap(&train, &eval));
        }
        Self {
            train,
            eval,
            train_report: report,
            eval_report: None,
        }
    }
}

/// The tokens of the text that a prompt starts from; none for other methods, or where the job names no text.
///
/// # Errors
/// When the tokenizer refuses the text, or has tokens that the model's embedding has no row for.
pub fn init_tokens(
    adapter: &AdapterSpec,
    vocabulary: usize,
    tokenizer: &Tokenizer,
) -> Result<Vec<u32>, TokenizerError> {
    match adapter {
        AdapterSpec::Prompt(PromptSpec {
            init_text: Some(text),
            ..
        }) => {
            let ids = tokenizer.encode(text, Special::Plain)?;
            tokenizer.within(ids, vocabulary)
        }
        _ => Ok(Vec::new()),
    }
}

/// Reads one file of samples.
///
/// # Errors
/// When it cannot be read or has problems.
pub fn open(
    path: &Path,
    options: &Options,
    tokenizer: &Tokenizer,
    template: &Template,
) -> Result<Dataset, LoadError> {
    let name = path.display().to_string();
    let file = regular::open(path).map_err(|source| LoadError::Open {
        path: name.clone(),
        source,
    })?;
    Dataset::load(BufReader::new(file), &name, options, tokenizer, template)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::fs;

    use super::*;

    fn spec(fields: serde_json::Value) -> DataSpec {
        let mut whole = serde_json::json!({"train": "train.jsonl"});
        let given = fields.as_object().unwrap().clone();
        whole.as_object_mut().unwrap().extend(given);
        serde_json::from_value(whole).unwrap()
    }

    fn load(spec: &DataSpec, folder: &Path, seed: u64) -> Result<JobData, LoadError> {
        let tokenizer = Tokenizer::bytes();
        let template = Template::choose(None, &tokenizer, None).unwrap();
        JobData::load(spec, folder, seed, 100, 259, &tokenizer, &template)
    }

    fn texts(folder: &Path, name: &str, range: std::ops::Range<u32>) {
        let lines = range.map(|n| format!("{{\"text\": \"row {n}\"}}\n"));
        fs::write(folder.join(name), lines.collect::<String>()).unwrap();
    }

    #[test]
    fn a_split_partitions_the_rows_by_the_seed() {
        let folder = tempfile::tempdir().unwrap();
        texts(folder.path(), "train.jsonl", 0..20);
        let spec = spec(serde_json::json!({"eval_split": 0.25}));
        let one = load(&spec, folder.path(), 1).unwrap();
        assert_eq!((one.train.len(), one.eval.len()), (15, 5));
        assert_eq!(
            (one.train_report.rows_used, one.train_report.held_out),
            (20, 5)
        );
        assert_eq!(one.train_report.overlap.as_ref().unwrap().count, 0);
        assert_eq!(one, load(&spec, folder.path(), 1).unwrap());
        assert_ne!(one.eval, load(&spec, folder.path(), 2).unwrap().eval);
    }

    #[test]
    fn rows_are_split_without_a_copy() {
        let rows: Vec<TokenRow> = (0..20)
            .map(|n| TokenRow::new(vec![n], vec![-100]))
            .collect();
        let place = |row: &TokenRow| (row.ids.as_ptr(), row.ids[0]);
        let mut before: Vec<_> = rows.iter().map(place).collect();
        let report = Report::new(crate::template::Origin::ChatMl, 10);
        for share in [0.0, 0.3] {
            let data = JobData::split(rows.clone(), report.clone(), 1, share);
            assert!(data.train.is_sorted_by_key(|row| row.ids[0]), "{share}");
        }
        let data = JobData::split(rows, report, 1, 0.3);
        assert_eq!((data.train.len(), data.eval.len()), (14, 6));
        let mut after: Vec<_> = data.train.iter().chain(&data.eval).map(place).collect();
        before.sort_unstable();
        after.sort_unstable();
        assert_eq!(before, after);
    }

    #[test]
    fn a_file_of_held_out_samples_is_compared_with_the_training_file() {
        let folder = tempfile::tempdir().unwrap();
        texts(folder.path(), "train.jsonl", 0..5);
        texts(folder.path(), "eval.jsonl", 3..7);
        let spec = spec(serde_json::json!({"eval": "eval.jsonl", "eval_split": 0.5}));
        let data = load(&spec, folder.path(), 1).unwrap();
        assert_eq!((data.train.len(), data.eval.len()), (5, 4));
        let overlap = data.eval_report.unwrap().overlap.unwrap();
        assert_eq!((overlap.count, overlap.lines), (2, vec![1, 2]));
    }

    #[test]
    fn contents_at_hand_give_the_rows_of_files() {
        let folder = tempfile::tempdir().unwrap();
        texts(folder.path(), "train.jsonl", 0..20);
        let spec = spec(serde_json::json!({"eval_split": 0.25}));
        let (tokenizer, bytes) = (
            Tokenizer::bytes(),
            fs::read(folder.path().join("train.jsonl")),
        );
        let template = Template::choose(None, &tokenizer, None).unwrap();
        let mut contents = BTreeMap::from([("train.jsonl".to_owned(), bytes.unwrap())]);
        let read = |contents: &BTreeMap<String, Vec<u8>>| {
            JobData::of_contents(&spec, contents, 1, 100, 259, &tokenizer, &template)
        };
        assert_eq!(
            read(&contents).unwrap(),
            load(&spec, folder.path(), 1).unwrap()
        );
        contents.clear();
        let message = read(&contents).unwrap_err().to_string();
        assert!(
            message.starts_with("train.jsonl cannot be opened"),
            "{message}"
        );
    }

    #[test]
    fn a_missing_file_and_a_bad_one_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let spec = spec(serde_json::json!({}));
        let message = load(&spec, folder.path(), 1).unwrap_err().to_string();
        assert!(
            message.contains("train.jsonl cannot be opened"),
            "{message}"
        );
        fs::write(folder.path().join("train.jsonl"), "{\"text\": null}").unwrap();
        let message = load(&spec, folder.path(), 1).unwrap_err().to_string();
        assert!(message.contains("line 1 $.text"), "{message}");
    }
}
