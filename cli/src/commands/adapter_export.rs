//! `spotmux adapter export`: makes an adapter of a checkpoint, as of a job that was set aside.

use gpu_actor::model::Model;
use gpu_actor::peft::files::Export;
use gpu_actor::peft::layout::Layout;
use gpu_actor::train::store::{self, Saved};
use serde::Serialize;

use crate::adapter_folder::OtherBase;
use crate::args::ExportArgs;
use crate::backbone;
use crate::exit::{Exit, Failure, OrExit};
use crate::render::{self, Output};
use crate::settings::Settings;
use crate::training::place::Place;
use crate::training::record::{self, Record};

/// What a program is told.
#[derive(Debug, Serialize)]
struct Told {
    from: String,
    job: String,
    method: String,
    step: u64,
    last_loss: Option<f64>,
    last_held_out: Option<f64>,
    /// Newer checkpoints that were not sound, or not good.
    skipped: Vec<String>,
    base: String,
    written: String,
}

/// Runs the command.
pub(crate) fn run(
    args: &ExportArgs,
    settings: &Settings,
    output: &Output,
) -> Result<Exit, Failure> {
    if !args.checkpoint.exists() {
        let message = format!("{} is not there", args.checkpoint.display());
        return Err(Failure::new(Exit::NotFound, message));
    }
    let aside = Place::at(&args.checkpoint).set_aside();
    let proof = aside.map(|(_, proof)| proof);
    let saved = store::open(&args.checkpoint, proof).or_exit(Exit::BadInput)?;
    let Some(saved) = saved else {
        let folder = args.checkpoint.display();
        if let Some((step, _)) = aside {
            let message = format!(
                "{folder} holds no good state: the job was set aside at step {step}, and no sound checkpoint of a step before is left"
            );
            return Err(Failure::new(Exit::NotFound, message).hint(another_way(step)));
        }
        let message = format!("{folder} holds no sound checkpoint");
        return Err(Failure::new(Exit::NotFound, message)
            .hint("name OUTPUT/NAME of a job, or one of its checkpoints/step-NNNNNNNN"));
    };
    let model = backbone::as_shipped(settings, &args.model)?;
    if let Some(other) = of_other_backbone(&saved, &model, &args.model) {
        let asked = OtherBase::asked(args.other_base);
        output.note(asked.judge(&other, "make the adapter")?);
    }
    let (spec, state) = (&saved.identity.spec, &saved.state);
    let refused = |why: String| {
        let path = saved.path.display();
        Failure::new(
            Exit::BadInput,
            format!("{path} does not fit the model: {why}"),
        )
    };
    if let Some(problem) = spec.problems(&model.shape).first() {
        return Err(refused(problem.to_string()));
    }
    let layout = Layout::new(&spec.adapter, &model.shape, spec.seed);
    state.fits(spec, &layout, u64::MAX).map_err(refused)?;
    let base = model.identity();
    let export = Export {
        name: spec.name.as_str(),
        spec: &spec.adapter,
        layout: &layout,
        values: &state.values,
        shape: &model.shape,
        base: &base,
    };
    let progress = &state.progress;
    record::write(&args.output, &export, |files| {
        let record = Record::of_run(&saved.identity, progress, &base, files);
        record.bytes().map(Some)
    })?;
    let told = told(&saved, base, args.output.display().to_string());
    output.result(&told, &text(&told))?;
    let (model, folder) = (
        render::shell_word(&args.model),
        render::shell_word(&told.written),
    );
    // A path there starts at the file of jobs, wherever that is.
    let whole = std::path::absolute(&args.output).unwrap_or_else(|_| args.output.clone());
    let whole = render::toml_text(&whole.display().to_string());
    output.next(&[
        format!("spotmux generate --model {model} --adapter {folder} 'Your prompt'"),
        format!(
            "in another job, as with a lower optimizer.learning_rate or optimizer.max_grad_norm: init_from = {whole}"
        ),
    ]);
    Ok(Exit::Done)
}

/// What is to be said of a checkpoint of a job that was trained on another backbone than this one.
fn of_other_backbone(saved: &Saved, model: &Model, called: &str) -> Option<String> {
    let (trained, own) = (&saved.identity.backbone, model.content_hash());
    (*trained != own).then(|| {
        format!(
            "{} was trained on another backbone than {called}: one with other weights, or these in another format \
             (sha256:{trained}, this one is sha256:{own})",
            saved.path.display()
        )
    })
}

/// What to do where no good state is left of a job that was set aside at this step.
fn another_way(step: u64) -> String {
    const AS_IT_IS: &str = "a folder of its checkpoints that is named itself is taken as it is";
    if step < 2 {
        return format!(
            "no state but that of the start is good: train it again with a lower optimizer.learning_rate or with \
             optimizer.max_grad_norm, or look at the sample; {AS_IT_IS}"
        );
    }
    format!("train it again with checkpoint.every_steps below {step}; {AS_IT_IS}")
}

fn told(saved: &Saved, base: String, written: String) -> Told {
    let (spec, progress) = (&saved.identity.spec, &saved.state.progress);
    Told {
        from: saved.path.display().to_string(),
        job: spec.name.to_string(),
        method: spec.adapter.in_words(),
        step: progress.step,
        last_loss: progress.last_loss,
        last_held_out: progress.last_eval,
        skipped: saved.skipped.clone(),
        base,
        written,
    }
}

fn text(told: &Told) -> String {
    let loss = |loss: Option<f64>| loss.map_or_else(|| "-".into(), |loss| format!("{loss:.4}"));
    let mut pairs = vec![
        ("from", told.from.clone()),
        ("job", told.job.clone()),
        ("method", told.method.clone()),
        ("step", told.step.to_string()),
        ("loss", loss(told.last_loss)),
        ("held-out", loss(told.last_held_out)),
        ("base model", told.base.clone()),
        ("written", told.written.clone()),
    ];
    if !told.skipped.is_empty() {
        pairs.push(("skipped", told.skipped.join("; ")));
    }
    render::facts(&pairs)
}

#[cfg(test)]
mod tests {
    use super::another_way;

    #[test]
    fn no_checkpoint_is_asked_for_where_there_can_be_none() {
        for step in [0, 1] {
            let way = another_way(step);
            assert!(!way.contains("every_steps"), "{way}");
            assert!(way.contains("optimizer.max_grad_norm"), "{way}");
        }
        assert!(another_way(2).contains("every_steps below 2"));
    }
}
