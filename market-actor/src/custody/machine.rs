//! One machine in custody.

use serde::{Deserialize, Serialize};
use shared::ids::NodeName;
use shared::units::Micros;

use super::Effect;
use super::record::Open;
use crate::now::Now;
use crate::provider::Want;

/// How far it is; instants are by the steady clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Asked for; no answer yet.
    Asked {
        /// When the provider was called; nothing while the call waits for its turn.
        since: Option<Micros>,
    },
    /// Granted; its node has not joined.
    Booting {
        /// Since when.
        since: Micros,
    },
    /// Its node serves.
    Serving {
        /// Since when.
        since: Micros,
    },
    /// It will be taken.
    Leaving {
        /// When that was said.
        since: Micros,
        /// When it ends.
        until: Micros,
    },
    /// It was told to end.
    Releasing {
        /// When first.
        since: Micros,
        /// When last; nothing where this process has not told it yet.
        told: Option<Micros>,
        /// Whether it was said aloud that it does not.
        alarmed: bool,
    },
}

/// What is known of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// What was asked for.
    pub want: Want,
    /// The provider's name for it, once that is known.
    pub id: Option<String>,
    /// The node that it is.
    pub node: NodeName,
    /// How far it is.
    pub stage: Stage,
    /// Lists in a row that did not show it.
    pub missed: u32,
    /// When the first of them was seen.
    pub missing: Option<Micros>,
    /// Since when its node, which had joined, is not heard by a coordinator that is.
    pub absent: Option<Micros>,
    /// Whether its node has joined at some time.
    pub served: bool,
    /// Whether its provider said that it may be taken.
    pub at_risk: bool,
}

impl Held {
    pub(super) fn asked(want: Want) -> Self {
        Self {
            node: want.token.clone(),
            want,
            id: None,
            stage: Stage::Asked { since: None },
            missed: 0,
            missing: None,
            absent: None,
            served: false,
            at_risk: false,
        }
    }

    /// From a record: all bounds begin anew.
    pub(super) fn resumed(open: Open, now: Micros) -> Self {
        let stage = match (open.releasing, &open.id) {
            (true, _) => Stage::Releasing {
                since: now,
                // Told again at the first tick.
                told: None,
                alarmed: false,
            },
            (false, Some(_)) => Stage::Booting { since: now },
            // It may have been made.
            (false, None) => Stage::Asked { since: Some(now) },
        };
        Self {
            stage,
            id: open.id,
            ..Self::asked(open.want)
        }
    }

    /// It will be taken at `until`, by the steady clock.
    pub(super) fn leaves(
        &mut self,
        until: Micros,
        cause: String,
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        self.stage = Stage::Leaving {
            since: now.steady,
            until,
        };
        effects.push(Effect::Leaving {
            token: self.want.token.clone(),
            deadline: until,
            cause,
        });
    }

    /// Whether its node serves.
    #[must_use]
    pub const fn serves(&self) -> bool {
        matches!(self.stage, Stage::Serving { .. })
    }

    /// Whether it counts for a job: it is not on its way out.
    #[must_use]
    pub const fn stands(&self) -> bool {
        matches!(
            self.stage,
            Stage::Asked { .. } | Stage::Booting { .. } | Stage::Serving { .. }
        )
    }
}
