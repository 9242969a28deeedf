//! What the process on a node does: it connects, obeys orders, holds a stage, and tells what happens.

use std::collections::BTreeSet;

use gpu_actor::pipeline::Place;
use shared::ids::{JobId, PlanEpoch};
use shared::plan::Replica;
use shared::units::Micros;
use shared::wire::notice::{Hello, JobNotice, Notice};
use shared::wire::order::{Order, Ordered};

use crate::model;
use crate::world::lead::Lead;
use crate::world::links::{LinkKey, PATIENCE};
use crate::world::node::{Post, Process};
use crate::world::stage::Stage;
use crate::world::{Awaited, Happening, World};

/// Between two heartbeats.
const BEAT: Micros = Micros::of_millis(150);

impl World {
    pub(crate) fn start_node(&mut self, node: usize, delay: Micros) {
        let fresh = self.dice.below(1 << 40) + 1;
        let this = &mut self.nodes[node];
        this.incarnation = fresh;
        this.running = true;
        this.process = Process::default();
        self.queue.after(delay, Happening::Connect(node, fresh));
        self.queue
            .after(delay.plus(BEAT), Happening::Beat(node, fresh));
    }

    /// The process dies with all it holds.
    pub(crate) fn crash_node(&mut self, node: usize) {
        if !self.nodes[node].running {
            return;
        }
        self.drop_post(node);
        let this = &mut self.nodes[node];
        this.running = false;
        this.incarnation = 0;
        this.halted_until = Micros(0);
        let connection = this.process.connection.take();
        this.process = Process::default();
        if let Some(connection) = connection {
            self.leave(connection);
        }
    }

    /// A connection ends at the node's side; the coordinator finds out soon, or by silence only.
    fn leave(&mut self, connection: u64) {
        if let Some(of) = self.connections.get_mut(&connection) {
            of.node_open = false;
        }
        if self.dice.percent(60) {
            let delay = self.millis(1, 100);
            self.queue.after(delay, Happening::LeaderCloses(connection));
        }
    }

    pub(crate) fn is_process(&self, node: usize, process: u64) -> bool {
        self.nodes[node].running && self.nodes[node].incarnation == process
    }

    pub(crate) fn connect(&mut self, node: usize, process: u64) {
        if !self.is_process(node, process) || self.nodes[node].process.connection.is_some() {
            return;
        }
        let cut = self.nodes[node].cut_until > self.now();
        let Some(instance) = self.leader().filter(|_| !cut) else {
            let delay = self.millis(30, 120);
            return self.queue.after(delay, Happening::Connect(node, process));
        };
        let connection = self.open_connection(node, instance);
        let clock = self.now();
        let this = &mut self.nodes[node];
        this.process.connection = Some(connection);
        let hello = Hello {
            node: this.name.clone(),
            incarnation: process,
            address: format!("{}:7000", this.name),
            backbone: model::IDENTITY.into(),
            products: shared::job::Products::F32,
            layers: model::LAYERS,
            memory: model::MEMORY,
            threads: this.threads,
            device: "cpu".into(),
            term: this.process.term,
            held: this.process.post.as_ref().map(Post::held),
            unheard: this
                .process
                .unheard
                .front()
                .map_or(this.process.numbered + 1, |(n, _)| *n),
            clock,
        };
        let unheard: Vec<Notice> = this
            .process
            .unheard
            .iter()
            .map(|(_, n)| n.clone())
            .collect();
        self.send_notice(connection, Notice::Hello(hello));
        for notice in unheard {
            self.send_notice(connection, notice);
        }
        self.tell_leaving(node);
        self.tell_risk(node);
    }

    pub(crate) fn node_closes(&mut self, connection: u64) {
        let Some(of) = self
            .connections
            .get_mut(&connection)
            .filter(|c| c.node_open)
        else {
            return;
        };
        of.node_open = false;
        let node = of.node;
        if self.nodes[node].process.connection == Some(connection) {
            self.nodes[node].process.connection = None;
            let (delay, process) = (self.millis(5, 60), self.nodes[node].incarnation);
            self.queue.after(delay, Happening::Connect(node, process));
        }
    }

    pub(crate) fn beat(&mut self, node: usize, process: u64) {
        if !self.is_process(node, process) {
            return;
        }
        let now = self.now();
        let post = self.nodes[node].process.post.as_ref();
        let since = post.and_then(|post| post.machine.works_since());
        self.tell(
            node,
            Notice::Heartbeat {
                device_age: since.map_or(Micros(0), |since| now.since(since)),
                memory_used: model::memory_used(now),
                tokens: self.now().0,
            },
        );
        self.look_at_arrangement(node);
        // A cut that lasts breaks the connection at the node's side too.
        let cut = self.nodes[node].cut_until.since(self.now()) > PATIENCE;
        if let Some(connection) = self.nodes[node].process.connection.filter(|_| cut) {
            self.node_closes(connection);
        }
        self.queue.after(BEAT, Happening::Beat(node, process));
    }

