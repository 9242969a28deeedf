//! A measured or computed quantity by size: monotone, piecewise linear, in integers.
//!
//! Measured times fall here and there with size (another kernel is chosen, or the clock wavers). A curve is the
//! isotonic regression of its points (pool adjacent violators, each pool its mean), so that a larger pass is never
//! predicted to be faster than a smaller one. Between points it is linear, rounded up. Outside:
//!
//! - below the first point it is that point: a kernel costs its launch, however few rows it has. Of nothing it is 0.
//! - above the last point the last segment goes on; a single point goes on in proportion. Saturation stays saturated.
//!   Nothing is ever said to be more than [`LARGEST`], so that sums of curves stay within 64 bits.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Largest size or value in a curve: sums of some thousands of them stay far below the range of the integers.
pub const LARGEST: u64 = 1 << 50;

/// Points of a curve: size (tokens, bytes or a length) and value (nanoseconds or permille).
pub type Points = Vec<(u64, u64)>;

/// A monotone piecewise linear function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Curve {
    points: Points,
}

/// Why points are no curve.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum BadCurve {
    /// Nothing was measured.
    #[error("there is no point: give at least one [size, value]")]
    Empty,
    /// Sizes do not grow.
    #[error("size {size} at point {index} does not follow {before}: sizes grow strictly, from 1")]
    Disorder {
        /// Place among the points, from 0.
        index: usize,
        /// What stands there.
        size: u64,
        /// What stands before it.
        before: u64,
    },
    /// A number that no machine gives.
    #[error("point {index} holds {value}, more than {LARGEST}: is the unit right?")]
    Huge {
        /// Place among the points, from 0.
        index: usize,
        /// What stands there.
        value: u64,
    },
}

impl Curve {
    /// Of these points.
    ///
    /// # Errors
    /// [`BadCurve`] when there are none, when sizes do not grow strictly from 1, or when a number is out of range.
    pub fn new(points: &[(u64, u64)]) -> Result<Self, BadCurve> {
        if points.is_empty() {
            return Err(BadCurve::Empty);
        }
        let mut before = 0;
        for (index, &(size, value)) in points.iter().enumerate() {
            if size <= before {
                return Err(BadCurve::Disorder {
                    index,
                    size,
                    before,
                });
            }
            if let Some(value) = [size, value].into_iter().find(|number| *number > LARGEST) {
                return Err(BadCurve::Huge { index, value });
            }
            before = size;
        }
        Ok(Self {
            points: isotonic(points),
        })
    }

    /// The same everywhere but at 0.
    #[must_use]
    pub fn flat(value: u64) -> Self {
        Self {
            points: vec![(1, value), (2, value)],
        }
    }

    /// The value at a size.
    #[must_use]
    pub fn at(&self, size: u64) -> u64 {
        if size == 0 {
            return 0;
        }
        let points = &self.points;
        let above = points.partition_point(|point| point.0 < size);
        if above == 0 {
            return points[0].1;
        }
        let (low, high) = match (points.len(), above) {
            (1, _) => ((0, 0), points[0]),
            (count, at) if at == count => (points[count - 2], points[count - 1]),
            (_, at) => (points[at - 1], points[at]),
        };
        let (rise, run, way) = (high.1 - low.1, high.0 - low.0, size - low.0);
        let more = match rise.checked_mul(way) {
            Some(product) => product.div_ceil(run),
            None => {
                let product = u128::from(rise) * u128::from(way);
                u64::try_from(product.div_ceil(u128::from(run))).unwrap_or(u64::MAX)
            }
        };
        low.1.saturating_add(more).min(LARGEST)
    }

    /// The sum of curves, each so many times.
    ///
    /// Exact: a sum of piecewise linear functions is linear between the sizes where any of them bends.
    #[must_use]
    pub fn sum(terms: &[(&Self, u64)]) -> Self {
        let mut sizes: Vec<u64> = terms
            .iter()
            .flat_map(|(curve, _)| curve.points.iter().map(|point| point.0))
            .collect();
        sizes.sort_unstable();
        sizes.dedup();
        // One size far beyond the last bend tells the slope there, as long as nothing is cut off yet.
        if let Some(last) = sizes.last().copied() {
            let cut_off = |size| terms.iter().any(|(curve, _)| curve.at(size) >= LARGEST);
            let mut far = last.saturating_mul(1 << 20);
            while far / 2 > last && cut_off(far) {
                far /= 2;
            }
            sizes.push(far);
        }
        let value = |size| {
            let each = terms
                .iter()
                .map(|(curve, times)| curve.at(size).saturating_mul(*times));
            each.fold(0, u64::saturating_add)
        };
        let points: Points = sizes.into_iter().map(|size| (size, value(size))).collect();
        if points.is_empty() {
            return Self::flat(0);
        }
        Self { points }
    }

