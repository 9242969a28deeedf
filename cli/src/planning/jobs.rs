//! Jobs of a file as tasks of the planner: lengths by the model's tokenizer, or assumed where there is none.

use std::io::{BufRead, BufReader};
use std::path::Path;

use coordinator::plan::snapshot::Task;
use data::job_data::JobData;
use data::regular;
use gpu_actor::train::progress;
use shared::job::JobSpec;
use shared::units::Micros;

use super::backbone::Planned;
use crate::exit::{Exit, Failure, OrExit};

/// Samples of a file that is not here.
const ROWS: usize = 1_000;
/// Rank of the job of a plan without a file.
const RANK: usize = 16;
/// Sequences of its step.
const SEQUENCES: usize = 4;
/// Its steps.
const STEPS: u64 = 1_000;

/// A job to be planned.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// Its name.
    pub(crate) name: String,
    /// Method and width, in a word.
    pub(crate) method: String,
    /// As the planner sees it.
    pub(crate) task: Task,
}

/// What was read, and what had to be assumed.
#[derive(Debug, Default)]
pub(crate) struct Read {
    /// The jobs.
    pub(crate) jobs: Vec<Job>,
    /// Sentences for people.
    pub(crate) assumed: Vec<String>,
}

/// Turns the jobs of a file into tasks.
///
/// # Errors
/// [`Exit::BadInput`] with everything that is wrong with any of them.
pub(crate) fn of(
    specs: &[JobSpec],
    folder: &Path,
    backbone: &Planned,
    length: u32,
    max_added_latency: Option<u64>,
) -> Result<Read, Failure> {
    let mut read = Read::default();
    let mut problems = Vec::new();
    for spec in specs {
        let wrong = spec.problems(&backbone.shape);
        problems.extend(
            wrong
                .iter()
                .map(|problem| format!("job {}: {problem}", spec.name)),
        );
        if !wrong.is_empty() {
            continue;
        }
        match lengths(spec, folder, backbone, length, &mut read.assumed) {
            Ok((rows, counted)) => {
                let steps = progress::total_steps(&spec.train, rows.len());
                let mut task = Task::of(spec, "local", &rows, counted, steps, Micros(0));
                task.max_added_latency = max_added_latency;
                read.jobs.push(Job {
                    name: spec.name.to_string(),
                    method: spec.adapter.in_words(),
                    task,
                });
            }
            Err(problem) => problems.push(format!("job {}: {problem}", spec.name)),
        }
    }
    if problems.is_empty() {
        return Ok(read);
    }
    Err(Failure::new(
        Exit::BadInput,
        format!("the jobs cannot be planned:\n{}", problems.join("\n")),
    ))
}

/// Rows of all training samples, and permille of their tokens that count.
fn lengths(
    spec: &JobSpec,
    folder: &Path,
    backbone: &Planned,
    length: u32,
    assumed: &mut Vec<String>,
) -> Result<(Vec<u32>, u64), String> {
    let shape = &backbone.shape;
    let context = shape
        .max_positions
        .saturating_sub(spec.adapter.virtual_tokens());
    let Some(language) = &backbone.language else {
        let longest = spec.data.max_length.unwrap_or(context).min(context);
        let length = length.min(u32::try_from(longest).unwrap_or(u32::MAX));
        let rows = count_lines(&folder.join(&spec.data.train));
        assumed.push(format!(
            "job {}: {} samples of {length} tokens are assumed, as no tokenizer tells",
            spec.name,
            rows.map_or_else(
                || format!("{ROWS} (the file is not here)"),
                |rows| rows.to_string()
            )
        ));
        return Ok((vec![length; rows.unwrap_or(ROWS)], 1000));
    };
    let data = JobData::load(
        &spec.data,
        folder,
        spec.seed,
        context,
        shape.vocab,
        &language.tokenizer,
        &language.template,
    )
    .map_err(|error| error.to_string())?;
    if data.train.is_empty() {
        return Err(format!("{} has no row to train on", spec.data.train));
    }
    let rows = data.train.iter();
    let (mut all, mut counted) = (0u64, 0u64);
    let lengths = rows
        .map(|row| {
            all += row.ids.len() as u64;
            counted += row.trained() as u64;
            u32::try_from(row.ids.len()).unwrap_or(u32::MAX)
        })
        .collect();
    Ok((lengths, counted * 1000 / all.max(1)))
}

