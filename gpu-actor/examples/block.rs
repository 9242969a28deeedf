//! Blocks of a frozen backbone, forward and backward to their input: our stage against candle's tape.
//!
//! ```text
//! cargo run --release -p gpu-actor --example block [-- LAYERS ROWS]
//! ```
//!
//! Both sides compute LAYERS blocks of the sizes of SmolLM2-135M (4 unless said) on one sequence of ROWS rows (512),
//! in f32, on two threads, in turns; the best of five counts. Peaks are growth of resident memory during a pass.
//! candle's side is written with its own operations, the way its models are.

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use candle_core::{D, DType, Device, Result as CandleResult, Tensor, Var};
use data::rows::TokenRow;
use gpu_actor::model::tiny::{TinySpec, write_tiny};
use gpu_actor::model::{LayerWeights, Model, OpenOptions};
use gpu_actor::peft::init;
use gpu_actor::peft::layout::Layout;
use gpu_actor::stage::adapter::Adapter;
use gpu_actor::stage::step::Stage;
use gpu_actor::train::pack::{self, Request};
use kernels::cpu::Cpu;
use kernels::weight::Weight;
use shared::job::{AdapterSpec, PromptSpec};
use shared::model::Projection;

const REPEATS: usize = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default| match arguments.next() {
        Some(text) => text.parse::<usize>(),
        None => Ok(default),
    };
    let (layers, rows) = (number(4)?, number(512)?);
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("model");
    let spec = TinySpec {
        hidden: 576,
        layers,
        heads: 9,
        kv_heads: 3,
        head_dim: 64,
        intermediate: 1536,
        max_positions: rows.max(8),
        ..TinySpec::default()
    };
    write_tiny(&path, &spec)?;
    let cpu = Cpu::new(2)?;
    let model = Arc::new(Model::open(&path, &OpenOptions::new(cpu.clone()))?);
    let mut ours = Ours::new(&model, &cpu, rows);
    let theirs = Theirs::new(&model, rows)?;
    let (mut fast, mut tape) = (Measure::default(), Measure::default());
    for _ in 0..REPEATS {
        fast.take(|| {
            ours.pass();
            Ok(())
        })?;
        tape.take(|| theirs.pass())?;
    }
    println!("{layers} blocks, {rows} rows, forward and backward, best of {REPEATS}");
    println!("ours    {:8.1} ms  peak {:6.1} MB", fast.ms, fast.megabytes);
    println!("candle  {:8.1} ms  peak {:6.1} MB", tape.ms, tape.megabytes);
    let (time, memory) = (tape.ms / fast.ms, tape.megabytes / fast.megabytes);
    println!("candle over ours: time {time:.2}, memory {memory:.2}");
    Ok(())
}

/// The best time and the largest growth of memory.
struct Measure {
    ms: f64,
    megabytes: f64,
}

impl Default for Measure {
    fn default() -> Self {
        Self {
            ms: f64::INFINITY,
            megabytes: 0.0,
        }
    }
}

impl Measure {
    #[expect(clippy::disallowed_methods, reason = "measures")]
    fn take(&mut self, pass: impl FnOnce() -> CandleResult<()>) -> Result<(), Box<dyn Error>> {
        std::fs::write("/proc/self/clear_refs", "5")?;
        let before = kilobytes("VmRSS:")?;
        let start = Instant::now();
        pass()?;
        self.ms = self.ms.min(1e3 * start.elapsed().as_secs_f64());
        let grown = kilobytes("VmHWM:")?.saturating_sub(before);
        self.megabytes = self.megabytes.max(grown as f64 / 1e3);
        Ok(())
    }
}

fn kilobytes(key: &str) -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let number = line.and_then(|line| line.split_whitespace().next());
    Ok(number.ok_or("no such line in /proc/self/status")?.parse()?)
}

