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
    /// Whether it went, as it was told to.
    pub left: bool,
}

impl Leaving {
    /// One that stays for so long, of so long that were told: the last third of those, and no more than `drain`, is for
    /// what it knows to be made durable.
    #[must_use]
    pub fn told(now: Micros, [left, told]: [Micros; 2], drain: Micros, cause: LeaveCause) -> Self {
        let reserve = Micros(told.0 / 3).min(drain);
        Self {
            until: now.plus(left),
            hurry: now.plus(left.since(reserve)),
            cause,
            released: false,
            left: false,
        }
    }

    /// The same on another connection: the word may have been lost with the one before.
    pub(super) fn again(self) -> Self {
        Self {
            released: false,
            left: false,
            ..self
        }
    }
}
