//! Causal attention of one sequence, with grouped heads, an optional prefix and an optional window.
//!
//! Row t of head h sees rows s <= t with t - s < window, counted from the start of the prefix: its rows take
//! positions like tokens, as in the PEFT library, so a row may be too far away to see the prefix. With
//! S = q k^T / sqrt(d) and P = softmax(S): y = P v; dv = P^T dy; dP = dy v^T; dS = P (dP - rowsum(P dP));
//! dq = dS k / sqrt(d); dk = dS^T q / sqrt(d). Heads h of one group share the keys and values of head
//! h / (heads / kv_heads).

use super::matrix::Matrix;

/// Sizes of attention.
#[derive(Clone, Copy, Debug)]
pub struct Heads {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Width of one head.
    pub head_dim: usize,
    /// Number of rows a row can see, itself included.
    pub window: Option<usize>,
}

/// What backward needs of [`forward`].
#[derive(Clone, Debug)]
pub struct AttentionTape {
    q: Matrix,
    /// Prefix rows first.
    keys: Matrix,
    values: Matrix,
    prefix: usize,
    /// P by head, `(rows, prefix + rows)`.
    shares: Vec<Matrix>,
}

/// Gradients of all inputs.
#[derive(Clone, Debug)]
pub struct AttentionGradient {
    /// Of the queries.
    pub q: Matrix,
    /// Of the keys.
    pub k: Matrix,
    /// Of the values.
    pub v: Matrix,
    /// Of the prefix's keys and values; no rows without a prefix.
    pub prefix: (Matrix, Matrix),
}

impl Heads {
    fn group(&self, head: usize) -> usize {
        head / (self.heads / self.kv_heads)
    }

    fn scale(&self) -> f64 {
        1.0 / (self.head_dim as f64).sqrt()
    }

    fn sees(&self, row: usize, other: usize) -> bool {
        other <= row && self.window.is_none_or(|window| row - other < window)
    }
}

/// Columns of one head.
fn head_of(x: &Matrix, head: usize, width: usize) -> Matrix {
    let values = x
        .each_row()
        .flat_map(|row| &row[head * width..(head + 1) * width]);
    Matrix::new(x.rows, width, values.copied().collect())
}

/// Adds to the columns of one head.
fn add_to_head(x: &mut Matrix, head: usize, more: &Matrix) {
    for t in 0..x.rows {
        let run = &mut x.row_mut(t)[head * more.columns..(head + 1) * more.columns];
        for (value, more) in run.iter_mut().zip(more.row(t)) {
            *value += more;
        }
    }
}

/// Attention of `q` `(rows, heads * head_dim)` over `k` and `v` `(rows, kv_heads * head_dim)` and a prefix.
#[must_use]
pub fn forward(
    heads: Heads,
    q: &Matrix,
    k: &Matrix,
    v: &Matrix,
    prefix: Option<&(Matrix, Matrix)>,
) -> (Matrix, AttentionTape) {
    let (keys, values, before) = match prefix {
        Some((keys, values)) => (keys.above(k), values.above(v), keys.rows),
        None => (k.clone(), v.clone(), 0),
    };
    let mut out = Matrix::zeros(q.rows, q.columns);
    let mut shares = Vec::new();
    for head in 0..heads.heads {
        let group = heads.group(head);
        let (q, keys, values) = (
            head_of(q, head, heads.head_dim),
            head_of(&keys, group, heads.head_dim),
            head_of(&values, group, heads.head_dim),
        );
        let mut scores = q.times_transposed(&keys).scaled(heads.scale());
        for t in 0..scores.rows {
            softmax(scores.row_mut(t), |column| heads.sees(before + t, column));
        }
        add_to_head(&mut out, head, &scores.times(&values));
        shares.push(scores);
    }
    let tape = AttentionTape {
        q: q.clone(),
        keys,
        values,
        prefix: before,
        shares,
    };
    (out, tape)
}

/// Softmax over the columns that are seen; the others get no share.
fn softmax(scores: &mut [f64], seen: impl Fn(usize) -> bool) {
    let mut largest = f64::NEG_INFINITY;
    for (column, score) in scores.iter_mut().enumerate() {
        if !seen(column) {
            *score = f64::NEG_INFINITY;
        }
        largest = score.max(largest);
    }
    let mut sum = 0.0;
    for score in scores.iter_mut() {
        *score = (*score - largest).exp();
        sum += *score;
    }
    for score in scores {
        *score /= sum;
    }
}

