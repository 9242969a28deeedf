//! All that a profile holds, timed on the engine.

use std::sync::Arc;

use coordinator::plan::curve::Points;
use coordinator::plan::device::Both;
use coordinator::plan::profile::{
    Adapter, Attention, Compute, Profile, Reconfiguration, Samples, Weights, processor,
};
use gpu_actor::model::Model;
use gpu_actor::stage::timing::Operator;
use kernels::cpu::Cpu;
use kernels::weight::Format;

use super::bed::{Bed, PassTime};
use super::products;
use super::rungs::{Kind, Rungs};
use super::way;
use crate::clock::Stopwatch;
use crate::exit::{Exit, Failure, OrExit};
use crate::interrupt::Interrupt;
use crate::machine;
use crate::render::Output;

/// Length of the sequences of passes in which attention is not what is timed.
const SHORT: usize = 64;
/// How long a change of plans is taken to last; not measured here.
const SWITCH_NANOS: u64 = 2_000_000_000;
/// What the program takes beside the backbone where the system does not tell.
const WORKSPACE: u64 = 64 << 20;
/// What is believed of a machine that does not tell its memory.
const MEMORY: u64 = 4 << 30;

/// What measures.
pub(crate) struct Gatherer<'a> {
    /// The backbone.
    pub(crate) model: &'a Arc<Model>,
    /// The threads.
    pub(crate) cpu: &'a Cpu,
    /// Sizes.
    pub(crate) rungs: Rungs,
    /// Who is told of progress.
    pub(crate) output: &'a Output,
    /// Whether the user wants it to end.
    pub(crate) interrupt: &'a Interrupt,
    /// Whether little is enough.
    pub(crate) quick: bool,
}

/// How planning calls a format of weights.
pub(crate) fn weights(format: Format) -> Weights {
    match format {
        Format::F32 => Weights::F32,
        Format::Bf16 => Weights::Bf16,
        Format::F16 => Weights::F16,
        Format::Q8_0 => Weights::Q8,
        Format::Q4_0 | Format::Q4_1 => Weights::Q4,
    }
}

/// How the weights of a model's blocks are kept, and its tables.
pub(crate) fn kept(model: &Model) -> (Weights, Weights) {
    let block = model.layers.first().map_or(Format::F32, |layer| {
        layer.projection(shared::model::Projection::Q).format()
    });
    (weights(block), weights(model.head().format()))
}

type Curves = Both<Points>;

fn push(points: &mut Curves, size: usize, forward: u64, backward: u64) {
    points.forward.push((size as u64, forward));
    points.backward.push((size as u64, backward));
}

