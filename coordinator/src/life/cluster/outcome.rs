//! What goes into the machine and what comes out of it.

use shared::ids::{EventNumber, JobId, NodeName};
use shared::life::Reason;
use shared::units::Micros;
use shared::wire::notice::Notice;
use shared::wire::order::{Ordered, SampleOrder};
use shared::wire::request::{JobRef, Reply, Request, Submission};

use super::question::{Answer, Question};
use crate::life::membership::LinkId;
use crate::record::{Inputs, Record};

/// The time, twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// On a clock that never jumps: ages and bounds.
    pub steady: Micros,
    /// Since 1970: what people read.
    pub wall: Micros,
}

/// A client that waits for answers, numbered by the shell and never again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Handle(pub u64);

/// What came in.
#[derive(Clone, Debug)]
pub enum Input {
    /// A client asks; the shell itself answers for files, samples' texts and certificates.
    Asked {
        /// Who waits.
        handle: Handle,
        /// Names a submission through all processes.
        trace: String,
        /// What.
        request: Request,
    },
    /// A client wants a text continued; rendered and tokenized by the shell.
    Sample {
        /// Who waits.
        handle: Handle,
        /// With this job's adapter.
        job: Option<JobRef>,
        /// What; its number and job are filled in here.
        order: SampleOrder,
    },
    /// A client does not wait any more.
    Dropped(Handle),
    /// A client has the events that are in the journal only, up to one, and waits for those behind it.
    Recalled {
        /// Who waits.
        handle: Handle,
        /// Of this job only.
        job: Option<JobId>,
        /// After this one.
        after: EventNumber,
        /// Whether it wants what comes, too.
        follow: bool,
    },
    /// The files of a job are token rows in the store now, or cannot be.
    Prepared {
        /// The job.
        job: JobId,
        /// Where the rows are, or why there are none.
        outcome: Result<Inputs, Reason>,
    },
    /// The planner answered how jobs train together.
    Arranged(Answer),
    /// A node tells; first on each link is its hello.
    Told {
        /// Its connection.
        link: LinkId,
        /// What.
        notice: Notice,
    },
    /// A connection of a node ended, and nobody knows why: the node may come back.
    Closed(LinkId),
    /// A connection of a node ended, and the node said that its process ends.
    Ended(LinkId),
    /// Time passed: several times a second.
    Tick,
}

/// What is to be done, once the records are in the journal.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Send an order on a connection.
    Send {
        /// The connection.
        link: LinkId,
        /// Whose it is.
        node: NodeName,
        /// The order.
        ordered: Ordered,
    },
    /// End a connection; no `Closed` needs to follow.
    Close {
        /// The connection.
        link: LinkId,
        /// What the node is told.
        reason: String,
    },
    /// Answer a client.
    Answer {
        /// Who waits.
        handle: Handle,
        /// What.
        reply: Reply,
        /// Whether nothing follows.
        last: bool,
    },
    /// Answer a client with events that are in the journal only, in portions; `Recalled` is the answer once it has all of them.
    Recall {
        /// Who waits.
        handle: Handle,
        /// Of this job only.
        job: Option<JobId>,
        /// After this one ...
        after: EventNumber,
        /// ... up to this one.
        until: EventNumber,
        /// Whether it wants what comes, too.
        follow: bool,
    },
    /// Give a client more tokens of its sample.
    Piece {
        /// Who waits.
        handle: Handle,
        /// The tokens.
        tokens: Vec<u32>,
    },
    /// Turn the files of a job into token rows; `Prepared` is the answer.
    StartPreparing {
        /// The job.
        job: JobId,
        /// Its files.
        submission: Submission,
    },
    /// Ask the planner how jobs train together, beside everything else; `Arranged` is the answer.
    Arrange(Question),
    /// All nodes were told to stop: stop too.
    Finished,
}

/// What a step gives.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// To be in the journal before any effect is performed.
    pub records: Vec<Record>,
    /// To be performed in order.
    pub effects: Vec<Effect>,
}
