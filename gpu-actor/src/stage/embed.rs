//! The ends of a pass below the first block: embeddings of tokens and of prompts, and the gradient of prompts.

use super::pass::{Bank, Pass};
use super::sums;
use crate::batch::{Batch, VIRTUAL};
use crate::model::Model;

/// Embeddings of the rows of a batch, `(rows, hidden)`: of their tokens, or of a job's virtual tokens.
pub(super) fn embed(model: &Model, bank: &Bank, batch: &Batch) -> Vec<f32> {
    let width = model.shape.hidden;
    let mut hidden = vec![0.0; batch.rows() * width];
    for job in &batch.jobs {
        let adapter = bank.get(job.slot).and_then(Option::as_ref);
        let prompt = adapter.and_then(|adapter| {
            let site = adapter.layout.prompt.as_ref()?;
            Some(&adapter.values[site.embeddings.clone()])
        });
        for row in job.rows.clone() {
            let out = &mut hidden[row * width..][..width];
            let token = batch.tokens[row];
            if token & VIRTUAL == 0 {
                model.embedding().row(token as usize, out);
            } else {
                let index = (token & !VIRTUAL) as usize;
                let prompt = prompt.expect("only prompt tuning makes virtual rows");
                out.copy_from_slice(&prompt[index * width..][..width]);
            }
        }
    }
    hidden
}

/// Adds each sequence's share of its job's prompt gradient: the gradient of its virtual rows.
pub(super) fn gradients(pass: &Pass<'_>, bank: &mut Bank, d_hidden: &[f32]) {
    let width = pass.model.shape.hidden;
    for (index, job) in pass.batch.jobs.iter().enumerate() {
        let Some(adapter) = bank[job.slot].as_mut() else {
            continue;
        };
        let Some(site) = adapter.layout.prompt.clone() else {
            continue;
        };
        let starts: Vec<usize> = pass
            .batch
            .sequences
            .iter()
            .filter(|s| s.job == index && s.start == 0)
            .map(|s| s.rows.start)
            .collect();
        // A sequence's share is counted with its first block; the others have none.
        let size = site.tokens * width;
        let none = vec![0.0; size];
        let parts: Vec<&[f32]> = job
            .blocks
            .iter()
            .map(|block| {
                let first = starts.contains(&block.start);
                if first {
                    &d_hidden[block.start * width..][..size]
                } else {
                    &none[..]
                }
            })
            .collect();
        let slot = adapter.gradient.slot(&site.embeddings, job.closes);
        sums::partials(pass, job, &parts, size, slot);
    }
}
