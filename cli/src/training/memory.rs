//! What a run will need of memory, before it starts, against what there is.

use gpu_actor::train::memory::{self, Estimate};
use gpu_actor::train::progress;
use shared::model::ModelShape;

use super::prepare::Prepared;
use crate::exit::{Exit, Failure};
use crate::machine::{self, Available};
use crate::render;

/// The program itself: code, tokenizer, token rows, thread stacks.
const PROGRAM: u64 = 64 << 20;

/// Predicts a run of the jobs that are not done, on a backbone of so many bytes.
pub(crate) fn predict(
    shape: &ModelShape,
    backbone: u64,
    jobs: &[Prepared],
    tokens_per_pass: usize,
) -> Estimate {
    let active = || jobs.iter().filter(|job| !job.done);
    let pairs: Vec<_> = active()
        .map(|job| (job.spec(), job.ready.layout.as_ref()))
        .collect();
    let longest = active().map(Prepared::longest_row).max().unwrap_or(0);
    memory::predict(shape, backbone, &pairs, tokens_per_pass, longest)
}

/// Bytes of the same jobs in one process each: every one has its own program and pass, sized for its own steps.
///
/// A mapped backbone is counted once, since the system keeps one copy of a file's pages.
pub(crate) fn separate(
    shape: &ModelShape,
    backbone: u64,
    mapped: bool,
    jobs: &[Prepared],
    tokens_per_pass: usize,
) -> u64 {
    let one = |job: &Prepared| {
        let samples = progress::samples_per_step(&job.spec().train);
        let rows = samples
            .saturating_mul(job.longest_row())
            .min(tokens_per_pass);
        let pair = [(job.spec(), job.ready.layout.as_ref())];
        let own = if mapped { 0 } else { backbone };
        memory::predict(shape, own, &pair, rows, job.longest_row()).total() + PROGRAM
    };
    let common = if mapped { backbone } else { 0 };
    common + jobs.iter().map(one).sum::<u64>()
}

/// Refuses a run that would not fit.
///
/// # Errors
/// [`Exit::WouldNotFit`] with the numbers and what to change.
pub(crate) fn check(estimate: &Estimate, tokens_per_pass: usize) -> Result<(), Failure> {
    let Some(mut available) = machine::available() else {
        return Ok(());
    };
    // What this process holds by now is part of the estimate.
    available.bytes += machine::memory().map_or(0, |memory| memory.anonymous);
    judge(estimate, tokens_per_pass, &available)
}

fn judge(
    estimate: &Estimate,
    tokens_per_pass: usize,
    available: &Available,
) -> Result<(), Failure> {
    let needed = estimate.total() + PROGRAM;
    if needed <= available.bytes {
        return Ok(());
    }
    let pass = estimate.tape + estimate.buffers;
    let message = format!(
        "the run needs about {} (backbone {}, a pass {}, jobs {}), {} are available ({})",
        render::bytes(needed),
        render::bytes(estimate.backbone),
        render::bytes(pass),
        render::bytes(estimate.adapters),
        render::bytes(available.bytes),
        available.bound
    );
    let failure = Failure::new(Exit::WouldNotFit, message);
    Err(if pass > estimate.adapters {
        failure
            .hint(format!(
                "lower engine.tokens_per_pass (now {tokens_per_pass}): it changes no result"
            ))
            .hint("a sample longer than that gets a pass of its own: lower data.max_length")
    } else {
        failure.hint("lower the ranks, or train the jobs in two files, one after the other")
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn what_does_not_fit_is_told_with_its_numbers() {
        let available = Available {
            bytes: 1 << 30,
            bound: "limit of the control group",
        };
        let small = Estimate {
            backbone: 100 << 20,
            ..Estimate::default()
        };
        assert!(judge(&small, 512, &available).is_ok());
        let wide = Estimate {
            tape: 2 << 30,
            ..small
        };
        let failure = judge(&wide, 512, &available).unwrap_err();
        assert_eq!(failure.exit, Exit::WouldNotFit);
        let text = failure.message();
        assert!(
            text.contains("a pass 2.0 GiB") && text.contains("1.0 GiB are available"),
            "{text}"
        );
        assert!(failure.hints[0].contains("tokens_per_pass (now 512)"));
        let many = Estimate {
            adapters: 2 << 30,
            ..small
        };
        assert!(judge(&many, 512, &available).unwrap_err().hints[0].contains("ranks"));
    }
}
