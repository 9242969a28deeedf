//! `spotmux profile`: measures this device for the planner, and how good its predictions are.

use std::path::Path;
use std::sync::Arc;

use coordinator::plan::profile::Profile;
use gpu_actor::model::Model;
use kernels::cpu::Cpu;
use serde_json::json;
use shared::job::BackboneFormat;

use crate::args::ProfileArgs;
use crate::backbone;
use crate::clock::Stopwatch;
use crate::exit::{Exit, Failure, OrExit};
use crate::interrupt::Interrupt;
use crate::measuring::gather::Gatherer;
use crate::measuring::pace::Pace;
use crate::measuring::rungs::Rungs;
use crate::measuring::trial;
use crate::planning::profiles;
use crate::render::{self, Output};
use crate::settings::Settings;
use crate::store::Store;
use crate::whole_file;

/// Runs the command.
pub(crate) fn run(
    args: &ProfileArgs,
    settings: &Settings,
    output: &Output,
) -> Result<Exit, Failure> {
    let interrupt = Interrupt::listen()?;
    let store = Store::new(settings)?;
    let cpu = backbone::cpu_with(args.threads, args.products)?;
    let format = match args.backbone.as_str() {
        "f32" => BackboneFormat::F32,
        "bf16" => BackboneFormat::Bf16,
        _ => BackboneFormat::AsShipped,
    };
    let clock = Stopwatch::start();
    let model = backbone::model(&store, &args.model, Path::new("."), format, &cpu)?;
    let bytes: usize = model.matrices().map(|weight| weight.byte_len()).sum();
    let load_rate = (bytes as f64 / clock.seconds().max(1e-3)) as u64;
    let model = Arc::new(model);
    let profile = match &args.profile {
        Some(file) => profiles::read(file)?,
        None => {
            let rungs = Rungs::new(args.quick, model.shape.max_positions);
            let gatherer = Gatherer {
                model: &model,
                cpu: &cpu,
                rungs,
                output,
                interrupt: &interrupt,
                quick: args.quick,
            };
            gatherer.profile(load_rate)?
        }
    };
    if args.profile.is_none() {
        keep(args, &profile, clock.seconds(), output)?;
    }
    if args.check {
        check(&model, &cpu, &profile, &interrupt, output)?;
    }
    Ok(Exit::Done)
}

/// Writes the profile where it is asked for; without a place it is the result.
fn keep(
    args: &ProfileArgs,
    profile: &Profile,
    seconds: f64,
    output: &Output,
) -> Result<(), Failure> {
    let mut text = serde_json::to_string_pretty(profile).or_exit(Exit::Internal)?;
    text.push('\n');
    let Some(path) = &args.output else {
        return Ok(output.result(profile, &text)?);
    };
    whole_file::write(path, &text)?;
    let told = json!({
        "event": "profile", "file": path, "device": profile.device, "seconds": seconds,
        "linear": profile.linear.len(), "attention": profile.attention.len(), "adapters": profile.adapters.len(),
    });
    let link = profile.links.first();
    let facts = render::facts(&[
        ("device", profile.device.clone()),
        ("memory", render::bytes(profile.memory_bytes)),
        (
            "products",
            profile.roofline.map_or(String::new(), |roofline| {
                format!(
                    "up to {:.1} GFLOP/s",
                    roofline.flops_per_second as f64 / 1e9
                )
            }),
        ),
        (
            "link",
            link.map_or(String::new(), |link| {
                format!(
                    "{:.1} us, {}/s, by loopback",
                    link.latency_nanos as f64 / 1e3,
                    render::bytes(link.bytes_per_second)
                )
            }),
        ),
        ("took", format!("{seconds:.0} s")),
        ("written", path.display().to_string()),
    ]);
    output.result(&told, &facts)?;
    let file = render::shell_word(&path.display().to_string());
    output.next(&[format!("spotmux plan jobs.toml --profile {file} --explain")]);
    Ok(())
}

fn check(
    model: &Arc<Model>,
    cpu: &Cpu,
    profile: &Profile,
    interrupt: &Interrupt,
    output: &Output,
) -> Result<(), Failure> {
    let mut all = Vec::new();
    let mut pace = Pace::new(model, cpu, profile)?;
    for trial in trial::trials(model.shape.max_positions) {
        interrupt.check()?;
        let found = trial.run(model, cpu, profile, (&mut pace, interrupt))?;
        output.note(format!("{}: {:.0} ms", found.mix, found.measured_ms));
        all.push(found);
    }
    let told = json!({ "event": "check", "device": profile.device, "mixes": all });
    Ok(output.result(&told, &trial::text(&all))?)
}
