//! Rotary positions and attention of every sequence in the batch, with prefixes and caches.

use kernels::ops::attention::{self, Heads, Prefix, PrefixGradient, Sequence, SequenceGradient};
use kernels::ops::{rms_norm, rope};
use shared::model::ModelShape;

use super::cache::KeyValueCache;
use super::linear::rows_of;
use super::pass::{Bank, Pass};
use super::sums;
use super::tape::{LayerTape, Work};
use crate::batch::BLOCK;

fn heads(shape: &ModelShape) -> Heads {
    Heads {
        heads: shape.heads,
        kv_heads: shape.kv_heads,
        head_dim: shape.head_dim,
        window: shape.sliding_window,
    }
}

/// Norms q and k per head where the family does, then rotates them in place.
pub(super) fn rotate_forward(pass: &Pass<'_>, layer: usize, tape: &mut LayerTape) {
    let (shape, weights) = (&pass.model.shape, pass.weights(layer));
    let (width, eps) = (shape.head_dim, shape.norm_eps as f32);
    if let (Some(q_norm), Some(k_norm)) = (&weights.q_norm, &weights.k_norm) {
        tape.q_raw.copy_from_slice(&tape.q);
        tape.k_raw.copy_from_slice(&tape.k);
        let root = &mut tape.q_root;
        rms_norm::forward(pass.cpu, &tape.q_raw, q_norm, eps, width, &mut tape.q, root);
        let root = &mut tape.k_root;
        rms_norm::forward(pass.cpu, &tape.k_raw, k_norm, eps, width, &mut tape.k, root);
    }
    let positions = &pass.batch.positions;
    rope::rotate(pass.cpu, pass.table, positions, &mut tape.q, width, false);
    rope::rotate(pass.cpu, pass.table, positions, &mut tape.k, width, false);
}

/// Reverses [`rotate_forward`] on `work.d_q` and `work.d_k`.
pub(super) fn rotate_backward(pass: &Pass<'_>, layer: usize, tape: &LayerTape, work: &mut Work) {
    let (shape, weights) = (&pass.model.shape, pass.weights(layer));
    let width = shape.head_dim;
    let positions = &pass.batch.positions;
    rope::rotate(pass.cpu, pass.table, positions, &mut work.d_q, width, true);
    rope::rotate(pass.cpu, pass.table, positions, &mut work.d_k, width, true);
    if let (Some(q_norm), Some(k_norm)) = (&weights.q_norm, &weights.k_norm) {
        for (d, raw, norm, root) in [
            (&mut work.d_q, &tape.q_raw, q_norm, &tape.q_root),
            (&mut work.d_k, &tape.k_raw, k_norm, &tape.k_root),
        ] {
            let d_normed = d.clone();
            rms_norm::backward(pass.cpu, &d_normed, raw, norm, root, width, d, false);
        }
    }
}

/// Attention of each sequence over its own tokens, its cache and its job's prefix; writes `tape.attended`.
pub(super) fn forward(
    pass: &Pass<'_>,
    bank: &Bank,
    layer: usize,
    tape: &mut LayerTape,
    mut caches: Option<&mut [KeyValueCache]>,
) {
    let shape = &pass.model.shape;
    let kv = shape.kv_width();
    if let Some(caches) = caches.as_deref_mut() {
        for (sequence, cache) in pass.batch.sequences.iter().zip(caches) {
            cache.keys[layer].extend_from_slice(rows_of(&tape.k, &sequence.rows, kv));
            cache.values[layer].extend_from_slice(rows_of(&tape.v, &sequence.rows, kv));
        }
    }
    let caches = caches.as_deref();
    let sequences = sequences(pass, bank, layer, &tape.k, &tape.v, caches);
    let (out, lse) = (&mut tape.attended, &mut tape.log_sum_exp);
    attention::forward(pass.cpu, heads(shape), &sequences, &tape.q, out, lse);
}

fn sequences<'a>(
    pass: &Pass<'_>,
    bank: &'a Bank,
    layer: usize,
    k: &'a [f32],
    v: &'a [f32],
    caches: Option<&'a [KeyValueCache]>,
) -> Vec<Sequence<'a>> {
    let shape = &pass.model.shape;
    let kv = shape.kv_width();
    let mut list = Vec::with_capacity(pass.batch.sequences.len());
    for (index, sequence) in pass.batch.sequences.iter().enumerate() {
        let (keys, values) = match caches {
            Some(caches) => (
                &caches[index].keys[layer][..],
                &caches[index].values[layer][..],
            ),
            None => (
                rows_of(k, &sequence.rows, kv),
                rows_of(v, &sequence.rows, kv),
            ),
        };
        let slot = pass.batch.jobs[sequence.job].slot;
        let prefix = bank
            .get(slot)
            .and_then(Option::as_ref)
            .and_then(|adapter| adapter.prefix(layer, shape))
            .map(|(keys, values)| Prefix { keys, values });
        list.push(Sequence {
            rows: sequence.rows.clone(),
            start: sequence.start,
            keys,
            values,
            prefix,
        });
    }
    list
}

