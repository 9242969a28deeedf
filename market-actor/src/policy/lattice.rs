//! The dynamic programme behind every plan: slot by slot backwards over (machines before, work left).
//!
//! Work left lies on a grid: cell i is `i * cell` of it, cell 0 is done, the top cell is all that is left now. With
//! `W_t(m, i)` the best that can still be earned from slot t on, machines m before it and cell i left,
//!
//! ```text
//! W_t(m, i) = max over n of  -cost_t(n) + W_{t+1}(n, i - share(m, n) * H(n) / cell),      W_t(m, 0) = V(t)
//! ```
//!
//! Since m matters only by `m < n`, `m = n`, `m > n`, a slot takes three candidates for each (n, i) and running maxima:
//! `3 * N * cells` steps instead of `N^2 * cells`. Work left that falls between cells is rounded up (never promises
//! what cannot be), down (never misses what can be), or interpolated; what falls between done and cell 1 is cell 1, so that
//! a job that is almost done is not done.

use crate::problem::Problem;

/// What becomes of work left between two cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// More is left: a plan that can be carried out.
    Up,
    /// Less is left: a bound that no plan passes.
    Down,
    /// The line between: closest on average.
    Between,
}

/// The grid and the moves on it.
#[derive(Clone, Debug)]
pub struct Lattice {
    /// Numbers of machines, rising, the first is 0.
    actions: Vec<u32>,
    /// Work of a slot by action.
    full: Vec<f64>,
    /// Shares that compute when growing and shrinking.
    grow: f64,
    shrink: f64,
    /// Work of a cell.
    cell: f64,
    /// Cells above 0.
    cells: usize,
    rounding: Rounding,
}

/// What one slot costs and how an unchanged number fares in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Tariff {
    /// Cost by action; infinite when there are not as many machines.
    pub cost: Vec<f64>,
    /// Share that computes with an unchanged number of machines, by action: below 1 when spot is exchanged.
    pub same: Vec<f64>,
}

/// `W_t`: by action before, then by cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    values: Vec<f64>,
    width: usize,
}

impl Lattice {
    /// A grid of at most `cells` cells over `remaining` work.
    #[must_use]
    pub fn new(problem: &Problem, remaining: f64, cells: usize, rounding: Rounding) -> Self {
        let cells = cells.max(1);
        Self::with_cell(problem, remaining, remaining / cells as f64, rounding)
    }

    /// A grid with cells of `cell` work over at least `remaining` work.
    #[must_use]
    pub fn with_cell(problem: &Problem, remaining: f64, cell: f64, rounding: Rounding) -> Self {
        let actions = problem.actions();
        let cell = if cell > 0.0 { cell } else { 1.0 };
        Self {
            full: actions.iter().map(|&n| problem.throughput.at(n)).collect(),
            actions,
            grow: problem.reconfigure.grow,
            shrink: problem.reconfigure.shrink,
            cell,
            cells: (remaining / cell - 1e-9).ceil().max(1.0) as usize,
            rounding,
        }
    }

    /// Numbers of machines, rising, the first is 0.
    #[must_use]
    pub fn actions(&self) -> &[u32] {
        &self.actions
    }

    /// Where `count` machines, or the next lower number that the job may hold, stand among the actions.
    #[must_use]
    pub fn index(&self, count: u32) -> usize {
        self.actions
            .partition_point(|&n| n <= count)
            .saturating_sub(1)
    }

    /// A layer whose values are `worth(machines before, work left)`, with `done` for no work left.
    pub fn layer(&self, done: f64, mut worth: impl FnMut(u32, f64) -> f64) -> Layer {
        let width = self.cells + 1;
        let mut values = Vec::with_capacity(width * self.actions.len());
        for &count in &self.actions {
            values.push(done);
            for cell in 1..width {
                values.push(worth(count, cell as f64 * self.cell));
            }
        }
        Layer { values, width }
    }

