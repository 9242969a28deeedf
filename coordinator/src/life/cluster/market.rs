//! What the market actor tells: by what is offered jobs are admitted, and what they owe is shown.
//!
//! Remembered beside the book: a market says all of it again to a new leadership. A job is asked about twice: as it is submitted,
//! when its work is not known yet, and once its rows are. Of those that came before anything was offered the zones are asked about
//! as soon as it is. What is offered is told again about once a minute: where that stays out the market is gone or shut out, and by
//! offers of long ago nobody is refused.

use std::collections::BTreeMap;

use shared::ids::JobId;
use shared::job::{JobSpec, MarketSpec};
use shared::life::{JobState, Reason, ReasonClass};
use shared::units::Micros;
use shared::wire::market::{Ground, MarketTold, Money};
use shared::wire::request::{Refusal, RefusalCode, Reply, Submission};

use super::Coordinator;
use crate::life::admission;
use crate::life::floor::{self, Asked};
use crate::life::ledger::Job;
use crate::record::{Change, Inputs};

/// What is offered is believed for so long after it was told, or for one of its slots where that is longer.
const HOLDS: Micros = Micros::of_millis(600_000);

/// What a market told last.
#[derive(Clone, Debug, Default)]
pub(super) struct Market {
    /// What is offered, and when that was told, by the steady clock.
    ground: Option<(Ground, Micros)>,
    bills: BTreeMap<JobId, Money>,
}

impl Market {
    /// What is offered, as far as that is known now, by the steady clock.
    fn ground(&self, now: Micros) -> Option<&Ground> {
        let (ground, told) = self.ground.as_ref()?;
        (now.since(*told) <= HOLDS.max(ground.slot)).then_some(ground)
    }

    /// What a job has cost, where a market said so.
    pub(super) fn owed(&self, job: JobId) -> Option<Money> {
        self.bills.get(&job).copied()
    }

    /// A job is known no more.
    pub(super) fn forget(&mut self, job: JobId) {
        self.bills.remove(&job);
    }
}

impl Coordinator {
    /// A market tells what it offers and what jobs owe.
    pub(super) fn market_told(&mut self, told: MarketTold) -> Result<Reply, Refusal> {
        let now = self.now.steady;
        if let Some(ground) = told.ground {
            let first = self.market.ground(now).is_none();
            self.market.ground = Some((ground, now));
            if first {
                self.refuse_those_nowhere();
            }
        }
        let ledger = &self.book.ledger;
        let known = |(job, _): &(JobId, Money)| ledger.get(*job).is_some();
        self.market
            .bills
            .extend(told.bills.into_iter().filter(known));
        Ok(Reply::Done)
    }

    /// Jobs that were taken before this leadership knew what is offered, never began, and may be nowhere that there is: they would wait
    /// for ever. One that began may be on machines that stay.
    fn refuse_those_nowhere(&mut self) {
        let Some(ground) = self.market.ground(self.now.steady) else {
            return;
        };
        let nowhere = |job: &Job| {
            let spec: JobSpec = serde_json::from_str(&job.spec).ok()?;
            let misfit = floor::zones(ground, &spec.market?.zones).err()?;
            Some((job.id, misfit.to_string()))
        };
        let jobs = self.book.ledger.jobs();
        let new = jobs
            .filter(|job| !job.state.is_final() && job.replica.is_none() && job.started.is_none());
        let refused: Vec<(JobId, String)> = new.filter_map(nowhere).collect();
        for (job, message) in refused {
            let class = ReasonClass::UserError;
            let reason = Reason { class, message };
            self.record(Change::Unfit { job, reason });
        }
    }

    /// Whether a job can have the deadline, the zones and the budget that it asks for, as far as can be told before its rows are known.
    pub(super) fn may_ask(&self, submission: &Submission) -> Result<(), Refusal> {
        let spec: Option<JobSpec> = serde_json::from_str(&submission.spec).ok();
        let Some(asks) = spec.and_then(|spec| spec.market) else {
            return Ok(());
        };
        let refusal = |message| Refusal {
            code: RefusalCode::Invalid,
            message,
        };
        let mut least = self.settings.limits.least_budget;
        if let Some(ground) = self.market.ground(self.now.steady) {
            let zones = floor::zones(ground, &asks.zones);
            let offers = zones.map_err(|why| refusal(why.to_string()))?;
            if !asks.zones.is_empty() {
                let beside = floor::beside(ground, &asks.zones, &self.placed());
                beside.map_err(|why| Refusal {
                    code: RefusalCode::Conflict,
                    message: why.to_string(),
                })?;
            }
            least = floor::slot(ground, &offers).unwrap_or(least);
        }
        match asks.refusal(self.now.wall, least) {
            Some(message) => Err(refusal(message)),
            None => Ok(()),
        }
    }

    /// Jobs that work or wait for it and say where they may be, by name, with their zones.
    fn placed(&self) -> Vec<(String, Vec<String>)> {
        let jobs = self.book.ledger.jobs();
        let live = jobs.filter(|job| !job.state.is_final() && job.state != JobState::Paused);
        let placed = live.filter_map(|job| {
            let spec: JobSpec = serde_json::from_str(&job.spec).ok()?;
            let zones = spec.market?.zones;
            (!zones.is_empty()).then(|| (job.name.to_string(), zones))
        });
        placed.collect()
    }

    /// Why a job whose rows are known now cannot be done as its owner asks.
    pub(super) fn cannot_pay(&self, job: JobId, inputs: &Inputs) -> Option<Reason> {
        let ground = self.market.ground(self.now.steady)?;
        let job = self.book.ledger.get(job)?;
        let spec: JobSpec = serde_json::from_str(&job.spec).ok()?;
        let asks = spec.market.as_ref()?;
        let measure = inputs.measure.as_deref();
        let task = measure.map(|measure| admission::task(&spec, measure, job.submitted));
        let asked = Asked {
            tokens: task.map_or(0, |task| task.tokens().saturating_mul(task.steps)),
            within: asks
                .until(job.submitted)
                .map(|until| until.since(self.now.wall)),
            budget: MarketSpec::budget(asks),
            zones: &asks.zones,
        };
        let misfit = floor::check(ground, &asked).err()?;
        Some(Reason {
            class: ReasonClass::UserError,
            message: misfit.to_string(),
        })
    }
}
