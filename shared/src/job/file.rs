//! `jobs.toml`: a model, engine settings and a list of jobs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::JobSpec;
use super::limits::{MAX_JOBS, MAX_THREADS, MAX_TOKENS_PER_PASS};
use crate::recompute::Recompute;
use crate::strict_toml;

/// A file of jobs that share one backbone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobFile {
    /// Model folder, GGUF file, or the name of a model fetched by `spotmux model pull`.
    pub model: String,
    /// Folder of the results, one folder a job; relative to the file.
    #[serde(default = "default_output")]
    pub output: String,
    /// Settings of the engine.
    #[serde(default)]
    pub engine: EngineSpec,
    /// The jobs.
    #[serde(rename = "job")]
    pub jobs: Vec<JobSpec>,
}

/// Faults of other jobs that are told at most.
const MOST_FAULTS: usize = 50;

fn default_output() -> String {
    "adapters".into()
}

/// How backbone weights are held in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BackboneFormat {
    /// As the file has them (f32, bf16, Q4_0, Q4_1, Q8_0), mapped from it.
    #[default]
    AsShipped,
    /// Expanded to f32.
    F32,
    /// Rounded to bf16.
    Bf16,
}

/// How products with frozen weights are computed. It changes the last bits of every result, so a job goes on under the
/// one that it began with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Products {
    /// In single precision.
    #[default]
    F32,
    /// From numbers split into three bf16: as exact, and faster on processors with AMX, slower on others.
    Split,
}

impl Products {
    /// Whether it is what holds without a setting.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl std::fmt::Display for Products {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::F32 => "f32",
            Self::Split => "split",
        })
    }
}

/// Settings of the engine; none of them changes a result, except `backbone` and `products`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EngineSpec {
    /// Compute threads; absent: one per available core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<usize>,
    /// Most tokens one fused pass carries; more cost memory and gain little.
    pub tokens_per_pass: usize,
    /// Most tokens of a chunk: longer samples are cut, and pass one chunk after another. Absent: as `tokens_per_pass`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chunk_tokens: Option<usize>,
    /// Layers, from the first, whose activations are made again and not kept: less memory, up to a third more time.
    pub recompute: Recompute,
    /// How backbone weights are held.
    pub backbone: BackboneFormat,
    /// How products with frozen weights are computed.
    #[serde(skip_serializing_if = "Products::is_default")]
    pub products: Products,
}

impl Default for EngineSpec {
    fn default() -> Self {
        Self {
            threads: None,
            tokens_per_pass: 512,
            chunk_tokens: None,
            recompute: Recompute::None,
            backbone: BackboneFormat::AsShipped,
            products: Products::F32,
        }
    }
}

impl EngineSpec {
    /// Most tokens of a chunk of a sample: longer ones are cut.
    #[must_use]
    pub fn chunk_tokens(&self) -> usize {
        self.chunk_tokens.unwrap_or(self.tokens_per_pass)
    }
}

/// Tells why a text is not a file of jobs.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum JobFileError {
    /// Not TOML, or not the expected keys; the message has the key's path, line and column.
    #[error("{0}")]
    Syntax(String),
    /// No job at all.
    #[error("the file lists no job: add a [[job]] table")]
    Empty,
    /// More jobs than a file may list.
    #[error("the file lists {count} jobs, the limit is {MAX_JOBS}: divide it into several files")]
    Jobs {
        /// How many.
        count: usize,
    },
    /// A number of the engine that cannot be.
    #[error("engine.{key}: {value} is outside 1 to {most}")]
    Engine {
        /// The key.
        key: &'static str,
        /// What it says.
        value: usize,
        /// The largest.
        most: usize,
    },
    /// A text that must not be empty.
    #[error("{key}: is empty: {remedy}")]
    Nothing {
        /// The key.
        key: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// The same name twice.
    #[error(
        "job[{at}].name: {name:?} appears twice, in line {line} and as job[{first}].name in line {first_line}: names are \
         folders of results and must be unique, whatever their case"
    )]
    Duplicate {
        /// The name.
        name: String,
        /// Which job it is, from 0.
        at: usize,
        /// Where its name stands, from 1.
        line: usize,
        /// Which job has the name too.
        first: usize,
        /// Where that stands.
        first_line: usize,
    },
}

