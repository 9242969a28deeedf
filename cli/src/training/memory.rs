//! What a run will need of memory, before it starts, against what there is.

use gpu_actor::peft::layout::Layout;
use gpu_actor::train::memory::{self, Estimate, Resident, Rows, StepSize};
use gpu_actor::train::progress;
use shared::job::{BackboneFormat, EngineSpec, JobSpec};
use shared::model::ModelShape;
use shared::recompute::Recompute;

use super::prepare::Prepared;
use crate::exit::{Exit, Failure};
use crate::machine::{self, Available};
use crate::render;

/// The program itself: code, tokenizer, thread stacks.
const PROGRAM: u64 = 64 << 20;

/// What a run will need.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forecast {
    /// As it is asked for.
    pub(crate) estimate: Estimate,
    /// If every layer recomputed.
    pub(crate) recomputed: Estimate,
    /// Token rows of all jobs, in bytes.
    pub(crate) rows: u64,
    /// What of all this is held by now, and by no file: rows, values and states, a backbone that was converted.
    pub(crate) held: u64,
}

impl Forecast {
    /// Of a run so estimated.
    pub(crate) fn needed(&self, estimate: &Estimate) -> u64 {
        [PROGRAM, self.rows]
            .into_iter()
            .fold(estimate.total(), u64::saturating_add)
    }
}

/// Predicts a run of the jobs that are not done, on a backbone of so many bytes.
pub(crate) fn predict(
    shape: &ModelShape,
    backbone: u64,
    jobs: &[Prepared],
    engine: &EngineSpec,
) -> Forecast {
    let active = || jobs.iter().filter(|job| !job.done);
    let residents: Vec<_> = active().map(resident).collect();
    let longest = active().map(Prepared::longest_row).max().unwrap_or(0);
    let rows = Rows {
        pass: engine.tokens_per_pass,
        chunk: engine.chunk_tokens(),
        longest,
    };
    let with = |recompute| memory::predict(shape, backbone, &residents, rows, recompute);
    let rows = jobs.iter().map(|job| job.ready.row_bytes()).sum();
    let values = jobs.iter().map(|job| job.ready.value_bytes()).sum::<u64>();
    let converted = match engine.backbone {
        BackboneFormat::AsShipped => 0,
        BackboneFormat::F32 | BackboneFormat::Bf16 => backbone,
    };
    Forecast {
        estimate: with(engine.recompute),
        recomputed: with(Recompute::All),
        rows,
        held: PROGRAM + rows + values + converted,
    }
}

fn resident(job: &Prepared) -> Resident<'_> {
    let (spec, layout) = (job.spec(), job.ready.layout.as_ref());
    let lengths = job.ready.data.train.iter().map(|row| row.ids.len());
    Resident {
        spec,
        layout,
        step: StepSize::of(spec, layout, lengths),
    }
}

/// Bytes of the same jobs in one process each: every one has its own program and pass, sized for its own steps.
///
/// A mapped backbone is counted once, since the system keeps one copy of a file's pages.
pub(crate) fn separate(
    shape: &ModelShape,
    backbone: u64,
    mapped: bool,
    jobs: &[Prepared],
    engine: &EngineSpec,
) -> u64 {
    let one = |job: &Prepared| {
        let samples = progress::samples_per_step(&job.spec().train);
        let rows = samples
            .saturating_mul(job.longest_row())
            .min(engine.tokens_per_pass);
        let only = [resident(job)];
        let own = if mapped { 0 } else { backbone };
        let rows = Rows {
            pass: rows,
            chunk: engine.chunk_tokens(),
            longest: job.longest_row(),
        };
        memory::predict(shape, own, &only, rows, engine.recompute).total() + PROGRAM
    };
    let common = if mapped { backbone } else { 0 };
    common + jobs.iter().map(one).sum::<u64>()
}

/// Refuses a run that would not fit.
///
/// # Errors
/// [`Exit::WouldNotFit`] with the numbers and what to change.
pub(crate) fn check(forecast: &Forecast, engine: &EngineSpec) -> Result<(), Failure> {
    match available(forecast) {
        Some(available) => judge(forecast, engine, &available),
        None => Ok(()),
    }
}

/// Refuses jobs whose values alone would not fit, before any are made.
///
/// # Errors
/// As [`check`].
pub(crate) fn check_values(shape: &ModelShape, jobs: &[JobSpec]) -> Result<(), Failure> {
    match machine::available() {
        Some(available) => judge_values(shape, jobs, &available),
        None => Ok(()),
    }
}