    /// The layer before `next`: a slot with `tariff`, and `done` for a job that is done before it.
    #[must_use]
    pub fn before(&self, next: &Layer, tariff: &Tariff, done: f64) -> Layer {
        let width = self.cells + 1;
        let count = self.actions.len();
        let mut values = vec![f64::NEG_INFINITY; width * count];
        let mut best = vec![f64::NEG_INFINITY; width];
        let mut moved = vec![0.0; width];
        // Shrinking to the actions below.
        for action in 0..count {
            if action > 0 {
                raise(&mut values[action * width..][..width], &best);
            }
            if tariff.cost[action].is_finite() {
                let gain = self.shrink * self.full[action];
                self.shift(next.row(action), gain, tariff.cost[action], &mut moved);
                raise(&mut best, &moved);
            }
        }
        // Growing to the actions above.
        best.fill(f64::NEG_INFINITY);
        for action in (0..count).rev() {
            raise(&mut values[action * width..][..width], &best);
            if tariff.cost[action].is_finite() {
                let gain = self.grow * self.full[action];
                self.shift(next.row(action), gain, tariff.cost[action], &mut moved);
                raise(&mut best, &moved);
                let gain = tariff.same[action] * self.full[action];
                self.shift(next.row(action), gain, tariff.cost[action], &mut moved);
                raise(&mut values[action * width..][..width], &moved);
            }
        }
        for action in 0..count {
            values[action * width] = done;
        }
        Layer { values, width }
    }

    /// What each action is worth now: `work` left exactly, `held` machines before; minus infinity where it cannot be.
    #[must_use]
    pub fn worths(&self, next: &Layer, tariff: &Tariff, held: u32, work: f64) -> Vec<f64> {
        (0..self.actions.len())
            .map(|action| {
                if !tariff.cost[action].is_finite() {
                    return f64::NEG_INFINITY;
                }
                let left = work - self.share(tariff, held, action) * self.full[action];
                self.at(next, action, left) - tariff.cost[action]
            })
            .collect()
    }

    /// Raises `layer`, by what a job may earn that arrives from elsewhere with `share` of a slot with `tariff` and pays `fee`.
    pub fn arrive(&self, layer: &mut Layer, next: &Layer, tariff: &Tariff, share: f64, fee: f64) {
        let width = self.cells + 1;
        let mut best = vec![f64::NEG_INFINITY; width];
        let mut moved = vec![0.0; width];
        for action in 1..self.actions.len() {
            let cost = tariff.cost[action] + fee;
            if cost.is_finite() {
                self.shift(
                    next.row(action),
                    share * self.full[action],
                    cost,
                    &mut moved,
                );
                raise(&mut best, &moved);
            }
        }
        // A job that is done does not move.
        for row in layer.values.chunks_mut(width) {
            raise(&mut row[1..], &best[1..]);
        }
    }

    /// What each action but holding nothing is worth to a job that arrives with `share` of the slot.
    #[must_use]
    pub fn arrivals(&self, next: &Layer, tariff: &Tariff, share: f64, work: f64) -> Vec<f64> {
        (0..self.actions.len())
            .map(|action| {
                if action == 0 || !tariff.cost[action].is_finite() {
                    return f64::NEG_INFINITY;
                }
                let left = work - share * self.full[action];
                self.at(next, action, left) - tariff.cost[action]
            })
            .collect()
    }

    /// Work left after `action` from `held` machines and `work` left.
    #[must_use]
    pub fn left(&self, tariff: &Tariff, held: u32, action: usize, work: f64) -> f64 {
        (work - self.share(tariff, held, action) * self.full[action]).max(0.0)
    }

    /// The value of a layer at any work left.
    #[must_use]
    pub fn at(&self, layer: &Layer, action: usize, left: f64) -> f64 {
        let row = layer.row(action);
        let place = left / self.cell;
        if place <= 1e-9 {
            return row[0];
        }
        let low = (place + 1e-9).floor();
        let part = (place - low).max(0.0);
        let low = (low as usize).min(self.cells);
        if part <= 1e-9 {
            return row[low];
        }
        let high = (low + 1).min(self.cells);
        match self.rounding {
            Rounding::Up => row[high],
            Rounding::Down => row[low],
            Rounding::Between if low == 0 => row[1],
            Rounding::Between => row[low] * (1.0 - part) + row[high] * part,
        }
    }

