//! A Markov chain over capacities: how often so many machines were followed by so many.
//!
//! With n_ij the number of times that i was followed by j among the last `window` values, and d_ij the share of all
//! changes that lead from i to j once what would go below 0 or above the greatest is held there, the chance of j after
//! i is (n_ij + k d_ij) / (n_i + k): a level that was seldom seen borrows the changes of all levels (k observations' worth).
//! Powers of that matrix give the values to come. The least value so far is at least c exactly when every step stays
//! within {c, c + 1, ..}, so its chance is that of the chain without all lower levels (first passage; Kemeny and Snell,
//! Finite Markov Chains, 1960, chapter 3). A chain forgets how long a level has lasted.

use std::collections::BTreeMap;

use super::belief::Belief;
use super::model::{Model, Prospect};

/// Most levels; beyond that, neighbouring ones are taken together.
const LEVELS: usize = 64;

/// A chain whose chances are counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transition {
    /// Most values that are counted.
    pub window: usize,
    /// Weight of the changes of all levels, in observations.
    pub borrowed: f64,
}

impl Default for Transition {
    fn default() -> Self {
        Self {
            window: 2000,
            borrowed: 2.0,
        }
    }
}

impl Model for Transition {
    fn name(&self) -> String {
        "transition".to_owned()
    }

    fn look(&self, seen: &[f64], horizon: usize) -> Option<Prospect> {
        let seen = &seen[seen.len().saturating_sub(self.window)..];
        let chain = self.chain(seen)?;
        let mut values = Vec::with_capacity(horizon);
        let mut chances = chain.at_last();
        for _ in 0..horizon {
            chances = chain.step(&chances, 0);
            values.push(chain.belief(&chances)?);
        }
        let least = chain.least(horizon);
        let least: Option<Vec<Belief>> =
            least.iter().map(|chances| chain.belief(chances)).collect();
        Some(Prospect {
            values,
            least: least?,
        })
    }
}

/// Levels in order, and the chance of each after each.
struct Chain {
    levels: Vec<f64>,
    last: usize,
    /// Row by row.
    chances: Vec<f64>,
}

impl Transition {
    fn chain(&self, seen: &[f64]) -> Option<Chain> {
        let counts: Vec<i64> = seen.iter().map(|value| value.round() as i64).collect();
        let (least, most) = (*counts.iter().min()?, *counts.iter().max()?);
        let width = (most - least) / LEVELS as i64 + 1;
        let rounded: Vec<i64> = counts
            .iter()
            .map(|c| least + (c - least) / width * width)
            .collect();
        let mut places: BTreeMap<i64, usize> = rounded.iter().map(|level| (*level, 0)).collect();
        for (at, place) in places.values_mut().enumerate() {
            *place = at;
        }
        let levels: Vec<i64> = places.keys().copied().collect();
        let size = levels.len();
        let mut pairs = vec![0.0; size * size];
        let mut changes: BTreeMap<i64, f64> = BTreeMap::new();
        for two in rounded.windows(2) {
            pairs[places[&two[0]] * size + places[&two[1]]] += 1.0;
            *changes.entry(two[1] - two[0]).or_default() += 1.0;
        }
        let all = (rounded.len() - 1).max(1) as f64;
        let mut chances = vec![0.0; size * size];
        for (from, row) in chances.chunks_mut(size).enumerate() {
            let seen = &pairs[from * size..][..size];
            let total = seen.iter().sum::<f64>() + self.borrowed;
            if changes.is_empty() || total <= 0.0 {
                row[from] = 1.0;
                continue;
            }
            for (chance, pair) in row.iter_mut().zip(seen) {
                *chance = pair / total;
            }
            for (change, times) in &changes {
                let to = nearest(&levels, levels[from] + change);
                row[to] += self.borrowed * times / all / total;
            }
        }
        Some(Chain {
            last: places[rounded.last()?],
            levels: levels.iter().map(|level| *level as f64).collect(),
            chances,
        })
    }
}

/// The place of the level that is nearest, the lower of two.
fn nearest(levels: &[i64], wanted: i64) -> usize {
    let above = levels.partition_point(|level| *level < wanted);
    let Some(next) = levels.get(above) else {
        return levels.len() - 1;
    };
    let lower = above.checked_sub(1);
    match lower {
        Some(lower) if wanted - levels[lower] <= next - wanted => lower,
        _ => above,
    }
}

impl Chain {
    fn at_last(&self) -> Vec<f64> {
        let mut chances = vec![0.0; self.levels.len()];
        chances[self.last] = 1.0;
        chances
    }

