//! How fast the machine is now, beside when its profile was measured: a virtual machine's rate moves by tens of percent
//! within minutes, and no cost model foretells that.

use coordinator::plan::curve::Curve;
use coordinator::plan::profile::Profile;
use gpu_actor::model::Model;
use gpu_actor::stage::timing::Operator;
use kernels::cpu::Cpu;
use shared::model::Projection;

use super::bed::Bed;
use super::gather;
use crate::exit::{Exit, Failure, OrExit};

/// Rows of the pass that is timed, in sequences of so many.
const ROWS: usize = 512;
const LENGTH: usize = 64;
/// Least passes; the median counts.
const PASSES: usize = 5;

/// A few layers whose products are timed again and again.
pub(crate) struct Pace {
    bed: Bed,
    slot: usize,
    /// Nanoseconds of the products of a block when the profile was measured.
    then: u64,
}

impl Pace {
    /// Of a model and its profile.
    ///
    /// # Errors
    /// [`Exit::BadInput`] when the model has no layer in the middle, or the profile not its products.
    pub(crate) fn new(model: &Model, cpu: &Cpu, profile: &Profile) -> Result<Self, Failure> {
        let mut bed = Bed::middle(model, cpu, PASSES)?;
        let slot = bed.attach(serde_json::json!(
            { "method": "ia3", "targets": ["k_proj"], "feedforward": [] }
        ))?;
        let (blocks, _) = gather::kept(model);
        let mut then = 0;
        for projection in Projection::ALL {
            let (out, input) = model.shape.projection(projection);
            let (out, input) = (out as u64, input as u64);
            let entry = profile
                .linear
                .iter()
                .find(|entry| (entry.out, entry.input, entry.weights) == (out, input, blocks));
            let entry = entry.ok_or_else(|| {
                let message = format!("the profile has no product of {out} x {input}");
                Failure::new(Exit::BadInput, message).hint("measure it on this model")
            })?;
            for points in [&entry.forward, &entry.backward] {
                let curve = Curve::new(points).or_exit(Exit::BadInput)?;
                then += curve.at(ROWS as u64);
            }
        }
        Ok(Self { bed, slot, then })
    }

    /// The rate now over the rate then: 1 when nothing changed, 0.5 when everything takes twice as long.
    ///
    /// # Errors
    /// Of the bed.
    pub(crate) fn rate(&mut self) -> Result<f64, Failure> {
        let pass = self.bed.time(self.slot, ROWS, LENGTH, ROWS)?;
        let of = Operator::FrozenProducts;
        let now = (pass.forward.of(of) + pass.backward.of(of)) / self.bed.layers();
        Ok(self.then as f64 / now.max(1) as f64)
    }
}