/// Prompt tuning with one virtual token: the gradient goes down to the input, and no weight has one.
struct Ours {
    stage: Stage,
    slot: usize,
    row: TokenRow,
}

impl Ours {
    fn new(model: &Arc<Model>, cpu: &Cpu, rows: usize) -> Self {
        let prompt = AdapterSpec::Prompt(PromptSpec {
            tokens: 1,
            init_text: None,
        });
        let layout = Arc::new(Layout::new(&prompt, &model.shape, 0));
        let values = init::values(&layout, model, cpu, 0, &[]);
        let mut stage = Stage::new(Arc::clone(model), cpu.clone());
        let slot = stage.attach(Adapter::new(layout, values, 0));
        let ids: Vec<u32> = (0..rows as u32 - 1).map(|token| token % 250).collect();
        let mut labels = vec![-100; ids.len()];
        if let Some(last) = labels.last_mut() {
            *last = 1;
        }
        let row = TokenRow::new(ids, labels);
        Self { stage, slot, row }
    }

    fn pass(&mut self) {
        let request = Request {
            slot: self.slot,
            prompt_tokens: 1,
            prefix_tokens: 0,
            step: 0,
            rows: vec![&self.row],
            part: None,
        };
        for batch in pack::passes(&[request], usize::MAX, pack::Cut::Anywhere) {
            self.stage.train(&batch);
        }
    }
}

/// A block's weights as tensors, matrices turned to `(in, out)` views.
struct Block {
    projections: Vec<Tensor>,
    attention_norm: Tensor,
    feed_forward_norm: Tensor,
}

struct Theirs {
    blocks: Vec<Block>,
    input: Var,
    cosines: Tensor,
    sines: Tensor,
    mask: Tensor,
    heads: usize,
    kv_heads: usize,
    eps: f64,
}

impl Theirs {
    fn new(model: &Model, rows: usize) -> Result<Self, Box<dyn Error>> {
        let (shape, device) = (&model.shape, Device::Cpu);
        let blocks = model.layers.iter().map(Block::new);
        let half = shape.head_dim / 2;
        let turns: Vec<f32> = (0..rows)
            .flat_map(|row| {
                let turn = move |turn: &f64| (row as f64 * turn) as f32;
                let frequencies = model.inverse_frequencies();
                frequencies.iter().map(turn).collect::<Vec<_>>()
            })
            .collect();
        let turns = Tensor::from_vec(turns, (rows, half), &device)?;
        let hidden = |cell: usize| cell % rows > cell / rows;
        let mask = (0..rows * rows).map(|cell| if hidden(cell) { f32::NEG_INFINITY } else { 0.0 });
        let input = Tensor::randn(0f32, 1.0, (rows, shape.hidden), &device)?;
        Ok(Self {
            blocks: blocks.collect::<CandleResult<_>>()?,
            input: Var::from_tensor(&input)?,
            cosines: turns.cos()?,
            sines: turns.sin()?,
            mask: Tensor::from_vec(mask.collect(), (rows, rows), &device)?,
            heads: shape.heads,
            kv_heads: shape.kv_heads,
            eps: shape.norm_eps,
        })
    }

    fn pass(&self) -> CandleResult<()> {
        let mut hidden = self.input.as_tensor().clone();
        for block in &self.blocks {
            hidden = self.block(block, &hidden)?;
        }
        let gradients = hidden.sum_all()?.backward()?;
        gradients.get(&self.input).expect("the input is a variable");
        Ok(())
    }

