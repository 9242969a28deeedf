//! `spotmux simulate`: a fleet of GPUs in virtual time, shared in four ways.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Context;
use coordinator::plan::place::NoPlace;
use coordinator::plan::profile::{Profile, Weights};
use coordinator::plan::snapshot::{Options, Snapshot};
use data::regular;
use shared::model::ModelShape;
use shared::units::Micros;
use simulator::fleet::trace::{Arrival, Pace, alibaba, generated, philly};
use simulator::fleet::{BadSetting, Losses, Mix, Setting, compare, jobs, svg};

use crate::args::{SimulateArgs, SimulatedMix};
use crate::clock::Stopwatch;
use crate::exit::{Exit, Failure, OrExit};
use crate::planning::{backbone, profiles};
use crate::render::Output;
use crate::settings::Settings;
use crate::whole_file;

/// Largest file of a trace read.
const LIMIT: u64 = 64 << 20;
/// Most files of arrivals in a folder.
const FILES: usize = 1_024;
/// Mean and deviation of a job's length in Philly, in seconds (arXiv 2603.02885, section 5).
const PHILLY: (u64, u64) = (22_356, 36_774);
/// Tenants of drawn arrivals.
const TENANTS: u64 = 8;
/// Runtimes beside the arrivals of Philly.
const RUNTIMES: &str = "runtime_s.csv";
/// Alibaba's list of pods.
const PODS: &str = "openb_pod_list_default.csv";
/// The backbone of the paper's simulation.
const LLAMA: &str = "llama-2-7b";

/// Runs the command.
pub(crate) fn run(
    args: &SimulateArgs,
    settings: &Settings,
    output: &Output,
) -> Result<Exit, Failure> {
    let clock = Stopwatch::start();
    let setting = setting(args, settings)?;
    setting.check(0).or_exit(Exit::Usage)?;
    // Work for all GPUs and half of it again: what one job to a GPU leaves in the queue is what sharing is for.
    let alone = 1.5 * f64::from(args.gpus) * 3_600.0 / PHILLY.0 as f64;
    let jobs_per_hour = args.jobs_per_hour.unwrap_or(alone);
    let pace = Pace::new(jobs_per_hour, u64::from(args.hours)).or_exit(Exit::Usage)?;
    let (arrivals, source) = arrivals(args, pace)?;
    let mix = Mix::paper(args.mix == SimulatedMix::Uniform);
    let came = arrivals.len();
    let jobs = jobs(arrivals, &mix, args.seed);
    let found = compare(&setting, &mix, &jobs, &source).map_err(|error| failure(&error))?;
    if let Some(path) = &args.svg {
        whole_file::write(path, &svg(&found))?;
        output.note(format!("timeline: {}", path.display()));
    }
    let mut text = found.text();
    text.push_str(&format!(
        "{came} jobs in {} h ({jobs_per_hour:.1} an hour), simulated in {:.1} s\n",
        args.hours,
        clock.seconds()
    ));
    output.result(&found.json(), &text)?;
    Ok(Exit::Done)
}

/// Why nothing was simulated, as a command ends.
fn failure(error: &BadSetting) -> Failure {
    let exit = match error {
        BadSetting::NoPlace(NoPlace::TooBig { .. }) => Exit::WouldNotFit,
        BadSetting::NoPlace(_) => Exit::BadInput,
        BadSetting::NoInstance { .. } | BadSetting::TooMuch { .. } => Exit::Usage,
    };
    Failure::new(exit, error.to_string())
}

fn setting(args: &SimulateArgs, settings: &Settings) -> Result<Setting, Failure> {
    let profile = match &args.profile {
        Some(file) => profiles::read(file)?,
        None => {
            let found = profiles::named(&args.device, &[], &[]);
            found.map_err(|problem| {
                let failure = Failure::new(Exit::Usage, format!("--device {problem}"));
                match args.device.as_str() {
                    "cpu" => failure.hint(
                        "processors differ: spotmux profile -o cpu.json, then simulate --profile cpu.json",
                    ),
                    _ => failure,
                }
            })?
        }
    };
    let (model, blocks, tables) = model(args, settings)?;
    let link = |name: &str| {
        profile
            .link(name)
            .or_else(|| profile.links.first())
            .cloned()
    };
    let (Some(inside), Some(between)) = (link("inside"), link("between")) else {
        let message = format!(
            "the profile of {} has no link: measure it anew",
            profile.device
        );
        return Err(Failure::new(Exit::BadInput, message));
    };
    Ok(Setting {
        base: Snapshot {
            model,
            blocks,
            tables,
            profiles: BTreeMap::<String, Profile>::new(),
            nodes: BTreeMap::new(),
            inside,
            between,
            tasks: BTreeMap::new(),
            tenants: BTreeMap::new(),
            options: Options {
                saturation: args.saturation.rule(),
                ..Options::default()
            },
            now: Micros(0),
        },
        profile,
        gpus: args.gpus as usize,
        width: args.width.map(|width| width as usize),
        micro_batches: args.micro_batches,
        horizon_s: u64::from(args.hours) * 3_600,
        losses: Losses {
            per_kilohour: args.losses,
            ..Losses::default()
        },
        price: (args.price * 1e6) as u64,
        seed: args.seed,
    })
}

fn model(
    args: &SimulateArgs,
    settings: &Settings,
) -> Result<(ModelShape, Weights, Weights), Failure> {
    let name = args.model.as_deref().unwrap_or(LLAMA);
    let planned = backbone::look(name, Path::new(""), args.weights, settings)?;
    Ok((planned.shape, planned.blocks, planned.tables))
}

fn arrivals(args: &SimulateArgs, pace: Pace) -> Result<(Vec<Arrival>, String), Failure> {
    let Some(folder) = &args.trace else {
        let drawn = generated(pace, PHILLY.0, PHILLY.1, TENANTS, args.seed);
        return Ok((drawn, format!("drawn with seed {}", args.seed)));
    };
    let read = |name: &str| {
        let path = folder.join(name);
        regular::read_text(&path, LIMIT)
            .with_context(|| format!("cannot read {}", path.display()))
            .or_exit(Exit::BadInput)
    };
    if folder.join(PODS).is_file() {
        let jobs = alibaba(&read(PODS)?, pace).or_exit(Exit::BadInput)?;
        return Ok((jobs, "the pods of Alibaba".into()));
    }
    let listed = fs::read_dir(folder)
        .with_context(|| format!("cannot list the trace {}", folder.display()))
        .or_exit(Exit::BadInput)?;
    let mut names: Vec<String> = listed
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.ends_with(".csv") && name != RUNTIMES)
        .collect();
    names.sort();
    if names.len() > FILES {
        let (count, folder) = (names.len(), folder.display());
        let message = format!("{folder} has {count} files of arrivals, more than {FILES}");
        return Err(
            Failure::new(Exit::BadInput, message).hint("leave fewer in a folder of its own")
        );
    }
    if names.is_empty() || !folder.join(RUNTIMES).is_file() {
        let message = format!(
            "{} is no trace: neither {PODS} nor files of arrivals with {RUNTIMES} are in it",
            folder.display()
        );
        return Err(Failure::new(Exit::BadInput, message));
    }
    let clusters = names
        .iter()
        .map(|name| Ok((name.trim_end_matches(".csv").to_owned(), read(name)?)))
        .collect::<Result<Vec<_>, Failure>>()?;
    let jobs = philly(&clusters, &read(RUNTIMES)?, pace, args.seed).or_exit(Exit::BadInput)?;
    Ok((
        jobs,
        format!("{} virtual clusters of Philly", clusters.len()),
    ))
}
