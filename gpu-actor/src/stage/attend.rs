//! Rotary positions and attention of every sequence in the batch, with prefixes and caches.
//!
//! Where a family norms queries and keys per head, one whose sum of squares is infinite would come out as zeros: attention
//! of a guess, a finite loss, and no gradient ever. Such a head is no number, and so is the loss that it reaches.

use std::ops::Range;

use kernels::ops::attention::{self, Heads, Prefix, PrefixGradient, Sequence, SequenceGradient};
use kernels::ops::{rms_norm, rope};
use shared::model::ModelShape;

use super::cache::KeyValueCache;
use super::carried::Carried;
use super::linear::rows_of;
use super::pass::{Bank, Pass};
use super::sums;
use super::tape::{LayerTape, Work};
use crate::batch::BLOCK;

/// Where keys and values of earlier rows are.
#[derive(Debug, Default)]
pub(super) enum Earlier<'a> {
    /// Nowhere: every sequence begins in the pass.
    #[default]
    None,
    /// In a cache for each sequence, behind which those of the pass go.
    Caches(&'a mut [KeyValueCache]),
    /// With the one sequence of the pass, which is a chunk.
    Carried(&'a mut Carried),
}

impl Earlier<'_> {
    /// The same for one layer after another.
    pub(super) fn again(&mut self) -> Earlier<'_> {
        match self {
            Self::None => Earlier::None,
            Self::Caches(caches) => Earlier::Caches(caches),
            Self::Carried(carried) => Earlier::Carried(carried),
        }
    }
}

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

/// Attention of each sequence over its own tokens, what came before and its job's prefix; writes `tape.attended`.
pub(super) fn forward(
    pass: &Pass<'_>,
    bank: &Bank,
    layer: usize,
    tape: &mut LayerTape,
    mut earlier: Earlier<'_>,
) {
    let shape = &pass.model.shape;
    let kv = shape.kv_width();
    match &mut earlier {
        Earlier::None => {}
        Earlier::Caches(caches) => {
            for (sequence, cache) in pass.batch.sequences.iter().zip(caches.iter_mut()) {
                cache.keys[layer].extend_from_slice(rows_of(&tape.k, &sequence.rows, kv));
                cache.values[layer].extend_from_slice(rows_of(&tape.v, &sequence.rows, kv));
            }
        }
        Earlier::Carried(carried) => carried.put(layer, &tape.k, &tape.v),
    }
    let sequences = sequences(pass, bank, layer, |index, rows| match &earlier {
        Earlier::None => (rows_of(&tape.k, rows, kv), rows_of(&tape.v, rows, kv)),
        Earlier::Caches(caches) => {
            let cache = &caches[index];
            (&cache.keys[layer][..], &cache.values[layer][..])
        }
        Earlier::Carried(carried) => carried.seen(layer),
    });
    let (out, lse) = (&mut tape.attended, &mut tape.log_sum_exp);
    attention::forward(pass.cpu, heads(shape), &sequences, &tape.q, out, lse);
}

/// The sequences of a pass with the keys and values that each sees.
fn sequences<'a>(
    pass: &Pass<'_>,
    bank: &'a Bank,
    layer: usize,
    seen: impl Fn(usize, &Range<usize>) -> (&'a [f32], &'a [f32]),
) -> Vec<Sequence<'a>> {
    let shape = &pass.model.shape;
    let mut list = Vec::with_capacity(pass.batch.sequences.len());
    for (index, sequence) in pass.batch.sequences.iter().enumerate() {
        let (keys, values) = seen(index, &sequence.rows);
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
    mut carried: Option<&mut Carried>,
) {
    let shape = &pass.model.shape;
    let kv = shape.kv_width();
    let mut partials = prefix_partials(pass, bank, kv);
    {
        // A chunk's gradients go to all rows that it saw; else each sequence has its own.
        let ((keys, mut d_k), (values, mut d_v)) = match carried.as_deref_mut() {
            Some(carried) => {
                let [keys, values] = carried.with_gradients(layer);
                (keys, values)
            }
            None => {
                work.d_k.fill(0.0);
                work.d_v.fill(0.0);
                let own = (&tape.k[..], &mut work.d_k[..]);
                (own, (&tape.v[..], &mut work.d_v[..]))
            }
        };
        let chunk = pass.batch.chunk();
        let sequences = sequences(pass, bank, layer, |_, rows| match chunk {
            Some(_) => (keys, values),
            None => (rows_of(keys, rows, kv), rows_of(values, rows, kv)),
        });
        let mut gradients = Vec::with_capacity(sequences.len());
        for (sequence, partial) in sequences.iter().zip(&mut partials) {
            let size = sequence.keys.len();
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
    if let Some(carried) = carried {
        let (d_keys, d_values) = carried.own_gradients(layer);
        work.d_k.copy_from_slice(d_keys);
        work.d_v.copy_from_slice(d_values);
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
        sums::partials(pass, job, &keys, size, gradient.slot(&keys_at, job.closes));
        sums::partials(
            pass,
            job,
            &values,
            size,
            gradient.slot(&values_at, job.closes),
        );
    }
}
