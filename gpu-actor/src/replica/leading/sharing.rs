//! Jobs whose steps several replicas share: one leads them, the others compute the rows that it sends (`helping`).
//!
//! The lead of such a job cuts each step by [`shard::cut`], and sends every other replica its run of the sequences;
//! what these gave comes back for the loss. Gradients meet between the same stages of the replicas and take no way by here.

use super::{Leading, News, Rows, Ticket};
use crate::batch::Batch;
use crate::link::LinkError;
use crate::link::word::{Assist, Attach, Pass, Shard, StepGoal, Word};
use crate::pipeline::Slot;
use crate::replica::error::{Lacking, ReplicaError};
use crate::stage::outcome::JobOutcome;
use crate::train::engine::TurnNumber;
use crate::train::pack::{self, Request};
use crate::train::shard;
use shared::ids::JobName;
use shared::plan::arrangement::Arrangement;

/// A job whose steps are shared.
#[derive(Debug)]
pub(super) struct Shared {
    /// Who shares them, the lead first; empty for a job that is led elsewhere.
    pub(super) replicas: Vec<u32>,
    /// Steps that were taken, or of which it is known that they are not.
    pub(super) closed: u64,
}

/// A micro-batch that another replica computes.
#[derive(Debug)]
pub(super) struct Assisted {
    turn: TurnNumber,
    pub(super) slot: Slot,
    rows: Rows,
    replica: u32,
    /// What it gives does not count.
    idle: bool,
}

impl Leading {
    pub(super) fn free_slot(&self) -> Slot {
        let mut free = 0..;
        let slot = free.find(|slot| !self.steps.contains_key(slot));
        slot.expect("slots do not end")
    }

    /// Replicas that share the steps of a job that is led here.
    pub(in super::super) fn sharing(&self, slot: Slot) -> &[u32] {
        let shared = self.shared.get(&slot);
        shared.map_or(&[], |shared| &shared.replicas)
    }

    /// Of the replicas that shall share a job those that can be reached: fewer give the same bits.
    pub(super) fn reached(&self, mut replicas: Vec<u32>) -> Vec<u32> {
        let here = self.station.seat().replica;
        replicas.retain(|replica| *replica != here && self.station.reaches(*replica));
        if !replicas.is_empty() {
            replicas.insert(0, here);
        }
        replicas
    }

    /// Puts a job on the stages of all replicas that share it.
    pub(super) fn attach_shared(
        &mut self,
        attach: Attach,
        step: u64,
    ) -> Result<Result<Slot, String>, ReplicaError> {
        let (slot, job) = (attach.slot, attach.job.clone());
        let others = attach.replicas[1..].to_vec();
        let mut alone = attach.clone();
        alone.replicas.clear();
        for &replica in &others {
            self.enlisted.insert((job.clone(), replica), None);
            self.station
                .call(replica, Word::Enlist(Box::new(attach.clone())))?;
        }
        let shared = Shared {
            replicas: attach.replicas.clone(),
            closed: step,
        };
        self.shared.insert(slot, shared);
        let attached = self.attach_as(attach)?;
        self.drive(
            |this| this.enlisted.values().all(Option::is_some),
            Self::lacks_help,
        )?;
        let mut refused = Vec::new();
        for &replica in &others {
            let answer = self.enlisted.remove(&(job.clone(), replica)).flatten();
            if let Some(Err(reason)) = answer {
                refused.push(News::NotShared(job.clone(), replica, reason));
            }
        }
        if attached.is_ok() && refused.is_empty() {
            return Ok(attached);
        }
        self.dismiss(slot, Some(&job))?;
        if attached.is_err() {
            return Ok(attached);
        }
        // What one of the others lacks does not keep a job from training: fewer give the same bits.
        self.names.remove(&slot);
        self.station.detach(slot)?;
        self.news.extend(refused);
        self.attach_as(alone)
    }

    /// A job leaves the replicas that share it.
    pub(super) fn dismiss(
        &mut self,
        slot: Slot,
        job: Option<&JobName>,
    ) -> Result<(), ReplicaError> {
        let (Some(shared), Some(job)) = (self.shared.remove(&slot), job) else {
            return Ok(());
        };
        let here = self.station.seat().replica;
        for replica in shared
            .replicas
            .into_iter()
            .filter(|replica| *replica != here)
        {
            if self.station.reaches(replica) {
                self.station
                    .call(replica, Word::Dismiss { job: job.clone() })?;
            }
        }
        Ok(())
    }

