//! What the parts tell each other.

use actix::Message;
use shared::ids::{JobId, NodeName};
use shared::units::Micros;
use shared::wire::market::MarketTold;

use crate::broker::Event;
use crate::provider::Want;

/// Something happened. The sender waits while the mailbox is full: who looks at a provider or a coordinator looks less often.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct Heard(pub(super) Event);

/// A request is about to be made: the answer is whether it still is wanted.
#[derive(Debug, Message)]
#[rtype(result = "bool")]
pub(super) struct Begin(pub(super) NodeName);

/// A part that works beside the actor has ended.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct Ended(pub(super) &'static str);

/// The process is to end; machines stay as they are.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct Stop;

/// A call of the provider. One that finds no room is dropped: lists show what came of it, and it is asked again.
#[derive(Debug)]
pub(super) enum Order {
    Acquire(Want),
    Release(String),
}

/// A request to the coordinator. One that finds no room is dropped: it is asked again, what is told after [`Ask::undone`].
#[derive(Debug)]
pub(super) enum Ask {
    Drain(NodeName),
    /// Its machine will be taken at that instant by the steady clock.
    Leaving {
        node: NodeName,
        until: Micros,
    },
    Undrain(NodeName),
    Risk {
        node: NodeName,
        cause: Option<String>,
    },
    Tell(Box<MarketTold>),
    Pause(JobId),
}

impl Ask {
    /// What the broker must hear where this is dropped or refused; nothing where it asks again by itself while it is wanted.
    pub(super) fn undone(&self) -> Option<Event> {
        let once = matches!(self, Self::Tell(_) | Self::Risk { cause: None, .. });
        once.then_some(Event::Untold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_told_once_is_told_again() {
        let told = Ask::Tell(Box::default());
        assert_eq!(told.undone(), Some(Event::Untold));
        assert_eq!(Ask::Pause(JobId(1)).undone(), None);
        let risk = |cause: Option<&str>| Ask::Risk {
            node: NodeName::new("n").expect("a plain word is a name"),
            cause: cause.map(ToOwned::to_owned),
        };
        assert_eq!(risk(None).undone(), Some(Event::Untold));
        assert_eq!(risk(Some("capacity")).undone(), None);
    }
}
