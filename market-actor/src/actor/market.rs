//! The market actor: events to the broker, its effects performed in order.

use std::time::Duration;

use actix::{Actor, AsyncContext, Context, Handler};
use tokio::sync::{mpsc, oneshot};

use super::error::RunError;
use super::journal::Journal;
use super::messages::{Ask, Begin, Ended, Heard, Order, Stop};
use super::recording::Recording;
use super::settings::MarketSettings;
use super::{files, thinking};
use crate::broker::thought::Question;
use crate::broker::{Broker, Effect, Event};
use crate::custody;

/// Messages that may wait.
const MAILBOX: usize = 256;
/// Time between ticks.
const TICK: Duration = Duration::from_millis(500);

/// The broker and what it acts through.
pub(super) struct MarketActor {
    pub(super) broker: Broker,
    pub(super) journal: Journal,
    pub(super) recording: Recording,
    pub(super) settings: MarketSettings,
    pub(super) hands: mpsc::Sender<Order>,
    pub(super) line: mpsc::Sender<Ask>,
    pub(super) thoughts: mpsc::Sender<Question>,
    /// Dropped unused when the actor panics.
    pub(super) ending: Option<oneshot::Sender<Result<(), RunError>>>,
}

impl Actor for MarketActor {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        context.set_mailbox_capacity(MAILBOX);
        context.run_interval(TICK, |actor, _| actor.take(Event::Tick));
    }
}

impl Handler<Heard> for MarketActor {
    type Result = ();

    fn handle(&mut self, message: Heard, _: &mut Self::Context) {
        self.take(message.0);
    }
}

impl Handler<Stop> for MarketActor {
    type Result = ();

    fn handle(&mut self, _: Stop, _: &mut Self::Context) {
        self.end(Ok(()));
    }
}

impl Handler<Begin> for MarketActor {
    type Result = bool;

    fn handle(&mut self, message: Begin, _: &mut Self::Context) -> bool {
        let Begin(token) = message;
        self.take(Event::Machine(custody::Event::Called(token.clone())));
        self.ending.is_some() && self.broker.custody().is_asked(&token)
    }
}

impl Handler<Ended> for MarketActor {
    type Result = ();

    fn handle(&mut self, message: Ended, _: &mut Self::Context) {
        self.end(Err(RunError::Ended { part: message.0 }));
    }
}

impl MarketActor {
    fn take(&mut self, event: Event) {
        if self.ending.is_none() {
            return;
        }
        if let Event::Sighted(seen) = &event
            && let Err(error) = self.recording.see(seen, (self.settings.clocks.wall)())
        {
            tracing::warn!(%error, "what is offered is not recorded");
        }
        let effects = self.broker.step(event, self.settings.clocks.now());
        for effect in effects {
            // What is not on record is not asked for: nothing that follows is done.
            if let Err(error) = self.perform(effect) {
                return self.end(Err(error));
            }
        }
    }

    fn perform(&mut self, effect: Effect) -> Result<(), RunError> {
        match effect {
            Effect::Keep(kept) => files::keep(&self.settings.state(), &kept)?,
            Effect::Record(entry) => self.journal.append(&entry)?,
            Effect::Acquire(want) => self.order(Order::Acquire(want)),
            Effect::Release { id } => self.order(Order::Release(id)),
            Effect::Drain { node, until } => {
                tracing::info!(%node, taken = until.is_some(), "its work is to go elsewhere");
                self.ask(match until {
                    Some(until) => Ask::Leaving { node, until },
                    None => Ask::Drain(node),
                });
            }
            Effect::Think(question) => thinking::hand(&self.thoughts, *question)?,
            Effect::Undrain(node) => self.ask(Ask::Undrain(node)),
            Effect::Risk { node, cause } => self.ask(Ask::Risk { node, cause }),
            Effect::Tell(told) => self.ask(Ask::Tell(told)),
            Effect::Pause(job) => self.ask(Ask::Pause(job)),
            Effect::Decided(decided) => {
                let word = decided
                    .reason
                    .as_ref()
                    .map(crate::problem::decision::Reason::word);
                tracing::info!(
                    spot = decided.target.spot,
                    on_demand = decided.target.on_demand,
                    held = decided.held.count(),
                    reason = word,
                    "decided"
                );
                if let Err(error) = files::note(&self.settings.decisions(), &decided) {
                    tracing::warn!(%error, "a decision is not kept");
                }
            }
            Effect::Say { alarm: true, what } => tracing::warn!("{what}"),
            Effect::Say { alarm: false, what } => tracing::info!("{what}"),
        }
        Ok(())
    }

    fn order(&mut self, order: Order) {
        if let Err(error) = self.hands.try_send(order) {
            tracing::warn!(%error, "too many calls of the provider wait");
            // It is given up as one whose answer was lost.
            if let Order::Acquire(want) = error.into_inner() {
                self.take(Event::Machine(custody::Event::Called(want.token)));
            }
        }
    }

    fn ask(&mut self, ask: Ask) {
        if let Err(error) = self.line.try_send(ask) {
            tracing::debug!(%error, "too many requests wait");
            if let Some(event) = error.into_inner().undone() {
                self.take(event);
            }
        }
    }

    fn end(&mut self, outcome: Result<(), RunError>) {
        if let Some(ending) = self.ending.take() {
            // Who does not listen has ended.
            let _ = ending.send(outcome);
        }
    }
}
