//! A leadership begins: on an empty journal, or where another ended.

use shared::ids::Term;
use shared::units::Micros;

use super::history::History;
use super::notes::Notes;
use super::relay::Relay;
use super::{Coordinator, Effect, Now, Outcome};
use crate::book::Book;
use crate::life::membership::Membership;
use crate::life::transition::Settling;
use crate::record::{Change, Record};
use crate::settings::Settings;

impl Coordinator {
    /// Takes over what the journal says, as leader of this term. `recent` are records for the history in memory.
    pub fn begin(
        now: Now,
        settings: Settings,
        term: Term,
        book: Book,
        recent: &[Record],
    ) -> (Self, Outcome) {
        let limits = &settings.limits;
        let history = History::new(
            recent,
            book.last,
            limits.events_kept,
            limits.events_answered,
        );
        let mut this = Self {
            history,
            settings,
            members: Membership::new(now.steady),
            holding: std::collections::BTreeMap::new(),
            settling: std::collections::BTreeMap::new(),
            strikes: std::collections::BTreeMap::new(),
            ahead: Default::default(),
            moving: None,
            lack: None,
            retry_at: Micros(0),
            hurry_at: Micros(0),
            empty_since: now.steady,
            relay: Relay::default(),
            risks: Default::default(),
            market: Default::default(),
            closing: None,
            memory: Default::default(),
            arranging: Default::default(),
            undrained: std::collections::BTreeMap::new(),
            unstored: 0,
            notes: Notes::default(),
            ignored: 0,
            now,
            out: Outcome::default(),
            book,
        };
        this.record(Change::Began { term });
        if let Some(epoch) = this.book.moving {
            let reason = "the coordinator was restarted".into();
            this.record(Change::MoveCalledOff { epoch, reason });
        }
        for (number, standing) in &this.book.layout.replicas {
            if !this.book.broken.contains(number) {
                let nodes = standing.seats.iter().map(|seat| seat.node.clone());
                this.settling
                    .insert(*number, Settling::attaching(nodes.collect()));
            }
        }
        let unprepared = this.book.ledger.unprepared();
        let start = unprepared.map(|job| Effect::StartPreparing {
            job: job.id,
            submission: job.submission.clone(),
        });
        this.out.effects.extend(start);
        let outcome = this.finish();
        (this, outcome)
    }
}