impl JobFile {
    /// Reads a file of jobs from its text.
    ///
    /// # Errors
    /// [`JobFileError`] with line and column, an empty list, or a repeated name.
    pub fn parse(text: &str) -> Result<Self, JobFileError> {
        let file: Self = strict_toml::read(text)
            .map_err(|first| JobFileError::Syntax(first.clone() + &in_other_jobs(text, &first)))?;
        if file.jobs.is_empty() {
            return Err(JobFileError::Empty);
        }
        if file.jobs.len() > MAX_JOBS {
            return Err(JobFileError::Jobs {
                count: file.jobs.len(),
            });
        }
        let texts = [
            (
                "model",
                &file.model,
                "name a model folder, a GGUF file or a model that was fetched",
            ),
            (
                "output",
                &file.output,
                "name a folder for the results, or leave it out for `adapters` beside the file",
            ),
        ];
        for (key, text, remedy) in texts {
            if text.trim().is_empty() {
                return Err(JobFileError::Nothing { key, remedy });
            }
        }
        let engine = &file.engine;
        let sizes = [
            ("threads", engine.threads, MAX_THREADS),
            (
                "tokens_per_pass",
                Some(engine.tokens_per_pass),
                MAX_TOKENS_PER_PASS,
            ),
            ("chunk_tokens", engine.chunk_tokens, MAX_TOKENS_PER_PASS),
        ];
        for (key, value, most) in sizes {
            if let Some(value) = value.filter(|value| *value == 0 || *value > most) {
                return Err(JobFileError::Engine { key, value, most });
            }
        }
        let mut seen = BTreeMap::new();
        for (at, job) in file.jobs.iter().enumerate() {
            // Folders are compared as some file systems do, without case.
            let Some(first) = seen.insert(job.name.as_str().to_ascii_lowercase(), at) else {
                continue;
            };
            let places = places_of_names(text);
            let line = |at: usize| places.get(at).map_or(0, |&place| line_of(text, place));
            return Err(JobFileError::Duplicate {
                name: job.name.to_string(),
                at,
                line: line(at),
                first,
                first_line: line(first),
            });
        }
        Ok(file)
    }
}

/// The jobs of a file as far as their names' places go.
#[derive(Deserialize)]
struct Names {
    job: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
    name: toml::Spanned<String>,
}

/// The bytes at which the names of the jobs of a sound file begin.
fn places_of_names(text: &str) -> Vec<usize> {
    let names: Vec<Named> =
        toml::from_str(text).map_or_else(|_| Vec::new(), |file: Names| file.job);
    names.iter().map(|job| job.name.span().start).collect()
}

/// The line, from 1, of a byte.
fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

