//! What backward needs of forward, and nothing else; with its size known before it is made.
//!
//! Kept per block and row: the residual input, the roots of the norms, q, k, v after rotation, the attention
//! output and its log-sum-exp, the residual between the two halves, gate and up; the low-rank intermediates of
//! each adapted site; outputs only where a method scales them. Normed inputs, attention weights and the product
//! gate * up are computed again. Of a layer that recomputes only the residual input is kept, and the rest is written
//! once more, into a tape that all such layers share. Buffers are reused from pass to pass.

use shared::model::ModelShape;

/// What one linear site keeps for its adapters.
#[derive(Clone, Debug, Default)]
pub(super) struct SiteTape {
    /// Low-rank intermediates, job after job, each `(rows, rank)`.
    pub(super) low: Vec<f32>,
    /// Outputs before a learned scale, job after job, each `(rows, out)`; for DoRA divided by the row norms.
    pub(super) outputs: Vec<f32>,
}

/// What one bottleneck site keeps.
#[derive(Clone, Debug, Default)]
pub(super) struct BottleneckTape {
    /// Inputs of serial adapters, job after job, each `(rows, hidden)`.
    pub(super) inputs: Vec<f32>,
    /// Inner values before the non-linearity, job after job, each `(rows, size)`.
    pub(super) inner: Vec<f32>,
}

/// What one block keeps. Shapes are `(rows, width)`.
#[derive(Clone, Debug, Default)]
pub(super) struct LayerTape {
    pub(super) residual: Vec<f32>,
    pub(super) attention_root: Vec<f32>,
    pub(super) q: Vec<f32>,
    pub(super) k: Vec<f32>,
    pub(super) v: Vec<f32>,
    /// Before the per-head norms (Qwen3 only).
    pub(super) q_raw: Vec<f32>,
    pub(super) k_raw: Vec<f32>,
    pub(super) q_root: Vec<f32>,
    pub(super) k_root: Vec<f32>,
    pub(super) attended: Vec<f32>,
    pub(super) log_sum_exp: Vec<f32>,
    pub(super) middle: Vec<f32>,
    pub(super) feed_forward_root: Vec<f32>,
    pub(super) gate: Vec<f32>,
    pub(super) up: Vec<f32>,
    pub(super) sites: [SiteTape; 7],
    pub(super) attention_bottleneck: BottleneckTape,
    pub(super) feed_forward_bottleneck: BottleneckTape,
}

impl LayerTape {
    /// Makes room for so many rows.
    pub(super) fn resize(&mut self, rows: usize, shape: &ModelShape) {
        let (q, kv) = (shape.q_width(), shape.kv_width());
        self.residual.resize(rows * shape.hidden, 0.0);
        self.attention_root.resize(rows, 0.0);
        self.q.resize(rows * q, 0.0);
        self.k.resize(rows * kv, 0.0);
        self.v.resize(rows * kv, 0.0);
        if shape.qk_norm {
            self.q_raw.resize(rows * q, 0.0);
            self.k_raw.resize(rows * kv, 0.0);
            self.q_root.resize(rows * shape.heads, 0.0);
            self.k_root.resize(rows * shape.kv_heads, 0.0);
        }
        self.attended.resize(rows * q, 0.0);
        self.log_sum_exp.resize(rows * shape.heads, 0.0);
        self.middle.resize(rows * shape.hidden, 0.0);
        self.feed_forward_root.resize(rows, 0.0);
        self.gate.resize(rows * shape.intermediate, 0.0);
        self.up.resize(rows * shape.intermediate, 0.0);
    }
}

impl LayerTape {
    /// Bytes in use.
    pub(super) fn bytes(&self) -> u64 {
        let own = [
            &self.residual,
            &self.attention_root,
            &self.q,
            &self.k,
            &self.v,
            &self.q_raw,
            &self.k_raw,
            &self.q_root,
            &self.k_root,
            &self.attended,
            &self.log_sum_exp,
            &self.middle,
            &self.feed_forward_root,
            &self.gate,
            &self.up,
        ];
        let sites = self
            .sites
            .iter()
            .flat_map(|site| [&site.low, &site.outputs]);
        let bottlenecks = [&self.attention_bottleneck, &self.feed_forward_bottleneck];
        let bottlenecks = bottlenecks
            .into_iter()
            .flat_map(|tape| [&tape.inputs, &tape.inner]);
        let all = own.into_iter().chain(sites).chain(bottlenecks);
        all.map(|values| size_of_val(&values[..]) as u64).sum()
    }
}

/// Bytes the tape of one layer keeps per row of a batch, without adapters.
#[must_use]
pub fn bytes_per_row_and_layer(shape: &ModelShape) -> u64 {
    let attention = 2 * shape.q_width() + 2 * shape.kv_width() + shape.heads;
    let norms = if shape.qk_norm {
        shape.q_width() + shape.kv_width() + shape.heads + shape.kv_heads
    } else {
        0
    };
    let values = 2 * shape.hidden + 2 + attention + norms + 2 * shape.intermediate;
    (values * size_of::<f32>()) as u64
}

/// Numbers of [`Work`] a row of a batch, without the tape of a block that is not kept.
pub(super) fn work_per_row(shape: &ModelShape) -> usize {
    let attention = 2 * shape.q_width() + 2 * shape.kv_width();
    4 * shape.hidden + 4 * shape.intermediate + attention + 1
}

/// Row-shaped buffers that live for one half of one block, and the tape of a block that is not kept.
#[derive(Clone, Debug, Default)]
pub(super) struct Work {
    pub(super) normed: Vec<f32>,
    pub(super) sub_output: Vec<f32>,
    pub(super) act: Vec<f32>,
    pub(super) d_hidden: Vec<f32>,
    pub(super) d_sub: Vec<f32>,
    pub(super) d_act: Vec<f32>,
    pub(super) d_gate: Vec<f32>,
    pub(super) d_up: Vec<f32>,
    pub(super) d_attended: Vec<f32>,
    pub(super) d_q: Vec<f32>,
    pub(super) d_k: Vec<f32>,
    pub(super) d_v: Vec<f32>,
    pub(super) unused_root: Vec<f32>,
    /// What the block under way would keep, when it recomputes or never comes back.
    pub(super) passing: LayerTape,
}

impl Work {
    /// Makes room for so many rows.
    pub(super) fn resize(&mut self, rows: usize, shape: &ModelShape) {
        let (q, kv, ffn) = (shape.q_width(), shape.kv_width(), shape.intermediate);
        for buffer in [
            &mut self.normed,
            &mut self.sub_output,
            &mut self.d_hidden,
            &mut self.d_sub,
        ] {
            buffer.resize(rows * shape.hidden, 0.0);
        }
        for buffer in [
            &mut self.act,
            &mut self.d_act,
            &mut self.d_gate,
            &mut self.d_up,
        ] {
            buffer.resize(rows * ffn, 0.0);
        }
        self.d_attended.resize(rows * q, 0.0);
        self.d_q.resize(rows * q, 0.0);
        self.d_k.resize(rows * kv, 0.0);
        self.d_v.resize(rows * kv, 0.0);
        self.unused_root.resize(rows, 0.0);
    }
}
