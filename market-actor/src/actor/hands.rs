//! Asks the provider: what it is told to ask for, and regularly what there is. One call at a time, each within a bound, so a
//! list shows all that was answered before it.

use std::time::Duration;

use actix::Addr;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::market::MarketActor;
use super::messages::{Heard, Order};
use crate::broker::Event;
use crate::custody;
use crate::provider::{Answer, Provider, ProviderError};

/// Works until nobody listens.
pub(super) async fn run(
    mut provider: Box<dyn Provider>,
    mut orders: mpsc::Receiver<Order>,
    actor: Addr<MarketActor>,
    look: Duration,
    patience: Duration,
) {
    let mut due = interval(look);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let events = tokio::select! {
            order = orders.recv() => match order {
                None => return,
                Some(order) => obey(provider.as_mut(), order, patience).await,
            },
            _ = due.tick() => see(provider.as_mut(), patience).await,
        };
        for event in events {
            if actor.send(Heard(event)).await.is_err() {
                return;
            }
        }
    }
}

/// A call that ends: with an answer, or with none in time.
async fn bounded<T>(
    name: &str,
    call: &str,
    patience: Duration,
    answer: Answer<'_, T>,
) -> Result<T, ProviderError> {
    match timeout(patience, answer).await {
        Ok(answer) => answer,
        Err(_) => Err(ProviderError::Unsure {
            provider: name.to_owned(),
            call: call.to_owned(),
            why: format!("none within {} s", patience.as_secs()),
        }),
    }
}

async fn obey(provider: &mut dyn Provider, order: Order, patience: Duration) -> Vec<Event> {
    let name = provider.name().to_owned();
    match order {
        Order::Acquire(want) => {
            let answer = bounded(&name, "acquire", patience, provider.acquire(&want)).await;
            if let Err(error) = &answer {
                tracing::warn!(machine = %want.token, %error, "no machine");
            }
            let token = want.token;
            vec![Event::Machine(custody::Event::Answered { token, answer })]
        }
        Order::Release(id) => {
            let answer = bounded(&name, "release", patience, provider.release(&id)).await;
            if let Err(error) = answer {
                tracing::warn!(machine = id, %error, "a machine was not told to end");
            }
            Vec::new()
        }
    }
}

/// What there is.
async fn see(provider: &mut dyn Provider, patience: Duration) -> Vec<Event> {
    let name = provider.name().to_owned();
    let mut events = Vec::new();
    match bounded(&name, "signals", patience, provider.signals()).await {
        Ok(signals) => {
            let signals = signals.into_iter();
            events.extend(signals.map(|one| Event::Machine(custody::Event::Signal(one))));
        }
        Err(error) => tracing::warn!(%error, "signals are not heard"),
    }
    match bounded(&name, "offers", patience, provider.offers()).await {
        Ok(offers) => events.push(Event::Sighted(offers)),
        Err(error) => tracing::warn!(%error, "offers are not seen"),
    }
    match bounded(&name, "list", patience, provider.list()).await {
        Ok(machines) => events.push(Event::Machine(custody::Event::Listed(machines))),
        Err(error) => tracing::warn!(%error, "machines are not listed"),
    }
    events
}