fn judge_values(
    shape: &ModelShape,
    jobs: &[JobSpec],
    available: &Available,
) -> Result<(), Failure> {
    // Another problem of a job is told with those of the others.
    let sound = jobs.iter().filter(|job| job.problems(shape).is_empty());
    let sizes = sound.map(|job| (Layout::bytes_of(&job.adapter, shape), job));
    let sizes: Vec<_> = sizes.collect();
    let needed = sizes
        .iter()
        .fold(PROGRAM, |sum, (bytes, _)| sum.saturating_add(*bytes));
    let largest = sizes.iter().max_by_key(|(bytes, _)| *bytes);
    match largest {
        Some((bytes, job)) if needed > available.bytes => {
            let message = format!(
                "the adapters need about {} for their values alone (most of them job {}: {}), {} are available ({})",
                render::bytes(needed),
                job.name,
                render::bytes(*bytes),
                render::bytes(available.bytes),
                available.bound
            );
            Err(Failure::new(Exit::WouldNotFit, message).hint(SMALLER_ADAPTERS))
        }
        _ => Ok(()),
    }
}

/// What helps where adapters are too large.
const SMALLER_ADAPTERS: &str =
    "lower the ranks, or train the jobs in two files, one after the other";

/// What there is for all of the run: what of it is held by now is not free any more, and needed once only.
pub(crate) fn available(forecast: &Forecast) -> Option<Available> {
    let mut available = machine::available()?;
    let anonymous = machine::memory().map_or(0, |memory| memory.anonymous);
    available.bytes += anonymous.min(forecast.held);
    Some(available)
}

fn judge(forecast: &Forecast, engine: &EngineSpec, available: &Available) -> Result<(), Failure> {
    let estimate = &forecast.estimate;
    let needed = forecast.needed(estimate);
    if needed <= available.bytes {
        return Ok(());
    }
    let of_pass = |estimate: &Estimate| estimate.tape + estimate.carried + estimate.buffers;
    let pass = of_pass(estimate);
    let message = format!(
        "the run needs about {} (backbone {}, a pass {}, jobs {}, token rows {}), {} are available ({})",
        render::bytes(needed),
        render::bytes(estimate.backbone),
        render::bytes(pass),
        render::bytes(estimate.adapters),
        render::bytes(forecast.rows),
        render::bytes(available.bytes),
        available.bound
    );
    let failure = Failure::new(Exit::WouldNotFit, message);
    if estimate.backbone.saturating_add(PROGRAM) > available.bytes {
        return Err(failure.hint(smaller_backbone(engine)));
    }
    if forecast.rows >= pass.max(estimate.adapters) {
        let rows = "train the jobs in two files, one after the other, or on fewer samples";
        return Err(failure.hint(rows));
    }
    if pass <= estimate.adapters {
        return Err(failure.hint(SMALLER_ADAPTERS));
    }
    let tokens = engine.tokens_per_pass;
    let failure = failure
        .hint(format!(
            "lower engine.tokens_per_pass (now {tokens}): it changes no result"
        ))
        .hint(long_samples(estimate, engine));
    let recomputed = of_pass(&forecast.recomputed);
    Err(if recomputed < pass {
        failure.hint(format!(
            "give --recompute all, or engine.recompute = \"all\" (now {}): a pass then needs about {}, the run in \
             all {}; it takes up to a third more time, and changes no result",
            engine.recompute,
            render::bytes(recomputed),
            render::bytes(forecast.needed(&forecast.recomputed))
        ))
    } else {
        failure
    })
}

/// What helps where the backbone alone is too large.
fn smaller_backbone(engine: &EngineSpec) -> String {
    let smaller = "a smaller model, or one of fewer bits (a .gguf file of Q8_0 or Q4_0)";
    match engine.backbone {
        BackboneFormat::AsShipped => format!("the backbone alone does not fit: take {smaller}"),
        BackboneFormat::F32 | BackboneFormat::Bf16 => format!(
            "the backbone alone does not fit: set engine.backbone = \"as-shipped\", or take {smaller}"
        ),
    }
}