    /// Cuts a job's sequences over its replicas, within the arrangement's bounds on rows, which hold for all of them; how
    /// many micro-batches that makes.
    pub(super) fn plan_shared(
        &mut self,
        turn: TurnNumber,
        request: &Request<'_>,
        (pass, arrangement): (&Pass, &Arrangement<Slot>),
        goal: Option<StepGoal>,
    ) -> Result<usize, ReplicaError> {
        let slot = request.slot;
        let replicas = self.shared.get(&slot).map(|shared| shared.replicas.clone());
        let replicas = replicas.unwrap_or_default();
        let lengths = request.lengths();
        let blocks = request.blocks(0..lengths.len());
        let shortest = (0..lengths.len())
            .min_by_key(|&at| lengths[at])
            .unwrap_or(0);
        let here = self.station.seat().replica;
        let mut made = 0;
        for (&replica, run) in replicas.iter().zip(shard::cut(&lengths, replicas.len())) {
            let idle = run.is_empty();
            // A replica without a sequence takes the step all the same, behind rows that do not count.
            let run = match (idle, goal) {
                (false, _) => run,
                (true, Some(_)) => shortest..shortest + 1,
                (true, None) => continue,
            };
            let size = pack::Size {
                budget: self.budget(lengths[run.clone()].iter().sum()),
                chunk: self.settings.chunk_tokens,
                cut: pack::Cut::Anywhere,
            };
            let size = size.within(arrangement);
            let batches = pack::shard(request, run, size);
            made += batches.len();
            let mut chains = pack::chains(&batches).peekable();
            while let Some(chain) = chains.next() {
                let last = chains.peek().is_none();
                let goal = goal.filter(|_| last).map(|goal| StepGoal {
                    keep: goal.keep && replica == here,
                    shard: Some(Shard { blocks, idle }),
                    ..goal
                });
                if replica == here {
                    self.enqueue_chain((Some(turn), None), pass, chain.to_vec(), goal);
                } else {
                    self.ask(replica, (turn, slot, idle), pass, chain, goal)?;
                }
            }
        }
        Ok(made)
    }

    /// Sends rows of a turn to another replica.
    fn ask(
        &mut self,
        replica: u32,
        (turn, slot, idle): (TurnNumber, Slot, bool),
        pass: &Pass,
        chain: &[Batch],
        goal: Option<StepGoal>,
    ) -> Result<(), ReplicaError> {
        let ticket = self.ticket;
        for batch in chain {
            let assisted = Assisted {
                turn,
                slot,
                rows: Rows::of(&batch.jobs[0]),
                replica,
                idle,
            };
            self.assisted.insert(self.ticket, assisted);
            self.ticket += 1;
        }
        let job = self.names.get(&slot).expect("a job that trains has a name");
        let assist = Assist {
            job: job.clone(),
            ticket,
            pass: pass.clone(),
            chain: chain.to_vec(),
            goal,
        };
        self.station.call(replica, Word::Assist(Box::new(assist)))
    }

    /// Hears the lead of another replica.
    pub(super) fn hear_lead(&mut self, from: u32, word: Word) -> Result<(), ReplicaError> {
        match word {
            Word::Enlist(attach) => self.enlist(from, *attach),
            Word::Enlisted { job, outcome } => {
                if let Some(answer) = self.enlisted.get_mut(&(job, from)) {
                    *answer = Some(outcome);
                }
                Ok(())
            }
            Word::Assist(assist) => self.assist(from, *assist),
            Word::Found { ticket, outcome } => self.found(from, ticket, outcome),
            Word::Dismiss { job } => {
                self.let_go_of(from, &job);
                Ok(())
            }
            // Nothing will follow: whoever still waits for it waits in vain.
            _ if self.helpers().any(|replica| replica == from) => {
                Err(self.station.lost_peer(from, LinkError::Closed))
            }
            _ => Ok(()),
        }
    }

    /// What rows gave that another replica computed.
    fn found(
        &mut self,
        from: u32,
        ticket: Ticket,
        outcome: JobOutcome,
    ) -> Result<(), ReplicaError> {
        let Some(assisted) = self.assisted.remove(&ticket) else {
            return Ok(());
        };
        let Assisted {
            turn,
            rows,
            replica,
            idle,
            ..
        } = assisted;
        if replica != from || !rows.fits(&outcome) {
            return Err(self.misfit("found", "it is not that of the rows that were sent"));
        }
        self.count(turn, (!idle).then_some((rows, outcome)));
        Ok(())
    }

    /// The replicas that are waited for.
    fn helpers(&self) -> impl Iterator<Item = u32> + '_ {
        let asked = self.enlisted.iter().filter(|(_, answer)| answer.is_none());
        let asked = asked.map(|((_, replica), _)| *replica);
        asked.chain(self.assisted.values().map(|assisted| assisted.replica))
    }

    pub(super) fn lacks_help(&self) -> Option<Lacking> {
        self.helpers().next().map(Lacking::Help)
    }
}
