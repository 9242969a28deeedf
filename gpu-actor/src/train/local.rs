//! The engine of one process with one stage: turns are taken as they are planned.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use kernels::cpu::Cpu;

use super::engine::{Engine, Fault, Finding, Newcomer, Turn, TurnNumber};
use super::job_state::JobState;
use super::pack::{self, Cut, Size};
use super::spread;
use super::tally::{Passed, Tally, tally};
use crate::batch::Batch;
use crate::model::Model;
use crate::pipeline::Slot;
use crate::stage::adapter::Adapter;
use crate::stage::optim::{OptimizerState, Rule};
use crate::stage::step::Stage;

#[derive(Debug)]
struct Tenant {
    rule: Rule,
    optimizer: OptimizerState,
}

/// A stage that holds the whole model, and the optimizer of each job on it.
#[derive(Debug)]
pub struct Local {
    pub(super) stage: Stage,
    size: Size,
    passed: Passed,
    tenants: BTreeMap<Slot, Tenant>,
    /// Of steps that go on in a later turn.
    begun: BTreeMap<Slot, Tally>,
    taken: TurnNumber,
    found: BTreeMap<TurnNumber, Vec<Finding>>,
}

impl Local {
    pub(super) fn new(model: Arc<Model>, cpu: Cpu, tokens_per_pass: usize) -> Self {
        let size = Size {
            budget: tokens_per_pass,
            chunk: tokens_per_pass,
            cut: Cut::Anywhere,
        };
        Self {
            stage: Stage::new(model, cpu),
            size,
            passed: Passed::default(),
            tenants: BTreeMap::new(),
            begun: BTreeMap::new(),
            taken: 0,
            found: BTreeMap::new(),
        }
    }

    /// Sets the rows above which a sequence is cut, and of a chunk.
    pub(super) fn cut_above(&mut self, chunk: usize) {
        self.size.chunk = chunk;
    }

    /// Rows that passed.
    pub(super) fn passed(&self) -> Passed {
        self.passed
    }

    /// Values and optimizer state of a job.
    pub(super) fn state(&self, slot: Slot) -> Option<(&[f32], &OptimizerState)> {
        let adapter = self.stage.adapter(slot)?;
        Some((&adapter.values, &self.tenants.get(&slot)?.optimizer))
    }

    fn train(&mut self, turn: &Turn<'_>) -> Vec<Finding> {
        let (requests, size) = (&turn.requests, self.size);
        let passes = pack::arranged(requests, &turn.arrangement, size, |_| size.budget);
        let passes = (&passes[..], &mut self.passed);
        let (stage, begun) = (&mut self.stage, &mut self.begun);
        let mut tallies = tally(stage, requests, begun, passes, Stage::train_chunks);
        let mut found = Vec::with_capacity(requests.len());
        for (request, goal) in requests.iter().zip(&turn.goals) {
            let slot = request.slot;
            let tenant = self.tenants.get_mut(&slot);
            let (Some(tally), Some(tenant)) = (tallies.remove(&slot), tenant) else {
                continue;
            };
            let Some(goal) = goal else {
                self.begun.insert(slot, tally);
                continue;
            };
            let step = if tally.loss.is_finite() {
                let (state, rule) = (&mut tenant.optimizer, &tenant.rule);
                let taken = self.stage.step(slot, state, rule, goal.learning_rate);
                taken.map_err(|not| Fault {
                    reason: format!("{} is not finite", not.what),
                    proven: not.written,
                })
            } else {
                Err(Fault {
                    reason: tally.reason("training"),
                    proven: false,
                })
            };
            let step = Some(step);
            found.push(Finding { slot, tally, step });
        }
        found
    }

    fn evaluate(&mut self, turn: &Turn<'_>) -> Vec<Finding> {
        // Held-out rows pass within the bounds that training keeps: memory was reckoned with these.
        let (requests, size) = (&turn.requests, self.size.within(&turn.arrangement));
        let evaluate = |stage: &mut Stage, chain: &[Batch]| {
            let passes = chain.iter();
            passes.map(|batch| stage.evaluate(batch)).collect()
        };
        let passes = pack::cut_passes(requests, size);
        let passes = (&passes[..], &mut self.passed);
        let stage = &mut self.stage;
        let mut tallies = tally(stage, requests, &mut BTreeMap::new(), passes, evaluate);
        let found = requests.iter().filter_map(|request| {
            let (slot, step) = (request.slot, None);
            let tally = tallies.remove(&slot)?;
            Some(Finding { slot, tally, step })
        });
        found.collect()
    }
}

impl Engine for Local {
    type Source = JobState;
    type Error = Infallible;

    const EVERY_STEPS: u64 = 50;

    fn attach(
        &mut self,
        job: Newcomer<'_>,
        state: JobState,
    ) -> Result<Result<Slot, String>, Infallible> {
        let layout = Arc::clone(job.layout);
        let adapter = Adapter::new(layout, state.values, job.spec.seed);
        let slot = self.stage.attach(adapter);
        let tenant = Tenant {
            rule: Rule::new(&job.spec.optimizer, &job.spec.adapter),
            optimizer: state.optimizer,
        };
        self.tenants.insert(slot, tenant);
        Ok(Ok(slot))
    }

    fn detach(&mut self, slot: Slot) -> Result<(), Infallible> {
        self.tenants.remove(&slot);
        self.begun.remove(&slot);
        self.stage.detach(slot);
        Ok(())
    }

    fn ahead(&self) -> usize {
        1
    }

    fn turn_rows(&self) -> usize {
        self.size.budget.saturating_mul(spread::PASSES)
    }

    fn plan(&mut self, turn: Turn<'_>) -> Result<TurnNumber, Infallible> {
        let found = if turn.goals.is_empty() {
            self.evaluate(&turn)
        } else {
            self.train(&turn)
        };
        self.taken += 1;
        self.found.insert(self.taken, found);
        Ok(self.taken)
    }

    fn forget(&mut self, turn: TurnNumber) {
        self.found.remove(&turn);
    }

    fn finish(&mut self, turn: TurnNumber) -> Result<Vec<Finding>, Infallible> {
        Ok(self.found.remove(&turn).unwrap_or_default())
    }
}