    /// Tells what may be lost.
    pub(crate) fn tell(&mut self, node: usize, notice: Notice) {
        if let Some(connection) = self.nodes[node].process.connection {
            self.send_notice(connection, notice);
        }
    }

    /// Tells what must not be lost; its number.
    pub(crate) fn tell_of_job(
        &mut self,
        node: usize,
        epoch: PlanEpoch,
        job: JobId,
        notice: JobNotice,
    ) -> u64 {
        let at = self.now();
        let process = &mut self.nodes[node].process;
        process.numbered += 1;
        let number = process.numbered;
        let notice = Notice::Job {
            number,
            epoch,
            job,
            at,
            notice,
        };
        process.unheard.push_back((number, notice.clone()));
        self.tell(node, notice);
        number
    }

    pub(crate) fn order(&mut self, connection: u64, ordered: Ordered) {
        let Some(of) = self.connections.get(&connection).filter(|c| c.node_open) else {
            return;
        };
        let node = of.node;
        let process = &mut self.nodes[node].process;
        if ordered.term < process.term {
            let (term, reason) = (process.term, "of an older term".into());
            return self.tell(node, Notice::Refused { term, reason });
        }
        process.term = ordered.term;
        self.check
            .obeyed(node, self.nodes[node].incarnation, ordered.term);
        match ordered.order {
            Order::Heard { notice } => {
                self.nodes[node]
                    .process
                    .unheard
                    .retain(|(number, _)| *number > notice);
                if let Some(lead) = self.nodes[node]
                    .process
                    .post
                    .as_mut()
                    .and_then(|p| p.lead.as_mut())
                {
                    lead.heard(notice);
                }
            }
            Order::Prepare { epoch, .. } => self.prepare(node, epoch),
            Order::Hold {
                epoch,
                replica,
                stage,
            } => self.take_post(node, epoch, replica, stage),
            Order::Release { epoch } => {
                let process = &mut self.nodes[node].process;
                process.released = process.released.max(epoch);
                process.prepared = process.prepared.filter(|prepared| *prepared > epoch);
                process.preparing = process.preparing.filter(|preparing| *preparing > epoch);
                if process
                    .post
                    .as_ref()
                    .is_some_and(|post| post.epoch <= epoch)
                {
                    self.drop_post(node);
                }
            }
            Order::Undrain { epoch } => {
                self.nodes[node].process.prepared = None;
                self.nodes[node].process.preparing = None;
                self.with_lead(node, epoch, Lead::undrain);
            }
            Order::Drain { epoch, toward, .. } => {
                self.with_lead(node, epoch, |lead| lead.drain(toward));
            }
            Order::Admit { epoch, jobs } => self.admit(node, epoch, jobs),
            Order::Act { epoch, job, action } => {
                self.with_lead(node, epoch, |lead| lead.act(job, action));
            }
            Order::Stop => {
                let name = self.nodes[node].name.clone();
                if self.shadow.layout.place_of(&name).is_some() {
                    self.check
                        .fail("SIM-13", format!("{name} is let go, and has a seat"));
                }
                self.end_node(node);
            }
            Order::Arrange { epoch, arrangement } => self.is_arranged(node, epoch, arrangement),
            Order::Sample { .. } | Order::EndSample { .. } | Order::Trace { .. } => {}
            Order::Hasten { every_steps, .. } => {
                self.check.hastened += u64::from(every_steps > 0);
            }
        }
    }

    fn prepare(&mut self, node: usize, epoch: PlanEpoch) {
        let process = &mut self.nodes[node].process;
        if process.prepared == Some(epoch) {
            return self.tell(
                node,
                Notice::Prepared {
                    epoch,
                    outcome: Ok(()),
                },
            );
        }
        if process.preparing != Some(epoch) {
            process.preparing = Some(epoch);
            process.prepared = None;
            let delay = self.millis(30, 400);
            self.soon(node, delay, Awaited::Prepared(epoch));
        }
    }

    /// Something that the process waits for.
    pub(crate) fn soon(&mut self, node: usize, delay: Micros, what: Awaited) {
        let process = self.nodes[node].incarnation;
        self.queue
            .after(delay, Happening::Done(node, process, what));
    }

