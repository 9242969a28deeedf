//! A tile of queries and a tile of keys.

/// A tile of queries, cut at multiples of `TILE` from the sequence's start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queries {
    /// First row, counted from the sequence's first row in the call.
    pub(super) first: usize,
    pub(super) rows: usize,
    /// Position of the first row in the sequence.
    pub(super) position: usize,
}

/// A tile of keys and values of one head, in the rows they came in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keys<'a> {
    /// Which of the key tiles, the prefix's first.
    pub(super) index: usize,
    /// From the first element of the tile on; rows are a key row apart.
    pub(super) keys: &'a [f32],
    /// Likewise.
    pub(super) values: &'a [f32],
    /// First row within the prefix, or within the sequence.
    pub(super) first: usize,
    pub(super) rows: usize,
    pub(super) prefix: bool,
}
