//! A link that counts the values it carries.

use std::sync::Arc;

use shared::units::Bytes;

use super::meters::Meters;
use crate::link::transit::Transit;
use crate::link::{ChunkLink, LinkError, Parcel};

/// The link and who is told.
pub(super) struct Metered {
    inner: Box<dyn ChunkLink>,
    meters: Arc<Meters>,
    /// Bytes of a value as it travels.
    width: u64,
}

impl Metered {
    /// `narrow`: values travel as bf16.
    pub(super) fn over(inner: Box<dyn ChunkLink>, narrow: bool, meters: Arc<Meters>) -> Self {
        let width = if narrow { 2 } else { 4 };
        Self {
            inner,
            meters,
            width,
        }
    }

    fn bytes(&self, parcel: &Parcel) -> Option<Bytes> {
        match parcel {
            Parcel::Chunk(chunk) => Some(Bytes(chunk.values.len() as u64 * self.width)),
            Parcel::Word(_) => None,
        }
    }
}

impl ChunkLink for Metered {
    fn credit(&self) -> usize {
        self.inner.credit()
    }

    fn send(&mut self, parcel: Parcel) -> Result<(), LinkError> {
        let bytes = self.bytes(&parcel);
        self.inner.send(parcel)?;
        if let Some(bytes) = bytes {
            self.meters.sent(bytes);
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<Option<Parcel>, LinkError> {
        let received = self.inner.receive()?;
        if let Some(bytes) = received.as_ref().and_then(|parcel| self.bytes(parcel)) {
            self.meters.received(bytes);
        }
        Ok(received)
    }

    fn transits(&mut self) -> Vec<Transit> {
        self.inner.transits()
    }

    fn close(&mut self) {
        self.inner.close();
    }
}