    fn take_post(&mut self, node: usize, epoch: PlanEpoch, replica: Replica, stage: u32) {
        let process = &self.nodes[node].process;
        let held = process.post.as_ref();
        if let Some(post) = held.filter(|post| post.epoch == epoch) {
            if post.is_linked() {
                let outcome = Ok(());
                self.tell(node, Notice::Holding { epoch, outcome });
            }
            return;
        }
        if held.is_some_and(|post| post.epoch > epoch) || process.released >= epoch {
            let (term, reason) = (process.term, "of an older plan".into());
            return self.tell(node, Notice::Refused { term, reason });
        }
        let layers = |replica: &Replica, stage: u32| replica.seats[stage as usize].layers();
        let kept = held
            .is_some_and(|p| p.opened && layers(&p.replica, p.stage) == layers(&replica, stage));
        let open = kept || process.prepared == Some(epoch);
        self.drop_post(node);
        let place = Place {
            stage: stage as usize,
            stages: replica.seats.len(),
        };
        self.check
            .leads(&replica, epoch, stage, node, self.nodes[node].incarnation);
        let budget = replica.seats[stage as usize].activation_budget.0;
        let lead = (stage == 0).then(|| Lead::new(replica.seats.len()));
        let process = &mut self.nodes[node].process;
        process.prepared = None;
        process.preparing = None;
        process.post = Some(Post {
            epoch,
            replica,
            stage,
            opened: false,
            up: BTreeSet::new(),
            told: false,
            broken: false,
            machine: Stage::new(place, budget),
            lead,
        });
        let delay = if open {
            self.millis(1, 20)
        } else {
            self.millis(30, 400)
        };
        // The stage before ends first, and its device may not come back for a while.
        let delay = delay.max(self.nodes[node].hangs_until.since(self.now()));
        self.soon(node, delay, Awaited::Opened(epoch));
    }

    fn drop_post(&mut self, node: usize) {
        if let Some(post) = self.nodes[node].process.post.take() {
            for (key, end) in post.links() {
                self.close_link(key, end);
            }
        }
    }

    pub(crate) fn done(&mut self, node: usize, process: u64, what: Awaited) {
        if !self.is_process(node, process) {
            return;
        }
        match what {
            Awaited::Prepared(epoch) => {
                let failed = !self.quiet && self.dice.percent(5);
                let process = &mut self.nodes[node].process;
                if process.preparing == Some(epoch) {
                    process.preparing = None;
                    process.prepared = Some(epoch).filter(|_| !failed);
                    let outcome = if failed {
                        Err("disk error".into())
                    } else {
                        Ok(())
                    };
                    self.tell(node, Notice::Prepared { epoch, outcome });
                }
            }
            Awaited::Opened(epoch) => {
                let Some(post) = self.nodes[node].post_of(epoch) else {
                    return;
                };
                post.opened = true;
                for (key, end) in post.links() {
                    self.open_link(key, end, node);
                }
                self.linked(node);
            }
            Awaited::Device(epoch) => self.device_done(node, epoch),
            Awaited::Loaded(epoch, job) => self.loaded(node, epoch, job),
            Awaited::Stored(epoch, job, step, state) => self.stored(node, epoch, job, step, state),
            Awaited::Exported(epoch, job) => self.exported(node, epoch, job),
            Awaited::Again(epoch) => self.with_lead(node, epoch, |_| {}),
        }
    }

    pub(crate) fn link_up(&mut self, key: LinkKey) {
        let Some(link) = self.links.get_mut(&key).filter(|link| !link.dead) else {
            return;
        };
        link.up = true;
        let ends = link.ends;
        for at in ends {
            let Some((node, process)) =
                at.filter(|(node, process)| self.is_process(*node, *process))
            else {
                continue;
            };
            debug_assert!(self.nodes[node].incarnation == process, "the same process");
            if let Some(post) = self.nodes[node].post_of(PlanEpoch(key.0)) {
                post.up.insert(key);
                self.linked(node);
            }
        }
    }

    /// When the last link of a stage is there, it says that it holds.
    fn linked(&mut self, node: usize) {
        let Some(post) = self.nodes[node].process.post.as_mut() else {
            return;
        };
        if post.is_linked() && !post.told {
            post.told = true;
            let (epoch, outcome) = (post.epoch, Ok(()));
            self.tell(node, Notice::Holding { epoch, outcome });
            self.think(node);
        }
    }

    pub(crate) fn link_down(&mut self, key: LinkKey, end: usize) {
        let Some((node, process)) = self.links.get(&key).and_then(|link| link.ends[end]) else {
            return;
        };
        if !self.is_process(node, process) {
            return;
        }
        let Some(post) = self.nodes[node]
            .post_of(PlanEpoch(key.0))
            .filter(|post| !post.broken)
        else {
            return;
        };
        post.broken = true;
        post.up.remove(&key);
        let neighbour = post.other_end(key, end);
        let (epoch, links) = (post.epoch, post.links());
        // Who cannot go on lets its other neighbour know in the same way.
        for (key, end) in links {
            self.close_link(key, end);
        }
        self.tell(
            node,
            Notice::Broken {
                epoch,
                neighbour,
                reason: "the link is gone".into(),
            },
        );
    }
}
