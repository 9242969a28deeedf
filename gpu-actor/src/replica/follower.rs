//! A stage that is not the first: it does what the words from before say, until they say that it is the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kernels::cpu::Cpu;

use super::error::ReplicaError;
use super::seat::{Ports, Seat};
use super::station::Station;
use crate::link::bell::Bell;
use crate::model::Model;
use crate::stage::step::Stage;

/// Why a follower ended without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The lead said that nothing will follow.
    Closed,
    /// Its own shell asked for it.
    Stopped,
}

/// A stage that is not the first.
#[derive(Debug)]
pub struct Follower {
    station: Station,
}

impl Follower {
    /// A stage without jobs. The model holds the layers of its seat.
    #[must_use]
    pub fn new(model: Arc<Model>, cpu: Cpu, seat: Seat, ports: Ports) -> Self {
        let station = Station::new(Stage::new(model, cpu), seat, ports);
        Self { station }
    }

    /// What is rung when something came for this stage, and to be rung after `stop` is set.
    #[must_use]
    pub fn bell(&self) -> Bell {
        self.station.bell().clone()
    }

    /// Follows until the end is told or `stop` is set.
    ///
    /// # Errors
    /// When a neighbour is gone, says what does not fit, or does nothing for longer than the patience while there is
    /// work.
    pub fn run(mut self, stop: &AtomicBool) -> Result<Ended, ReplicaError> {
        let bell = self.bell();
        let patience = self.station.seat().patience;
        loop {
            let heard = bell.heard();
            if stop.load(Ordering::Acquire) {
                return Ok(Ended::Stopped);
            }
            if self.station.pump()? {
                continue;
            }
            if self.station.is_through() {
                return Ok(Ended::Closed);
            }
            if !bell.wait(heard, patience) && self.station.is_busy() {
                let stage = self.station.seat().place.stage;
                let lacking = self.station.lacking();
                return Err(ReplicaError::Stalled { stage, lacking });
            }
        }
    }
}
