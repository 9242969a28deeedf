//! `cargo xtask bench-peer`: our training against separate processes of the PEFT library.
//!
//! Both sides train the same jobs (LoRA r = 8 on all seven linears, f32, AdamW, every token labelled) on the same
//! lengths of the same model, in turns on one machine, so that a busy moment hits both. A ratio is taken within a
//! round; the figure is the median over rounds. Only real tokens count.
//!
//! ```text
//! round:  ours, 8 jobs fused | 4 padded processes | 8 packed processes | ours, 1 job | 1 packed process
//! ```
//!
//! Ours is `spotmux bench train --jobs N --json`; theirs is `tests/peer/bench_peer.py --mode padded|packed
//! --processes N --json`, in an interpreter that has torch, transformers and peft. Each prints one
//! [`Sample`], ours with the number of `jobs` beside it.

mod machine;
mod python;
mod ratios;
mod sample;

pub use machine::Machine;
pub use ratios::{Ratios, Round};
pub use sample::Sample;

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::Serialize;

/// What is measured, and with which programs.
#[derive(Clone, Debug)]
pub struct Options {
    /// Interpreter with torch, transformers and peft; absent: `python3`.
    pub python: Option<PathBuf>,
    /// The `spotmux` binary; absent: built from the workspace with `--release`.
    pub spotmux: Option<PathBuf>,
    /// Model that both sides read: a folder in the Hugging Face layout, a GGUF file, or a pulled name.
    pub model: String,
    /// Compute threads of ours, and of each of their processes.
    pub threads: usize,
    /// Rounds; the median counts.
    pub rounds: usize,
    /// The first half of each sequence does not count in the loss, on both sides.
    pub mask_half: bool,
    /// How ours computes frozen products: `f32`, `split`, or `auto`, the faster one on this processor.
    pub products: String,
}

/// Bytes that eight packed processes were seen to need together.
const BYTES_FOR_EIGHT: u64 = 14_000_000_000;

/// What came out.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The median ratios.
    #[serde(flatten)]
    pub ratios: Ratios,
    /// Whether the first half of each sequence did not count in the loss.
    pub mask_half: bool,
    /// How ours computed frozen products.
    pub products: String,
    /// Where it was measured.
    pub machine: Machine,
    /// Every round.
    pub rounds: Vec<Round>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = &self.machine;
        writeln!(f, "{}, {} cores", machine.processor, machine.cores)?;
        for (number, round) in self.rounds.iter().enumerate() {
            writeln!(f, "\nround {}, load {:.1}", number + 1, round.load)?;
            for (name, sample) in round.samples() {
                writeln!(
                    f,
                    "  {name:<22} {:>8.1} tokens/s {:>7.1} CPU ms/token {:>8} MB",
                    sample.tokens_per_second,
                    sample.cpu_ms_per_token,
                    sample.peak_pss_bytes / 1_000_000
                )?;
            }
        }
        writeln!(f, "\nmedians")?;
        for (name, value) in self.ratios.named() {
            writeln!(f, "  {name:<22} {value:>8.3}")?;
        }
        Ok(())
    }
}

/// Measures both sides in turns.
///
/// # Errors
/// What is missing (torch, memory, the script, the binary), or what a program printed instead of a sample.
pub fn run(root: &Path, options: &Options) -> Result<Report> {
    if options.rounds == 0 {
        bail!("--rounds is 0: use at least 1");
    }
    let machine = Machine::read()?;
    if machine.available_bytes < BYTES_FOR_EIGHT {
        bail!(
            "{} MB of memory are free; eight separate processes of the PEFT library need about {} MB",
            machine.available_bytes / 1_000_000,
            BYTES_FOR_EIGHT / 1_000_000
        );
    }
    let products = match options.products.as_str() {
        "auto" => machine.products(),
        named => named,
    };
    let script = root.join("tests/peer/bench_peer.py");
    if !script.is_file() {
        bail!("{} is missing", script.display());
    }
    let sides = Sides {
        python: python::find(options.python.as_deref())?,
        script,
        spotmux: match &options.spotmux {
            Some(path) => path.clone(),
            None => build(root)?,
        },
        model: options.model.clone(),
        threads: options.threads.to_string(),
        mask_half: options.mask_half,
        products: products.to_owned(),
    };
    let mut rounds = Vec::new();
    for number in 1..=options.rounds {
        eprintln!("round {number} of {}", options.rounds);
        rounds.push(sides.round()?);
    }
    Ok(Report {
        ratios: Ratios::of(&rounds),
        mask_half: options.mask_half,
        products: products.to_owned(),
        machine,
        rounds,
    })
}

