//! Jobs that ask for several replicas to share their steps, and get fewer: said, and why.

use shared::ids::JobId;
use shared::life::{Reason, ReasonClass};
use shared::plan::Seat;

use super::Coordinator;
use crate::life::ledger::Job;
use crate::record::Change;

fn cut(seats: &[Seat]) -> String {
    let layers = seats
        .iter()
        .map(|seat| format!("{}..{}", seat.first_layer, seat.end_layer));
    layers.collect::<Vec<_>>().join(" ")
}

impl Coordinator {
    /// By how many replicas a job's steps are computed and why not by more, where it asks for more.
    fn shared_by_fewer(&self, job: &Job) -> Option<String> {
        let (own, layout) = (job.replica?, &self.book.layout);
        let seats = &layout.replicas.get(&own)?.seats;
        let with = layout.sharing(own, job.replicas).len().max(1);
        if with >= job.replicas as usize {
            return None;
        }
        let linked = layout.linked(own);
        let mut others = layout
            .replicas
            .iter()
            .filter(|(number, _)| **number != own && !linked.contains(number));
        let otherwise = others.find(|(_, other)| cut(&other.seats) != cut(seats));
        let why = match otherwise {
            Some((other, standing)) => format!(
                "cuts differ, replica {own} is {} and replica {other} is {}, and only like ones are linked: give their \
                 nodes the same threads and memory, or set plan.stages to a number",
                cut(seats),
                cut(&standing.seats)
            ),
            None if layout.replicas.len() < job.replicas as usize => format!(
                "there are no more, plan.replicas is {} and {} have nodes: raise it, start nodes, or ask for fewer",
                self.settings.layout.replicas,
                layout.replicas.len()
            ),
            None => "they are not linked yet".into(),
        };
        let wanted = job.replicas;
        Some(format!("trains on {with} of {wanted} replicas: {why}"))
    }

    /// The same, as the reason of a job that trains.
    pub(super) fn sharing_reason(&self, job: &Job) -> Option<Reason> {
        let message = self.shared_by_fewer(job)?;
        let class = ReasonClass::NoCapacity;
        Some(Reason { class, message })
    }

    /// A job is given to its replica: where fewer share its steps than it asks for that is told, once.
    pub(super) fn tell_sharing(&mut self, id: JobId) {
        let job = self.book.ledger.get(id);
        let Some(reason) = job.and_then(|job| self.shared_by_fewer(job)) else {
            self.notes.told_sharing.remove(&id);
            return;
        };
        if self.notes.told_sharing.get(&id) != Some(&reason) {
            self.notes.told_sharing.insert(id, reason.clone());
            self.record(Change::SharedByFewer { job: id, reason });
        }
    }
}
