//! `cargo xtask`: the gate from the command line.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Args, Parser, Subcommand};
use xtask::finding::{Finding, failures};
use xtask::gate::{self, Options};
use xtask::{layers, peer, sizes, source};

/// Checks the repository.
#[derive(Parser)]
#[command(name = "cargo xtask", version)]
struct Arguments {
    /// Another workspace to check [default: the one xtask was built in]
    #[arg(long, global = true, value_name = "DIR")]
    root: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run every check and list what failed
    Validate(Validate),
    /// Check floors, purity, rings, unsafe code and file names
    Layers,
    /// List files that outgrow the house style
    Sizes,
    /// Measure our training against separate processes of the PEFT library, in turns
    BenchPeer(BenchPeer),
}

#[derive(Args)]
struct Validate {
    /// Only the quick steps, for the inner loop
    #[arg(long)]
    fast: bool,
    /// Only these steps
    #[arg(long, value_name = "STEP", value_delimiter = ',')]
    only: Vec<String>,
    /// All but these steps
    #[arg(long, value_name = "STEP", value_delimiter = ',')]
    skip: Vec<String>,
    /// Fail when a tool is not installed
    #[arg(long)]
    require_tools: bool,
    /// Name the steps and stop
    #[arg(long)]
    list: bool,
}

#[derive(Args)]
struct BenchPeer {
    /// Interpreter with torch, transformers and peft [default: python3]
    #[arg(long, value_name = "FILE")]
    python: Option<PathBuf>,
    /// The spotmux binary [default: built with --release]
    #[arg(long, value_name = "FILE")]
    spotmux: Option<PathBuf>,
    /// Model that both sides read: folder, GGUF file or pulled name
    #[arg(long, default_value = "smollm2-135m-instruct")]
    model: String,
    /// Compute threads of ours and of each of their processes
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Rounds; the median counts
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// The first half of each sequence does not count in the loss, on both sides
    #[arg(long)]
    mask_half: bool,
    /// How ours computes frozen products; auto: split where the processor has AMX, else f32
    #[arg(long, default_value = "auto", value_parser = ["auto", "f32", "split"])]
    products: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Result<()> {
    let root = match arguments.root {
        Some(root) => root,
        None => built_in()?,
    };
    match arguments.command {
        Command::Validate(chosen) => validate(&root, chosen),
        Command::Layers => report(&layers::check(&source::read(&root)?)),
        Command::Sizes => report(&sizes::check(&source::read(&root)?)),
        Command::BenchPeer(chosen) => bench_peer(&root, chosen),
    }
}

fn validate(root: &Path, chosen: Validate) -> Result<()> {
    if chosen.list {
        for step in gate::STEPS {
            let fast = if step.fast { "fast" } else { "" };
            println!("{:<12} {fast:<5} {}", step.name, step.about);
        }
        return Ok(());
    }
    let options = Options {
        fast: chosen.fast,
        only: chosen.only,
        skip: chosen.skip,
        require_tools: chosen.require_tools,
    };
    gate::validate(root, &options)
}

fn bench_peer(root: &Path, chosen: BenchPeer) -> Result<()> {
    let options = peer::Options {
        python: chosen.python,
        spotmux: chosen.spotmux,
        model: chosen.model,
        threads: chosen.threads,
        rounds: chosen.rounds,
        mask_half: chosen.mask_half,
        products: chosen.products,
    };
    let report = peer::run(root, &options)?;
    if chosen.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{report}");
    }
    Ok(())
}

fn report(findings: &[Finding]) -> Result<()> {
    for finding in findings {
        println!("{finding}");
    }
    match failures(findings).len() {
        0 => Ok(()),
        count => bail!("{count} places break a rule"),
    }
}

/// The workspace around this crate.
fn built_in() -> Result<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = folder.parent().context("xtask lies in no folder")?;
    Ok(root.to_owned())
}
