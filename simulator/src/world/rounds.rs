//! How a first stage carries out what it was told: the passes of a round.

use gpu_actor::pipeline::{Share, Slot};
use shared::ids::JobId;
use shared::plan::arrangement::Arrangement;

/// Parts of a step that a first stage makes at most: a pass takes some milliseconds however few rows it has, and steps
/// shall not take seconds.
const PARTS: u32 = 2;

/// Who may take a step: job, slot, and steps taken.
pub(crate) type Member = (JobId, Slot, u64);

/// Passes of a round in their order, each with its shares: as arranged, in at most [`PARTS`] parts, and behind that the
/// others together, in two passes or one.
pub(crate) fn passes(
    members: &[Member],
    arrangement: Option<&Arrangement>,
    halves: bool,
) -> Vec<Vec<Share>> {
    let share = |member: &Member, last: bool| Share {
        slot: member.1,
        step: member.2,
        last,
    };
    let mut passes = Vec::new();
    let mut rest: Vec<&Member> = members.iter().collect();
    let units = arrangement.into_iter().flat_map(Arrangement::units);
    for (task, part) in units.filter(|(_, part)| *part < PARTS) {
        let last = part + 1 == task.parts.min(PARTS);
        let here = members
            .iter()
            .filter(|member| task.jobs.contains(&member.0));
        let shares: Vec<Share> = here.map(|member| share(member, last)).collect();
        if !shares.is_empty() {
            passes.push(shares);
        }
        rest.retain(|member| !task.jobs.contains(&member.0));
    }
    let lasts: &[bool] = if halves { &[false, true] } else { &[true] };
    for last in lasts.iter().filter(|_| !rest.is_empty()) {
        passes.push(rest.iter().map(|member| share(member, *last)).collect());
    }
    passes
}

#[cfg(test)]
mod tests {
    use shared::plan::arrangement::HybridTask;

    use super::*;

    #[test]
    fn every_member_closes_its_step_once_whatever_is_arranged() {
        let task = |jobs: &[u64], parts| HybridTask {
            jobs: jobs.iter().copied().map(JobId).collect(),
            parts,
        };
        let arrangement = Arrangement {
            buckets: vec![vec![task(&[3, 1], 9), task(&[9], 4)], vec![task(&[2], 1)]],
            ..Arrangement::default()
        };
        let members: Vec<Member> = (1..=4).map(|n| (JobId(n), n as Slot, 7)).collect();
        for (arrangement, halves, count) in [
            (Some(&arrangement), true, 5),
            (Some(&arrangement), false, 4),
            (None, true, 2),
            (None, false, 1),
        ] {
            let passes = passes(&members, arrangement, halves);
            assert_eq!(passes.len(), count);
            let closing = passes.iter().flatten().filter(|share| share.last);
            let mut slots: Vec<Slot> = closing.map(|share| share.slot).collect();
            slots.sort_unstable();
            assert_eq!(slots, [1, 2, 3, 4]);
        }
        let first = &passes(&members, Some(&arrangement), false)[0];
        let slots: Vec<(Slot, bool)> = first.iter().map(|share| (share.slot, share.last)).collect();
        assert_eq!(slots, [(1, false), (3, false)]);
    }
}
