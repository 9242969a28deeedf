//! What the chunks of one sequence hand each other: keys and values forward, their gradient back.
//!
//! Forward of a chunk adds its keys and values (after rotation) behind those of the chunks before, and attends over all
//! of them. Backward goes from the last chunk to the first: each adds to the gradient of all keys and values up to its
//! own last row, and then takes that of its own rows, to which no later chunk adds any more.
//!
//! Buffers have room for the whole sequence from the first chunk on, so that what they need is known before
//! (`stage/footprint.rs`).

use std::ops::Range;

use crate::batch::Chunk;
use crate::model::Model;

/// Keys and values of one layer, or their gradients, `(length, kv_width)` each.
#[derive(Clone, Debug, Default)]
pub(super) struct Pair {
    pub(super) keys: Vec<f32>,
    pub(super) values: Vec<f32>,
}

impl Pair {
    fn new(len: usize) -> Self {
        Self {
            keys: vec![0.0; len],
            values: vec![0.0; len],
        }
    }

    fn len(&self) -> usize {
        self.keys.len() + self.values.len()
    }
}

/// Keys and values of a sequence that passes in chunks, by layer held.
#[derive(Clone, Debug)]
pub(super) struct Carried {
    first_layer: usize,
    /// Values of a row of keys.
    width: usize,
    /// The chunk under way.
    chunk: Chunk,
    layers: Vec<Pair>,
    /// Empty until a chunk comes back.
    gradients: Vec<Pair>,
}

impl Carried {
    /// Of the sequence that this chunk begins, on the layers that the model has here.
    pub(super) fn new(model: &Model, chunk: Chunk) -> Self {
        let width = model.shape.kv_width();
        let pair = || Pair::new(chunk.length * width);
        Self {
            first_layer: model.first_layer,
            width,
            chunk,
            layers: model.span().map(|_| pair()).collect(),
            gradients: Vec::new(),
        }
    }

    /// Goes on to a chunk, the one behind the last or, on the way back, the one before.
    ///
    /// # Panics
    /// When it is of another sequence.
    pub(super) fn turn_to(&mut self, chunk: Chunk) {
        let of = |chunk: Chunk| (chunk.sequence, chunk.length);
        assert_eq!(of(chunk), of(self.chunk), "a chunk of another sequence");
        self.chunk = chunk;
    }

    /// Makes room for gradients, if that is not done.
    pub(super) fn turn_back(&mut self) {
        if self.gradients.is_empty() {
            let len = self.chunk.length * self.width;
            self.gradients = self.layers.iter().map(|_| Pair::new(len)).collect();
        }
    }

    /// Cells of the chunk's own rows, and of all rows up to its last.
    fn cells(&self) -> (Range<usize>, Range<usize>) {
        let (start, end) = (self.chunk.start * self.width, self.chunk.end() * self.width);
        (start..end, 0..end)
    }

    /// Adds keys and values of the chunk's rows, `(rows, kv_width)` each.
    pub(super) fn put(&mut self, layer: usize, keys: &[f32], values: &[f32]) {
        let (own, _) = self.cells();
        let pair = &mut self.layers[layer - self.first_layer];
        pair.keys[own.clone()].copy_from_slice(keys);
        pair.values[own].copy_from_slice(values);
    }

    /// Keys and values up to the chunk's last row.
    pub(super) fn seen(&self, layer: usize) -> (&[f32], &[f32]) {
        let (_, seen) = self.cells();
        let pair = &self.layers[layer - self.first_layer];
        (&pair.keys[seen.clone()], &pair.values[seen])
    }

    /// The same, with their gradients to add to.
    pub(super) fn with_gradients(&mut self, layer: usize) -> [(&[f32], &mut [f32]); 2] {
        let (_, seen) = self.cells();
        let index = layer - self.first_layer;
        let (pair, gradient) = (&self.layers[index], &mut self.gradients[index]);
        [
            (&pair.keys[seen.clone()], &mut gradient.keys[seen.clone()]),
            (&pair.values[seen.clone()], &mut gradient.values[seen]),
        ]
    }

    /// The gradients of the chunk's own rows, which are whole once the chunk's attention went back.
    pub(super) fn own_gradients(&self, layer: usize) -> (&[f32], &[f32]) {
        let (own, _) = self.cells();
        let gradient = &self.gradients[layer - self.first_layer];
        (&gradient.keys[own.clone()], &gradient.values[own])
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> u64 {
        let pairs = self.layers.iter().chain(&self.gradients);
        (pairs.map(Pair::len).sum::<usize>() * size_of::<f32>()) as u64
    }
}

/// Bytes that a row of a cut sequence has in one layer: key, value and their gradients.
pub(super) fn bytes_per_row_and_layer(kv_width: usize) -> u64 {
    (4 * kv_width * size_of::<f32>()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::SequenceId;

    fn sequence(number: u32) -> SequenceId {
        SequenceId {
            slot: 1,
            step: 4,
            number,
        }
    }

    #[test]
    fn a_chunk_sees_what_came_before_and_gives_what_is_its_own() {
        let chunk = |start, rows| Chunk {
            sequence: sequence(0),
            start,
            rows,
            length: 5,
        };
        let mut carried = Carried {
            first_layer: 3,
            width: 2,
            chunk: chunk(0, 3),
            layers: vec![Pair::new(10); 2],
            gradients: Vec::new(),
        };
        carried.put(4, &[1.0; 6], &[2.0; 6]);
        carried.turn_to(chunk(3, 2));
        carried.put(4, &[3.0; 4], &[4.0; 4]);
        let (keys, values) = carried.seen(4);
        assert_eq!(keys, [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 3.0, 3.0, 3.0, 3.0]);
        assert_eq!((values.len(), values[0], values[9]), (10, 2.0, 4.0));
        assert_eq!(carried.bytes(), 2 * 20 * 4);
        carried.turn_back();
        assert_eq!(carried.bytes(), 2 * 5 * bytes_per_row_and_layer(2));
        let [(_, d_keys), _] = carried.with_gradients(4);
        d_keys
            .iter_mut()
            .zip(0u8..)
            .for_each(|(d, at)| *d += f32::from(at));
        carried.turn_to(chunk(0, 3));
        carried.turn_back();
        let [(keys, d_keys), _] = carried.with_gradients(4);
        assert_eq!((keys.len(), d_keys.len()), (6, 6));
        d_keys[0] += 7.0;
        assert_eq!(carried.own_gradients(4).0, [7.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    }

    /// Goes from the first chunk of a sequence of two rows to one behind it.
    fn turn(next: Chunk) {
        let first = Chunk {
            sequence: sequence(0),
            start: 0,
            rows: 1,
            length: 2,
        };
        let mut carried = Carried {
            first_layer: 0,
            width: 1,
            chunk: first,
            layers: Vec::new(),
            gradients: Vec::new(),
        };
        carried.turn_to(next);
    }

    #[test]
    #[should_panic(expected = "a chunk of another sequence")]
    fn sequences_are_not_mixed() {
        turn(Chunk {
            sequence: sequence(0),
            start: 1,
            rows: 1,
            length: 3,
        });
    }

    #[test]
    #[should_panic(expected = "a chunk of another sequence")]
    fn one_of_the_same_length_does_not_take_its_keys() {
        turn(Chunk {
            sequence: sequence(1),
            start: 1,
            rows: 1,
            length: 2,
        });
    }
}
