//! Processes that are asked to end: they say so, and go when they are let go or their time is over. Machines that may be taken: they
//! say that, and stay.

use shared::units::Micros;
use shared::wire::notice::{Departure, LeaveCause, Notice};

use crate::world::faults::Fault;
use crate::world::{Happening, World};

impl World {
    /// The process is asked to end, within so long.
    pub(crate) fn ask_to_leave(&mut self, node: usize, within: Micros) {
        let until = self.now().plus(within);
        let this = &mut self.nodes[node];
        if !this.running || this.process.leaving.is_some() {
            return;
        }
        this.process.leaving = Some(until);
        let process = this.incarnation;
        self.queue.at(until, Happening::Leaves(node, process));
        self.tell_leaving(node);
    }

    pub(crate) fn tell_leaving(&mut self, node: usize) {
        if let Some(until) = self.nodes[node].process.leaving {
            let within = until.since(self.now());
            let cause = LeaveCause::Reclaimed;
            self.tell(node, Notice::Leaving(Departure { within, cause }));
        }
    }

    /// The machine of a node may be taken, or no more.
    pub(crate) fn may_be_taken(&mut self, node: usize, begins: bool) {
        if std::mem::replace(&mut self.nodes[node].at_risk, begins) != begins {
            self.tell_risk(node);
        }
    }

    pub(crate) fn tell_risk(&mut self, node: usize) {
        if self.nodes[node].running {
            let cause = self.nodes[node].at_risk.then(|| "it may be".to_owned());
            self.tell(node, Notice::AtRisk { cause });
        }
    }

    /// Its time is over, let go or not.
    pub(crate) fn leaves(&mut self, node: usize, process: u64) {
        if self.is_process(node, process) {
            self.end_node(node);
        }
    }

    /// The process ends as it said, and is started again after a while.
    pub(crate) fn end_node(&mut self, node: usize) {
        let connection = self.nodes[node].process.connection;
        let connection = connection.and_then(|number| self.connections.get_mut(&number));
        if let Some(connection) = connection {
            connection.ended = true;
        }
        self.crash_node(node);
        let delay = self.millis(20, 2_000);
        self.queue
            .after(delay, Happening::Fault(Fault::Start(node)));
    }
}
