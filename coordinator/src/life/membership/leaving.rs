//! What is known of a node that said that it goes.

use shared::units::Micros;
use shared::wire::notice::LeaveCause;

/// A node that goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// When it goes, let go or not.
    pub until: Micros,
    /// From then on its stage does not wait for another node to be ready: what it knows is made durable.
    pub hurry: Micros,
    /// Why.
    pub cause: LeaveCause,
    /// Whether it was told to go on this connection.
    pub released: bool,
}

impl Leaving {
    /// The same on another connection: the word may have been lost with the one before.
    pub(super) fn again(self) -> Self {
        Self {
            released: false,
            ..self
        }
    }
}
