//! Who is told what a device did, and by which clock: neither is of this crate.

use std::fmt;
use std::sync::Arc;

use shared::ids::JobName;
use shared::units::{Bytes, Micros};

/// A kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Deed {
    /// A forward pass that comes back.
    Forward,
    /// A backward pass.
    Backward,
    /// An optimizer step.
    Apply,
    /// A forward pass of held-out rows.
    Evaluate,
    /// A forward pass of a text's rows.
    Sample,
    /// A state copied for the store.
    Keep,
    /// A chunk that waited for its link: from when it was ready until it went.
    Credit,
    /// A chunk on its way out, while the device does something else.
    Send,
    /// A chunk on its way in, while the device does something else.
    Receive,
}

impl Deed {
    /// Its name in traces.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Apply => "apply",
            Self::Evaluate => "evaluate",
            Self::Sample => "sample",
            Self::Keep => "keep",
            Self::Credit => "wait for credit",
            Self::Send => "send",
            Self::Receive => "receive",
        }
    }
}

/// One piece of work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its kind.
    pub deed: Deed,
    /// The micro-batch, if it is about one.
    pub micro_batch: Option<u64>,
    /// Jobs in it, each with its step under way.
    pub jobs: Vec<(JobName, u64)>,
    /// Bytes held for it, stored or carried.
    pub bytes: Bytes,
    /// Start, by the watch's clock.
    pub start: Micros,
    /// End, by the watch's clock.
    pub end: Micros,
}

/// Is told of every piece of work, on the thread of the device; of what links carried, once the device is free again.
pub trait Observer: Send {
    /// The device begins a piece of work, by the watch's clock.
    fn begins(&mut self, _at: Micros) {}

    /// The device is at none any more.
    fn rests(&mut self) {}

    /// Work was done.
    fn worked(&mut self, span: Span);
}

/// Tells the time; any fixed start.
pub type Now = Arc<dyn Fn() -> Micros + Send + Sync>;

/// An observer and its clock, or neither.
#[derive(Default)]
pub struct Watch(Option<(Box<dyn Observer>, Now)>);

impl Watch {
    /// Tells an observer by a clock.
    #[must_use]
    pub fn new(observer: Box<dyn Observer>, now: Now) -> Self {
        Self(Some((observer, now)))
    }

    /// Whether anybody looks.
    pub(super) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    pub(super) fn now(&self) -> Micros {
        self.0.as_ref().map_or(Micros(0), |(_, now)| now())
    }

    /// The device begins a piece of work: when that is.
    pub(super) fn begin(&mut self) -> Micros {
        let at = self.now();
        if let Some((observer, _)) = &mut self.0 {
            observer.begins(at);
        }
        at
    }

    /// The device is at none any more.
    pub(super) fn rest(&mut self) {
        if let Some((observer, _)) = &mut self.0 {
            observer.rests();
        }
    }

    pub(super) fn tell(&mut self, span: Span) {
        if let Some((observer, _)) = &mut self.0 {
            observer.worked(span);
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watch").field(&self.is_on()).finish()
    }
}
