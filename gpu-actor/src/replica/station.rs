//! One stage at work: an event loop over its links.
//!
//! [`Station::pump`] takes what arrived, does at most one piece of device work, sends what can go, and says whether
//! anything moved; when nothing did, its owner waits for the bell. It never blocks but on the device, and on the store
//! when a job comes that continues from a durable state.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use self::across::Across;
use super::error::{Lacking, ReplicaError, Side};
use super::seat::{Ports, Seat};
use super::tenant::Tenant;
use super::watch::Watch;
use crate::artifacts::Artifacts;
use crate::artifacts::keeper::{Done, Keeper};
use crate::batch::{Batch, Chunk as Piece};
use crate::link::bell::Bell;
use crate::link::word::{Pass, StepGoal, TextNumber, Word};
use crate::link::{Chunk, ChunkHeader, ChunkLink, Direction, LinkError, Parcel};
use crate::pipeline::council::{Council, Matter};
use crate::pipeline::{Event, Lack, MicroBatchNumber, Pipeline, Slot, Work};
use crate::stage::agreement::Broken;
use crate::stage::cache::KeyValueCache;
use crate::stage::optim::{Settled, StepNumbers};
use crate::stage::step::Stage;
use crate::train::tally::Tally;
use shared::units::Micros;

mod across;
mod hear;
mod keep;
mod talk;
mod watching;
mod work;

/// The place of a link and its outbox.
const BEFORE: usize = 0;
const BEHIND: usize = 1;

/// What the first stage finds out, for its lead.
#[derive(Debug)]
pub(super) enum Told {
    /// A word that has no stage before to go to.
    Word(Word),
    /// A word from the first stage of another replica.
    Across(u32, Word),
    /// A step was taken, or why not; none when its job was set aside before.
    Step(Matter, Option<Result<StepNumbers, Broken>>),
    /// A micro-batch that trains is back.
    Returned(MicroBatchNumber),
    /// A manifest is stored, or not.
    Sealed(Done),
}

/// A micro-batch that is not done here.
#[derive(Clone, Debug)]
struct Plan {
    pass: Pass,
    batch: Arc<Batch>,
    goals: Vec<StepGoal>,
    bytes: u64,
}

/// A stage, its jobs, its neighbours and its part of the plan.
pub(super) struct Station {
    seat: Seat,
    stage: Stage,
    tenants: BTreeMap<Slot, Tenant>,
    pipeline: Pipeline,
    council: Council,
    links: [Option<Box<dyn ChunkLink>>; 2],
    across: Across,
    /// Chunks that wait for credit, each since when.
    outbox: [VecDeque<(Chunk, Micros)>; 2],
    bell: Bell,
    keeper: Box<dyn Keeper>,
    store: Arc<dyn Artifacts>,
    watch: Watch,
    plans: BTreeMap<MicroBatchNumber, Plan>,
    inputs: BTreeMap<MicroBatchNumber, Vec<f32>>,
    gradients: BTreeMap<MicroBatchNumber, Vec<f32>>,
    /// The last one planned, when it is a chunk that another must follow.
    open: Option<Piece>,
    /// Steps whose last rows are planned and that are not closed here.
    goals: BTreeMap<Matter, StepGoal>,
    settled: BTreeMap<Matter, Settled>,
    /// On the last stage: losses of steps under way.
    tallies: BTreeMap<Matter, Tally>,
    caches: BTreeMap<TextNumber, [KeyValueCache; 1]>,
    /// Jobs that came and that the stages behind have not answered on, with the own problem.
    answers: BTreeMap<Slot, Option<String>>,
    next: Option<Work>,
    told: VecDeque<Told>,
    closed: bool,
    /// Parts given to the keeper and not stored.
    storing: usize,
}

impl std::fmt::Debug for Station {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Station")
            .field("seat", &self.seat)
            .field("pipeline", &self.pipeline)
            .finish_non_exhaustive()
    }
}

