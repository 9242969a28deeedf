//! What becomes of single machines.

use super::{Broker, Effect, say};
use crate::custody;
use crate::market::Pool;
use crate::now::Now;
use crate::provider::{Kind, ProviderError, Want};

impl Broker {
    /// Something of a machine: custody says what that means.
    pub(super) fn machine(&mut self, event: custody::Event, now: Now, effects: &mut Vec<Effect>) {
        if let custody::Event::Answered {
            token,
            answer: Err(error),
        } = &event
            && error.is_certain()
            && let Some(held) = self.custody.held().get(token)
        {
            let want = held.want.clone();
            self.refuse(&want, error, now);
        }
        for effect in self.custody.step(event, now) {
            match effect {
                custody::Effect::Record(entry) => effects.push(Effect::Record(entry)),
                custody::Effect::Acquire(want) => effects.push(Effect::Acquire(want)),
                custody::Effect::Release { id, .. } => effects.push(Effect::Release { id }),
                custody::Effect::Ready(token) => say(effects, false, format!("{token} serves")),
                custody::Effect::Leaving {
                    token,
                    deadline,
                    cause,
                } => {
                    say(effects, false, format!("{token} will be taken: {cause}"));
                    let want = self
                        .custody
                        .held()
                        .get(&token)
                        .map(|held| held.want.clone());
                    self.taken(want.as_ref());
                    if let Some(want) = want {
                        self.avoid(&want, now);
                    }
                    let until = Some(deadline);
                    self.emptying.begin(token.clone(), until, now);
                    let node = self.node_of(&token);
                    effects.push(Effect::Drain { node, until });
                }
                custody::Effect::AtRisk { token, cause } => {
                    say(effects, false, format!("{token} may be taken: {cause}"));
                    self.at_risk.insert(token, cause);
                }
                custody::Effect::RiskOver(token) => {
                    say(effects, false, format!("{token} may not be taken any more"));
                    self.at_risk.remove(&token);
                    let (node, cause) = (self.node_of(&token), None);
                    effects.push(Effect::Risk { node, cause });
                }
                custody::Effect::Lost {
                    token,
                    served,
                    taken,
                    cause,
                } => {
                    say(effects, false, format!("{token} is gone: {cause}"));
                    // One that runs on without its node is held still.
                    let held = self.custody.held().get(&token);
                    let lost = taken.clone().or_else(|| held.map(|held| held.want.clone()));
                    if let Some(want) = taken {
                        self.avoid(&want, now);
                    }
                    if served && !self.emptying.contains(&token) {
                        self.taken(lost.as_ref());
                    }
                    self.emptying.end(&token);
                    self.changed();
                }
                custody::Effect::Alarm { id, what } => say(effects, true, format!("{id}: {what}")),
            }
        }
        let held = self.custody.held();
        self.at_risk.retain(|token, _| held.contains_key(token));
    }

    /// A pool refused: what is short there may be had elsewhere, what is not allowed is allowed nowhere.
    fn refuse(&mut self, want: &Want, error: &ProviderError, now: Now) {
        let until = now.steady.plus(self.terms.rest);
        let everywhere = !matches!(error, ProviderError::NoCapacity { .. });
        let others = self.sightings.iter().map(|one| &one.pool);
        let others = others.filter(|pool| everywhere && pool.provider == want.pool.provider);
        let pools: Vec<Pool> = others.chain([&want.pool]).cloned().collect();
        for pool in pools {
            self.refused.insert((want.kind, pool), until);
        }
        self.due = true;
    }

    /// A pool took a machine of a kind away: another is asked first for a while (BR-7).
    pub(super) fn avoid(&mut self, want: &Want, now: Now) {
        let until = now.steady.plus(self.terms.rest);
        self.avoided.insert((want.kind, want.pool.clone()), until);
    }

    /// Whether a pool took one away not long ago.
    pub(super) fn is_avoided(&self, kind: Kind, pool: &Pool, now: Now) -> bool {
        let until = self.avoided.get(&(kind, pool.clone()));
        until.is_some_and(|until| now.steady < *until)
    }

    /// A machine is taken: the stretch hears of the loss of one on spot.
    pub(super) fn taken(&mut self, want: Option<&Want>) {
        let number = self.history.number();
        let spot = want.filter(|want| want.kind == Kind::Spot);
        if let (Some(stretch), Some(want)) = (&mut self.stretch, spot) {
            stretch.taken(&want.pool, number);
        }
        self.changed();
    }
}