impl Gatherer<'_> {
    /// The name of this device, as nodes say it.
    pub(crate) fn device(&self) -> String {
        let threads = u32::try_from(self.cpu.threads()).unwrap_or(u32::MAX);
        processor::name(&format!("cpu {}", self.cpu.isa()), threads)
    }

    /// Measures all; `load_rate` is at how many bytes a second layers were opened.
    ///
    /// # Errors
    /// [`Exit::BadInput`] for a model too small to be measured, [`Exit::Interrupted`].
    pub(crate) fn profile(&self, load_rate: u64) -> Result<Profile, Failure> {
        let mut bed = Bed::middle(self.model, self.cpu, self.rungs.passes)?;
        let plain = bed.attach(serde_json::json!(
            { "method": "ia3", "targets": ["k_proj"], "feedforward": [] }
        ))?;
        self.begin("products, norms and copies")?;
        let (frozen, rest) = self.block(&mut bed, plain)?;
        let products = products::time(bed.model(), self.cpu, &self.rungs.rows, self.rungs.passes);
        self.begin("attention")?;
        let attention = self.attention(&mut bed, plain)?;
        bed.detach(plain);
        self.begin("adapters")?;
        let adapters = self.adapters(&mut bed)?;
        let attach_nanos = self.attach(&mut bed)?;
        self.begin("head")?;
        let head = self.head()?;
        self.begin("the way to another process")?;
        let link = way::measure(self.quick)?;
        let (blocks, tables) = kept(self.model);
        let samples = Samples {
            device: self.device(),
            compute: Compute::F32,
            note: self.note(),
            memory_bytes: machine::available().map_or(MEMORY, |available| available.bytes),
            workspace_bytes: WORKSPACE,
            blocks,
            tables,
            products,
            frozen,
            rest,
            head,
            attention,
            adapters,
            links: vec![link],
            reconfiguration: Reconfiguration {
                attach_nanos,
                switch_nanos: SWITCH_NANOS,
                load_bytes_per_second: load_rate.max(1),
            },
        };
        samples.profile(&self.model.shape).or_exit(Exit::Internal)
    }

    fn begin(&self, what: &str) -> Result<(), Failure> {
        self.output.note(what);
        self.interrupt.check()
    }

    fn note(&self) -> String {
        let name = self
            .model
            .name
            .as_deref()
            .unwrap_or("a model without a name");
        let quick = if self.quick { ", quick" } else { "" };
        let load = machine::load_average().map_or(String::new(), |load| format!(", load {load}"));
        format!(
            "spotmux {}, layers of {name}{quick}{load}; how long a change of plans takes is assumed",
            env!("CARGO_PKG_VERSION")
        )
    }

    fn block(&self, bed: &mut Bed, slot: usize) -> Result<(Curves, Curves), Failure> {
        let (mut frozen, mut rest) = (Curves::default(), Curves::default());
        for &rows in &self.rungs.rows {
            self.interrupt.check()?;
            let PassTime { forward, backward } = bed.time(slot, rows, SHORT, rows)?;
            let each = |nanos: u64| nanos / bed.layers();
            let products = Operator::FrozenProducts;
            push(
                &mut frozen,
                rows,
                each(forward.of(products)),
                each(backward.of(products)),
            );
            push(&mut rest, rows, each(forward.rest()), each(backward.rest()));
        }
        Ok((frozen, rest))
    }

    fn attention(&self, bed: &mut Bed, slot: usize) -> Result<Vec<Attention>, Failure> {
        let shape = &self.model.shape;
        let mut all = Vec::new();
        for &length in &self.rungs.lengths {
            let mut points = Curves::default();
            for rows in self.rungs.rows_of_length(length) {
                self.interrupt.check()?;
                let PassTime { forward, backward } = bed.time(slot, rows, length, rows)?;
                let of = Operator::Attention;
                let each = |nanos: u64| nanos / bed.layers();
                push(
                    &mut points,
                    rows,
                    each(forward.of(of)),
                    each(backward.of(of)),
                );
            }
            all.push(Attention {
                heads: shape.heads as u64,
                kv_heads: shape.kv_heads as u64,
                head_dim: shape.head_dim as u64,
                length: length as u64,
                forward: points.forward,
                backward: points.backward,
            });
        }
        Ok(all)
    }

    fn adapters(&self, bed: &mut Bed) -> Result<Vec<Adapter>, Failure> {
        let hidden = self.model.shape.hidden;
        let shapes = products::shapes(self.model);
        let mut all = Vec::new();
        for kind in self.rungs.kinds() {
            let places: Vec<((usize, usize), &str)> = if kind.at_linear {
                let first = |(shape, alike): &((usize, usize), Vec<shared::model::Projection>)| {
                    (
                        *shape,
                        alike
                            .first()
                            .map_or("q_proj", |projection| projection.name()),
                    )
                };
                shapes.iter().map(first).collect()
            } else {
                vec![((hidden, hidden), "")]
            };
            for (shape, target) in places {
                all.push(self.adapter(bed, &kind, shape, target)?);
            }
        }
        Ok(all)
    }

    fn adapter(
        &self,
        bed: &mut Bed,
        kind: &Kind,
        (out, input): (usize, usize),
        target: &str,
    ) -> Result<Adapter, Failure> {
        let slot = bed.attach(kind.spec(target))?;
        let mut points = Curves::default();
        for &rows in &self.rungs.adapter_rows {
            self.interrupt.check()?;
            let PassTime { forward, backward } = bed.time(slot, rows, SHORT, rows)?;
            let each = |nanos: u64| nanos / bed.layers();
            push(
                &mut points,
                rows,
                each(forward.adapters()),
                each(backward.adapters()),
            );
        }
        bed.detach(slot);
        Ok(Adapter {
            method: kind.method.to_owned(),
            width: kind.width,
            out: out as u64,
            input: input as u64,
            forward: points.forward,
            backward: points.backward,
            // All threads work on one operation: what two adapters take adds up.
            utilisation: vec![(1, 1000)],
        })
    }

    /// Nanoseconds until an adapter of all linear layers is on the whole backbone.
    fn attach(&self, bed: &mut Bed) -> Result<u64, Failure> {
        let clock = Stopwatch::start();
        let slot = bed.attach(serde_json::json!({ "method": "lora", "rank": 16 }))?;
        let nanos = u64::try_from(clock.elapsed().as_nanos()).unwrap_or(u64::MAX);
        bed.detach(slot);
        Ok(nanos)
    }

    fn head(&self) -> Result<Curves, Failure> {
        let mut bed = Bed::end(self.model, self.cpu, self.rungs.passes);
        let slot = bed.attach(serde_json::json!(
            { "method": "ia3", "targets": ["k_proj"], "feedforward": [] }
        ))?;
        let mut points = Curves::default();
        for &counted in &self.rungs.counted {
            self.interrupt.check()?;
            // The first row of each sequence has no label of its own.
            let rows = counted + counted.div_ceil(SHORT - 1);
            let PassTime { forward, backward } = bed.time(slot, rows, SHORT, counted)?;
            let of = Operator::Head;
            push(&mut points, counted, forward.of(of), backward.of(of));
        }
        Ok(points)
    }
}
