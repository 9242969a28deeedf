//! The least value of a function of few variables without its derivatives.
//!
//! Nelder and Mead, "A simplex method for function minimization", Computer Journal 7, 1965: reflection 1, expansion 2,
//! contraction and shrinkage 1/2. No randomness: the same start gives the same end.

/// Where to stop.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Most evaluations of the function, give or take one shrinkage.
    pub(super) evaluations: usize,
    /// Difference between the best and the worst corner that is small enough.
    pub(super) tolerance: f64,
    /// How far the first corners are from the start.
    pub(super) step: f64,
}

/// The best point found, and its value. What the function gives that is no number counts as infinite.
pub(super) fn minimise(
    start: &[f64],
    limits: Limits,
    function: impl Fn(&[f64]) -> f64,
) -> (Vec<f64>, f64) {
    let count = std::cell::Cell::new(0usize);
    let value = |point: &[f64]| {
        count.set(count.get() + 1);
        let value = function(point);
        if value.is_nan() { f64::INFINITY } else { value }
    };
    let mut corners: Vec<(Vec<f64>, f64)> = vec![(start.to_vec(), value(start))];
    for at in 0..start.len() {
        let mut corner = start.to_vec();
        corner[at] += limits.step;
        let height = value(&corner);
        corners.push((corner, height));
    }
    let size = start.len();
    while size > 0 && count.get() < limits.evaluations {
        corners.sort_by(|a, b| a.1.total_cmp(&b.1));
        let (best, worst) = (corners[0].1, corners[size].1);
        if worst - best <= limits.tolerance {
            break;
        }
        let centre = centre(&corners[..size]);
        let along = |by: f64| -> Vec<f64> {
            let pairs = centre.iter().zip(&corners[size].0);
            pairs.map(|(c, w)| c + by * (w - c)).collect()
        };
        let reflected = along(-1.0);
        let height = value(&reflected);
        let replacement = if height < best {
            let expanded = along(-2.0);
            let further = value(&expanded);
            if further < height {
                Some((expanded, further))
            } else {
                Some((reflected, height))
            }
        } else if height < corners[size - 1].1 {
            Some((reflected, height))
        } else {
            let outside = height < worst;
            let contracted = along(if outside { -0.5 } else { 0.5 });
            let nearer = value(&contracted);
            (nearer < height.min(worst)).then_some((contracted, nearer))
        };
        match replacement {
            Some(corner) => corners[size] = corner,
            None => shrink(&mut corners, value),
        }
    }
    corners.sort_by(|a, b| a.1.total_cmp(&b.1));
    corners.swap_remove(0)
}

fn centre(corners: &[(Vec<f64>, f64)]) -> Vec<f64> {
    let mut centre = vec![0.0; corners[0].0.len()];
    for (corner, _) in corners {
        for (sum, part) in centre.iter_mut().zip(corner) {
            *sum += part / corners.len() as f64;
        }
    }
    centre
}

fn shrink(corners: &mut [(Vec<f64>, f64)], value: impl Fn(&[f64]) -> f64) {
    let best = corners[0].0.clone();
    for (corner, height) in &mut corners[1..] {
        for (part, towards) in corner.iter_mut().zip(&best) {
            *part = 0.5 * (*part + towards);
        }
        *height = value(corner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        evaluations: 2000,
        tolerance: 1e-14,
        step: 0.5,
    };

    #[test]
    fn the_valley_of_rosenbrock() {
        let valley = |x: &[f64]| (1.0 - x[0]).powi(2) + 100.0 * (x[1] - x[0] * x[0]).powi(2);
        let (point, value) = minimise(&[-1.2, 1.0], LIMITS, valley);
        assert!(value < 1e-10 && (point[0] - 1.0).abs() < 1e-4, "{point:?}");
    }

    #[test]
    fn where_there_is_no_number_there_is_no_least() {
        let half = |x: &[f64]| if x[0] < 1.0 { f64::NAN } else { x[0] };
        let (point, _) = minimise(&[2.0], LIMITS, half);
        assert!((point[0] - 1.0).abs() < 1e-6, "{point:?}");
        assert_eq!(minimise(&[], LIMITS, |_| 7.0), (vec![], 7.0));
    }

    #[test]
    fn evaluations_have_a_limit() {
        let few = Limits {
            evaluations: 10,
            ..LIMITS
        };
        let calls = std::cell::Cell::new(0);
        let _ = minimise(&[5.0, 5.0], few, |x| {
            calls.set(calls.get() + 1);
            x[0] * x[0] + x[1] * x[1]
        });
        assert!(calls.get() <= 14, "{}", calls.get());
    }
}