struct Sides {
    python: PathBuf,
    script: PathBuf,
    spotmux: PathBuf,
    model: String,
    threads: String,
    mask_half: bool,
    products: String,
}

impl Sides {
    fn round(&self) -> Result<Round> {
        Ok(Round {
            load: machine::load()?,
            fused8: self.ours(8)?,
            padded4: self.theirs("padded", 4)?,
            packed8: self.theirs("packed", 8)?,
            one: self.ours(1)?,
            packed1: self.theirs("packed", 1)?,
        })
    }

    fn ours(&self, jobs: usize) -> Result<Sample> {
        let mut command = Command::new(&self.spotmux);
        command.args(["bench", "train", "--json", "--model", &self.model]);
        command.args(["--threads", &self.threads, "--jobs", &jobs.to_string()]);
        command.args(["--no-products", "--products", &self.products]);
        self.add_mask(&mut command);
        let text = printed(&mut command)?;
        Sample::ours(&text, jobs).with_context(|| format!("{command:?}"))
    }

    fn theirs(&self, mode: &str, processes: usize) -> Result<Sample> {
        let mut command = Command::new(&self.python);
        command.arg(&self.script);
        command.args(["--json", "--model", &self.model, "--mode", mode]);
        command.args(["--threads", &self.threads]);
        command.args(["--processes", &processes.to_string()]);
        self.add_mask(&mut command);
        // A thread that spins while it waits takes the core from the process that works.
        command.env("OMP_WAIT_POLICY", "PASSIVE");
        let text = printed(&mut command)?;
        Sample::theirs(&text).with_context(|| format!("{command:?}"))
    }

    fn add_mask(&self, command: &mut Command) {
        if self.mask_half {
            command.arg("--mask-half");
        }
    }
}

fn build(root: &Path) -> Result<PathBuf> {
    let arguments = [
        "build",
        "--release",
        "--locked",
        "-p",
        "spotmux",
        "--message-format",
        "json",
    ];
    let mut command = Command::new("cargo");
    command.args(arguments).current_dir(root);
    let text = printed(&mut command)?;
    executable(&text).context("cargo built no binary called spotmux")
}

/// The binary that cargo says it built, from its messages, a JSON object a line.
fn executable(messages: &str) -> Option<PathBuf> {
    messages.lines().rev().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let is_ours = message.get("target")?.get("name")? == "spotmux";
        let path = message.get("executable")?.as_str()?;
        is_ours.then(|| PathBuf::from(path))
    })
}

/// What a program prints; its errors go to the terminal as they come.
fn printed(command: &mut Command) -> Result<String> {
    eprintln!("$ {command:?}");
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("{command:?} did not start"))?;
    if !output.status.success() {
        bail!("{command:?} ended with {}", output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("{command:?} printed no UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_binary_is_read_from_the_messages_of_cargo() {
        let messages = r#"{"reason":"compiler-artifact","target":{"name":"shared"},"executable":null}
{"reason":"compiler-artifact","target":{"name":"spotmux"},"executable":"/t/release/spotmux"}
{"reason":"build-finished","success":true}"#;
        assert_eq!(
            executable(messages),
            Some(PathBuf::from("/t/release/spotmux"))
        );
        assert_eq!(executable("{}"), None);
    }
}
