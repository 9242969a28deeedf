//! One policy through one episode of a case, and the best there.

use super::{Case, Optimum, Score};
use crate::oracle::solve;
use crate::policy::Memory;
use crate::problem::episode::{Course, Outcome, play};
use crate::select::pool::Member;

/// Plays a member through a course.
#[must_use]
pub fn episode(case: &Case, member: &Member, course: &Course<'_>) -> Outcome {
    let mut memory = Memory::since(course.first as u64);
    member
        .source
        .with(course.market, &case.library, |foresight| {
            play(&case.problem, course, |situation| {
                member
                    .policy
                    .decide(situation, foresight, &mut memory, case.safety)
            })
        })
}

/// What a member earns in each episode of a case.
#[must_use]
pub fn scores(case: &Case, member: &Member) -> Vec<Score> {
    scores_at(case, member, &case.starts)
}

/// What a member earns in each rehearsal of a case.
#[must_use]
pub fn rehearsed(case: &Case, member: &Member) -> Vec<Score> {
    scores_at(case, member, &case.rehearsals)
}

fn scores_at(case: &Case, member: &Member, starts: &[usize]) -> Vec<Score> {
    starts
        .iter()
        .map(|&start| score(&episode(case, member, &Course::plain(&case.market, start))))
        .collect()
}

/// The best in each episode of a case.
#[must_use]
pub fn optima(case: &Case) -> Vec<Optimum> {
    case.starts
        .iter()
        .map(|&start| {
            let course = Course::plain(&case.market, start);
            let oracle = solve(&case.problem, &course, case.cell);
            Optimum {
                found: score(&oracle.found),
                bound: oracle.bound,
            }
        })
        .collect()
}

/// How far the bound lies above the plans found, as a share: the most that the grid can be wrong by.
#[must_use]
pub fn gap(optima: &[Optimum]) -> f64 {
    let found: f64 = optima.iter().map(|best| best.found.utility as f64).sum();
    let bound: f64 = optima.iter().map(|best| best.bound).sum();
    if found > 0.0 {
        bound / found - 1.0
    } else {
        0.0
    }
}

/// The figures of an outcome.
#[must_use]
pub fn score(outcome: &Outcome) -> Score {
    Score {
        utility: outcome.utility,
        spent: outcome.spent.0,
        waste: outcome.records.iter().map(|record| record.waste.0).sum(),
        missed: outcome.missed,
        reconfigurations: outcome.reconfigurations,
    }
}
