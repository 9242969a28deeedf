//! Passes of micro-batches through a stage: forward from the stage before to the one behind, and back.
//!
//! Several may be under way. A stage that holds the whole model is both first and last; [`Stage::train`] then sends one
//! micro-batch there and back. How a sequence passes in chunks is in `stage/chunks.rs`.

use std::sync::Arc;

use super::adapter::Adapter;
use super::attend::Earlier;
use super::block;
use super::cache::KeyValueCache;
use super::carried::Carried;
use super::embed;
use super::in_flight::Kept;
use super::loss::{self, Labelled};
use super::origin::Trail;
use super::outcome::JobOutcome;
use super::pass::Pass;
use super::step::Stage;
use super::tape::{LayerTape, Work};
use super::timing::Operator;
use crate::batch::Batch;

/// What comes out of a stage in the forward direction.
#[derive(Clone, Debug, PartialEq)]
pub enum Passed {
    /// The residual stream `(rows, hidden)`, for the stage behind.
    Hidden(Vec<f32>),
    /// What the last stage found out.
    Outcomes(Vec<JobOutcome>),
}

impl Stage {
    /// Forward and backward of a batch: losses returned, gradients added to each job's tree.
    ///
    /// # Panics
    /// When the stage does not hold the whole model, or the batch is a chunk.
    pub fn train(&mut self, batch: &Batch) -> Vec<JobOutcome> {
        assert!(batch.cut.is_none(), "chunks are trained together");
        assert!(
            self.is_first() && self.is_last(),
            "a part of the model is trained by forward and backward passes"
        );
        self.within(|stage| {
            let mut tape = stage.in_flight.tape();
            let hidden = stage.blocks(batch, None, true, Earlier::None, Some(&mut tape));
            let labelled = stage.losses(batch, true, &hidden);
            let outcomes = stage.outcomes(batch, &labelled, &tape);
            stage.note_peak(&tape, Some(&labelled), None);
            stage.seed(batch, &labelled);
            stage.reverse(batch, &mut tape, None);
            stage.in_flight.reuse(tape);
            outcomes
        })
    }

    /// Forward only: losses of a batch without dropout and without gradients.
    ///
    /// # Panics
    /// When the stage does not hold the whole model.
    pub fn evaluate(&mut self, batch: &Batch) -> Vec<JobOutcome> {
        match self.measure_rows(batch, None) {
            Passed::Outcomes(outcomes) => outcomes,
            Passed::Hidden(_) => panic!("a part of the model cannot evaluate"),
        }
    }

    /// Logits `(wanted, vocab)` of chosen rows; with caches (one a sequence), keys and values are appended.
    ///
    /// # Panics
    /// When the stage does not hold the whole model.
    pub fn logits(
        &mut self,
        batch: &Batch,
        wanted: &[usize],
        caches: Option<&mut [KeyValueCache]>,
    ) -> Vec<f32> {
        assert!(self.is_last(), "a part of the model has no logits");
        self.read_rows(batch, None, wanted, caches)
    }

    /// Sends a micro-batch through, and keeps what its backward pass needs.
    ///
    /// `input` is the residual stream `(rows, hidden)` from the stage before; none on the first stage.
    ///
    /// # Panics
    /// When the input is missing, superfluous or of another size, or the number is under way already.
    pub fn forward(&mut self, number: u64, batch: Arc<Batch>, input: Option<Vec<f32>>) -> Passed {
        if let Some(chunk) = batch.chunk() {
            return self.forward_chunk((number, chunk), batch, input);
        }
        self.within(|stage| {
            let mut tape = stage.in_flight.tape();
            let hidden = stage.blocks(&batch, input, true, Earlier::None, Some(&mut tape));
            let labelled = stage.is_last().then(|| stage.losses(&batch, true, &hidden));
            let passed = match &labelled {
                Some(labelled) => Passed::Outcomes(stage.outcomes(&batch, labelled, &tape)),
                None => Passed::Hidden(hidden),
            };
            let kept = Kept {
                batch,
                tape: Some(tape),
                input: None,
                labelled,
            };
            stage.in_flight.keep(number, kept);
            stage.note_peak(&[], None, None);
            passed
        })
    }