    /// Sizes at which it bends.
    pub fn sizes(&self) -> impl Iterator<Item = u64> + '_ {
        self.points.iter().map(|point| point.0)
    }

    /// The points, after regression.
    #[must_use]
    pub fn points(&self) -> &[(u64, u64)] {
        &self.points
    }
}

/// The nearest non-decreasing values, by least squares: neighbours in the wrong order are pooled to their mean.
fn isotonic(points: &[(u64, u64)]) -> Points {
    // (sum, count) of each pool.
    let mut pools: Vec<(u128, u128)> = Vec::new();
    for &(_, value) in points {
        let mut pool = (u128::from(value), 1);
        while let Some(&(sum, count)) = pools.last() {
            if sum * pool.1 <= pool.0 * count {
                break;
            }
            pools.pop();
            pool = (pool.0 + sum, pool.1 + count);
        }
        pools.push(pool);
    }
    let values = pools
        .into_iter()
        .flat_map(|(sum, count)| (0..count).map(move |_| (sum / count) as u64));
    points.iter().map(|point| point.0).zip(values).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn between_below_and_beyond_the_points() {
        let curve = Curve::new(&[(10, 100), (20, 300)]).expect("a curve");
        let at: Vec<u64> = [0, 1, 10, 15, 20, 30].map(|size| curve.at(size)).into();
        assert_eq!(at, [0, 100, 100, 200, 300, 500]);
        let single = Curve::new(&[(10, 100)]).expect("a curve");
        assert_eq!([5, 10, 20].map(|size| single.at(size)), [100, 100, 200]);
    }

    #[test]
    fn a_sum_of_steep_curves_goes_on_as_steep() {
        // 16 ms a token: far beyond the last point it says more than a curve may.
        let steep = Curve::new(&[(1, 1 << 24), (1024, 1 << 34)]).expect("a curve");
        let sum = Curve::sum(&[(&steep, 3), (&Curve::flat(7), 1)]);
        for size in [1, 1024, 1 << 14, 1 << 20] {
            assert_eq!(sum.at(size), 3 * steep.at(size) + 7);
        }
    }

    #[test]
    fn what_is_no_curve_is_refused() {
        assert_eq!(Curve::new(&[]), Err(BadCurve::Empty));
        let twice = Curve::new(&[(4, 1), (4, 2)]);
        assert!(matches!(twice, Err(BadCurve::Disorder { index: 1, .. })));
        assert!(matches!(
            Curve::new(&[(0, 1)]),
            Err(BadCurve::Disorder { .. })
        ));
        assert!(matches!(
            Curve::new(&[(1, u64::MAX)]),
            Err(BadCurve::Huge { .. })
        ));
    }

    #[test]
    fn points_in_the_wrong_order_are_pooled() {
        let curve = Curve::new(&[(1, 10), (2, 30), (3, 20), (4, 40)]).expect("a curve");
        assert_eq!(curve.points(), [(1, 10), (2, 25), (3, 25), (4, 40)]);
    }

    proptest! {
        #[test]
        fn a_curve_never_falls(values in prop::collection::vec(0u64..1000, 1..12), step in 1u64..50) {
            let points: Points = (1u64..).map(|at| at * step).zip(values).collect();
            let curve = Curve::new(&points).expect("a curve");
            let along: Vec<u64> = (0..step * 20).map(|size| curve.at(size)).collect();
            prop_assert!(along.is_sorted());
        }

        #[test]
        fn a_sum_is_the_sum_everywhere(
            a in prop::collection::vec(0u64..1000, 1..8),
            b in prop::collection::vec(0u64..1000, 1..8),
            size in 1u64..400,
        ) {
            let curve = |values: Vec<u64>, step: u64| {
                let points: Points = (1u64..).map(|at| at * step).zip(values).collect();
                Curve::new(&points).expect("a curve")
            };
            let (a, b) = (curve(a, 7), curve(b, 11));
            let sum = Curve::sum(&[(&a, 2), (&b, 3)]);
            let exact = 2 * a.at(size) + 3 * b.at(size);
            // Each is rounded up by less than one.
            prop_assert!(sum.at(size).abs_diff(exact) <= 5, "{} against {exact}", sum.at(size));
        }
    }
}
