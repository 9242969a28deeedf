//! Asks the provider: what it is told to ask for, and regularly what there is. One call at a time, each within a bound, so a
//! list shows all that was answered before it.
//!
//! A provider may block: files, commands, processes that are looked for. So it lives on a thread of its own; who waits for it here
//! waits no longer than the bound, whatever it does. While it is still at a call that was given up, later ones are not made.

use std::time::Duration;

use actix::Addr;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::market::MarketActor;
use super::messages::{Heard, Order};
use crate::broker::Event;
use crate::custody;
use crate::provider::{Answer, Machine, Provider, ProviderError, Sighting, Signal, Want};

/// A call that blocks is waited for so much longer than one that can be given up.
const SLACK: Duration = Duration::from_secs(1);

/// What a provider can be asked, with where its answer goes.
enum Call {
    Acquire(Want, oneshot::Sender<Result<Machine, ProviderError>>),
    Release(String, oneshot::Sender<Result<(), ProviderError>>),
    Signals(oneshot::Sender<Result<Vec<Signal>, ProviderError>>),
    Offers(oneshot::Sender<Result<Vec<Sighting>, ProviderError>>),
    List(oneshot::Sender<Result<Vec<Machine>, ProviderError>>),
}

impl Call {
    /// Whether nobody waits for the answer any more: it is not made.
    fn is_given_up(&self) -> bool {
        match self {
            Self::Acquire(_, to) => to.is_closed(),
            Self::Release(_, to) => to.is_closed(),
            Self::Signals(to) => to.is_closed(),
            Self::Offers(to) => to.is_closed(),
            Self::List(to) => to.is_closed(),
        }
    }
}

/// A provider on its thread.
#[derive(Debug)]
pub(super) struct Hands {
    name: String,
    calls: mpsc::Sender<Call>,
    patience: Duration,
    /// Of a call that cannot be given up.
    bound: Duration,
}

impl Hands {
    /// Gives a provider a thread, which ends when this is dropped and the call under way is over.
    ///
    /// # Errors
    /// When the system gives no thread or runtime.
    pub(super) fn of(mut provider: Box<dyn Provider>, patience: Duration) -> std::io::Result<Self> {
        let name = provider.name().to_owned();
        let (calls, mut asked) = mpsc::channel::<Call>(1);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let own = name.clone();
        std::thread::Builder::new()
            .name("provider".into())
            .spawn(move || {
                runtime.block_on(async {
                    while let Some(call) = asked.recv().await {
                        serve(provider.as_mut(), &own, call, patience).await;
                    }
                });
            })?;
        Ok(Self {
            name,
            calls,
            patience,
            bound: patience + SLACK,
        })
    }

    /// The answer to a call, or none in time.
    async fn ask<T>(
        &self,
        call: &str,
        make: impl FnOnce(oneshot::Sender<Result<T, ProviderError>>) -> Call,
    ) -> Result<T, ProviderError> {
        let (answer, answered) = oneshot::channel();
        let unsure = |why: String| {
            Err(ProviderError::Unsure {
                provider: self.name.clone(),
                call: call.to_owned(),
                why,
            })
        };
        if self.calls.try_send(make(answer)).is_err() {
            return unsure("it is still at an earlier call".into());
        }
        match timeout(self.bound, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => unsure("its thread has ended".into()),
            Err(_) => unsure(late(self.patience)),
        }
    }

    async fn obey(&self, order: Order) -> Vec<Event> {
        match order {
            Order::Acquire(want) => {
                let token = want.token.clone();
                let made = |answer| Call::Acquire(want, answer);
                let answer = self.ask("acquire", made).await;
                if let Err(error) = &answer {
                    tracing::warn!(machine = %token, %error, "no machine");
                }
                vec![Event::Machine(custody::Event::Answered { token, answer })]
            }
            Order::Release(id) => {
                let machine = id.clone();
                let made = |answer| Call::Release(id, answer);
                if let Err(error) = self.ask("release", made).await {
                    tracing::warn!(machine, %error, "a machine was not told to end");
                }
                Vec::new()
            }
        }
    }

