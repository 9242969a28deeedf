//! The files of a job turned into token rows. Pure but for the time it takes: bytes in, bytes out.

use std::collections::BTreeMap;

use bytes::Bytes;
use data::dataset::LoadError;
use data::job_data::{self, JobData};
use data::packed;
use shared::job::JobSpec;
use shared::life::{Reason, ReasonClass};
use shared::model::ModelShape;
use shared::samples::SampleCount;

use super::settings::Language;
use crate::record::Measure;

/// What a job trains on.
#[derive(Debug)]
pub(super) struct Rows {
    /// As [`packed::pack`] makes them.
    pub(super) bytes: Vec<u8>,
    /// Token ids of the text that a prompt starts from.
    pub(super) init_tokens: Vec<u32>,
    /// What planning goes by.
    pub(super) measure: Measure,
    /// What became of every record of its files.
    pub(super) samples: Vec<SampleCount>,
}

fn data_error(message: String) -> Reason {
    Reason {
        class: ReasonClass::DataError,
        message,
    }
}

/// Reads, checks, renders and tokenizes the samples of a job.
///
/// # Errors
/// Why there are no rows, with the first problems of each file.
pub(super) fn rows(
    spec: &JobSpec,
    files: &BTreeMap<String, Bytes>,
    shape: &ModelShape,
    language: &Language,
) -> Result<Rows, Reason> {
    let context = shape
        .max_positions
        .saturating_sub(spec.adapter.virtual_tokens());
    let data = JobData::of_contents(
        &spec.data,
        files,
        spec.seed,
        context,
        shape.vocab,
        &language.tokenizer,
        &language.template,
    )
    .map_err(|error| data_error(told(&error)))?;
    if data.train.is_empty() {
        return Err(data_error(format!(
            "{} has no row to train on: {}",
            spec.data.train, data.train_report
        )));
    }
    let init_tokens = job_data::init_tokens(&spec.adapter, shape.vocab, &language.tokenizer)
        .map_err(|error| data_error(format!("adapter.init_text: {error}")))?;
    Ok(Rows {
        bytes: packed::pack(&data.train, &data.eval),
        init_tokens,
        measure: Measure::of(data.train.iter().map(|row| (row.ids.len(), row.trained()))),
        samples: data.samples(&spec.data),
    })
}

/// Problems said in full, up to a few.
fn told(error: &LoadError) -> String {
    const MOST: usize = 10;
    let LoadError::Rejected { name, report } = error else {
        return error.to_string();
    };
    let listed = &report.errors.listed;
    let mut text = format!("{name} has {} problem(s)", report.errors.count());
    for problem in listed.iter().take(MOST) {
        text.push_str(&format!("\n  {problem}"));
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use data::template::Template;
    use data::tokenizer::Tokenizer;

    use super::*;

    fn language() -> Language {
        let tokenizer = Tokenizer::bytes();
        let template = Template::choose(None, &tokenizer, None).unwrap();
        Language {
            tokenizer,
            template,
        }
    }

    fn shape() -> ModelShape {
        let text = r#"{"model_type": "llama", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
                       "num_attention_heads": 4, "vocab_size": 259, "max_position_embeddings": 128,
                       "rms_norm_eps": 1e-5, "tie_word_embeddings": true}"#;
        shared::model::config::parse(text).unwrap()
    }

    fn prepare(samples: &str) -> Result<Rows, Reason> {
        let spec = r#"{"name": "a", "adapter": {"method": "prompt", "tokens": 2, "init_text": "hi"},
                       "data": {"train": "a.jsonl"}}"#;
        let spec = serde_json::from_str(spec).unwrap();
        let files = BTreeMap::from([("a.jsonl".to_owned(), Bytes::from(samples.to_owned()))]);
        rows(&spec, &files, &shape(), &language())
    }

    #[test]
    fn samples_become_rows_that_the_first_stage_reads() {
        let made = prepare("{\"text\": \"one\"}\n{\"text\": \"two\"}\n").unwrap();
        let (train, eval) = packed::unpack(&made.bytes).unwrap();
        assert_eq!((train.len(), eval.len()), (2, 0));
        assert_eq!(made.init_tokens.len(), 2);
    }

    /// LlamaFactory #3800, trl #6668: rows that are left out, cut or masked away are told.
    #[test]
    fn every_record_is_accounted_for() {
        let spec = r#"{"name": "a", "adapter": {"method": "ia3"},
                       "data": {"train": "a.jsonl", "eval": "b.jsonl", "max_length": 12, "overlong": "truncate",
                                "max_dropped": 0.5}}"#;
        let spec = serde_json::from_str(spec).unwrap();
        let masked = r#"{"prompt": "a prompt that is longer than all", "completion": "x"}"#;
        let train = format!(
            "{{\"prompt\": \"a\", \"completion\": \"b\"}}\n{masked}\n{{\"prompt\": \"c\", \"completion\": \"{}\"}}\n",
            "d".repeat(40)
        );
        let eval = "{\"prompt\": \"e\", \"completion\": \"f\"}\n";
        let files = [("a.jsonl", train), ("b.jsonl", eval.to_owned())];
        let files = files.map(|(name, text)| (name.to_owned(), Bytes::from(text)));
        let made = rows(&spec, &BTreeMap::from(files), &shape(), &language()).unwrap();
        let told: Vec<String> = made.samples.iter().map(ToString::to_string).collect();
        let expected = [
            "a.jsonl: 3 rows in = 2 used + 1 dropped (1 nothing to train); 1 of the used cut to 12 tokens",
            "b.jsonl: 1 rows in = 1 used + 0 dropped",
        ];
        assert_eq!(told, expected);
        assert!(made.samples.iter().all(SampleCount::adds_up));
    }

    #[test]
    fn all_problems_are_said_with_their_lines() {
        let reason = prepare("{\"text\": 1}\nnonsense\n").unwrap_err();
        assert_eq!(reason.class, ReasonClass::DataError);
        for part in ["a.jsonl has 2 problem(s)", "line 1", "line 2"] {
            assert!(reason.message.contains(part), "{}", reason.message);
        }
    }
}
