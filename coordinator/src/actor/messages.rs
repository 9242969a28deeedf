//! What the coordinator actor is told, and what it tells connections.

use actix::{Message, Recipient};
use shared::ids::{EventNumber, JobId};
use shared::life::Reason;
use shared::units::Bytes;
use shared::wire::notice::Notice;
use shared::wire::order::{Ordered, SampleOrder};
use shared::wire::request::{JobRef, Refusal, Reply, Request, Submission};
use tokio::sync::mpsc;

use crate::life::cluster::{Answer, Handle};
use crate::life::membership::LinkId;
use crate::record::Inputs;

/// What a node's connection is told.
#[derive(Debug)]
pub(super) enum ToNode {
    Order(Box<Ordered>),
    Close(String),
}

/// What a client's stream is told.
#[derive(Debug)]
pub(super) enum ToClient {
    Reply(Box<Reply>, bool),
    Tokens(Vec<u32>),
}

/// Answers that may wait for a client's network; one more is refused: the stream ends, the client is told why, and asks again.
pub(super) const ANSWERS: usize = 256;
/// Orders that may wait for a node's network; one more is refused: the connection ends, and the node starts over.
pub(super) const ORDERS: usize = 1024;

/// What a client asks of the machine.
#[derive(Debug)]
pub(super) enum Question {
    Request { trace: String, request: Request },
    Sample(Option<JobRef>, SampleOrder),
}

/// A client asks; its number. When the mailbox is full it waits, and the client with it.
#[derive(Debug, Message)]
#[rtype(result = "Handle")]
pub(super) struct Ask(pub(super) Question, pub(super) mpsc::Sender<ToClient>);

/// The files of a job's adapter are asked for: key, content hash and size of each. When the mailbox is full it waits.
#[derive(Debug, Message)]
#[rtype(result = "Result<Vec<(String, String, Bytes)>, Refusal>")]
pub(super) struct AdapterOf(pub(super) JobRef);

/// A client no longer waits. When the mailbox is full it waits.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct Gone(pub(super) Handle);

/// A client has the events that only the journal had. When the mailbox is full it waits.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct Recalled {
    pub(super) handle: Handle,
    pub(super) job: Option<JobId>,
    /// Up to this one.
    pub(super) after: EventNumber,
    /// Whether it wants what comes, too.
    pub(super) follow: bool,
}

/// A node connected; its number. When the mailbox is full it waits.
#[derive(Debug, Message)]
#[rtype(result = "LinkId")]
pub(super) struct Arrived(pub(super) mpsc::Sender<ToNode>);

/// A node tells. When the mailbox is full it waits, and the node's connection with it.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct Told(pub(super) LinkId, pub(super) Notice);

/// A node's connection ended. When the mailbox is full it waits.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct Left {
    pub(super) link: LinkId,
    /// Whether the node said that its process ends.
    pub(super) said_so: bool,
}

/// The files of a job were read. When the mailbox is full it waits.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct Prepared(pub(super) JobId, pub(super) Result<Inputs, Reason>);

/// The planner answered. When the mailbox is full it waits.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct Arranged(pub(super) Answer);

/// The process is asked to end; the cluster stays. When the mailbox is full it waits.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct Stop;

/// Why the actor ends.
#[derive(Debug)]
pub(super) enum Ending {
    /// Somebody asked for it.
    Asked,
    /// It cannot go on.
    Failed(String),
}

/// Starts the preparing of a job; answers as `Prepared`.
pub(super) type Prepare = Box<dyn Fn(JobId, Submission, Recipient<Prepared>)>;