/// Reverses [`forward`].
#[must_use]
pub fn backward(heads: Heads, tape: &AttentionTape, dy: &Matrix) -> AttentionGradient {
    let width = heads.head_dim;
    let mut d_q = Matrix::zeros(tape.q.rows, tape.q.columns);
    let mut d_keys = Matrix::zeros(tape.keys.rows, tape.keys.columns);
    let mut d_values = d_keys.clone();
    for (head, shares) in tape.shares.iter().enumerate() {
        let group = heads.group(head);
        let q = head_of(&tape.q, head, width);
        let keys = head_of(&tape.keys, group, width);
        let values = head_of(&tape.values, group, width);
        let dy = head_of(dy, head, width);
        let mut d_scores = dy.times_transposed(&values);
        for t in 0..shares.rows {
            let share = shares.row(t);
            let d_row = d_scores.row_mut(t);
            let mean: f64 = share.iter().zip(&*d_row).map(|(p, d)| p * d).sum();
            for (d, p) in d_row.iter_mut().zip(share) {
                *d = p * (*d - mean) * heads.scale();
            }
        }
        add_to_head(&mut d_q, head, &d_scores.times(&keys));
        add_to_head(&mut d_keys, group, &d_scores.transposed_times(&q));
        add_to_head(&mut d_values, group, &shares.transposed_times(&dy));
    }
    let (prefix, end) = (tape.prefix, tape.keys.rows);
    AttentionGradient {
        q: d_q,
        k: d_keys.rows_between(prefix, end),
        v: d_values.rows_between(prefix, end),
        prefix: (
            d_keys.rows_between(0, prefix),
            d_values.rows_between(0, prefix),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::differences::{assert_gradient, random};

    fn check(heads: Heads, prefix: Option<(Matrix, Matrix)>) {
        let (q_width, kv_width) = (
            heads.heads * heads.head_dim,
            heads.kv_heads * heads.head_dim,
        );
        let (q, k, v) = (
            random(5, q_width, 1),
            random(5, kv_width, 2),
            random(5, kv_width, 3),
        );
        let dy = random(5, q_width, 4);
        let (_, tape) = forward(heads, &q, &k, &v, prefix.as_ref());
        let gradient = backward(heads, &tape, &dy);
        let run = |q: &Matrix, k: &Matrix, v: &Matrix| forward(heads, q, k, v, prefix.as_ref()).0;
        assert_gradient(&q, &gradient.q, &dy, |q| run(q, &k, &v));
        assert_gradient(&k, &gradient.k, &dy, |k| run(&q, k, &v));
        assert_gradient(&v, &gradient.v, &dy, |v| run(&q, &k, v));
        let Some((keys, values)) = &prefix else {
            return;
        };
        let run = |keys: &Matrix, values: &Matrix| {
            forward(heads, &q, &k, &v, Some(&(keys.clone(), values.clone()))).0
        };
        assert_gradient(keys, &gradient.prefix.0, &dy, |keys| run(keys, values));
        assert_gradient(values, &gradient.prefix.1, &dy, |values| run(keys, values));
    }

    #[test]
    fn the_gradients_are_the_slopes() {
        let heads = Heads {
            heads: 4,
            kv_heads: 2,
            head_dim: 3,
            window: None,
        };
        check(heads, None);
        check(heads, Some((random(2, 6, 5), random(2, 6, 6))));
        let window = Some(2);
        check(Heads { window, ..heads }, None);
        check(
            Heads { window, ..heads },
            Some((random(2, 6, 5), random(2, 6, 6))),
        );
    }

    #[test]
    fn a_row_sees_itself_and_what_the_window_reaches() {
        let heads = Heads {
            heads: 1,
            kv_heads: 1,
            head_dim: 2,
            window: Some(2),
        };
        let (q, k) = (random(4, 2, 1), random(4, 2, 2));
        let (_, tape) = forward(heads, &q, &k, &k, Some(&(random(1, 2, 3), random(1, 2, 4))));
        for t in 0..4usize {
            let seen: Vec<bool> = tape.shares[0].row(t).iter().map(|&p| p > 0.0).collect();
            let want: Vec<bool> = (0..5).map(|c| c == t || c == t + 1).collect();
            assert_eq!(seen, want, "row {t}");
        }
    }
}
