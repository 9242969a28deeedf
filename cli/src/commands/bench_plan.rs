//! `spotmux bench plan`: what each level of co-scheduling is worth here, predicted and measured.

use std::path::Path;
use std::sync::Arc;

use coordinator::plan::profile::Profile;
use gpu_actor::model::{Model, tiny};
use shared::job::BackboneFormat;

use crate::args::{BenchPlanArgs, BenchWorkload};
use crate::backbone;
use crate::bench::levels::carried::Site;
use crate::bench::levels::figures::{Figures, Found};
use crate::bench::levels::question::{Off, Question};
use crate::exit::{Exit, Failure, OrExit};
use crate::interrupt::Interrupt;
use crate::machine;
use crate::measuring::gather::Gatherer;
use crate::measuring::rungs::Rungs;
use crate::measuring::workload::Workload;
use crate::planning::profiles;
use crate::render::Output;
use crate::settings::Settings;
use crate::store::Store;

/// What stands for a small model with random weights, made on the spot.
const TINY: &str = "tiny";
/// Its longest context: that of the hard mix.
const POSITIONS: usize = 8_192;
/// What is believed of a machine that does not tell its memory.
const MEMORY: u64 = 4 << 30;
/// How fast layers are said to load: nothing is moved here.
const LOAD_RATE: u64 = 1 << 30;

/// Runs the command.
pub(crate) fn run(
    args: &BenchPlanArgs,
    settings: &Settings,
    output: &Output,
) -> Result<Exit, Failure> {
    let interrupt = Interrupt::listen()?;
    let cpu = backbone::cpu_with(Some(args.threads), args.products)?;
    let model = model(args, settings, &cpu)?;
    let context = model.shape.max_positions;
    let workload = match args.workload {
        BenchWorkload::WlA => Workload::a(context),
        BenchWorkload::WlB => Workload::b(context),
        BenchWorkload::Hard => Workload::hard(context),
    };
    let profile = match &args.profile {
        Some(file) => profiles::read(file)?,
        None => measured(&model, &cpu, args, (output, &interrupt))?,
    };
    let memory = machine::available().map_or(MEMORY, |available| available.bytes);
    // A part of it is not planned with: nothing else would end a process that takes more than there is.
    let memory = memory - memory / 4;
    let question = Question::new(&model, &profile, args.stages, memory, &workload)?;
    let site = Site {
        model: &model,
        cpu: &cpu,
        spans: question.spans(),
        steps: args.steps,
        interrupt: &interrupt,
    };
    let plans = Off::EACH.map(|off| question.planned(off));
    let plans = plans.into_iter().collect::<Result<Vec<_>, Failure>>()?;
    let mut found = Vec::new();
    let measured = site.rounds(&plans)?;
    for (planned, step) in plans.iter().zip(measured.times) {
        let one = Found::of(planned, step.as_secs_f64(), workload.total());
        output.note(format!("{}: {:.0} ms", planned.off.name(), one.measured_ms));
        found.push(one);
    }
    let errors = found.iter().map(|one| one.error_percent.abs());
    let figures = Figures {
        workload: args.workload.name(),
        jobs: workload.len(),
        stages: args.stages,
        threads: args.threads,
        in_turns: measured.in_turns,
        mean_error_percent: errors.sum::<f64>() / found.len() as f64,
        found,
    };
    output.result(&figures, &figures.text())?;
    Ok(Exit::Done)
}

fn model(
    args: &BenchPlanArgs,
    settings: &Settings,
    cpu: &kernels::cpu::Cpu,
) -> Result<Arc<Model>, Failure> {
    let store = Store::new(settings)?;
    if args.model != TINY || Path::new(TINY).exists() {
        let format = BackboneFormat::F32;
        let model = backbone::model(&store, &args.model, Path::new("."), format, cpu)?;
        return Ok(Arc::new(model));
    }
    let folder = tempfile::tempdir().or_exit(Exit::Internal)?;
    let path = folder.path().join(TINY);
    let spec = tiny::TinySpec {
        max_positions: POSITIONS,
        ..tiny::TinySpec::default()
    };
    tiny::write_tiny(&path, &spec).or_exit(Exit::Internal)?;
    let name = path.display().to_string();
    let model = backbone::model(&store, &name, Path::new("."), BackboneFormat::F32, cpu)?;
    Ok(Arc::new(model))
}

/// A profile of a stage's threads, measured now.
fn measured(
    model: &Arc<Model>,
    cpu: &kernels::cpu::Cpu,
    args: &BenchPlanArgs,
    (output, interrupt): (&Output, &Interrupt),
) -> Result<Profile, Failure> {
    let gatherer = Gatherer {
        model,
        cpu,
        rungs: Rungs::new(args.quick, model.shape.max_positions),
        output,
        interrupt,
        quick: args.quick,
    };
    gatherer.profile(LOAD_RATE)
}
