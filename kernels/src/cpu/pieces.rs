//! How the pieces of split numbers lie in memory: strips and panels of tiles, step by step ([`split`](super::split)).

/// Numbers along the reduction in a step.
pub(crate) const DEPTH: usize = 32;

/// Rows of a tile of the left, columns of one of the right.
pub(crate) const SIDE: usize = 16;

/// Rows of the left that are packed together.
pub(crate) const STRIP: usize = 2 * SIDE;

/// Columns of the right that are packed together.
pub(crate) const PANEL: usize = 2 * SIDE;

/// Words of a tile.
pub(crate) const TILE: usize = 256;

/// Pieces of a number: high, middle, low.
pub(crate) const PIECES: usize = 3;

/// Words of a step of a strip or a panel.
pub(crate) const STEP: usize = 2 * PIECES * TILE;

/// Words before the first step of a strip, a cache line; the first has a bit for each row with a number that is not finite.
pub(crate) const HEADER: usize = 16;
