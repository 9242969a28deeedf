//! What people are shown.

use shared::ids::NodeName;
use shared::life::{JobState, Reason, ReasonClass};
use shared::plan::Sharing;
use shared::units::Micros;
use shared::wire::view::{ClusterView, JobView, NodeHealth, NodeView};

use super::Coordinator;
use crate::life::ledger::Job;
use crate::life::membership::Node;

impl Coordinator {
    /// The cluster at a glance, as of the last step.
    #[must_use]
    pub fn view(&self) -> ClusterView {
        let backbone = &self.settings.backbone;
        let moving = self.moving.as_ref();
        ClusterView {
            name: self.settings.cluster.clone(),
            term: self.book.term,
            plan: self
                .book
                .layout
                .plan(|replica| self.book.ledger.on(replica), self.sharing()),
            moving: moving.map(|moving| (moving.goal().epoch, moving.progress())),
            lack: self.lack_told(),
            model: backbone.name.clone(),
            layers: backbone.weights.layers.len() as u32,
            jobs: self.book.ledger.count(),
            nodes: self.node_views(),
            uptime: self.now.steady.since(self.members.began()),
            clock: self.now.wall,
            tokens_per_second: self.members.speed(self.now.steady),
            newest_event: self.book.last,
        }
    }

    fn sharing(&self) -> Vec<Sharing> {
        let shared = |job: &Job| {
            let replicas = self.book.layout.sharing(job.replica?, job.replicas);
            let job = job.id;
            (!replicas.is_empty()).then_some(Sharing { job, replicas })
        };
        self.book.ledger.jobs().filter_map(shared).collect()
    }

    pub(super) fn job_views(&self) -> Vec<JobView> {
        let jobs = self.book.ledger.views();
        let shortage = self.shortage();
        // All must fit into one message: a specification is told where one job is asked about.
        let view = |(job, view)| JobView {
            spec: String::new(),
            ..self.explained(job, view, || shortage.clone())
        };
        jobs.map(view).collect()
    }

    /// A job as its owner sees it; one that waits because there is no plan says why there is none, and one whose steps
    /// fewer replicas share than it asks for says why.
    pub(super) fn job_view(&self, job: &Job) -> JobView {
        self.explained(job, self.book.ledger.view(job), || self.shortage())
    }

    fn explained(
        &self,
        job: &Job,
        mut view: JobView,
        shortage: impl FnOnce() -> Option<Reason>,
    ) -> JobView {
        if view.state == JobState::Queued && view.reason.is_none() {
            view.reason = shortage().or_else(|| self.waiting_reason(job));
        }
        if !view.state.is_final() && view.reason.is_none() {
            view.reason = self.sharing_reason(job);
        }
        view
    }

    /// Why nothing can train, when nothing can.
    fn shortage(&self) -> Option<Reason> {
        if !self.book.layout.replicas.is_empty() {
            return None;
        }
        let message = match self.lack_told() {
            Some(why) => format!("it waits for nodes: {why}"),
            None => {
                let here = self.members.nodes().filter(|(_, node)| node.link.is_some());
                format!(
                    "it waits for nodes: {} of {} are here, and the first plan waits for all of them at most {}",
                    here.count(),
                    self.settings.layout.expect,
                    self.settings.layout.settle
                )
            }
        };
        let class = ReasonClass::NoCapacity;
        Some(Reason { class, message })
    }

    pub(super) fn node_views(&self) -> Vec<NodeView> {
        let nodes = self.members.nodes();
        nodes
            .map(|(name, node)| self.node_view(name, node))
            .collect()
    }

    fn node_view(&self, name: &NodeName, node: &Node) -> NodeView {
        let place = self.book.layout.place_of(name);
        let holds = place.and_then(|(replica, stage)| {
            let seat = self
                .book
                .layout
                .replicas
                .get(&replica)?
                .seats
                .get(stage as usize)?;
            Some((replica, stage, seat.first_layer, seat.end_layer))
        });
        let health = if node.leaving.is_some_and(|leaving| leaving.left) {
            NodeHealth::Left
        } else if node.link.is_none() || node.device.hangs {
            NodeHealth::Lost
        } else if self.book.draining.contains(name) || node.leaving.is_some() {
            NodeHealth::Draining
        } else {
            NodeHealth::Alive
        };
        NodeView {
            name: name.clone(),
            address: node.hello.address.clone(),
            health,
            heartbeat_age: self.now.steady.since(node.heard).max(Micros(0)),
            holds,
            memory: node.hello.memory,
            memory_used: node.memory_used,
            threads: node.hello.threads,
            device: node.hello.device.clone(),
            risk: self.risks.of(name).map(ToOwned::to_owned),
        }
    }
}
