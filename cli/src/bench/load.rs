//! Jobs with random tokens, of the lengths that the comparison with other trainers uses.

use std::sync::Arc;

use data::rows::TokenRow;
use gpu_actor::batch::{Batch, NO_TARGET};
use gpu_actor::peft::init;
use gpu_actor::peft::layout::Layout;
use gpu_actor::train::pack::{self, Request};
use gpu_actor::train::session::{self, Session};
use kernels::cpu::Cpu;
use shared::ids::JobName;
use shared::job::{AdapterSpec, DataSpec, JobSpec};
use shared::random::{Domain, Stream};

use crate::args::BenchTrainArgs;
use crate::exit::{Exit, Failure, OrExit};

/// Lengths of the two batches of a job, trained on in turn.
pub(crate) const BATCHES: [[usize; 4]; 2] = [[93, 81, 60, 77], [64, 43, 277, 66]];
/// Label of a token that does not count.
const NOT_TRAINED: i32 = data::mask::NOT_TRAINED;

/// Rows of a pass, and how many of them are labelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PassShape {
    pub(crate) rows: usize,
    pub(crate) labelled: usize,
}

/// The passes of one round of so many jobs on each of the two batches, as the engine cuts them.
pub(crate) fn passes(
    jobs: usize,
    budget: usize,
    mask_half: bool,
) -> [Vec<PassShape>; BATCHES.len()] {
    // Only lengths and labels count here: any vocabulary does, and all jobs are alike.
    let rows = rows(0, 2, mask_half);
    let mut batches = rows.chunks(BATCHES[0].len());
    BATCHES.map(|_| {
        let request = Request {
            slot: 0,
            prompt_tokens: 0,
            prefix_tokens: 0,
            step: 0,
            rows: batches.next().into_iter().flatten().collect(),
            part: None,
        };
        let passes = pack::passes(&vec![request; jobs], budget, pack::Cut::Anywhere);
        let labelled = |targets: &[u32]| targets.iter().filter(|&&t| t != NO_TARGET).count();
        let shape = |batch: &Batch| PassShape {
            rows: batch.rows(),
            labelled: labelled(&batch.targets),
        };
        passes.iter().map(shape).collect()
    })
}

/// The first position that counts; position 0 never does, since nothing predicts it.
fn first_label(length: usize, mask_half: bool) -> usize {
    if mask_half { length / 2 } else { 1 }
}

/// The specification of job `number`; it ends after so many steps, and then rests on the backbone.
///
/// # Errors
/// [`Exit::Usage`] when the rank makes no job.
fn spec(args: &BenchTrainArgs, number: usize, steps: u64) -> Result<JobSpec, Failure> {
    let adapter: AdapterSpec =
        serde_json::from_value(serde_json::json!({ "method": "lora", "rank": args.rank }))
            .or_exit(Exit::Usage)?;
    let text = serde_json::json!({
        "name": format!("job-{number:02}"),
        "seed": number,
        "adapter": adapter,
        "data": DataSpec {
            train: "random tokens".into(),
            eval: None,
            eval_split: 0.0,
            max_length: None,
            overlong: Default::default(),
            train_on_inputs: true,
            max_dropped: 0.0,
        },
        "train": { "steps": steps, "batch_size": BATCHES[0].len(), "shuffle": false },
        "optimizer": { "learning_rate": 1e-4 },
        "checkpoint": { "every_steps": 0 },
    });
    serde_json::from_value(text).or_exit(Exit::Internal)
}

/// Rows of random tokens for job `number`.
pub(crate) fn rows(number: usize, vocab: usize, mask_half: bool) -> Vec<TokenRow> {
    let lengths = BATCHES.iter().flatten().enumerate();
    lengths
        .map(|(row, &length)| {
            let stream = Stream::new(number as u64, Domain::Sample, [row as u32, 0, 0]);
            let ids: Vec<u32> = (0..length)
                .map(|at| stream.below(at as u32, vocab as u64) as u32)
                .collect();
            let first = first_label(length, mask_half);
            let labels = ids.iter().enumerate();
            let labels = labels
                .map(|(at, &id)| if at < first { NOT_TRAINED } else { id as i32 })
                .collect();
            TokenRow::new(ids, labels)
        })
        .collect()
}

/// Puts job `number` on the backbone for so many steps, with fresh values.
///
/// # Errors
/// [`Exit::Usage`] when the rank does not fit the model, [`Exit::Internal`] when the engine refuses.
pub(crate) fn admit(
    session: &mut Session,
    args: &BenchTrainArgs,
    number: usize,
    steps: u64,
    cpu: &Cpu,
) -> Result<(), Failure> {
    let spec = spec(args, number, steps)?;
    let model = session.stage().model().clone();
    if let Some(problem) = spec.problems(&model.shape).first() {
        return Err(Failure::new(Exit::Usage, problem));
    }
    let layout: Arc<Layout> = session::layout_of(&spec.adapter, &model, spec.seed);
    let values = init::values(&layout, &model, cpu, spec.seed, &[]);
    let rows = rows(number, model.shape.vocab, args.mask_half);
    let admitted = session.admit(spec, layout, values, rows, Vec::new(), None);
    admitted.map_err(|error| Failure::new(Exit::Internal, error))
}

/// The name of job `number`.
///
/// # Errors
/// Never for the numbers a bench uses.
pub(crate) fn name(number: usize) -> Result<JobName, Failure> {
    JobName::new(format!("job-{number:02}")).or_exit(Exit::Internal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mix_is_the_one_that_peers_are_measured_on() {
        for mask_half in [false, true] {
            let rows = rows(3, 100, mask_half);
            let labelled: usize = rows.iter().map(TokenRow::trained).sum();
            assert_eq!(labelled, if mask_half { 383 } else { 753 });
            assert!(rows.iter().all(|row| row.ids.iter().all(|&id| id < 100)));
        }
    }

    #[test]
    fn a_job_alone_has_a_pass_for_each_batch_and_company_fills_them() {
        let shape = |rows, labelled| PassShape { rows, labelled };
        let alone = [vec![shape(311, 307)], vec![shape(450, 446)]];
        assert_eq!(passes(1, 512, false), alone);
        for (index, passes) in passes(8, 512, true).iter().enumerate() {
            let rows: Vec<usize> = passes.iter().map(|pass| pass.rows).collect();
            assert_eq!(rows.iter().sum::<usize>(), 8 * alone[index][0].rows);
            assert!(rows.iter().all(|&rows| rows <= 512), "{rows:?}");
        }
    }
}