impl Drop for Station {
    /// Neighbours find out, however it ends.
    fn drop(&mut self) {
        for link in self.links.iter_mut().flatten() {
            link.close();
        }
        self.across.close();
    }
}

impl Station {
    pub(super) fn new(mut stage: Stage, seat: Seat, ports: Ports) -> Self {
        stage.recompute(seat.recomputed);
        Self {
            pipeline: Pipeline::new(seat.place, seat.budget),
            council: Council::new(seat.place),
            seat,
            stage,
            tenants: BTreeMap::new(),
            links: ports.links,
            across: Across::new(ports.peers),
            outbox: Default::default(),
            bell: ports.bell,
            keeper: ports.keeper,
            store: ports.store,
            watch: ports.watch,
            plans: BTreeMap::new(),
            inputs: BTreeMap::new(),
            gradients: BTreeMap::new(),
            open: None,
            goals: BTreeMap::new(),
            settled: BTreeMap::new(),
            tallies: BTreeMap::new(),
            caches: BTreeMap::new(),
            answers: BTreeMap::new(),
            next: None,
            told: VecDeque::new(),
            closed: false,
            storing: 0,
        }
    }

    pub(super) fn seat(&self) -> &Seat {
        &self.seat
    }

    pub(super) fn stage(&self) -> &Stage {
        &self.stage
    }

    /// Steps that a job has taken here.
    pub(super) fn steps(&self, slot: Slot) -> Option<u64> {
        Some(self.tenants.get(&slot)?.optimizer.step)
    }

    pub(super) fn bell(&self) -> &Bell {
        &self.bell
    }

    pub(super) fn keeper(&mut self) -> &mut dyn Keeper {
        &mut *self.keeper
    }

    /// What the first stage found out since the last call.
    pub(super) fn take_told(&mut self) -> VecDeque<Told> {
        std::mem::take(&mut self.told)
    }

    /// Takes what arrived, computes at most once, sends what can go; whether anything moved.
    pub(super) fn pump(&mut self) -> Result<bool, ReplicaError> {
        let mut moved = self.flush()?;
        moved |= self.receive()?;
        moved |= self.receive_across()?;
        moved |= self.stored()?;
        self.watch_links();
        if let Some(work) = self.next.take() {
            self.compute(work)?;
            self.flush()?;
            moved = true;
        }
        Ok(moved)
    }

    /// Whether the end was told and nothing is left to do or send.
    pub(super) fn is_through(&self) -> bool {
        let sent = self.outbox.iter().all(VecDeque::is_empty) && self.across.is_sent();
        self.closed && sent && self.pipeline.is_idle() && self.storing == 0
    }

    /// Whether something is under way that neighbours must do their part of.
    pub(super) fn is_busy(&self) -> bool {
        let open = self.council.lacks().is_some() || !self.answers.is_empty();
        open || !self.pipeline.is_idle() || !self.across.is_sent()
    }

    /// What is missing, when nothing moves.
    pub(super) fn lacking(&self) -> Lacking {
        if let Some(lacking) = self.lacking_sums() {
            return lacking;
        }
        match (self.pipeline.waits_for(), self.council.lacks()) {
            (Lack::Agreement(..) | Lack::Plan, Some((matter, state))) => {
                Lacking::Matter(matter, state)
            }
            (Lack::Plan, None) => match self.answers.first_key_value() {
                Some((slot, _)) => Lacking::Answer(*slot),
                None => Lacking::Work(Lack::Plan),
            },
            (lack, None) => Lacking::Work(lack),
            (lack, Some((matter, state))) => {
                let matter = Lacking::Matter(matter, state);
                Lacking::Both(Box::new([Lacking::Work(lack), matter]))
            }
        }
    }

    fn tell(&mut self, event: Event) -> Result<(), ReplicaError> {
        let stage = self.seat.place.stage;
        match self.pipeline.step(event) {
            Ok(work) => {
                self.next = self.next.or(work);
                Ok(())
            }
            Err(source) => Err(ReplicaError::Unexpected { stage, source }),
        }
    }