    /// The chances one step later of what stays at level `floor` or above.
    fn step(&self, chances: &[f64], floor: usize) -> Vec<f64> {
        let size = self.levels.len();
        let mut next = vec![0.0; size];
        for (from, chance) in chances.iter().enumerate() {
            if *chance == 0.0 {
                continue;
            }
            let row = &self.chances[from * size..][..size];
            for (to, sum) in next.iter_mut().enumerate().skip(floor) {
                *sum += chance * row[to];
            }
        }
        next
    }

    /// For each step ahead the chance of each level to be the least so far.
    fn least(&self, horizon: usize) -> Vec<Vec<f64>> {
        let size = self.levels.len();
        // Chance that all steps so far stayed at each level or above.
        let mut stays = vec![vec![0.0; size]; horizon];
        for floor in 0..size {
            let mut chances = self.at_last();
            for staying in &mut stays {
                chances = self.step(&chances, floor);
                staying[floor] = chances.iter().sum();
            }
        }
        let exactly = |staying: &Vec<f64>| {
            let above = staying[1..].iter().chain([&0.0]);
            staying
                .iter()
                .zip(above)
                .map(|(here, above)| (here - above).max(0.0))
                .collect()
        };
        stays.iter().map(exactly).collect()
    }

    fn belief(&self, chances: &[f64]) -> Option<Belief> {
        let atoms = self.levels.iter().copied().zip(chances.iter().copied());
        Belief::new(atoms.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain() -> Transition {
        Transition {
            window: 100,
            borrowed: 0.0,
        }
    }

    #[test]
    fn chances_are_counted() {
        // After 0: 0 once, 1 once. After 1: 0 twice.
        let prospect = plain().look(&[1.0, 0.0, 0.0, 1.0, 0.0], 2).unwrap();
        assert_eq!(prospect.values[0].atoms(), [(0.0, 0.5), (1.0, 0.5)]);
        assert_eq!(prospect.values[1].atoms(), [(0.0, 0.75), (1.0, 0.25)]);
        assert_eq!(prospect.least[0].atoms(), [(0.0, 0.5), (1.0, 0.5)]);
        assert_eq!(prospect.least[1].atoms(), [(0.0, 1.0)]);
    }

    #[test]
    fn a_level_that_was_never_left_borrows() {
        let model = Transition {
            borrowed: 1.0,
            ..plain()
        };
        // Changes: +1, +1, -2, +2. Level 2 was followed by 0 once; of its borrowed ones, +1 and +2 are held at 2.
        let prospect = model.look(&[0.0, 1.0, 2.0, 0.0, 2.0], 1).unwrap();
        let up = 1.0 / 4.0;
        let expected = [0.5 + 0.5 * up, 0.5 * 3.0 * up];
        let atoms = prospect.values[0].atoms();
        assert!((atoms[0].1 - expected[0]).abs() < 1e-12, "{atoms:?}");
        assert!((atoms[1].1 - expected[1]).abs() < 1e-12, "{atoms:?}");
        assert_eq!((atoms[0].0, atoms[1].0), (0.0, 2.0));
    }

    #[test]
    fn one_value_stays() {
        let prospect = Transition::default().look(&[3.0], 2).unwrap();
        assert_eq!(prospect.values[1], Belief::certain(3.0));
        assert_eq!(prospect.least[1], Belief::certain(3.0));
        assert_eq!(Transition::default().look(&[], 2), None);
    }

    #[test]
    fn many_levels_are_taken_together() {
        let many: Vec<f64> = (0..500).map(|at| f64::from(at * 7 % 500)).collect();
        let chain = Transition::default().chain(&many).unwrap();
        assert!(chain.levels.len() <= LEVELS);
        let size = chain.levels.len();
        for row in chain.chances.chunks(size) {
            assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        }
    }

    /// Against the slow version: all ways of so many steps.
    #[test]
    fn the_least_is_that_of_all_ways() {
        let seen: Vec<f64> = [2, 1, 0, 1, 2, 2, 1, 1, 0, 2, 1, 2].map(f64::from).to_vec();
        let model = Transition::default();
        let chain = model.chain(&seen).unwrap();
        let prospect = model.look(&seen, 3).unwrap();
        let mut by_hand = [0.0; 3];
        for way in 0..27usize {
            let steps = [way / 9, way / 3 % 3, way % 3];
            let mut chance = 1.0;
            let mut from = chain.last;
            for to in steps {
                chance *= chain.chances[from * 3 + to];
                from = to;
            }
            by_hand[*steps.iter().min().unwrap()] += chance;
        }
        for (level, chance) in prospect.least[2].atoms() {
            assert!((by_hand[*level as usize] - chance).abs() < 1e-12);
        }
    }
}
