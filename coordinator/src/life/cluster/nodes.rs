//! Nodes: they come, say what they hold, tell what happens, and go.

use shared::ids::{NodeName, PlanEpoch};
use shared::wire::notice::{Held, Hello, Notice};
use shared::wire::order::Order;

use super::Coordinator;
use super::risk::Teller;
use crate::life::membership::{LinkId, Presence};
use crate::life::transition::{Event, Move, Phase, Settled};
use crate::record::{Change, Source};

impl Coordinator {
    pub(super) fn told(&mut self, link: LinkId, notice: Notice) {
        if let Notice::Hello(hello) = notice {
            return self.hello(link, hello);
        }
        let steady = self.now.steady;
        let Some(node) = self.members.heard(steady, link) else {
            self.ignored += 1;
            return;
        };
        let name = node.hello.node.clone();
        match notice {
            Notice::Hello(_) => {}
            Notice::Heartbeat {
                device_age,
                memory_used,
                tokens,
            } => {
                node.beat(steady, memory_used, tokens);
                self.look_at_device(&name, device_age);
                self.look_at_memory(&name, memory_used);
            }
            Notice::Prepared { epoch, outcome } => {
                self.step_move(Event::Prepared(name, epoch, outcome));
            }
            Notice::Drained {
                epoch,
                toward,
                outcome,
            } => self.drained(name, [epoch, toward], outcome),
            Notice::Holding { epoch, outcome } => self.held(&name, epoch, outcome),
            Notice::Broken {
                epoch,
                neighbour,
                reason,
            } => self.broken(&name, epoch, neighbour, &reason),
            Notice::Job {
                number,
                epoch,
                job,
                notice,
                ..
            } => {
                if let Some(from) = self.numbered(link, number) {
                    self.told_of_job(from, epoch, job, notice);
                    self.acknowledge(&name, number);
                }
            }
            Notice::Piece { number, tokens } => {
                let effect = self.relay.piece(number, tokens, steady);
                self.out.effects.extend(effect);
            }
            Notice::SampleEnded { number, outcome } => {
                self.text_over(number, outcome);
            }
            Notice::Spans { number, spans } => {
                let effect = self.relay.spans(&name, number, spans);
                self.out.effects.extend(effect);
            }
            Notice::Refused { term, .. } => {
                self.ignored += 1;
                if term > self.book.term {
                    self.link_ended(link, false);
                    self.send_away(link, name, term);
                }
            }
            Notice::Leaving(departure) => self.leaves(name, departure),
            Notice::AtRisk { cause } => self.risk(name, Teller::Node, cause),
        }
    }

    /// Which notice this is, when it was not heard before; a hole closes the link, so that all is sent again.
    fn numbered(&mut self, link: LinkId, number: u64) -> Option<Source> {
        let node = self.members.heard(self.now.steady, link)?;
        let (name, incarnation) = (node.hello.node.clone(), node.hello.incarnation);
        let heard = self.book.heard_of(&name, incarnation);
        let next = node.next_notice;
        if number < next {
            self.acknowledge(&name, next - 1);
            return None;
        }
        if number > next {
            self.members.closed(self.now.steady, link);
            let reason = format!("notice {number} came before {next}: say hello and send again");
            self.close(link, reason);
            return None;
        }
        node.next_notice = number + 1;
        if number <= heard {
            self.acknowledge(&name, heard);
            return None;
        }
        Some(Source {
            node: name,
            incarnation,
            number,
        })
    }

    fn acknowledge(&mut self, node: &NodeName, notice: u64) {
        self.send(node, Order::Heard { notice });
    }