    /// Sends a micro-batch back: adds to the gradients of the adapters, and returns that of the input, for the stage
    /// before; none on the first stage.
    ///
    /// `d_output` is the gradient of what [`Stage::forward`] gave, `(rows, hidden)`; none on the last stage.
    ///
    /// # Panics
    /// When no such micro-batch is under way, or `d_output` is missing, superfluous or of another size.
    pub fn backward(&mut self, number: u64, d_output: Option<Vec<f32>>) -> Option<Vec<f32>> {
        let kept = self.in_flight.release(number);
        let Kept {
            batch,
            tape,
            input,
            labelled,
        } = kept.expect("a micro-batch goes forward before it comes back");
        self.within(|stage| {
            let chunk = batch.chunk();
            let mut carried = chunk.map(|chunk| stage.in_flight.carry_back(chunk));
            let mut tape = match (tape, &mut carried) {
                (Some(tape), _) => tape,
                (None, Some(carried)) => stage.again(&batch, input, carried),
                (None, None) => unreachable!("only a chunk runs forward again"),
            };
            stage.note_peak(&tape, labelled.as_ref(), carried.as_ref());
            stage.work.resize(batch.rows(), &stage.model.shape);
            match (labelled, d_output) {
                (Some(labelled), None) => stage.seed(&batch, &labelled),
                (None, Some(gradient)) => {
                    let size = stage.work.d_hidden.len();
                    assert_eq!(gradient.len(), size, "the gradient of another micro-batch");
                    stage.work.d_hidden = gradient;
                }
                _ => panic!("the last stage, and only it, computes its own gradient"),
            }
            stage.reverse(&batch, &mut tape, carried.as_mut());
            stage.in_flight.reuse(tape);
            if let (Some(carried), Some(chunk)) = (carried, chunk) {
                stage.in_flight.put_back(carried, chunk);
            }
            (!stage.is_first()).then(|| std::mem::take(&mut stage.work.d_hidden))
        })
    }

    /// Sends a micro-batch through forward only, without dropout, and keeps nothing of it: held-out rows.
    ///
    /// `input` is the residual stream `(rows, hidden)` from the stage before; none on the first stage.
    ///
    /// # Panics
    /// When the input is missing, superfluous or of another size.
    pub fn measure_rows(&mut self, batch: &Batch, input: Option<Vec<f32>>) -> Passed {
        self.within(|stage| {
            let chunk = batch.chunk();
            let mut carried = chunk.map(|chunk| stage.in_flight.carry(chunk, &stage.model, false));
            let mut earlier = carried.as_mut().map_or(Earlier::None, Earlier::Carried);
            let again = input.clone().filter(|_| stage.is_last());
            let hidden = stage.blocks(batch, input, false, earlier.again(), None);
            let passed = if stage.is_last() {
                let labelled = stage.losses(batch, false, &hidden);
                Passed::Outcomes(stage.traced(batch, again, &labelled, (false, earlier)))
            } else {
                Passed::Hidden(hidden)
            };
            if let (Some(carried), Some(chunk)) = (carried, chunk) {
                stage.in_flight.put_down(carried, chunk, false);
            }
            passed
        })
    }

    /// What a pass without a tape found out. When a row broke, it runs once more with one, to tell the layer: of a layer
    /// that recomputes the input is enough.
    pub(super) fn traced(
        &mut self,
        batch: &Batch,
        input: Option<Vec<f32>>,
        labelled: &Labelled,
        (training, earlier): (bool, Earlier<'_>),
    ) -> Vec<JobOutcome> {
        let outcomes = self.outcomes(batch, labelled, &[]);
        if outcomes.iter().all(|outcome| outcome.bad.is_none()) {
            return outcomes;
        }
        let mut tape = self.in_flight.tape();
        self.blocks(batch, input, training, earlier, Some(&mut tape));
        let outcomes = self.outcomes(batch, labelled, &tape);
        self.in_flight.reuse(tape);
        outcomes
    }

    /// Sends rows of texts through forward only: on the last stage the logits `(wanted, vocab)` of chosen rows, else
    /// the residual stream `(rows, hidden)`. With caches (one a sequence), keys and values are appended.
    ///
    /// # Panics
    /// When the input is missing, superfluous or of another size.
    pub fn read_rows(
        &mut self,
        batch: &Batch,
        input: Option<Vec<f32>>,
        wanted: &[usize],
        caches: Option<&mut [KeyValueCache]>,
    ) -> Vec<f32> {
        self.within(|stage| {
            let earlier = caches.map_or(Earlier::None, Earlier::Caches);
            let hidden = stage.blocks(batch, input, false, earlier, None);
            if !stage.is_last() {
                return hidden;
            }
            let (pass, bank, _) = stage.parts(batch, false);
            pass.time(Operator::Head, || {
                loss::logits(&pass, bank, &hidden, wanted)
            })
        })
    }

    /// Forgets all micro-batches under way, and the gradients begun with them.
    pub fn forget(&mut self) {
        self.in_flight.forget();
        for adapter in self.bank.iter_mut().flatten() {
            adapter.clear_gradient();
        }
    }

    /// Bytes kept for micro-batches under way.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.in_flight.bytes()
    }

    /// Bytes of the tape that layers which recompute share, as the last pass left it.
    #[must_use]
    pub fn passing_bytes(&self) -> u64 {
        self.work.passing.bytes()
    }

