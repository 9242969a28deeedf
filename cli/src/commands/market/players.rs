//! Who plays in a back-test: policies with the foresights that they ask for.

use market_actor::policy::Policy;
use market_actor::select::pool::Member;
use market_actor::select::word;

use crate::args::BacktestArgs;
use crate::exit::{Exit, Failure, OrExit};

/// The word for a policy that is learned.
pub(super) const SELECTION: &str = "selection";

/// Who plays.
pub(super) struct Players {
    pub(super) members: Vec<Member>,
    pub(super) learns: bool,
}

/// Policies with the foresights that they ask for; `day` is the slots of a day.
pub(super) fn players(args: &BacktestArgs, day: u32) -> Result<Players, Failure> {
    let sources = args
        .forecast
        .iter()
        .map(|name| word::foresight(name, day).or_exit(Exit::Usage))
        .collect::<Result<Vec<_>, _>>()?;
    let mut members: Vec<Member> = Vec::new();
    for name in args.policy.iter().filter(|name| *name != SELECTION) {
        let policy = word::policy(name).or_exit(Exit::Usage)?;
        let own: Vec<Member> = match policy {
            Policy::Horizon(_) => {
                let with = |source: &_| Member {
                    policy,
                    source: *source,
                };
                sources.iter().map(with).collect()
            }
            _ => vec![Member::plain(policy)],
        };
        for member in own {
            if !members.contains(&member) {
                members.push(member);
            }
        }
    }
    Ok(Players {
        members,
        learns: args.policy.iter().any(|name| name == SELECTION),
    })
}
