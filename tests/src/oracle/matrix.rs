//! A dense matrix in f64 and the few products that a transformer needs.

/// A matrix, row-major.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Matrix {
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub columns: usize,
    /// Values, row after row.
    pub values: Vec<f64>,
}

impl Matrix {
    /// A matrix with these values.
    ///
    /// # Panics
    /// When there are not `rows * columns` of them.
    #[must_use]
    pub fn new(rows: usize, columns: usize, values: Vec<f64>) -> Self {
        assert_eq!(
            values.len(),
            rows * columns,
            "a matrix of {rows} x {columns}"
        );
        Self {
            rows,
            columns,
            values,
        }
    }

    /// A matrix of zeros.
    #[must_use]
    pub fn zeros(rows: usize, columns: usize) -> Self {
        Self::new(rows, columns, vec![0.0; rows * columns])
    }

    /// One row.
    #[must_use]
    pub fn row(&self, row: usize) -> &[f64] {
        &self.values[row * self.columns..(row + 1) * self.columns]
    }

    /// One row, to change.
    pub fn row_mut(&mut self, row: usize) -> &mut [f64] {
        &mut self.values[row * self.columns..(row + 1) * self.columns]
    }

    /// Every row in order.
    pub fn each_row(&self) -> impl Iterator<Item = &[f64]> {
        self.values.chunks(self.columns.max(1))
    }

    /// Rows from `first` to before `end`.
    #[must_use]
    pub fn rows_between(&self, first: usize, end: usize) -> Self {
        let values = self.values[first * self.columns..end * self.columns].to_vec();
        Self::new(end - first, self.columns, values)
    }

    /// This matrix with `below` under it.
    #[must_use]
    pub fn above(&self, below: &Self) -> Self {
        assert_eq!(self.columns, below.columns, "columns of stacked matrices");
        let values = [self.values.as_slice(), below.values.as_slice()].concat();
        Self::new(self.rows + below.rows, self.columns, values)
    }

    /// Rows and columns exchanged.
    #[must_use]
    pub fn transposed(&self) -> Self {
        let mut out = Self::zeros(self.columns, self.rows);
        for row in 0..self.rows {
            for (column, &value) in self.row(row).iter().enumerate() {
                out.values[column * self.rows + row] = value;
            }
        }
        out
    }

    /// This `(m, k)` times `right` `(k, n)`.
    #[must_use]
    pub fn times(&self, right: &Self) -> Self {
        assert_eq!(self.columns, right.rows, "inner widths of a product");
        let mut out = Self::zeros(self.rows, right.columns);
        for row in 0..self.rows {
            let sums = out.row_mut(row);
            for (k, &left) in self.row(row).iter().enumerate() {
                for (sum, value) in sums.iter_mut().zip(right.row(k)) {
                    *sum += left * value;
                }
            }
        }
        out
    }

    /// This `(m, k)` times the transpose of `right` `(n, k)`: a linear layer with weight `right`.
    #[must_use]
    pub fn times_transposed(&self, right: &Self) -> Self {
        self.times(&right.transposed())
    }

    /// The transpose of this `(k, m)` times `right` `(k, n)`: a sum over rows of outer products.
    #[must_use]
    pub fn transposed_times(&self, right: &Self) -> Self {
        self.transposed().times(right)
    }

    /// Adds another matrix of the same shape.
    pub fn add(&mut self, other: &Self) {
        assert_eq!(
            (self.rows, self.columns),
            (other.rows, other.columns),
            "shapes of a sum"
        );
        for (value, more) in self.values.iter_mut().zip(&other.values) {
            *value += more;
        }
    }

    /// Multiplies every value.
    #[must_use]
    pub fn scaled(mut self, factor: f64) -> Self {
        for value in &mut self.values {
            *value *= factor;
        }
        self
    }

    /// Adds a vector `(columns)` to every row.
    pub fn add_to_rows(&mut self, vector: &[f64]) {
        self.zip_rows(vector, |value, more| value + more);
    }

    /// Multiplies every row by a vector `(columns)`.
    pub fn multiply_rows(&mut self, vector: &[f64]) {
        self.zip_rows(vector, |value, factor| value * factor);
    }

    /// Replaces every value by a function of it and of the vector's value in its column.
    fn zip_rows(&mut self, vector: &[f64], function: impl Fn(f64, f64) -> f64) {
        assert_eq!(self.columns, vector.len(), "a vector for every row");
        for row in 0..self.rows {
            for (value, &other) in self.row_mut(row).iter_mut().zip(vector) {
                *value = function(*value, other);
            }
        }
    }

    /// Element by element product.
    #[must_use]
    pub fn products(&self, other: &Self) -> Self {
        let mut out = self.clone();
        for (value, factor) in out.values.iter_mut().zip(&other.values) {
            *value *= factor;
        }
        out
    }

    /// A function of every value.
    #[must_use]
    pub fn map(&self, function: impl Fn(f64) -> f64) -> Self {
        let values = self.values.iter().map(|&value| function(value)).collect();
        Self::new(self.rows, self.columns, values)
    }

    /// The sum of all rows, `(columns)`.
    #[must_use]
    pub fn row_sum(&self) -> Vec<f64> {
        let mut sums = vec![0.0; self.columns];
        for row in self.each_row() {
            for (sum, value) in sums.iter_mut().zip(row) {
                *sum += value;
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counting(rows: usize, columns: usize) -> Matrix {
        Matrix::new(
            rows,
            columns,
            (0..rows * columns).map(|i| i as f64).collect(),
        )
    }

    #[test]
    fn products_agree_with_each_other() {
        let (left, right) = (counting(2, 3), counting(3, 4));
        let product = left.times(&right);
        assert_eq!(
            product.values,
            [20.0, 23.0, 26.0, 29.0, 56.0, 68.0, 80.0, 92.0]
        );
        assert_eq!(left.times_transposed(&right.transposed()), product);
        assert_eq!(left.transposed().transposed_times(&right), product);
        assert_eq!(
            left.rows_between(0, 1).above(&left.rows_between(1, 2)),
            left
        );
    }
}
