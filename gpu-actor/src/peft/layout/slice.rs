//! The part of an adapter that lives on some layers, and how it is cut from and joined to the whole.
//!
//! A slice is a layout of its own: it keeps the numbers of layers, and has no sites at those it does not hold. What is
//! saved or moved is always the whole adapter in its own order, whatever the number of stages.

use std::collections::BTreeMap;
use std::ops::Range;

use super::{LayerSites, Layout, Parameter, Piece};

/// Ranges of a whole adapter's parameters, by their start, in the storage of a slice.
type Moves = BTreeMap<usize, Range<usize>>;

impl Layout {
    /// The part that lives on the layers of `span`: the first stage has the prompt too, the last one the LM head.
    ///
    /// # Panics
    /// When this is a slice already, or the span is empty or leaves the layers.
    #[must_use]
    pub fn slice(&self, span: Range<usize>) -> Self {
        let layers = self.layers.len();
        assert_eq!(self.span, 0..layers, "a slice is cut from the whole");
        assert!(
            !span.is_empty() && span.end <= layers,
            "a stage has at least one layer"
        );
        let mut slice = Self {
            parameters: Vec::new(),
            layers: vec![LayerSites::default(); layers],
            head: None,
            prefix: None,
            prompt: None,
            pieces: Vec::new(),
            span: span.clone(),
            len: 0,
        };
        let mut moves = Moves::new();
        for parameter in &self.parameters {
            let own = self.pieces_of(parameter);
            let held = own.iter().filter(|piece| piece.home.is_on(&span, layers));
            let start = slice.len;
            for piece in held {
                slice.take(piece);
            }
            if slice.len > start {
                let range = start..slice.len;
                moves.insert(parameter.range.start, range.clone());
                slice.parameters.push(cut(parameter, range));
            }
        }
        slice.attach(self, &moves);
        slice
    }

    fn pieces_of(&self, parameter: &Parameter) -> &[Piece] {
        let from = self
            .pieces
            .partition_point(|piece| piece.range.start < parameter.range.start);
        let to = self
            .pieces
            .partition_point(|piece| piece.range.start < parameter.range.end);
        &self.pieces[from..to]
    }

    fn take(&mut self, piece: &Piece) {
        let range = self.len..self.len + piece.range.len();
        self.len = range.end;
        self.pieces.push(Piece {
            range,
            ..piece.clone()
        });
    }

    /// Takes over the whole's sites whose parameters are here.
    fn attach(&mut self, whole: &Self, moves: &Moves) {
        let go = |range: &mut Range<usize>| {
            *range = moves
                .get(&range.start)
                .expect("a site is where its parameters are")
                .clone();
        };
        for layer in self.span.clone() {
            let mut sites = whole.layers[layer].clone();
            sites.ranges_mut().for_each(go);
            self.layers[layer] = sites;
        }
        if self.span.end == whole.layers.len() {
            self.head = whole.head.clone();
            self.head
                .iter_mut()
                .flat_map(|site| site.ranges_mut())
                .for_each(go);
        }
        if self.span.start == 0 {
            self.prompt = whole.prompt.clone();
            self.prompt
                .iter_mut()
                .for_each(|site| go(&mut site.embeddings));
        }
        if let Some(prefix) = &whole.prefix {
            let mut prefix = prefix.clone();
            prefix.ranges_mut().for_each(go);
            prefix.layers = self.span.clone();
            self.prefix = Some(prefix);
        }
    }

    /// Whether this is all of an adapter.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.span.len() == self.layers.len()
    }

    /// This slice's part of a whole adapter's values, moments or gradient.
    ///
    /// # Panics
    /// When `whole` is too short.
    #[must_use]
    pub fn cut(&self, whole: &[f32]) -> Vec<f32> {
        let mut own = Vec::with_capacity(self.len);
        for piece in &self.pieces {
            own.extend_from_slice(&whole[piece.whole.clone()]);
        }
        own
    }

    /// Puts this slice's part back in its place in the whole.
    ///
    /// # Panics
    /// When `own` is not this slice's or `whole` is too short.
    pub fn join(&self, own: &[f32], whole: &mut [f32]) {
        assert_eq!(own.len(), self.len, "values of another slice");
        for piece in &self.pieces {
            whole[piece.whole.clone()].copy_from_slice(&own[piece.range.clone()]);
        }
    }
}

/// The parameter at its new place; a shape that was divided over layers has fewer rows, or columns for a prefix.
fn cut(parameter: &Parameter, range: Range<usize>) -> Parameter {
    let mut shape = parameter.shape.clone();
    let divided = usize::from(parameter.key == super::DIRECT_PREFIX);
    shape[divided] = shape[divided] * range.len() / parameter.range.len();
    Parameter {
        shape,
        range,
        ..parameter.clone()
    }
}

#[cfg(test)]
mod tests {
    use shared::job::{AdapterSpec, PrefixSpec};
    use shared::model::Family;

    use super::*;
    use crate::model::tiny::TinySpec;

    fn prefix(projection: Option<usize>) -> Layout {
        let shape = TinySpec {
            layers: 5,
            ..TinySpec::smallest(Family::Llama)
        }
        .shape();
        let spec = AdapterSpec::Prefix(PrefixSpec {
            tokens: 3,
            projection,
        });
        Layout::new(&spec, &shape, 1)
    }

    #[test]
    fn slices_join_to_the_whole() {
        for layout in [prefix(None), prefix(Some(4))] {
            let values: Vec<f32> = (0..layout.len).map(|i| i as f32).collect();
            let mut joined = vec![-1.0; layout.len];
            let mut numbers = Vec::new();
            for span in [0..2, 2..3, 3..5] {
                let slice = layout.slice(span);
                slice.join(&slice.cut(&values), &mut joined);
                let own = slice
                    .pieces
                    .iter()
                    .filter(|p| p.home != super::super::Home::Every);
                numbers.extend(own.map(|piece| piece.number));
                for parameter in &slice.parameters {
                    let size: usize = parameter.shape.iter().product();
                    assert_eq!(size, parameter.range.len(), "{}", parameter.key);
                }
            }
            assert_eq!(joined, values);
            numbers.sort_unstable();
            numbers.dedup();
            let shared = layout
                .pieces
                .iter()
                .filter(|piece| piece.home == super::super::Home::Every);
            assert_eq!(numbers.len() + shared.count(), layout.pieces.len());
        }
    }

    #[test]
    fn the_whole_is_its_own_slice() {
        let layout = prefix(Some(4));
        assert_eq!(layout.slice(0..5), layout);
        assert!(layout.is_whole() && !layout.slice(0..4).is_whole());
    }
}
