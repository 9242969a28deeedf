//! One policy through one episode, and the utilities of many.

use crate::policy::foresight::Foresight;
use crate::policy::{Memory, Policy, Safety};
use crate::problem::Problem;
use crate::problem::episode::{Course, Outcome, play};

/// Plays a policy through a course.
#[must_use]
pub fn episode(
    policy: &Policy,
    problem: &Problem,
    course: &Course<'_>,
    foresight: &dyn Foresight,
    safety: Safety,
) -> Outcome {
    let mut memory = Memory::default();
    play(problem, course, |situation| {
        policy.decide(situation, foresight, &mut memory, safety)
    })
}
