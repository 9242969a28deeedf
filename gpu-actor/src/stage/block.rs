//! One transformer block, forward and backward.
//!
//! h' = h + O(attention(rope(Q n1), rope(K n1), V n1)), n1 = rms_norm(h);
//! out = h' + D(silu(G n2) * (U n2)), n2 = rms_norm(h').
//! Shapes: h `(rows, hidden)`; q `(rows, heads * head_dim)`; k, v `(rows, kv_heads * head_dim)`; gate, up
//! `(rows, intermediate)`. Backward takes the gradient of `out` and returns that of `h` in the same buffer; the
//! backbone is frozen, so its weights have none.

use kernels::ops::{elementwise, rms_norm, swiglu};
use shared::model::Projection;

use super::attend::{self, Earlier};
use super::bottleneck::{self, Beside, Half};
use super::carried::Carried;
use super::linear;
use super::linear_reverse;
use super::pass::{Bank, Pass};
use super::tape::{LayerTape, Work};
use super::timing::Operator;

/// Computes a block in place on `hidden` `(rows, hidden)`, writing the tape. In a pass that only fills the tape once
/// more, the last product is left out where no method keeps something of it: `hidden` is then of no use.
pub(super) fn forward(
    pass: &Pass<'_>,
    bank: &Bank,
    layer: usize,
    hidden: &mut [f32],
    tape: &mut LayerTape,
    work: &mut Work,
    earlier: Earlier<'_>,
) {
    let (shape, weights) = (&pass.model.shape, pass.weights(layer));
    let (width, eps) = (shape.hidden, shape.norm_eps as f32);
    tape.residual.copy_from_slice(hidden);
    let norm = &weights.attention_norm;
    rms_norm::forward(
        pass.cpu,
        hidden,
        norm,
        eps,
        width,
        &mut work.normed,
        &mut tape.attention_root,
    );
    let LayerTape { q, k, v, sites, .. } = tape;
    let mut outputs = [(Projection::Q, q), (Projection::K, k), (Projection::V, v)];
    linear::forward(pass, bank, layer, &work.normed, &mut outputs, sites);
    attend::rotate_forward(pass, layer, tape);
    pass.time(Operator::Attention, || {
        attend::forward(pass, bank, layer, tape, earlier)
    });
    let mut outputs = [(Projection::O, &mut work.sub_output)];
    linear::forward(
        pass,
        bank,
        layer,
        &tape.attended,
        &mut outputs,
        &mut tape.sites,
    );
    let tape_b = &mut tape.attention_bottleneck;
    let (normed, y) = (&work.normed, &mut work.sub_output);
    pass.time(Operator::Adapters, || {
        bottleneck::forward(pass, bank, layer, Half::Attention, normed, y, tape_b)
    });
    elementwise::add(pass.cpu, hidden, &work.sub_output);

    tape.middle.copy_from_slice(hidden);
    let norm = &weights.feed_forward_norm;
    rms_norm::forward(
        pass.cpu,
        hidden,
        norm,
        eps,
        width,
        &mut work.normed,
        &mut tape.feed_forward_root,
    );
    let LayerTape {
        gate, up, sites, ..
    } = tape;
    let mut outputs = [(Projection::Gate, gate), (Projection::Up, up)];
    linear::forward(pass, bank, layer, &work.normed, &mut outputs, sites);
    swiglu::forward(pass.cpu, &tape.gate, &tape.up, &mut work.act);
    if pass.again && !bottleneck::reads_output(pass, bank, layer) {
        let site = &mut tape.sites[Projection::Down as usize];
        if linear::refill(pass, bank, layer, Projection::Down, &work.act, site) {
            // A parallel bottleneck keeps what it makes of the normed input; that it adds to an old output is no matter.
            let tape_b = &mut tape.feed_forward_bottleneck;
            let (normed, y) = (&work.normed, &mut work.sub_output);
            bottleneck::forward(pass, bank, layer, Half::FeedForward, normed, y, tape_b);
            return;
        }
    }
    let mut outputs = [(Projection::Down, &mut work.sub_output)];
    linear::forward(pass, bank, layer, &work.act, &mut outputs, &mut tape.sites);
    let tape_b = &mut tape.feed_forward_bottleneck;
    let (normed, y) = (&work.normed, &mut work.sub_output);
    pass.time(Operator::Adapters, || {
        bottleneck::forward(pass, bank, layer, Half::FeedForward, normed, y, tape_b)
    });
    elementwise::add(pass.cpu, hidden, &work.sub_output);
}

/// Turns the gradient of the block's output, in `work.d_hidden`, into that of its input, in the same place.
///
/// `needed` is false when nothing below this block trains; then the last products are left out. `carried` is there when
/// the rows are a chunk.
pub(super) fn backward(
    pass: &Pass<'_>,
    bank: &mut Bank,
    layer: usize,
    tape: &mut LayerTape,
    work: &mut Work,
    carried: Option<&mut Carried>,
    needed: bool,
) {
    feed_forward_backward(pass, bank, layer, tape, work);
    attention_backward(pass, bank, layer, tape, work, carried, needed);
}