    fn share(&self, tariff: &Tariff, held: u32, action: usize) -> f64 {
        let count = self.actions[action];
        if count > held {
            self.grow
        } else if count < held {
            self.shrink
        } else {
            tariff.same[action]
        }
    }

    /// `out[i] = row(i - gain / cell) - cost`, by the rounding.
    fn shift(&self, row: &[f64], gain: f64, cost: f64, out: &mut [f64]) {
        let cells = self.cells;
        let exact = gain / self.cell;
        let mut whole = exact.floor();
        let mut part = exact - whole;
        if part > 1.0 - 1e-9 {
            (whole, part) = (whole + 1.0, 0.0);
        } else if part < 1e-9 {
            part = 0.0;
        }
        // Cells up to `done` reach the end in this slot.
        let done = (whole as usize).min(cells);
        out[..=done].fill(row[0] - cost);
        if done == cells {
            return;
        }
        let count = cells - done;
        let (low, high) = (&row[..count], &row[1..=count]);
        let rest = &mut out[done + 1..=cells];
        // Cell done + 1 + j has j + 1 - part cells left: between j and j + 1.
        match self.rounding {
            _ if part == 0.0 => {
                for (to, from) in rest.iter_mut().zip(high) {
                    *to = from - cost;
                }
            }
            Rounding::Up => {
                for (to, from) in rest.iter_mut().zip(high) {
                    *to = from - cost;
                }
            }
            Rounding::Down => {
                for (to, from) in rest.iter_mut().zip(low) {
                    *to = from - cost;
                }
            }
            Rounding::Between => {
                for ((to, a), b) in rest.iter_mut().zip(low).zip(high) {
                    *to = part * a + (1.0 - part) * b - cost;
                }
                rest[0] = high[0] - cost;
            }
        }
    }
}

impl Layer {
    /// The values of one number of machines before, by cell.
    #[must_use]
    pub fn row(&self, action: usize) -> &[f64] {
        &self.values[action * self.width..][..self.width]
    }

    /// All zeros, of the same form.
    #[must_use]
    pub fn zeros(&self) -> Self {
        Self {
            values: vec![0.0; self.values.len()],
            width: self.width,
        }
    }

    /// Adds `weight` times another of the same form: an expectation is built so.
    pub fn add(&mut self, weight: f64, other: &Self) {
        for (to, from) in self.values.iter_mut().zip(&other.values) {
            *to += weight * from;
        }
    }
}

fn raise(to: &mut [f64], from: &[f64]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = if *from > *to { *from } else { *to };
    }
}

/// The action of greatest worth, and how much the second-best is worth less. Of equal ones (to a millionth of a cent) one that
/// works comes before holding nothing, then that which changes least from `held`, then the smaller: plans do not flutter between
/// equals, and work that may as well be done now is not put off until the safety net must do it.
#[must_use]
pub fn best(actions: &[u32], worths: &[f64], held: u32) -> (usize, f64) {
    let top = worths.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let least = top - (1e-2 + 1e-12 * top.abs());
    let rank = |at: usize| (actions[at] == 0, actions[at].abs_diff(held));
    let equals = (0..worths.len()).filter(|&at| worths[at].is_finite() && worths[at] >= least);
    // Where nothing can be held at all, that is held.
    let chosen = equals.min_by_key(|&at| rank(at)).unwrap_or(0);
    let second = worths
        .iter()
        .enumerate()
        .filter(|(action, _)| *action != chosen)
        .map(|(_, worth)| *worth)
        .fold(f64::NEG_INFINITY, f64::max);
    let margin = worths[chosen] - second;
    (
        chosen,
        if margin.is_finite() {
            margin.max(0.0)
        } else {
            0.0
        },
    )
}

#[cfg(test)]
mod tests;