/// Reverses [`forward`]: fills `work.d_q`, `work.d_k`, `work.d_v`, and adds prefix gradients block by block.
pub(super) fn backward(
    pass: &Pass<'_>,
    bank: &mut Bank,
    layer: usize,
    tape: &LayerTape,
    d_attended: &[f32],
    work: &mut Work,
) {
    let shape = &pass.model.shape;
    let kv = shape.kv_width();
    work.d_k.fill(0.0);
    work.d_v.fill(0.0);
    let mut partials = prefix_partials(pass, bank, kv);
    {
        let sequences = sequences(pass, bank, layer, &tape.k, &tape.v, None);
        let mut gradients = Vec::with_capacity(sequences.len());
        let (mut d_k, mut d_v) = (&mut work.d_k[..], &mut work.d_v[..]);
        for (sequence, partial) in sequences.iter().zip(&mut partials) {
            let size = sequence.rows.len() * kv;
            let (dkeys, rest) = d_k.split_at_mut(size);
            d_k = rest;
            let (dvalues, rest) = d_v.split_at_mut(size);
            d_v = rest;
            let prefix = partial.as_mut().map(|p| PrefixGradient {
                dkeys: &mut p.keys,
                dvalues: &mut p.values,
            });
            gradients.push(SequenceGradient {
                dkeys,
                dvalues,
                prefix,
            });
        }
        attention::backward(
            pass.cpu,
            heads(shape),
            &sequences,
            &mut gradients,
            &tape.q,
            &tape.attended,
            &tape.log_sum_exp,
            d_attended,
            &mut work.d_q,
        );
    }
    add_prefix_gradients(pass, bank, layer, kv, &partials);
}

/// One sequence's prefix gradients by block, `(blocks, tokens * kv_width)`.
struct PrefixPartial {
    tokens: usize,
    keys: Vec<f32>,
    values: Vec<f32>,
}

fn prefix_partials(pass: &Pass<'_>, bank: &Bank, kv: usize) -> Vec<Option<PrefixPartial>> {
    pass.batch
        .sequences
        .iter()
        .map(|sequence| {
            let adapter = bank.get(pass.batch.jobs[sequence.job].slot)?.as_ref()?;
            let tokens = adapter.layout.prefix.as_ref()?.tokens;
            let size = sequence.rows.len().div_ceil(BLOCK) * tokens * kv;
            Some(PrefixPartial {
                tokens,
                keys: vec![0.0; size],
                values: vec![0.0; size],
            })
        })
        .collect()
}

fn add_prefix_gradients(
    pass: &Pass<'_>,
    bank: &mut Bank,
    layer: usize,
    kv: usize,
    partials: &[Option<PrefixPartial>],
) {
    for (index, job) in pass.batch.jobs.iter().enumerate() {
        let Some(adapter) = bank.get_mut(job.slot).and_then(Option::as_mut) else {
            continue;
        };
        let own: Vec<&PrefixPartial> = pass
            .batch
            .sequences
            .iter()
            .zip(partials)
            .filter(|(sequence, _)| sequence.job == index)
            .filter_map(|(_, partial)| partial.as_ref())
            .collect();
        let Some(tokens) = own.first().map(|partial| partial.tokens) else {
            continue;
        };
        let size = tokens * kv;
        let layer = layer - adapter.layout.span.start;
        let blocks = |pick: fn(&PrefixPartial) -> &Vec<f32>| -> Vec<&[f32]> {
            own.iter()
                .flat_map(|partial| pick(partial).chunks(size))
                .collect()
        };
        let gradient = &mut adapter.derived.prefix_gradient;
        let (keys, values) = (blocks(|p| &p.keys), blocks(|p| &p.values));
        let keys_at = 2 * layer * size..(2 * layer + 1) * size;
        let values_at = (2 * layer + 1) * size..(2 * layer + 2) * size;
        sums::partials(pass, job, &keys, size, gradient.slot(&keys_at, job.last));
        sums::partials(
            pass,
            job,
            &values,
            size,
            gradient.slot(&values_at, job.last),
        );
    }
}
