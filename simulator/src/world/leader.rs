//! Coordinators: the real machine over the real journal in memory, killed between any two effects.

use coordinator::life::cluster::{Coordinator, Effect, Handle, Input, Now, Outcome};
use coordinator::life::membership::LinkId;
use coordinator::record::{Change, Record};
use coordinator::store::{Journal, JournalError, Lease};
use shared::units::Micros;
use shared::wire::notice::Notice;

use crate::model;
use crate::world::arranging::Arranging;
use crate::world::{Happening, World};

/// How long a leadership lasts when it is not renewed.
const LEASE: Micros = Micros::of_millis(900);

/// How often time passes for a coordinator.
const TICK: Micros = Micros::of_millis(100);

/// One process of a coordinator.
#[derive(Debug, Default)]
pub(crate) struct Instance {
    pub(crate) running: bool,
    pub(crate) halted_until: Micros,
    machine: Option<(Coordinator, Lease)>,
    /// Dies at its next outcome after so many of its effects; before its records when negative.
    pub(crate) doomed: Option<i64>,
    records: u64,
    pub(crate) arranging: Arranging,
}

impl World {
    /// A coordinator is started after a while.
    pub(crate) fn start_leader(&mut self, delay: Micros) {
        let instance = self.instances.len();
        self.instances.push(Instance {
            running: true,
            ..Instance::default()
        });
        self.queue.after(delay, Happening::LeaderStarts(instance));
    }

    /// The newest coordinator that runs.
    pub(crate) fn leader(&self) -> Option<usize> {
        self.instances
            .iter()
            .rposition(|instance| instance.machine.is_some())
    }

    fn wall(&self) -> Now {
        let since = 1_700_000_000_000_000_i64 + self.now().0 as i64 + self.wall_skew;
        Now {
            steady: self.now(),
            wall: Micros(since as u64),
        }
    }

    pub(crate) fn leader_starts(&mut self, instance: usize) {
        if !self.instances[instance].running {
            return;
        }
        self.journal.set_clock(self.queue.now());
        let owner = format!("c{instance}");
        let lease = match self.journal.take_lease(&owner, LEASE) {
            Ok(lease) => lease,
            Err(JournalError::Led { .. }) => {
                let delay = self.millis(50, 200);
                return self.queue.after(delay, Happening::LeaderStarts(instance));
            }
            Err(error) => return self.check.fail("SIM-8", error.to_string()),
        };
        let loaded = self.journal.load().map(|loaded| loaded.book());
        let book = match loaded {
            Ok(Ok(book)) => book,
            other => return self.check.fail("SIM-8", format!("{other:?}")),
        };
        if book != self.shadow {
            self.check
                .fail("SIM-8", "the journal, replayed, is another state".into());
        }
        let now = self.wall();
        let term = lease.term;
        let recent = self.journal.all();
        let recent = recent[recent.len().saturating_sub(50)..].to_vec();
        let (machine, outcome) =
            Coordinator::begin(now, self.settings.clone(), term, book, &recent);
        self.instances[instance].machine = Some((machine, lease));
        self.queue
            .after(TICK, Happening::ToLeader(instance, Box::new(Input::Tick)));
        self.carry_out(instance, outcome);
    }

    pub(crate) fn give_leader(&mut self, instance: usize, input: Input) {
        if let Input::Asked { handle, .. } = &input
            && self.is_withdrawn(*handle)
        {
            return;
        }
        if let Input::Arranged(answer) = &input
            && self.instances[instance].machine.is_some()
        {
            self.answers(instance, answer);
        }
        let now = self.wall();
        let tick = matches!(input, Input::Tick);
        let Some((machine, lease)) = self.instances[instance].machine.as_mut() else {
            return;
        };
        let outcome = machine.step(now, input);
        if tick {
            self.journal.set_clock(now.steady);
            let lease = lease.clone();
            if self.journal.renew(&lease, LEASE).is_err() {
                return self.kill_leader(instance);
            }
            self.queue
                .after(TICK, Happening::ToLeader(instance, Box::new(Input::Tick)));
        }
        self.carry_out(instance, outcome);
    }

