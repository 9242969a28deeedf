//! What a job that fits none of the replicas that stand may still wait for: a node that is large enough, and what an
//! operator does so that the job gets it.
//!
//! Of nodes that are here it is known what they offer, and a word is enough: those without a seat come first, then those
//! that were drained, those whose device hangs, those that end. Then come nodes that are away. A machine that was taken
//! away and is not listed is none. While a leadership is young, nodes that the one before had may not have come yet.
//! CL-16

use shared::ids::NodeName;
use shared::wire::notice::LeaveCause;

use super::Coordinator;
use crate::life::membership::Node;
use crate::plan::admit::Refusal;

impl Coordinator {
    /// What a job that fits none of the replicas that stand may wait for, if anything: which node, and what to do.
    pub(super) fn may_come(&self, refusal: &Refusal) -> Option<String> {
        if self.settings.layout.market {
            return Some("a market may bring larger machines".into());
        }
        self.one_here(refusal)
            .or_else(|| self.one_away(refusal))
            .or_else(|| self.one_unknown())
            .or_else(|| self.still_young())
    }

    /// Nodes without a seat that offer what is needed.
    fn large<'a>(&'a self, refusal: &Refusal) -> impl Iterator<Item = (&'a NodeName, &'a Node)> {
        let seated = self.book.layout.nodes();
        let needed = refusal.needed;
        let nodes = self.members.nodes();
        nodes.filter(move |(name, node)| node.hello.memory >= needed && !seated.contains(*name))
    }

    /// Whether the machine of a node is taken away for good.
    fn is_reclaimed(&self, name: &NodeName, node: &Node) -> bool {
        let reclaimed = node
            .leaving
            .is_some_and(|leaving| leaving.cause == LeaveCause::Reclaimed);
        reclaimed && !self.settings.layout.listed.contains(name)
    }

    fn one_here(&self, refusal: &Refusal) -> Option<String> {
        let here = self
            .large(refusal)
            .filter(|(name, node)| node.link.is_some() && !self.is_reclaimed(name, node));
        let rank = |(name, node): &(&NodeName, &Node)| {
            let drained = self.book.draining.contains(*name);
            (node.leaving.is_some(), node.device.hangs, drained)
        };
        let (name, node) = here.min_by_key(rank)?;
        let offers = format!("{name} offers {}", node.hello.memory);
        let swap = self.too_small(refusal).map(|from| {
            format!("`spotmux migrate {from} --to {name}` gives it the stage of {from}")
        });
        if node.leaving.is_some() {
            return Some(format!(
                "{offers} and leaves: start it again when it has ended"
            ));
        }
        if node.device.hangs {
            return Some(format!(
                "{offers}, and its device does not come back from its work: start it again"
            ));
        }
        let undo = self.undo(name);
        Some(match (undo, swap) {
            (None, None) => format!("{offers} and has no stage"),
            (None, Some(swap)) => format!("{offers} and has no stage: {swap}"),
            (Some(undo), None) => format!("{offers} and was drained: {undo}"),
            (Some(undo), Some(swap)) => {
                format!("{offers} and was drained: {undo}, and then {swap}")
            }
        })
    }

    fn one_away(&self, refusal: &Refusal) -> Option<String> {
        let away = self
            .large(refusal)
            .filter(|(name, node)| node.link.is_none() && !self.is_reclaimed(name, node));
        let (name, node) = away.min_by_key(|(name, _)| self.book.draining.contains(*name))?;
        let offered = node.hello.memory;
        Some(format!(
            "{name} offered {offered} and is not here: start it{}",
            self.and_undo(name)
        ))
    }

    /// A node that is listed or was drained, and did not come in this leadership: nobody knows what it offers.
    fn one_unknown(&self) -> Option<String> {
        let unknown = |name: &&NodeName| self.members.get(name).is_none();
        let listed = self.settings.layout.listed.iter().filter(unknown);
        let listed = listed.min_by_key(|name| self.book.draining.contains(*name));
        if let Some(name) = listed {
            let undo = self.and_undo(name);
            return Some(format!("{name} is listed and not here: start it{undo}"));
        }
        let name = self.book.draining.iter().find(unknown)?;
        let undo = self.and_undo(name);
        Some(format!(
            "{name} was drained and is not here: start it{undo}"
        ))
    }

    /// Nodes that the leadership before had may not have come yet.
    fn still_young(&self) -> Option<String> {
        let age = self.now.steady.since(self.members.began());
        self.is_young().then(|| {
            let bound = self.settings.bounds.attach;
            format!("this coordinator began {age} ago, and nodes may take {bound} to come back")
        })
    }

    /// How an operator gives a node back that was drained.
    fn undo(&self, name: &NodeName) -> Option<String> {
        let drained = self.book.draining.contains(name);
        drained.then(|| format!("`spotmux drain {name} --undo` gives it back"))
    }

    fn and_undo(&self, name: &NodeName) -> String {
        let undo = self.undo(name);
        undo.map_or_else(String::new, |undo| {
            format!("; {undo}, since it was drained")
        })
    }

    /// The node whose stage a refusal is about.
    fn too_small(&self, refusal: &Refusal) -> Option<&NodeName> {
        let at = usize::try_from(refusal.stage).ok()?;
        let standing = self.book.layout.replicas.values();
        let mut nodes = standing.filter_map(|standing| Some(&standing.seats.get(at)?.node));
        let first = nodes.clone().next();
        let offers = |name: &&NodeName| {
            let node = self.members.get(name);
            node.is_some_and(|node| node.hello.memory == refusal.offered)
        };
        nodes.find(offers).or(first)
    }
}
