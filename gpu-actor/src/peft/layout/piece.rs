//! The smallest runs of flat storage that no cut into stages divides.
//!
//! A piece is a whole parameter, or what one layer (for direct prefixes: of one token) has of a parameter that all
//! layers share. Sums over an adapter are taken piece by piece and added in the order of the whole adapter's pieces,
//! so they do not depend on which stage holds which.

use std::ops::Range;

/// Which stage of a pipeline holds a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// The one that embeds.
    First,
    /// The one that holds this layer.
    Layer(usize),
    /// The one with the head.
    Last,
    /// Every one: the reparameterising layers of a prefix, which all layers' keys and values come from.
    Every,
}

impl Home {
    /// Whether a stage of these layers, of so many in all, holds it.
    #[must_use]
    pub fn is_on(self, span: &Range<usize>, layers: usize) -> bool {
        match self {
            Self::First => span.start == 0,
            Self::Layer(layer) => span.contains(&layer),
            Self::Last => span.end == layers,
            Self::Every => true,
        }
    }
}

/// One run of flat storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its place in the order of the whole adapter.
    pub number: usize,
    /// Who holds it.
    pub home: Home,
    /// Where it lies in this layout's storage.
    pub range: Range<usize>,
    /// Where it lies in the whole adapter's storage.
    pub whole: Range<usize>,
}