    fn carry_out(&mut self, instance: usize, outcome: Outcome) {
        let doomed = self.instances[instance].doomed.take();
        if doomed.is_some_and(|cut| cut < 0) {
            return self.kill_leader(instance);
        }
        let Some((_, lease)) = &self.instances[instance].machine else {
            return;
        };
        let lease = lease.clone();
        self.journal.set_clock(self.queue.now());
        if !outcome.records.is_empty() {
            match self.journal.append(&lease, &outcome.records) {
                Ok(()) => {}
                Err(JournalError::Deposed { .. }) => return self.kill_leader(instance),
                Err(error) => return self.check.fail("SIM-8", error.to_string()),
            }
        }
        for record in &outcome.records {
            self.log(record.number.0);
            self.note(|| format!("  = {:?}", record.change));
            if let Err(gap) = self.shadow.apply(record) {
                self.check.fail("SIM-8", gap.to_string());
            }
            self.check.record(record, &self.shadow);
        }
        self.snapshot(instance, &lease, outcome.records.len() as u64);
        let most = doomed.map_or(usize::MAX, |cut| cut as usize);
        let in_force = |record: &Record| matches!(record.change, Change::InForce { .. });
        let moved = outcome.records.iter().any(in_force);
        for effect in outcome.effects.into_iter().take(most) {
            self.perform(instance, effect, moved);
        }
        if doomed.is_some() {
            self.kill_leader(instance);
        }
    }

    fn snapshot(&mut self, instance: usize, lease: &Lease, records: u64) {
        self.instances[instance].records += records;
        if self.instances[instance].records >= 100 {
            self.instances[instance].records = 0;
            if let Err(error) = self.journal.snapshot(lease, &self.shadow, u64::MAX) {
                self.check.fail("SIM-8", error.to_string());
            }
        }
    }

    /// Carries an effect out; `moved` says that a plan came into force in the same step.
    fn perform(&mut self, instance: usize, effect: Effect, moved: bool) {
        self.note(|| format!("  > {effect:?}"));
        match effect {
            Effect::Send { link, ordered, .. } => self.send_order(link.0, ordered),
            Effect::Close { link, .. } => {
                if let Some(connection) = self.connections.get_mut(&link.0) {
                    connection.leader_open = false;
                }
                let delay = self.millis(1, 20);
                self.queue.after(delay, Happening::NodeCloses(link.0));
            }
            Effect::Answer { handle, reply, .. } => self.answered(handle, reply),
            Effect::StartPreparing { job, .. } => {
                let delay = self.millis(10, 300);
                let outcome = Ok(model::inputs(job));
                let input = Box::new(Input::Prepared { job, outcome });
                self.queue
                    .after(delay, Happening::ToLeader(instance, input));
            }
            Effect::Arrange(question) => {
                self.asks(instance, &question, moved);
                // The planner may be slow, or end without a word. Jobs and plans change meanwhile. AS-3
                if !self.quiet && self.dice.percent(2) {
                    return;
                }
                let delay = match self.dice.percent(30) {
                    true => self.millis(300, 3_000),
                    false => self.millis(1, 300),
                };
                let input = Box::new(Input::Arranged(question.answer()));
                self.queue
                    .after(delay, Happening::ToLeader(instance, input));
            }
            Effect::Recall { .. } | Effect::Piece { .. } | Effect::Finished => {}
        }
    }

    /// A coordinator dies, and another is started after a while.
    pub(crate) fn kill_leader(&mut self, instance: usize) {
        if !self.instances[instance].running {
            return;
        }
        self.note(|| format!("coordinator {instance} dies"));
        self.instances[instance].running = false;
        self.instances[instance].machine = None;
        let open: Vec<u64> = self
            .connections
            .iter()
            .filter(|(_, c)| c.instance == instance && c.node_open)
            .map(|(number, _)| *number)
            .collect();
        for connection in open {
            let delay = self.millis(5, 300);
            self.queue.after(delay, Happening::NodeCloses(connection));
        }
        if self.instances.iter().all(|instance| !instance.running) {
            let delay = self.millis(50, 1_500);
            self.start_leader(delay);
        }
    }

    pub(crate) fn told(&mut self, connection: u64, notice: Notice) {
        let Some(of) = self.connections.get(&connection).filter(|c| c.leader_open) else {
            return;
        };
        let link = LinkId(connection);
        self.give_leader(of.instance, Input::Told { link, notice });
    }

    pub(crate) fn leader_closes(&mut self, connection: u64) {
        if let Some(of) = self
            .connections
            .get_mut(&connection)
            .filter(|c| c.leader_open)
        {
            of.leader_open = false;
            let (instance, link) = (of.instance, LinkId(connection));
            let input = match of.ended {
                true => Input::Ended(link),
                false => Input::Closed(link),
            };
            self.give_leader(instance, input);
        }
    }

    /// A client asks the coordinator that leads, if one does; nothing comes back when it dies.
    pub(crate) fn ask(&mut self, request: shared::wire::request::Request) -> Option<u64> {
        let instance = self.leader()?;
        self.next_handle += 1;
        let input = Input::Asked {
            handle: Handle(self.next_handle),
            trace: format!("{:016x}", self.next_handle),
            request,
        };
        let delay = self.millis(1, 10);
        self.queue
            .after(delay, Happening::ToLeader(instance, Box::new(input)));
        Some(self.next_handle)
    }
}
