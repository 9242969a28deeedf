//! Attention of one sequence in f64: one row, one head, one key at a time.

use std::ops::Range;

use crate::ops::attention::Heads;

/// Holds a whole sequence in f64: queries `(rows, heads * head_dim)`, keys and values `(rows, kv_heads * head_dim)`,
/// prefix keys and values `(tokens, kv_heads * head_dim)`, empty when there is none.
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

impl Inputs {
    /// Cells of key head `head` in its row `row`.
    fn kv_cells(heads: &Heads, row: usize, head: usize) -> Range<usize> {
        let first = (row * heads.kv_heads + head) * heads.head_dim;
        first..first + heads.head_dim
    }

    /// Key `j` of head `head`, the prefix first.
    fn key(&self, heads: &Heads, j: usize, head: usize) -> &[f64] {
        let prefix = self.prefix_tokens(heads);
        match j.checked_sub(prefix) {
            None => &self.prefix_keys[Self::kv_cells(heads, j, head)],
            Some(j) => &self.keys[Self::kv_cells(heads, j, head)],
        }
    }

    /// Value `j` of head `head`, the prefix first.
    fn value(&self, heads: &Heads, j: usize, head: usize) -> &[f64] {
        let prefix = self.prefix_tokens(heads);
        match j.checked_sub(prefix) {
            None => &self.prefix_values[Self::kv_cells(heads, j, head)],
            Some(j) => &self.values[Self::kv_cells(heads, j, head)],
        }
    }

    fn prefix_tokens(&self, heads: &Heads) -> usize {
        self.prefix_keys.len() / (heads.kv_heads * heads.head_dim)
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(to: &mut [f64], factor: f64, x: &[f64]) {
    to.iter_mut().zip(x).for_each(|(to, x)| *to += factor * x);
}

fn scale(heads: &Heads) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "widths are small")]
    let width = heads.head_dim as f64;
    1.0 / width.sqrt()
}

/// Softmax weights of row `row` in head `head`, over the prefix and then the keys up to the row itself.
fn weights(heads: &Heads, x: &Inputs, row: usize, head: usize) -> Vec<f64> {
    let q = &x.q[(row * heads.heads + head) * heads.head_dim..][..heads.head_dim];
    let kv_head = head / (heads.heads / heads.kv_heads);
    let prefix = x.prefix_tokens(heads);
    let hidden = |j: usize| {
        let window = heads.window.unwrap_or(usize::MAX);
        prefix + row - j >= window
    };
    let scores: Vec<f64> = (0..=prefix + row)
        .map(|j| match hidden(j) {
            true => f64::NEG_INFINITY,
            false => dot(q, x.key(heads, j, kv_head)) * scale(heads),
        })
        .collect();
    let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let total: f64 = scores.iter().map(|score| (score - most).exp()).sum();
    let weight = |score: &f64| (score - most).exp() / total;
    scores.iter().map(weight).collect()
}

/// Returns the outputs `(rows, heads * head_dim)`.
#[must_use]
pub fn forward(heads: &Heads, x: &Inputs) -> Vec<f64> {
    let mut out = vec![0.0; x.q.len()];
    for (cell, out) in out.chunks_mut(heads.head_dim).enumerate() {
        let (row, head) = (cell / heads.heads, cell % heads.heads);
        let kv_head = head / (heads.heads / heads.kv_heads);
        for (j, weight) in weights(heads, x, row, head).into_iter().enumerate() {
            add(out, weight, x.value(heads, j, kv_head));
        }
    }
    out
}