    fn hello(&mut self, link: LinkId, hello: Hello) {
        if hello.term > self.book.term {
            return self.send_away(link, hello.node, hello.term);
        }
        let (name, incarnation, held) = (hello.node.clone(), hello.incarnation, hello.held.clone());
        self.succeed(&name, incarnation);
        let steady = self.now.steady;
        let (backbone, bounds) = (&self.settings.backbone, &self.settings.bounds);
        let arrival = match self.members.hello(steady, link, hello, backbone, bounds) {
            Ok(arrival) => arrival,
            Err(unwelcome) => return self.close(link, unwelcome.to_string()),
        };
        if let Some(old) = arrival.replaced {
            self.close(old, "the node opened another connection".into());
        }
        if arrival.joined {
            let node = name.clone();
            self.record(Change::NodeJoined { node, incarnation });
        }
        self.acknowledge(&name, self.book.heard_of(&name, incarnation));
        if self.is_stopping() {
            return self.stop(&name);
        }
        if arrival.fresh {
            self.holding.remove(&name);
            self.strikes.remove(&name);
            self.risks.forget(&name);
            self.forget_strain(&name);
            let needed = self.moving.as_ref().is_some_and(|m| m.goal().needs(&name));
            if needed {
                self.step_move(Event::CallOff(format!("{name} was started again")));
            }
        }
        self.goes_still(&name, incarnation);
        self.attach(&name, incarnation, held.as_ref());
        self.step_move(Event::Returned(name));
    }

    /// Compares what a node holds with what it should.
    fn attach(&mut self, node: &NodeName, incarnation: u64, held: Option<&Held>) {
        let Some((replica, stage)) = self.book.layout.place_of(node) else {
            return self.attach_spare(node, held);
        };
        if stage == 0 {
            self.risks.doubt(replica);
        }
        let since = self.book.layout.replicas[&replica].since;
        let right = held.filter(|h| h.epoch == since && h.replica == replica && h.stage == stage);
        let linked = right.is_some_and(|held| held.linked);
        if right.is_some() {
            self.holding.insert(node.clone(), (incarnation, since));
        }
        if self.book.broken.contains(&replica) {
            return;
        }
        let settling = self.settling.get(&replica);
        let asked = settling.is_some_and(|settling| !settling.is_attaching());
        let settles = settling.is_some();
        match (linked, asked) {
            (true, _) if settles => self.settle(replica, node, Ok(())),
            (true, _) => {}
            (false, true) => return self.hold(node, replica, stage),
            (false, false) => {
                let reason = match right {
                    Some(_) => format!("the links of {node} do not work"),
                    None => format!("{node} does not hold its stage any more"),
                };
                return self.break_up(replica, &reason);
            }
        }
        if self.closing.is_some() {
            return self.save_again(node, since);
        }
        let drains = |m: &Move| m.phase() == Phase::Draining && m.goal().drained.contains_key(node);
        let draining = self.moving.as_ref().is_some_and(drains);
        if self.book.last_epoch > since && !draining {
            self.send(node, Order::Undrain { epoch: since });
        }
        if stage == 0 && !settles {
            self.reconcile(replica, held);
        }
    }

    /// A node without a seat lets go of what it has.
    fn attach_spare(&mut self, node: &NodeName, held: Option<&Held>) {
        let wanted = self
            .moving
            .as_ref()
            .is_some_and(|m| m.goal().opened.contains_key(node));
        let epoch = match held {
            Some(held) => held.epoch,
            None => self.book.last_epoch,
        };
        if !wanted && epoch > PlanEpoch(0) {
            self.send(node, Order::Release { epoch });
        }
    }

    /// A seat is held, or cannot be.
    fn held(&mut self, node: &NodeName, epoch: PlanEpoch, outcome: Result<(), String>) {
        let place = self.book.layout.place_of(node).map(|(replica, _)| replica);
        let stands = |n: &u32| self.book.layout.replicas[n].since == epoch;
        let Some(replica) = place.filter(stands) else {
            self.ignored += 1;
            return;
        };
        if outcome.is_ok() {
            let incarnation = self.members.get(node).map(|node| node.hello.incarnation);
            self.holding
                .insert(node.clone(), (incarnation.unwrap_or_default(), epoch));
        }
        self.settle(replica, node, outcome);
    }

