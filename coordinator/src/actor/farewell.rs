//! The last word to the actor of whoever serves a connection, said however the serving ends: when the peer closes it, whoever
//! serves its streams is dropped where it waits, and nothing behind that is run.

use actix::{Addr, Handler, Message};

use super::coordinator::CoordinatorActor;

/// Sends its message when it is dropped.
pub(super) struct Farewell<'a, M>
where
    M: Message<Result = ()> + Send + 'static,
    CoordinatorActor: Handler<M>,
{
    actor: &'a Addr<CoordinatorActor>,
    /// What is to be said, looked up when it is.
    word: Option<Box<dyn FnOnce() -> M + Send + 'a>>,
}

impl<'a, M> Farewell<'a, M>
where
    M: Message<Result = ()> + Send + 'static,
    CoordinatorActor: Handler<M>,
{
    pub(super) fn new(
        actor: &'a Addr<CoordinatorActor>,
        word: impl FnOnce() -> M + Send + 'a,
    ) -> Self {
        Self {
            actor,
            word: Some(Box::new(word)),
        }
    }
}

impl<M> Drop for Farewell<'_, M>
where
    M: Message<Result = ()> + Send + 'static,
    CoordinatorActor: Handler<M>,
{
    #[expect(
        clippy::disallowed_methods,
        reason = "a drop cannot wait, and a message that is lost would leave a dead link or client behind; no more come than there are connections"
    )]
    fn drop(&mut self) {
        if let Some(word) = self.word.take() {
            self.actor.do_send(word());
        }
    }
}