/// What helps against long samples.
fn long_samples(estimate: &Estimate, engine: &EngineSpec) -> String {
    let chunk = engine.chunk_tokens();
    if estimate.carried > 0 {
        let carried = render::bytes(estimate.carried);
        return format!(
            "the longest sample is cut into chunks of {chunk} tokens, which carry {carried}: lower data.max_length"
        );
    }
    format!(
        "a sample longer than a pass, up to engine.chunk_tokens (now {chunk}), gets one of its own: lower that or \
         data.max_length"
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use gpu_actor::model::tiny::TinySpec;
    use shared::model::Family;

    use super::*;

    #[test]
    fn what_does_not_fit_is_told_with_its_numbers() {
        let available = Available {
            bytes: 1 << 30,
            bound: "limit of the control group",
        };
        let engine = EngineSpec::default();
        let small = Estimate {
            backbone: 100 << 20,
            ..Estimate::default()
        };
        let judge = |estimate: Estimate, recomputed: Estimate| {
            let forecast = Forecast {
                estimate,
                recomputed,
                rows: 0,
                held: 0,
            };
            judge(&forecast, &engine, &available)
        };
        assert!(judge(small, small).is_ok());
        let wide = Estimate {
            tape: 2 << 30,
            ..small
        };
        let narrow = Estimate {
            tape: 300 << 20,
            ..small
        };
        let failure = judge(wide, narrow).unwrap_err();
        assert_eq!(failure.exit, Exit::WouldNotFit);
        let text = failure.message();
        assert!(
            text.contains("a pass 2.0 GiB") && text.contains("1.0 GiB are available"),
            "{text}"
        );
        assert!(failure.hints[0].contains("tokens_per_pass (now 512)"));
        let again = &failure.hints[2];
        assert!(
            again.contains("--recompute all")
                && again.contains("(now none)")
                && again.contains("needs about 300.0 MiB, the run in all 464.0 MiB"),
            "{again}"
        );
        // It is named only where it helps, and then the run fits.
        assert_eq!(judge(wide, wide).unwrap_err().hints.len(), 2);
        assert!(judge(narrow, narrow).is_ok());
        let many = Estimate {
            adapters: 2 << 30,
            ..small
        };
        assert!(judge(many, many).unwrap_err().hints[0].contains("ranks"));
    }

    /// Of a prompt of 134 million tokens not one value was made to find out.
    #[test]
    fn values_that_do_not_fit_are_never_made() {
        let shape = TinySpec::smallest(Family::Llama).shape();
        let job = |name: &str, adapter: &str| -> JobSpec {
            let text = format!(
                r#"{{"name": "{name}", "adapter": {adapter}, "data": {{"train": "a.jsonl"}}}}"#
            );
            serde_json::from_str(&text).unwrap()
        };
        let available = |bytes| Available {
            bytes,
            bound: "limit of the control group",
        };
        let jobs = [
            job("small", r#"{"method": "lora", "rank": 2}"#),
            job("large", r#"{"method": "lora", "rank": 8}"#),
        ];
        assert!(judge_values(&shape, &jobs, &available(1 << 30)).is_ok());
        let refused = judge_values(&shape, &jobs, &available(PROGRAM + (1 << 10))).unwrap_err();
        assert_eq!(refused.exit, Exit::WouldNotFit);
        let message = refused.message();
        assert!(message.contains("job large"), "{message}");
        // Nor is a place drawn: of this one there are more than any machine holds.
        let wide = ModelShape {
            intermediate: 1 << 40,
            ..shape
        };
        let adapter = r#"{"method": "diff", "density": 1.0, "targets": ["down_proj"]}"#;
        let jobs = [job("sparse", adapter)];
        let refused = judge_values(&wide, &jobs, &available(1 << 40)).unwrap_err();
        assert!(refused.message().contains("job sparse"), "{refused:?}");
    }

    #[test]
    fn what_is_too_large_is_what_the_hints_are_about() {
        let available = Available {
            bytes: 1 << 30,
            bound: "limit of the control group",
        };
        let judged = |backbone: u64, rows: u64, format: BackboneFormat| {
            let estimate = Estimate {
                backbone,
                tape: 1 << 20,
                ..Estimate::default()
            };
            let forecast = Forecast {
                estimate,
                recomputed: estimate,
                rows,
                held: 0,
            };
            let engine = EngineSpec {
                backbone: format,
                ..EngineSpec::default()
            };
            judge(&forecast, &engine, &available)
        };
        let shipped = BackboneFormat::AsShipped;
        assert!(judged(100 << 20, 700 << 20, shipped).is_ok());
        let failure = judged(100 << 20, 900 << 20, shipped).unwrap_err();
        assert!(failure.message().contains("token rows 900.0 MiB"));
        assert!(failure.hints[0].contains("fewer samples"), "{failure:?}");
        let failure = judged(2 << 30, 0, shipped).unwrap_err();
        assert_eq!(failure.hints.len(), 1);
        assert!(failure.hints[0].contains("a smaller model"), "{failure:?}");
        let failure = judged(2 << 30, 0, BackboneFormat::F32).unwrap_err();
        assert!(failure.hints[0].contains("as-shipped"), "{failure:?}");
    }
}