    /// Sends a word to the stage behind, if there is one.
    fn forth(&mut self, word: Word) -> Result<(), ReplicaError> {
        self.say(BEHIND, word)
    }

    /// Sends a word to the stage before; on the first stage it is for the lead.
    fn back(&mut self, word: Word) -> Result<(), ReplicaError> {
        if self.seat.place.stage == 0 {
            self.told.push_back(Told::Word(word));
            return Ok(());
        }
        self.say(BEFORE, word)
    }

    fn say(&mut self, side: usize, word: Word) -> Result<(), ReplicaError> {
        let Some(link) = &mut self.links[side] else {
            return Ok(());
        };
        let sent = link.send(Parcel::Word(word));
        sent.map_err(|source| self.broken_link(side, source))
    }

    fn broken_link(&self, side: usize, source: LinkError) -> ReplicaError {
        let side = match side {
            BEFORE => Side::Before,
            _ => Side::Behind,
        };
        let stage = self.seat.place.stage;
        ReplicaError::Link {
            stage,
            side,
            source,
        }
    }

    fn misfit(&self, word: &'static str, reason: &'static str) -> ReplicaError {
        ReplicaError::Word {
            stage: self.seat.place.stage,
            word,
            reason,
        }
    }

    /// Sends chunks that have credit.
    fn flush(&mut self) -> Result<bool, ReplicaError> {
        let mut moved = self.flush_across()?;
        for side in [BEFORE, BEHIND] {
            while let Some(link) = &mut self.links[side]
                && link.credit() > 0
                && let Some((chunk, since)) = self.outbox[side].pop_front()
            {
                let header = chunk.header;
                let sent = link.send(Parcel::Chunk(chunk));
                sent.map_err(|source| self.broken_link(side, source))?;
                self.watch_credit(header, since);
                moved = true;
            }
        }
        Ok(moved)
    }

    fn receive(&mut self) -> Result<bool, ReplicaError> {
        let mut moved = false;
        for side in [BEFORE, BEHIND] {
            while let Some(link) = &mut self.links[side] {
                match link.receive() {
                    Ok(Some(Parcel::Chunk(chunk))) => self.take(side, chunk)?,
                    Ok(Some(Parcel::Word(word))) => self.hear(side, word)?,
                    Ok(None) => break,
                    // Once the end was told, neighbours go as they are through.
                    Err(_) if self.closed => {
                        self.links[side] = None;
                        break;
                    }
                    Err(source) => return Err(self.broken_link(side, source)),
                }
                moved = true;
            }
        }
        Ok(moved)
    }

    fn take(&mut self, side: usize, chunk: Chunk) -> Result<(), ReplicaError> {
        let header = chunk.header;
        let number = header.micro_batch;
        let plan = self.plans.get(&number);
        let expected = plan.map(|plan| self.header(number, plan.batch.rows(), 1 - side));
        if expected != Some(header) || chunk.values.len() != header.rows * header.width {
            let stage = self.seat.place.stage;
            return Err(ReplicaError::Chunk { stage, header });
        }
        if side == BEFORE {
            self.tell(Event::Activation(number))?;
            self.inputs.insert(number, chunk.values);
        } else {
            self.tell(Event::Gradient(number))?;
            self.gradients.insert(number, chunk.values);
        }
        Ok(())
    }

    fn header(&self, micro_batch: MicroBatchNumber, rows: usize, to: usize) -> ChunkHeader {
        let direction = match to {
            BEFORE => Direction::Backward,
            _ => Direction::Forward,
        };
        ChunkHeader {
            epoch: self.seat.epoch,
            micro_batch,
            direction,
            rows,
            width: self.stage.model().shape.hidden,
        }
    }

    fn send(&mut self, number: MicroBatchNumber, rows: usize, to: usize, values: Vec<f32>) {
        let header = self.header(number, rows, to);
        let since = self.watch.now();
        self.outbox[to].push_back((Chunk { header, values }, since));
    }
}
