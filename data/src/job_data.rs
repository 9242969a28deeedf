//! The rows of a job: training rows and the held-out ones it is measured on.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use shared::job::DataSpec;

use crate::dataset::{Dataset, LoadError, Options};
use crate::order;
use crate::overlap::overlap;
use crate::report::Report;
use crate::rows::TokenRow;
use crate::template::Template;
use crate::tokenizer::Tokenizer;

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
    /// out. `context` is the longest row that model and adapter take.
    ///
    /// # Errors
    /// When a file cannot be read or has problems.
    pub fn load(
        spec: &DataSpec,
        folder: &Path,
        seed: u64,
        context: usize,
        tokenizer: &Tokenizer,
        template: &Template,
    ) -> Result<Self, LoadError> {
        let options = Options::of(spec, context);
        let open = |file: &str| open(&folder.join(file), &options, tokenizer, template);
        let Dataset { rows, report } = open(&spec.train)?;
        match &spec.eval {
            Some(file) => {
                let eval = open(file)?;
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

    fn split(rows: Vec<TokenRow>, mut report: Report, seed: u64, share: f64) -> Self {
        let count = u32::try_from(rows.len()).expect("each row takes more than a byte of memory");
        let parts = order::split(seed, count, share);
        let pick = |indices: &[u32]| -> Vec<TokenRow> {
            indices
                .iter()
                .map(|&at| rows[at as usize].clone())
                .collect()
        };
        let (train, eval) = (pick(&parts.train), pick(&parts.eval));
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
    let file = File::open(path).map_err(|source| LoadError::Open {
        path: name.clone(),
        source,
    })?;
    Dataset::load(BufReader::new(file), &name, options, tokenizer, template)
}