/// Lines with something on them; nothing when the file cannot be read.
fn count_lines(path: &Path) -> Option<usize> {
    let file = BufReader::new(regular::open(path).ok()?);
    let lines = file.split(b'\n').map_while(Result::ok);
    let count = lines.filter(|line| !line.trim_ascii().is_empty()).count();
    (count > 0).then_some(count)
}

/// The job of a plan without a file.
///
/// # Errors
/// Never: it is written here.
pub(crate) fn example(
    backbone: &Planned,
    length: u32,
    max_added_latency: Option<u64>,
) -> Result<Read, Failure> {
    let spec: JobSpec = serde_json::from_value(serde_json::json!({
        "name": "example", "adapter": { "method": "lora", "rank": RANK },
        "data": { "train": "none" }, "train": { "steps": STEPS, "batch_size": SEQUENCES },
    }))
    .or_exit(Exit::Internal)?;
    let context = u32::try_from(backbone.shape.max_positions).unwrap_or(u32::MAX);
    let length = length.min(context);
    let mut task = Task::of(&spec, "local", &[length; SEQUENCES], 1000, STEPS, Micros(0));
    task.max_added_latency = max_added_latency;
    Ok(Read {
        jobs: vec![Job {
            name: spec.name.to_string(),
            method: spec.adapter.in_words(),
            task,
        }],
        assumed: vec![format!(
            "no file of jobs: one of LoRA r={RANK} on all linear layers, {SEQUENCES} sequences of {length} tokens a step"
        )],
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use coordinator::plan::profile::Weights;

    use super::*;
    use crate::language::Language;

    fn backbone(language: bool) -> Planned {
        let text = r#"{"model_type":"llama","num_hidden_layers":4,"hidden_size":64,"num_attention_heads":4,
            "vocab_size":259,"intermediate_size":128,"max_position_embeddings":256,"rms_norm_eps":1e-5}"#;
        Planned {
            shape: shared::model::config::parse(text).expect("a configuration"),
            blocks: Weights::F32,
            tables: Weights::F32,
            language: language.then(|| Language::bytes(None).expect("bytes")),
            name: "tiny".into(),
        }
    }

    fn spec(rank: usize) -> JobSpec {
        let text = format!(
            r#"{{"name":"a","adapter":{{"method":"lora","rank":{rank}}},"data":{{"train":"a.jsonl","train_on_inputs":true}},
                "train":{{"batch_size":2}}}}"#
        );
        serde_json::from_str(&text).expect("a job")
    }

    #[test]
    fn lengths_are_told_by_the_tokenizer_or_assumed_aloud() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(
            folder.path().join("a.jsonl"),
            "{\"text\":\"abc\"}\n{\"text\":\"abcdefg\"}\n\n",
        )
        .expect("written");
        let told = of(&[spec(8)], folder.path(), &backbone(true), 100, None).expect("jobs");
        assert!(told.assumed.is_empty());
        let lengths = &told.jobs[0].task.lengths;
        assert_eq!(lengths.len(), 2);
        assert_eq!(lengths[1] - lengths[0], 4, "{lengths:?}");
        let assumed = of(&[spec(8)], folder.path(), &backbone(false), 100, Some(50)).expect("jobs");
        assert_eq!(assumed.jobs[0].task.lengths, [100, 100]);
        assert_eq!(assumed.jobs[0].task.max_added_latency, Some(50));
        assert!(
            assumed.assumed[0].contains("2 samples of 100 tokens"),
            "{:?}",
            assumed.assumed
        );
        let far = of(
            &[spec(8)],
            Path::new("/nowhere"),
            &backbone(false),
            1000,
            None,
        )
        .expect("jobs");
        assert_eq!(far.jobs[0].task.longest(), 256);
    }

    #[test]
    fn all_that_is_wrong_is_told() {
        let failure = of(
            &[spec(0), spec(8)],
            Path::new("/nowhere"),
            &backbone(true),
            1,
            None,
        )
        .expect_err("wrong");
        let said = failure.message();
        assert!(said.contains("rank") && said.contains("a.jsonl"), "{said}");
    }
}