    /// What there is.
    async fn see(&self) -> Vec<Event> {
        let mut events = Vec::new();
        match self.ask("signals", Call::Signals).await {
            Ok(signals) => {
                let signals = signals.into_iter();
                events.extend(signals.map(|one| Event::Machine(custody::Event::Signal(one))));
            }
            Err(error) => tracing::warn!(%error, "signals are not heard"),
        }
        match self.ask("offers", Call::Offers).await {
            Ok(offers) => events.push(Event::Sighted(offers)),
            Err(error) => tracing::warn!(%error, "offers are not seen"),
        }
        match self.ask("list", Call::List).await {
            Ok(machines) => events.push(Event::Machine(custody::Event::Listed(machines))),
            Err(error) => tracing::warn!(%error, "machines are not listed"),
        }
        events
    }
}

fn late(patience: Duration) -> String {
    format!("none within {} s", patience.as_secs())
}

/// One call on the provider's thread; an answer that nobody waits for any more is dropped: lists show what came of it.
async fn serve(provider: &mut dyn Provider, name: &str, call: Call, patience: Duration) {
    if call.is_given_up() {
        return;
    }
    match call {
        Call::Acquire(want, to) => {
            let _ = to.send(within(name, "acquire", patience, provider.acquire(&want)).await);
        }
        Call::Release(id, to) => {
            let _ = to.send(within(name, "release", patience, provider.release(&id)).await);
        }
        Call::Signals(to) => {
            let _ = to.send(within(name, "signals", patience, provider.signals()).await);
        }
        Call::Offers(to) => {
            let _ = to.send(within(name, "offers", patience, provider.offers()).await);
        }
        Call::List(to) => {
            let _ = to.send(within(name, "list", patience, provider.list()).await);
        }
    }
}

/// A call that can be given up is, after so long.
async fn within<T>(
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
            why: late(patience),
        }),
    }
}

/// Works until nobody listens.
pub(super) async fn run(
    hands: Hands,
    mut orders: mpsc::Receiver<Order>,
    actor: Addr<MarketActor>,
    look: Duration,
) {
    let mut due = interval(look);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let events = tokio::select! {
            order = orders.recv() => match order {
                None => return,
                Some(order) => hands.obey(order).await,
            },
            _ = due.tick() => hands.see().await,
        };
        for event in events {
            if actor.send(Heard(event)).await.is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use shared::units::Micros;

    use super::*;

    /// A provider that blocks its thread until it is let go.
    struct Stuck(std::sync::mpsc::Receiver<()>);

    impl Provider for Stuck {
        fn name(&self) -> &'static str {
            "stuck"
        }

        fn notice(&self) -> Micros {
            Micros(0)
        }

        fn offers(&mut self) -> Answer<'_, Vec<Sighting>> {
            Box::pin(async { Ok(Vec::new()) })
        }

        fn acquire<'a>(&'a mut self, _: &'a Want) -> Answer<'a, Machine> {
            Box::pin(std::future::pending())
        }

        fn release<'a>(&'a mut self, _: &'a str) -> Answer<'a, ()> {
            Box::pin(async { Ok(()) })
        }

        fn list(&mut self) -> Answer<'_, Vec<Machine>> {
            // Blocks the thread, not the task.
            let _ = self.0.recv();
            Box::pin(async { Ok(Vec::new()) })
        }

        fn signals(&mut self) -> Answer<'_, Vec<Signal>> {
            Box::pin(async { Ok(Vec::new()) })
        }
    }

    #[test]
    fn a_provider_that_blocks_keeps_nobody_waiting_beyond_the_bound() {
        let (go, wait) = std::sync::mpsc::channel();
        let patience = Duration::from_millis(10);
        let mut hands = Hands::of(Box::new(Stuck(wait)), patience).unwrap();
        hands.bound = patience;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let told = hands.ask("list", Call::List).await.unwrap_err();
            assert!(
                !told.is_certain() && told.to_string().contains("none within"),
                "{told}"
            );
            // One call waits at the door, the next is not made.
            let _ = hands.ask("offers", Call::Offers).await;
            let told = hands.ask("offers", Call::Offers).await.unwrap_err();
            assert!(
                told.to_string().contains("still at an earlier call"),
                "{told}"
            );
        });
        go.send(()).unwrap();
    }
}