fn feed_forward_backward(
    pass: &Pass<'_>,
    bank: &mut Bank,
    layer: usize,
    tape: &LayerTape,
    work: &mut Work,
) {
    let (shape, weights) = (&pass.model.shape, pass.weights(layer));
    let (width, norm) = (shape.hidden, &weights.feed_forward_norm);
    let eps = shape.norm_eps as f32;
    let root = &mut work.unused_root;
    rms_norm::forward(
        pass.cpu,
        &tape.middle,
        norm,
        eps,
        width,
        &mut work.normed,
        root,
    );
    swiglu::forward(pass.cpu, &tape.gate, &tape.up, &mut work.act);
    work.d_sub.copy_from_slice(&work.d_hidden);
    let tape_b = &tape.feed_forward_bottleneck;
    let (half, d_sub) = (Half::FeedForward, &mut work.d_sub);
    let beside = pass.time(Operator::Adapters, || {
        bottleneck::backward(pass, bank, layer, half, &work.normed, d_sub, tape_b)
    });
    let mut d_outputs = [(Projection::Down, &mut work.d_sub)];
    let d_act = Some(&mut work.d_act[..]);
    linear_reverse::backward(
        pass,
        bank,
        layer,
        &work.act,
        &mut d_outputs,
        d_act,
        &tape.sites,
    );
    let (d_gate, d_up) = (&mut work.d_gate, &mut work.d_up);
    swiglu::backward(pass.cpu, &work.d_act, &tape.gate, &tape.up, d_gate, d_up);
    let mut d_outputs = [(Projection::Gate, d_gate), (Projection::Up, d_up)];
    let d_normed = Some(&mut work.d_sub[..]);
    linear_reverse::backward(
        pass,
        bank,
        layer,
        &work.normed,
        &mut d_outputs,
        d_normed,
        &tape.sites,
    );
    Beside::add_all(pass.cpu, &beside, &mut work.d_sub, width);
    let root = &tape.feed_forward_root;
    let (d_sub, d_hidden) = (&work.d_sub, &mut work.d_hidden);
    rms_norm::backward(
        pass.cpu,
        d_sub,
        &tape.middle,
        norm,
        root,
        width,
        d_hidden,
        true,
    );
}

fn attention_backward(
    pass: &Pass<'_>,
    bank: &mut Bank,
    layer: usize,
    tape: &mut LayerTape,
    work: &mut Work,
    carried: Option<&mut Carried>,
    needed: bool,
) {
    let (shape, weights) = (&pass.model.shape, pass.weights(layer));
    let (width, norm) = (shape.hidden, &weights.attention_norm);
    let eps = shape.norm_eps as f32;
    let root = &mut work.unused_root;
    rms_norm::forward(
        pass.cpu,
        &tape.residual,
        norm,
        eps,
        width,
        &mut work.normed,
        root,
    );
    work.d_sub.copy_from_slice(&work.d_hidden);
    let tape_b = &tape.attention_bottleneck;
    let (half, d_sub) = (Half::Attention, &mut work.d_sub);
    let beside = pass.time(Operator::Adapters, || {
        bottleneck::backward(pass, bank, layer, half, &work.normed, d_sub, tape_b)
    });
    let mut d_attended = std::mem::take(&mut work.d_attended);
    let mut d_outputs = [(Projection::O, &mut work.d_sub)];
    let dx = Some(&mut d_attended[..]);
    linear_reverse::backward(
        pass,
        bank,
        layer,
        &tape.attended,
        &mut d_outputs,
        dx,
        &tape.sites,
    );
    pass.time(Operator::Attention, || {
        attend::backward(pass, bank, layer, tape, &d_attended, work, carried)
    });
    work.d_attended = d_attended;
    attend::rotate_backward(pass, layer, tape, work);
    let mut d_outputs = [
        (Projection::Q, &mut work.d_q),
        (Projection::K, &mut work.d_k),
        (Projection::V, &mut work.d_v),
    ];
    let dx = needed.then_some(&mut work.d_sub[..]);
    linear_reverse::backward(
        pass,
        bank,
        layer,
        &work.normed,
        &mut d_outputs,
        dx,
        &tape.sites,
    );
    if needed {
        Beside::add_all(pass.cpu, &beside, &mut work.d_sub, width);
        let root = &tape.attention_root;
        let (d_sub, d_hidden) = (&work.d_sub, &mut work.d_hidden);
        rms_norm::backward(
            pass.cpu,
            d_sub,
            &tape.residual,
            norm,
            root,
            width,
            d_hidden,
            true,
        );
    }
}
