//! Asks the provider: what it is told to ask for, and regularly what there is. One call at a time, each within a bound, so a
//! list shows all that was answered before it. Machines are ended before others are asked for, and a look that is due comes
//! between any two of them.
//!
//! A provider may block: files, commands, processes that are looked for. So it lives on a thread of its own; who waits for it here
//! waits no longer than the bound, whatever it does. While it is still at a call that was given up, later ones are not made.

use std::collections::VecDeque;
use std::time::Duration;

use actix::Addr;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::market::MarketActor;
use super::messages::{Begin, Heard, Order};
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
        match self.calls.try_send(make(answer)) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => return unsure("it is still at an earlier call".into()),
            Err(TrySendError::Closed(_)) => return unsure("its thread has ended".into()),
        }
        match timeout(self.bound, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => unsure("its thread has ended".into()),
            Err(_) => unsure(late(self.patience)),
        }
    }

    /// Whether the provider's thread has ended: it panicked.
    fn are_gone(&self) -> bool {
        self.calls.is_closed()
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

/// What waits to be made: machines are ended before others are asked for.
#[derive(Debug, Default)]
struct Waiting {
    releases: VecDeque<String>,
    acquires: VecDeque<Want>,
}

impl Waiting {
    fn add(&mut self, order: Order) {
        match order {
            Order::Acquire(want) => self.acquires.push_back(want),
            // It is told again and again until it ends: once is enough.
            Order::Release(id) if self.releases.contains(&id) => {}
            Order::Release(id) => self.releases.push_back(id),
        }
    }

    fn next(&mut self) -> Option<Order> {
        let release = self.releases.pop_front().map(Order::Release);
        release.or_else(|| self.acquires.pop_front().map(Order::Acquire))
    }

    fn is_empty(&self) -> bool {
        self.releases.is_empty() && self.acquires.is_empty()
    }
}

/// Works until nobody listens, or the provider's thread has ended.
pub(super) async fn run(
    hands: Hands,
    mut orders: mpsc::Receiver<Order>,
    actor: Addr<MarketActor>,
    look: Duration,
) {
    let mut due = interval(look);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut waiting = Waiting::default();
    // Looks that take longer than the time between them leave room for a call.
    let mut looked = false;
    while !hands.are_gone() {
        while let Ok(order) = orders.try_recv() {
            waiting.add(order);
        }
        let look = tokio::select! {
            biased;
            _ = due.tick(), if !looked || waiting.is_empty() => true,
            () = std::future::ready(()), if !waiting.is_empty() => false,
            order = orders.recv() => {
                let Some(order) = order else {
                    return;
                };
                waiting.add(order);
                continue;
            }
        };
        looked = look;
        let order = match look {
            true => None,
            false => waiting.next(),
        };
        let events = match order {
            None => hands.see().await,
            Some(Order::Acquire(want)) => match actor.send(Begin(want.token.clone())).await {
                Ok(true) => hands.obey(Order::Acquire(want)).await,
                // It is not wanted any more.
                Ok(false) => continue,
                Err(_) => return,
            },
            Some(order) => hands.obey(order).await,
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
    use crate::custody::tests::want;

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
    fn machines_are_ended_before_others_are_asked_for() {
        let mut waiting = Waiting::default();
        waiting.add(Order::Acquire(want("a")));
        for id in ["i-1", "i-1", "i-2"] {
            waiting.add(Order::Release(id.into()));
        }
        let released = |order| matches!(order, Some(Order::Release(_)));
        assert!(released(waiting.next()) && released(waiting.next()));
        assert!(matches!(waiting.next(), Some(Order::Acquire(_))));
        assert!(waiting.is_empty());
    }

    #[test]
    fn a_provider_that_panics_is_told_from_one_that_is_slow() {
        // Its list panics: nobody can let it go any more.
        struct Broken;
        impl Provider for Broken {
            fn name(&self) -> &'static str {
                "broken"
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
                panic!("a defect that this test plays")
            }
            fn signals(&mut self) -> Answer<'_, Vec<Signal>> {
                Box::pin(async { Ok(Vec::new()) })
            }
        }
        let hands = Hands::of(Box::new(Broken), Duration::from_secs(5)).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let told = hands.ask("list", Call::List).await.unwrap_err();
            assert!(told.to_string().contains("thread has ended"), "{told}");
            hands.calls.closed().await;
            assert!(hands.are_gone());
            let told = hands.ask("offers", Call::Offers).await.unwrap_err();
            assert!(told.to_string().contains("thread has ended"), "{told}");
        });
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