/// What is wrong with other jobs than the one whose fault was met first, which ends the reading: lines behind it.
fn in_other_jobs(text: &str, first: &str) -> String {
    let mut wrong = Vec::new();
    for (at, job) in strict_toml::each::<JobSpec>(text, "job")
        .into_iter()
        .enumerate()
    {
        match job {
            Err(_) if first.starts_with(&format!("job[{at}]")) => {}
            Err(fault) => wrong.push(fault.trim_end().replace('\n', " ")),
            Ok(job) => {
                let problems = job.problems_anywhere().into_iter();
                wrong.extend(problems.map(|problem| format!("job {}: {problem}", job.name)));
            }
        }
    }
    if wrong.is_empty() {
        return String::new();
    }
    let more = wrong.len().saturating_sub(MOST_FAULTS);
    wrong.truncate(MOST_FAULTS);
    if more > 0 {
        wrong.push(format!("and {more} more"));
    }
    format!("\nand in other jobs:\n{}", wrong.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_lists_no_more_jobs_than_the_limit() {
        let text = |many: usize| {
            let job = |at| {
                format!("[[job]]\nname='n-{at}'\nadapter={{method='ia3'}}\ndata={{train='a'}}\n")
            };
            format!("model = 'm'\n{}", (0..many).map(job).collect::<String>())
        };
        assert!(JobFile::parse(&text(MAX_JOBS)).is_ok());
        let said = JobFile::parse(&text(MAX_JOBS + 1)).unwrap_err().to_string();
        assert!(said.contains("10001 jobs, the limit is 10000"), "{said}");
    }

    #[test]
    fn a_fault_that_ends_the_reading_hides_none_of_other_jobs() {
        let job = |name: &str, rank: &str| {
            format!(
                "[[job]]\nname = '{name}'\nadapter = {{ method = 'lora', rank = {rank} }}\ndata = {{ train = 'a' }}\n"
            )
        };
        let text = |jobs: &[(&str, &str)]| {
            let jobs = jobs.iter().map(|(name, rank)| job(name, rank));
            format!("model = 'm'\n{}", jobs.collect::<String>())
        };
        let told = |jobs| {
            let error = JobFile::parse(&text(jobs)).expect_err("there are faults");
            error.to_string()
        };
        let said = told(&[("a", "-1"), ("b", "4"), ("c", "0"), ("d", "'x'")]);
        assert!(said.starts_with("job[0].adapter"), "{said}");
        assert!(said.contains("line 4"), "{said}");
        let (_, others) = said
            .split_once("and in other jobs:\n")
            .expect("they are told");
        let others: Vec<&str> = others.lines().collect();
        assert_eq!(others.len(), 2, "{said}");
        assert!(others[0].starts_with("job c: adapter.rank: "), "{said}");
        assert!(others[1].starts_with("job[3].adapter"), "{said}");
        assert!(!told(&[("a", "-1"), ("b", "4")]).contains("other jobs"));
    }

    #[test]
    fn a_pass_has_a_sensible_size() {
        let parse = |tokens: &str| {
            JobFile::parse(&format!(
                "model = 'm'\nengine = {{ tokens_per_pass = {tokens} }}\n[[job]]\nname = 'a'\n\
                 adapter = {{ method = 'ia3' }}\ndata = {{ train = 'a.jsonl' }}\n"
            ))
        };
        for tokens in ["0", "16777217", "9223372036854775807"] {
            let message = parse(tokens).map_err(|error| error.to_string());
            let expected = format!("engine.tokens_per_pass: {tokens} is outside 1 to 16777216");
            assert_eq!(message, Err(expected));
        }
        assert!(parse("16777216").is_ok());
    }

    #[test]
    fn what_is_empty_or_none_is_told_by_its_key() {
        let told = |head: &str| {
            let text = format!(
                "{head}\n[[job]]\nname = 'a'\nadapter = {{ method = 'ia3' }}\ndata = {{ train = 'a' }}\n"
            );
            let refused = JobFile::parse(&text).map_err(|error| error.to_string());
            refused.err().unwrap_or_default()
        };
        for (head, start) in [
            ("model = ''", "model: is empty: name a model"),
            ("model = ' '", "model: is empty: name a model"),
            (
                "model = 'm'\noutput = ''",
                "output: is empty: name a folder",
            ),
            (
                "model = 'm'\nengine = { threads = 0 }",
                "engine.threads: 0 is outside 1 to 4096",
            ),
            (
                "model = 'm'\nengine = { threads = 4097 }",
                "engine.threads: 4097 is outside 1 to 4096",
            ),
            ("model = 'm'\nengine = { threads = 4096 }", ""),
        ] {
            let message = told(head);
            let empty = start.is_empty() == message.is_empty();
            assert!(message.starts_with(start) && empty, "{head}: {message}");
        }
    }

    #[test]
    fn a_name_that_is_there_twice_is_told_with_both_places() {
        let job = |name: &str| {
            format!(
                "[[job]]\nname = '{name}'\nadapter = {{ method = 'ia3' }}\ndata = {{ train = 'a' }}\n"
            )
        };
        let text = format!("model = 'm'\n{}{}{}", job("one"), job("two"), job("ONE"));
        let error = JobFile::parse(&text).expect_err("a name is there twice");
        let told = "job[2].name: \"ONE\" appears twice, in line 11 and as job[0].name in line 3: ";
        assert!(error.to_string().starts_with(told), "{error}");
    }

    #[test]
    fn a_chunk_is_as_a_pass_unless_told_otherwise() {
        let parse = |engine: &str| {
            JobFile::parse(&format!(
                "model = 'm'\nengine = {{ {engine} }}\n[[job]]\nname = 'a'\n\
                 adapter = {{ method = 'ia3' }}\ndata = {{ train = 'a.jsonl' }}\n"
            ))
        };
        for (engine, rows) in [
            ("tokens_per_pass = 300", 300),
            ("tokens_per_pass = 300, chunk_tokens = 1000", 1000),
            ("chunk_tokens = 64", 64),
        ] {
            let file = parse(engine);
            assert_eq!(file.map(|file| file.engine.chunk_tokens()), Ok(rows));
        }
        let message = parse("chunk_tokens = 0").map_err(|error| error.to_string());
        let expected = "engine.chunk_tokens: 0 is outside 1 to 16777216";
        assert_eq!(message.err().as_deref(), Some(expected));
    }

    #[test]
    fn layers_recompute_by_word_or_number() {
        let parse = |recompute: &str| {
            JobFile::parse(&format!(
                "model = 'm'\n[engine]\nrecompute = {recompute}\n[[job]]\nname = 'a'\n\
                 adapter = {{ method = 'ia3' }}\ndata = {{ train = 'a.jsonl' }}\n"
            ))
        };
        for (text, shown) in [("'none'", "none"), ("'all'", "all"), ("12", "12")] {
            let file = parse(text).map(|file| file.engine.recompute.to_string());
            assert_eq!(file.as_deref(), Ok(shown));
        }
        for text in ["0", "'most'", "-3", "true"] {
            let message = parse(text).map_err(|error| error.to_string());
            let message = message.err().unwrap_or_default();
            assert!(
                message.contains("line 3") && message.contains("\"none\", \"all\" or a number"),
                "{text}: {message}"
            );
        }
    }
}