    /// Output of the last block held, `(rows, hidden)`. Without a tape nothing is kept.
    pub(super) fn blocks(
        &mut self,
        batch: &Batch,
        input: Option<Vec<f32>>,
        training: bool,
        mut earlier: Earlier<'_>,
        mut tape: Option<&mut [LayerTape]>,
    ) -> Vec<f32> {
        let recomputed = self.recomputed;
        let shape = &self.model.shape;
        self.table.ensure(batch.reach());
        self.work.resize(batch.rows(), shape);
        let mut hidden = match (self.is_first(), input) {
            (true, None) => embed::embed(&self.model, &self.bank, batch),
            (false, Some(input)) => {
                let size = batch.rows() * shape.hidden;
                assert_eq!(input.len(), size, "the input of another micro-batch");
                input
            }
            _ => panic!("the first stage, and only it, embeds"),
        };
        let (pass, bank, work) = self.parts(batch, training);
        let mut passing = std::mem::take(&mut work.passing);
        for (index, layer) in pass.model.span().enumerate() {
            let mut own = tape.as_deref_mut().map(|tape| &mut tape[index]);
            let whole = own.as_deref_mut().filter(|_| index >= recomputed);
            let stays = whole.is_some();
            let written = whole.unwrap_or(&mut passing);
            written.resize(batch.rows(), &pass.model.shape);
            let earlier = earlier.again();
            pass.time(Operator::Elementwise, || {
                block::forward(&pass, bank, layer, &mut hidden, written, work, earlier)
            });
            if let Some(own) = own.filter(|_| !stays) {
                // The input stays, all else is made again.
                std::mem::swap(&mut own.residual, &mut passing.residual);
            }
        }
        work.passing = passing;
        hidden
    }

    /// Losses, and the head's gradient when training, from the last block's output.
    pub(super) fn losses(&mut self, batch: &Batch, training: bool, hidden: &[f32]) -> Labelled {
        let (pass, bank, _) = self.parts(batch, training);
        pass.time(Operator::Head, || loss::compute(&pass, bank, hidden))
    }

    /// Lays the head's gradient out over all rows, as that of the last block's output.
    fn seed(&mut self, batch: &Batch, labelled: &Labelled) {
        let (width, d_hidden) = (self.model.shape.hidden, &mut self.work.d_hidden);
        debug_assert_eq!(d_hidden.len(), batch.rows() * width);
        d_hidden.fill(0.0);
        for (&row, d) in labelled.rows.iter().zip(labelled.d_hidden.chunks(width)) {
            d_hidden[row * width..][..width].copy_from_slice(d);
        }
    }

    /// Turns the gradient of the last block's output, in `work.d_hidden`, into that of the first one's input, if
    /// anything below needs it, and closes the gradients of jobs whose step ends here.
    fn reverse(
        &mut self,
        batch: &Batch,
        tape: &mut [LayerTape],
        mut carried: Option<&mut Carried>,
    ) {
        let (first, recomputed) = (self.is_first(), self.recomputed);
        let (pass, bank, work) = self.parts(batch, true);
        let span = pass.model.span();
        let prompted = first
            && batch.jobs.iter().any(|job| {
                let adapter = bank[job.slot].as_ref();
                adapter.is_some_and(|adapter| adapter.layout.prompt.is_some())
            });
        let anew = Pass {
            again: true,
            ..pass
        };
        let mut passing = std::mem::take(&mut work.passing);
        for (index, (layer, own)) in span.zip(tape).enumerate().rev() {
            let needed = layer > 0 || prompted;
            pass.time(Operator::Elementwise, || {
                let mut tape = own;
                if index < recomputed {
                    // The same input, adapters and masks as before, so the same bits.
                    passing.resize(batch.rows(), &pass.model.shape);
                    let input = &mut tape.residual;
                    let earlier = carried.as_deref_mut();
                    let earlier = earlier.map_or(Earlier::None, Earlier::Carried);
                    block::forward(&anew, bank, layer, input, &mut passing, work, earlier);
                    tape = &mut passing;
                }
                let carried = carried.as_deref_mut();
                block::backward(&pass, bank, layer, tape, work, carried, needed);
            });
        }
        work.passing = passing;
        if prompted {
            embed::gradients(&pass, bank, &work.d_hidden);
        }
        for job in batch.jobs.iter().filter(|job| job.closes) {
            if let Some(adapter) = bank[job.slot].as_mut() {
                let shape = &pass.model.shape;
                pass.time(Operator::GradientSums, || adapter.close_gradient(shape));
            }
        }
    }

    pub(super) fn outcomes(
        &self,
        batch: &Batch,
        labelled: &Labelled,
        tape: &[LayerTape],
    ) -> Vec<JobOutcome> {
        let trail = Trail {
            first: self.model.first_layer,
            tape,
            last: &self.work.passing,
        };
        JobOutcome::all(batch, labelled, trail, &self.model.shape)
    }

    /// What a pass sees, what it changes, and its buffers.
    pub(super) fn parts<'a>(
        &'a mut self,
        batch: &'a Batch,
        training: bool,
    ) -> (Pass<'a>, &'a mut Vec<Option<Adapter>>, &'a mut Work) {
        let pass = Pass {
            cpu: &self.cpu,
            model: &self.model,
            batch,
            table: &self.table,
            training,
            again: false,
            meter: &self.meter,
        };
        (pass, &mut self.bank, &mut self.work)
    }
}