    /// One more seat of a settling replica holds; when all do, it is at work.
    fn settle(&mut self, replica: u32, node: &NodeName, outcome: Result<(), String>) {
        let Some(settling) = self.settling.get_mut(&replica) else {
            return;
        };
        let attaching = settling.is_attaching();
        match settling.holds(node, outcome) {
            Settled::NotYet => {}
            Settled::Never(reason) => {
                self.blame(replica, Some(node));
                self.break_up(replica, &reason);
            }
            Settled::All => {
                self.settling.remove(&replica);
                self.absolve(replica);
                if self.closing.is_some() {
                    return;
                }
                let lead = self.book.layout.lead(replica).cloned();
                let lead = lead
                    .and_then(|lead| self.members.get(&lead))
                    .filter(|_| attaching);
                let held = lead.and_then(|lead| lead.hello.held.clone());
                // Who leads says on its own hello what it trains; after a move it trains nothing yet.
                self.reconcile(replica, held.as_ref());
            }
        }
    }

    /// A stage says that its replica cannot go on.
    fn broken(&mut self, node: &NodeName, epoch: PlanEpoch, blamed: Option<NodeName>, why: &str) {
        let place = self.book.layout.place_of(node).map(|(replica, _)| replica);
        let stands = |n: &u32| self.book.layout.replicas[n].since == epoch;
        let Some(replica) = place.filter(stands) else {
            self.ignored += 1;
            return;
        };
        if self.is_stopping() {
            return;
        }
        let bounds = &self.settings.bounds;
        let away = |name: &NodeName| {
            self.members.presence(self.now.steady, name, bounds) == Presence::Away
        };
        if let Some(lost) = blamed.filter(away) {
            self.lose(&lost, &format!("{node} and the coordinator lost it: {why}"));
        }
        self.break_up(replica, &format!("{node}: {why}"));
        self.go_on_closing();
    }

    /// A node is lost.
    pub(super) fn lose(&mut self, node: &NodeName, reason: &str) {
        if self.members.get(node).is_some_and(|node| !node.gone) {
            self.members.lose(node);
            self.holding.remove(node);
            self.risks.forget(node);
            let (node, reason) = (node.clone(), reason.to_owned());
            self.record(Change::NodeLost { node, reason });
        }
    }

    pub(super) fn closed(&mut self, link: LinkId) {
        self.link_ended(link, false);
    }

    /// A connection ended as the process of its node ends, and says so.
    pub(super) fn ended(&mut self, link: LinkId) {
        self.link_ended(link, true);
    }

    fn link_ended(&mut self, link: LinkId, said_so: bool) {
        if let Some(node) = self.closed_link(link, said_so) {
            let effects = self.relay.lost(&node);
            self.out.effects.extend(effects);
        }
        self.go_on_closing();
    }

    pub(super) fn tick(&mut self) {
        let (steady, bounds) = (self.now.steady, self.settings.bounds.clone());
        for (node, link) in self.members.tick(steady, &bounds) {
            let reason = format!("nothing was heard of it for {}", bounds.heartbeat);
            self.close(link, reason.clone());
            // One that was told to stop and is silent since has not left: nothing is known of it.
            if self.is_stopping() || !self.left(&node) {
                self.lose(&node, &reason);
            }
            let effects = self.relay.lost(&node);
            self.out.effects.extend(effects);
        }
        for node in self.members.overdue(steady, &bounds) {
            if !self.left(&node) {
                let reason = format!("it has no connection since {}", bounds.reconnect);
                self.lose(&node, &reason);
            }
        }
        self.step_move(Event::Tick);
        let late: Vec<(u32, String)> = self
            .settling
            .iter()
            .filter_map(|(n, settling)| match settling.tick(steady) {
                Settled::Never(reason) => Some((*n, reason)),
                _ => None,
            })
            .collect();
        for (replica, reason) in late {
            self.blame(replica, None);
            self.break_up(replica, &reason);
        }
        let effects = self.relay.tick(steady);
        self.out.effects.extend(effects);
        self.go_on_closing();
    }
}