/// Returns the gradients of all inputs from `d_out (rows, heads * head_dim)`.
///
/// With P the weights of a row, dP_j = d_out . v_j: dS_j = P_j (dP_j - sum P dP), dq = scale sum dS_j k_j,
/// dk_j = scale sum dS_j q, dv_j = sum P_j d_out.
#[must_use]
pub fn backward(heads: &Heads, x: &Inputs, d_out: &[f64]) -> Inputs {
    let mut d = Inputs {
        q: vec![0.0; x.q.len()],
        keys: vec![0.0; x.keys.len()],
        values: vec![0.0; x.values.len()],
        prefix_keys: vec![0.0; x.prefix_keys.len()],
        prefix_values: vec![0.0; x.prefix_values.len()],
    };
    let prefix = x.prefix_tokens(heads);
    for (cell, d_out) in d_out.chunks(heads.head_dim).enumerate() {
        let (row, head) = (cell / heads.heads, cell % heads.heads);
        let kv_head = head / (heads.heads / heads.kv_heads);
        let at = cell * heads.head_dim..(cell + 1) * heads.head_dim;
        let weights = weights(heads, x, row, head);
        let d_weights: Vec<f64> = (0..weights.len())
            .map(|j| dot(d_out, x.value(heads, j, kv_head)))
            .collect();
        let mean = dot(&weights, &d_weights);
        for (j, weight) in weights.iter().enumerate() {
            let d_score = weight * (d_weights[j] - mean) * scale(heads);
            add(&mut d.q[at.clone()], d_score, x.key(heads, j, kv_head));
            let (d_key, d_value) = match j.checked_sub(prefix) {
                None => {
                    let cells = Inputs::kv_cells(heads, j, kv_head);
                    (
                        &mut d.prefix_keys[cells.clone()],
                        &mut d.prefix_values[cells],
                    )
                }
                Some(j) => {
                    let cells = Inputs::kv_cells(heads, j, kv_head);
                    (&mut d.keys[cells.clone()], &mut d.values[cells])
                }
            };
            add(d_key, d_score, &x.q[at.clone()]);
            add(d_value, *weight, d_out);
        }
    }
    d
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_gradient, numbers, wide};

    /// An input to shift.
    type Pick = fn(&mut Inputs) -> &mut Vec<f64>;

    const PICKS: [(&str, Pick); 5] = [
        ("q", |x| &mut x.q),
        ("keys", |x| &mut x.keys),
        ("values", |x| &mut x.values),
        ("prefix keys", |x| &mut x.prefix_keys),
        ("prefix values", |x| &mut x.prefix_values),
    ];

    #[test]
    fn gradients_are_the_differences() {
        for (heads, kv_heads, head_dim, rows, prefix, window) in [
            (1, 1, 1, 1, 0, None),
            (2, 1, 4, 7, 0, None),
            (4, 2, 8, 9, 3, None),
            (2, 2, 4, 11, 2, Some(4)),
        ] {
            let heads = Heads {
                heads,
                kv_heads,
                head_dim,
                window,
            };
            let (width, kv) = (heads.heads * head_dim, kv_heads * head_dim);
            let mut x = Inputs {
                q: wide(&numbers(rows * width, 1)),
                keys: wide(&numbers(rows * kv, 2)),
                values: wide(&numbers(rows * kv, 3)),
                prefix_keys: wide(&numbers(prefix * kv, 4)),
                prefix_values: wide(&numbers(prefix * kv, 5)),
            };
            let d_out = wide(&numbers(rows * width, 6));
            let mut d = backward(&heads, &x, &d_out);
            for (what, pick) in PICKS {
                let before = pick(&mut x).clone();
                let gradient = pick(&mut d).clone();
                check_gradient(what, &before, &gradient, |shifted| {
                    pick(&mut x).copy_from_slice(shifted);
                    dot(&forward(&heads, &x), &d_out)
                });
                pick(&mut x).copy_from_slice(&before);
            }
        }
    }

    #[test]
    fn a_row_is_an_average_of_what_it_sees() {
        let heads = Heads {
            heads: 1,
            kv_heads: 1,
            head_dim: 1,
            window: Some(2),
        };
        // Equal scores: equal weights over the last two keys, of which the prefix is the first.
        let x = Inputs {
            q: vec![0.0; 3],
            keys: vec![1.0; 3],
            values: vec![1.0, 2.0, 4.0],
            prefix_keys: vec![5.0],
            prefix_values: vec![9.0],
        };
        assert_eq!(forward(&heads, &x), [5.0, 1.5, 3.0]);
    }
}
