//! What takes too long: machines that do not join, that outlive their notice, that do not end when told to, and those that nobody
//! asked for.

use shared::ids::NodeName;
use shared::units::Micros;

use super::{Bounds, Custody, Effect, Stage};
use crate::now::Now;
use crate::provider::Machine;

/// A machine that nobody asked for, being released.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stray {
    since: Micros,
    told: Option<Micros>,
    alarmed: bool,
}

impl Custody {
    /// How long things may take.
    #[must_use]
    pub const fn bounds(&self) -> Bounds {
        self.bounds
    }

    pub(super) fn tick(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let bounds = self.bounds;
        self.closed
            .retain(|_, (since, _)| now.steady.since(*since) < bounds.boot);
        // While the coordinator is not heard no time passes for what waits for it.
        let heard = match self.silent {
            true => self.heard,
            false => now.steady,
        };
        let late: Vec<(NodeName, &str)> = self
            .held
            .iter()
            .filter_map(|(token, held)| match held.stage {
                Stage::Booting { since } if heard.since(since) >= bounds.boot => {
                    Some((token.clone(), "its node never joined"))
                }
                // A machine that outlives its notice still costs.
                Stage::Leaving { until, .. } if now.steady >= until.plus(bounds.again) => {
                    Some((token.clone(), "its notice is over"))
                }
                _ => None,
            })
            .collect();
        for (token, cause) in late {
            let served = self.held.get(&token).is_some_and(|held| held.served);
            self.release(&token, cause, now, effects);
            if !served {
                effects.push(Effect::Lost {
                    token,
                    served,
                    taken: None,
                    cause: cause.to_owned(),
                });
            }
        }
        for (token, held) in &mut self.held {
            let Stage::Releasing {
                since,
                told,
                alarmed,
            } = &mut held.stage
            else {
                continue;
            };
            let Some(id) = &held.id else {
                continue;
            };
            again(
                (*since, told, alarmed),
                &bounds,
                now.steady,
                (id, Some(token)),
                effects,
            );
        }
        for (id, stray) in &mut self.strays {
            again(
                (stray.since, &mut stray.told, &mut stray.alarmed),
                &bounds,
                now.steady,
                (id, None),
                effects,
            );
        }
    }

    /// A machine that nobody asked for (CU-3).
    pub(super) fn stray(&mut self, machine: &Machine, now: Now, effects: &mut Vec<Effect>) {
        if self.strays.contains_key(&machine.id) {
            return;
        }
        let stray = Stray {
            since: now.steady,
            told: Some(now.steady),
            alarmed: false,
        };
        self.strays.insert(machine.id.clone(), stray);
        effects.push(Effect::Release {
            id: machine.id.clone(),
            token: machine.token.clone(),
        });
    }
}

/// Tells a machine again to end, and says it aloud once it takes too long.
fn again(
    (since, told, alarmed): (Micros, &mut Option<Micros>, &mut bool),
    bounds: &Bounds,
    now: Micros,
    (id, token): (&str, Option<&NodeName>),
    effects: &mut Vec<Effect>,
) {
    if told.is_some_and(|told| now.since(told) < bounds.again) {
        return;
    }
    *told = Some(now);
    effects.push(Effect::Release {
        id: id.to_owned(),
        token: token.cloned(),
    });
    if now.since(since) >= bounds.alarm && !*alarmed {
        *alarmed = true;
        let what = format!(
            "told to end {:.0} s ago and still there",
            now.since(since).seconds()
        );
        effects.push(Effect::Alarm {
            id: id.to_owned(),
            what,
        });
    }
}
