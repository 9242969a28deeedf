//! Keys and values of earlier tokens, kept while sampling.

use shared::model::ModelShape;

/// One sequence's keys and values by layer, each `(tokens so far, kv_width)`.
#[derive(Clone, Debug, Default)]
pub struct KeyValueCache {
    pub(super) keys: Vec<Vec<f32>>,
    pub(super) values: Vec<Vec<f32>>,
}

impl KeyValueCache {
    /// An empty cache.
    #[must_use]
    pub fn new(shape: &ModelShape) -> Self {
        Self {
            keys: vec![Vec::new(); shape.layers],
            values: vec![Vec::new(); shape.layers],
        }
    }

    /// Tokens held.
    #[must_use]
    pub fn tokens(&self, shape: &ModelShape) -> usize {
        self.keys
            .first()
            .map_or(0, |keys| keys.len() / shape.kv_width())
    }

    /// Bytes held.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let values: usize = self
            .keys
            .iter()
            .chain(&self.values)
            .map(Vec::capacity)
            .sum();
        (values * size_of::<f32>()) as u64
    }
}
