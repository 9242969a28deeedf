//! A sequence that is longer than a pass goes through a stage in chunks.
//!
//! Forward, in order: a chunk attends over the keys and values of the chunks before, which are carried, and over its
//! own. Of what it computes nothing is kept but those, and on a stage behind the first the input, `hidden` values a row;
//! so memory is bounded by one chunk's tape and what is carried (ADR 15). Backward, in reverse: a chunk runs forward once
//! more to write its tape, and gets, with the gradient of its output, that of its keys and values from the chunks behind.
//! The last chunk on the last stage comes back at once and keeps its tape.
//!
//! - `CH-1` Losses, gradients and what they become are those of the whole sequence in one pass, to the bit: rows do not
//!   see rows; attention goes by tiles of the sequence (`kernels::ops::attention`); dropout is keyed by the place in the
//!   sequence; sums over tokens are a tree over the job's blocks, in any order.
//! - `CH-2` What a stage holds of a sequence is at most what `footprint` says of its first chunk.

use std::sync::Arc;

use super::attend::Earlier;
use super::carried::Carried;
use super::in_flight::Kept;
use super::loss::Labelled;
use super::outcome::JobOutcome;
use super::relay::Passed;
use super::step::Stage;
use super::tape::LayerTape;
use crate::batch::{Batch, Chunk};

impl Stage {
    /// Forward and backward of all chunks of a sequence, or of a single batch; outcomes in the same order.
    ///
    /// # Panics
    /// When the stage does not hold the whole model.
    pub fn train_chunks(&mut self, chunks: &[Batch]) -> Vec<Vec<JobOutcome>> {
        if let [batch] = chunks {
            return vec![self.train(batch)];
        }
        let mut outcomes = Vec::with_capacity(chunks.len());
        for (number, batch) in (0..).zip(chunks) {
            match self.forward(number, Arc::new(batch.clone()), None) {
                Passed::Outcomes(found) => outcomes.push(found),
                Passed::Hidden(_) => panic!("a part of the model cannot train alone"),
            }
        }
        for number in (0..chunks.len() as u64).rev() {
            self.backward(number, None);
        }
        outcomes
    }

    /// Sends a chunk through, behind those before it.
    pub(super) fn forward_chunk(
        &mut self,
        (number, chunk): (u64, Chunk),
        batch: Arc<Batch>,
        input: Option<Vec<f32>>,
    ) -> Passed {
        self.within(|stage| {
            let returns = stage.is_last() && chunk.ends();
            let mut carried = stage.in_flight.carry(chunk, &stage.model, true);
            let kept_input = input.clone().filter(|_| !returns);
            let mut tape = returns.then(|| stage.in_flight.tape());
            let earlier = Earlier::Carried(&mut carried);
            let hidden = stage.blocks(&batch, input, true, earlier, tape.as_deref_mut());
            let labelled = stage.is_last().then(|| stage.losses(&batch, true, &hidden));
            let passed = match (&labelled, &tape) {
                (None, _) => Passed::Hidden(hidden),
                (Some(labelled), Some(tape)) => {
                    Passed::Outcomes(stage.outcomes(&batch, labelled, tape))
                }
                (Some(labelled), None) => {
                    let how = (true, Earlier::Carried(&mut carried));
                    Passed::Outcomes(stage.traced(&batch, kept_input.clone(), labelled, how))
                }
            };
            stage.in_flight.put_down(carried, chunk, true);
            let kept = Kept {
                batch,
                tape,
                input: kept_input,
                labelled,
            };
            stage.in_flight.keep(number, kept);
            stage.note_peak(&[], None, None);
            passed
        })
    }

    /// Writes the tape of a chunk that came in as this: the same rows, adapters and masks, so the same bits.
    pub(super) fn again(
        &mut self,
        batch: &Batch,
        input: Option<Vec<f32>>,
        carried: &mut Carried,
    ) -> Vec<LayerTape> {
        let mut tape = self.in_flight.tape();
        let earlier = Earlier::Carried(carried);
        self.blocks(batch, input, true, earlier, Some(&mut tape));
        tape
    }

    /// Notes what is held now, with what was taken out of it to be computed.
    pub(super) fn note_peak(
        &mut self,
        tape: &[LayerTape],
        labelled: Option<&Labelled>,
        carried: Option<&Carried>,
    ) {
        let held = self.held_bytes() + self.passing_bytes();
        let out = tape.iter().map(LayerTape::bytes).sum::<u64>()
            + labelled.map_or(0, Labelled::bytes)
            + carried.map_or(0, Carried::bytes);
        self.peak = self.peak.max(held + out);
    }

    /// Most bytes of activations at once since the last call: tapes, what is carried, inputs kept, and the head's
    /// gradients. Buffers that are free are not counted.
    pub fn take_peak(&mut self) -> u64 {
        std::mem::take(&mut self.peak)
    }
}
