//! What is lacking where fewer replicas stand than are wanted, who is kept from work, and whether a node can be spared.
//! CL-13

use shared::ids::NodeName;
use shared::wire::request::{Refusal, RefusalCode};

use super::Coordinator;
use crate::life::membership::Node;
use crate::life::placement::{self, NoPlace, Snapshot, place};

impl Coordinator {
    /// Nodes that are here and get no work: which, why, and what gives it back.
    pub(super) fn kept_out(&self) -> Vec<String> {
        let here = self.members.nodes().filter(|(_, node)| node.link.is_some());
        let why = |(name, node): (&NodeName, &Node)| {
            if self.book.draining.contains(name) {
                let undo = format!("spotmux drain {name} --undo");
                return Some(format!(
                    "{name} shall be empty since it was drained, `{undo}` gives it back"
                ));
            }
            if node.leaving.is_some() {
                return Some(format!("{name} leaves"));
            }
            self.cannot_hold(name, node)
        };
        here.filter_map(why).collect()
    }

    /// Why a node that is here cannot hold a stage now, whatever its operator wants.
    pub(super) fn cannot_hold(&self, name: &NodeName, node: &Node) -> Option<String> {
        if node.device.hangs {
            return Some(format!(
                "the device of {name} does not come back from its work"
            ));
        }
        let out = node.unfit_until.since(self.now.steady);
        (out.0 > 0).then(|| format!("{name} could not hold a stage, and is tried again in {out}"))
    }

    /// Why fewer replicas stand than are wanted, with who is kept from work.
    pub(super) fn lack_told(&self) -> Option<String> {
        let why = self.lack.as_ref()?;
        let out = self.kept_out();
        Some(match out.is_empty() {
            true => why.to_string(),
            false => format!("{why} ({})", out.join("; ")),
        })
    }

    /// Whether a node may be drained: as many replicas have a place without it as have one.
    ///
    /// # Errors
    /// What would be lacking, who else is kept from work, and what to do.
    pub(super) fn can_spare(&self, node: &NodeName) -> Result<(), Refusal> {
        let before = self.book.layout.seats();
        let mut snapshot = self.snapshot();
        let count = |snapshot: &Snapshot<'_>| place(snapshot, &before).map(|seats| seats.len());
        let now = count(&snapshot).unwrap_or(0).max(before.len());
        snapshot.nodes.remove(node);
        let after = count(&snapshot).unwrap_or(0);
        if after >= now {
            return Ok(());
        }
        let lacks = self.lacking(&snapshot, &before);
        let why = lacks.map_or_else(String::new, |why| format!(": {why}"));
        let left: Vec<&str> = snapshot.nodes.keys().map(NodeName::as_str).collect();
        let left = match left.is_empty() {
            true => "no node stays free for work".to_owned(),
            false => format!("only {} may have work then", left.join(", ")),
        };
        let mut out = self.kept_out();
        out.extend(self.away());
        let out = match out.is_empty() {
            true => String::new(),
            false => format!(" ({})", out.join("; ")),
        };
        let message = format!(
            "without {node} {after} of {now} replicas have a place{why}; {left}{out}. Start a node first, or drain {node} \
             all the same with --force: what trains there is made durable and waits for a place"
        );
        let code = RefusalCode::NoCapacity;
        Err(Refusal { code, message })
    }

    /// Nodes with a seat that are not here.
    fn away(&self) -> Vec<String> {
        let nodes = self.book.layout.nodes().into_iter();
        let away = nodes.filter(|name| self.members.link(name).is_none());
        away.map(|name| format!("{name} is not connected"))
            .collect()
    }

    /// Why fewer replicas than wanted have a place.
    pub(super) fn lacking(
        &self,
        snapshot: &Snapshot<'_>,
        before: &crate::life::layout::Seats,
    ) -> Option<NoPlace> {
        match place(snapshot, before) {
            Ok(seats) => placement::lacking(snapshot, &seats),
            Err(why) => Some(why),
        }
    }

    /// The replicas that stand, with what their nodes offer.
    pub(super) fn standing(&self) -> String {
        let offered = |node: &NodeName| match self.members.get(node) {
            Some(known) => format!("{node} {}", known.hello.memory),
            None => node.to_string(),
        };
        let replicas = self.book.layout.replicas.iter().map(|(number, standing)| {
            let nodes: Vec<String> = standing.seats.iter().map(|s| offered(&s.node)).collect();
            format!("replica {number} on {}", nodes.join(", "))
        });
        replicas.collect::<Vec<_>>().join("; ")
    }
}