    fn block(&self, block: &Block, hidden: &Tensor) -> CandleResult<Tensor> {
        let product =
            |x: &Tensor, projection: Projection| x.matmul(&block.projections[projection as usize]);
        let normed = self.norm(hidden, &block.attention_norm)?;
        let q = self.rotate(&self.split(&product(&normed, Projection::Q)?, self.heads)?)?;
        let k = self.rotate(&self.split(&product(&normed, Projection::K)?, self.kv_heads)?)?;
        let v = self.split(&product(&normed, Projection::V)?, self.kv_heads)?;
        let attended = self.attend(&q, &self.repeat(&k)?, &self.repeat(&v)?)?;
        let middle = (hidden + product(&attended, Projection::O)?)?;
        let normed = self.norm(&middle, &block.feed_forward_norm)?;
        let gate = product(&normed, Projection::Gate)?.silu()?;
        let inner = (gate * product(&normed, Projection::Up)?)?;
        middle + product(&inner, Projection::Down)?
    }

    fn norm(&self, x: &Tensor, weight: &Tensor) -> CandleResult<Tensor> {
        let root = (x.sqr()?.mean_keepdim(D::Minus1)? + self.eps)?.sqrt()?;
        x.broadcast_div(&root)?.broadcast_mul(weight)
    }

    /// `(rows, heads * head_dim)` to `(heads, rows, head_dim)`.
    fn split(&self, x: &Tensor, heads: usize) -> CandleResult<Tensor> {
        let (rows, width) = x.dims2()?;
        x.reshape((rows, heads, width / heads))?
            .transpose(0, 1)?
            .contiguous()
    }

    fn rotate(&self, x: &Tensor) -> CandleResult<Tensor> {
        let half = x.dim(D::Minus1)? / 2;
        let (a, b) = (
            x.narrow(D::Minus1, 0, half)?,
            x.narrow(D::Minus1, half, half)?,
        );
        let turned = |x: &Tensor, y: &Tensor| {
            x.broadcast_mul(&self.cosines)?
                .sub(&y.broadcast_mul(&self.sines)?)
        };
        let first = turned(&a, &b)?;
        let second = (b.broadcast_mul(&self.cosines)? + a.broadcast_mul(&self.sines)?)?;
        Tensor::cat(&[first, second], D::Minus1)
    }

    /// Each key head for all its query heads.
    fn repeat(&self, x: &Tensor) -> CandleResult<Tensor> {
        let (kv_heads, rows, dim) = x.dims3()?;
        let members = self.heads / kv_heads;
        let wide = x.unsqueeze(1)?.expand((kv_heads, members, rows, dim))?;
        wide.reshape((self.heads, rows, dim))?.contiguous()
    }

    fn attend(&self, q: &Tensor, k: &Tensor, v: &Tensor) -> CandleResult<Tensor> {
        let (heads, rows, dim) = q.dims3()?;
        let scores =
            (q.matmul(&k.t()?)? * (1.0 / (dim as f64).sqrt()))?.broadcast_add(&self.mask)?;
        let most = scores.max_keepdim(D::Minus1)?.detach();
        let weights = scores.broadcast_sub(&most)?.exp()?;
        let weights = weights.broadcast_div(&weights.sum_keepdim(D::Minus1)?)?;
        weights
            .matmul(v)?
            .transpose(0, 1)?
            .reshape((rows, heads * dim))
    }
}

impl Block {
    fn new(layer: &LayerWeights) -> CandleResult<Self> {
        let vector = |values: &[f32]| Tensor::from_slice(values, values.len(), &Device::Cpu);
        let turned = |weight: &Weight| matrix(weight)?.t();
        Ok(Self {
            projections: layer
                .projections
                .iter()
                .map(turned)
                .collect::<CandleResult<_>>()?,
            attention_norm: vector(&layer.attention_norm)?,
            feed_forward_norm: vector(&layer.feed_forward_norm)?,
        })
    }
}

fn matrix(weight: &Weight) -> CandleResult<Tensor> {
    let mut values = vec![0.0f32; weight.rows() * weight.cols()];
    for (row, values) in values.chunks_exact_mut(weight.cols()).enumerate() {
        weight.row(row, values);
    }
    Tensor::from_vec(values, (weight.rows(), weight.cols()), &Device::Cpu)?.to_dtype(DType::F32)
}
