//! A market to try forecasts on.

use shared::units::Micros;

use crate::feed::synthetic::Synthetic;
use crate::market::Slot;

/// So many slots of two hours, in one zone.
pub(super) fn slots(seed: u64, slots: u32) -> Vec<Slot> {
    let market = Synthetic {
        seed,
        slots,
        zones: 1,
        slot: Micros(7_200_000_000),
        ..Synthetic::default()
    };
    market.markets().remove(0).slots
}
