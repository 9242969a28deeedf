//! Attention of one sequence in f64: one row, one head, one key at a time.

use crate::ops::attention::Heads;

/// A whole sequence in f64: queries `(rows, heads * head_dim)`, keys and values `(rows, kv_heads * head_dim)`, prefix keys
/// and values `(tokens, kv_heads * head_dim)`, empty when there is none.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// Queries.
    pub q: Vec<f64>,
    /// Keys.
    pub keys: Vec<f64>,
    /// Values.
    pub values: Vec<f64>,
    /// Prefix keys.
    pub prefix_keys: Vec<f64>,
    /// Prefix values.
    pub prefix_values: Vec<f64>,
}

/// Softmax weights of row `row` in head `head` over the prefix and the keys up to the row itself.
fn weights(heads: &Heads, x: &Inputs, row: usize, head: usize) -> Vec<f64> {
    let (dim, kv) = (heads.head_dim, heads.kv_heads * heads.head_dim);
    let column = head / (heads.heads / heads.kv_heads) * dim;
    let q = &x.q[row * heads.heads * dim + head * dim..][..dim];
    let score = |keys: &[f64], j: usize| {
        let key = &keys[j * kv + column..][..dim];
        q.iter().zip(key).map(|(a, b)| a * b).sum::<f64>() / (dim as f64).sqrt()
    };
    let mut scores: Vec<f64> =
        (0..x.prefix_keys.len() / kv).map(|j| score(&x.prefix_keys, j)).collect();
    scores.extend((0..=row).map(|j| {
        let hidden = heads.window.is_some_and(|window| j + window <= row);
        if hidden { f64::NEG_INFINITY } else { score(&x.keys, j) }
    }));
    let maximum = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let total: f64 = scores.iter().map(|s| (s - maximum).exp()).sum();
    scores.iter().map(|s| (s - maximum).exp() / total).collect()
}

/// Outputs `(rows, heads * head_dim)`.
#[must_use]
pub fn forward(heads: &Heads, x: &Inputs) -> Vec<f64> {
    let (dim, kv) = (heads.head_dim, heads.kv_heads * heads.head_dim);
    let rows = x.keys.len() / kv;
    let prefix = x.prefix_keys.len() / kv;
    let mut out = vec![0.0; x.q.len()];
    for row in 0..rows {
        for head in 0..heads.heads {
            let column = head / (heads.heads / heads.kv_heads) * dim;
            for (j, weight) in weights(heads, x, row, head).into_iter().enumerate() {
                let value = if j < prefix {
                    &x.prefix_values[j * kv + column..][..dim]
                } else {
                    &x.values[(j - prefix) * kv + column..][..dim]
                };
                let out = &mut out[row * heads.heads * dim + head * dim..][..dim];
                out.iter_mut().zip(value).for_each(|(out, v)| *out += weight * v);
            }
        }
    }
    out
}
