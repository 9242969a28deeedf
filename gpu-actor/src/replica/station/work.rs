//! A station's device work, one piece at a time.

use std::sync::{Arc, PoisonError};

use shared::units::{Bytes, Micros};

use super::super::error::ReplicaError;
use super::super::watch::{Deed, Span};
use super::{BEFORE, BEHIND, Plan, Station, Told};
use crate::batch::Batch;
use crate::link::word::{Pass, TextNumber, Word};
use crate::pipeline::{Event, MicroBatchNumber, Slot, Work};
use crate::sample::choice::Sampling;
use crate::stage::cache::KeyValueCache;
use crate::stage::outcome::JobOutcome;
use crate::stage::relay::Passed;

impl Station {
    /// Does what the device is given, and tells that it is done.
    pub(super) fn compute(&mut self, work: Work) -> Result<(), ReplicaError> {
        let done = self.perform(work);
        self.watch.rest();
        done
    }

    fn perform(&mut self, work: Work) -> Result<(), ReplicaError> {
        let turn = self.seat.turn.clone();
        let turn = turn.as_ref();
        let turn = turn.map(|turn| turn.lock().unwrap_or_else(PoisonError::into_inner));
        let start = self.watch.begin();
        match work {
            Work::Forward(number) => {
                let plan = self.plans[&number].clone();
                self.forward(number, &plan)?;
                let deed = match plan.pass {
                    Pass::Train => Deed::Forward,
                    Pass::Evaluate => Deed::Evaluate,
                    Pass::Sample { .. } => Deed::Sample,
                };
                self.watch_plan(deed, number, &plan, start);
                if plan.pass != Pass::Train {
                    self.plans.remove(&number);
                }
                drop(turn);
                self.tell(Event::Done)
            }
            Work::Backward(number) => {
                let gradient = self.gradients.remove(&number);
                let plan = self.plans.remove(&number).expect("it went forward");
                if let Some(gradient) = self.stage.backward(number, gradient) {
                    self.send(number, plan.batch.rows(), BEFORE, gradient);
                }
                self.watch_plan(Deed::Backward, number, &plan, start);
                drop(turn);
                self.flush()?;
                self.tell(Event::Done)?;
                for goal in &plan.goals {
                    let matter = (goal.slot, goal.step);
                    match goal.shard {
                        Some(shard) => self.give(matter, shard)?,
                        None => self.report(matter)?,
                    }
                }
                if self.seat.place.stage == 0 {
                    self.told.push_back(Told::Returned(number));
                }
                Ok(())
            }
            Work::Apply(slot, step) => {
                let keeps = self.apply(slot, step, start);
                drop(turn);
                if keeps {
                    self.store_part(slot);
                }
                self.tell(Event::Done)
            }
        }
    }

    fn forward(&mut self, number: MicroBatchNumber, plan: &Plan) -> Result<(), ReplicaError> {
        let input = self.inputs.remove(&number);
        let batch = &plan.batch;
        let passed = match &plan.pass {
            Pass::Train => self.stage.forward(number, Arc::clone(batch), input),
            Pass::Evaluate => self.stage.measure_rows(batch, input),
            Pass::Sample { text, choose } => {
                return self.read(number, batch, input, *text, choose.as_ref());
            }
        };
        match passed {
            Passed::Hidden(hidden) => {
                self.send(number, batch.rows(), BEHIND, hidden);
                Ok(())
            }
            Passed::Outcomes(outcomes) => {
                if plan.pass == Pass::Train {
                    self.tally(batch, &outcomes);
                }
                self.back(Word::Outcome { number, outcomes })
            }
        }
    }

    /// The last stage must know whether a step's loss is a number.
    fn tally(&mut self, batch: &Batch, outcomes: &[JobOutcome]) {
        for (job, outcome) in batch.jobs.iter().zip(outcomes) {
            let tally = self.tallies.entry((job.slot, job.step)).or_default();
            tally.add(job.first_block, job.last, outcome.clone());
        }
    }

    fn read(
        &mut self,
        number: MicroBatchNumber,
        batch: &Batch,
        input: Option<Vec<f32>>,
        text: TextNumber,
        choose: Option<&(Sampling, u32)>,
    ) -> Result<(), ReplicaError> {
        let shape = &self.stage.model().shape;
        let cache = self.caches.entry(text);
        let cache = cache.or_insert_with(|| [KeyValueCache::new(shape)]);
        let last = [batch.rows() - 1];
        let out = self.stage.read_rows(batch, input, &last, Some(cache));
        if !self.seat.place.is_last() {
            self.send(number, batch.rows(), BEHIND, out);
            return Ok(());
        }
        let Some((sampling, index)) = choose else {
            let outcomes = Vec::new();
            return self.back(Word::Outcome { number, outcomes });
        };
        let token = sampling.choose(&out, *index);
        let token = token.map_err(|error| error.to_string());
        self.back(Word::Chosen { number, token })
    }

    /// Takes a settled step; whether the state after it is stored.
    fn apply(&mut self, slot: Slot, step: u64, start: Micros) -> bool {
        let Some(settled) = self.settled.remove(&(slot, step)) else {
            return false;
        };
        let goal = self.goals.remove(&(slot, step));
        let tenant = self.tenants.get_mut(&slot);
        let tenant = tenant.expect("a job stays until its steps are taken");
        let state = &mut tenant.optimizer;
        self.stage.apply(slot, state, &tenant.rule, &settled);
        let asked = tenant.keeps.remove(&tenant.optimizer.step);
        if self.watch.is_on() {
            let jobs = vec![(tenant.job.clone(), step)];
            let end = self.watch.now();
            self.watch.tell(Span {
                deed: Deed::Apply,
                micro_batch: None,
                jobs,
                bytes: Bytes(tenant.optimizer.bytes()),
                start,
                end,
            });
        }
        asked || goal.is_some_and(|goal| goal.keep)
    }
}
