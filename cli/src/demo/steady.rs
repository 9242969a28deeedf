//! A line to a coordinator that may be started again meanwhile: what is lost on the way is asked again.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use shared::config::load::Loaded;
use shared::wire::request::{FileRef, Reply, Request};

use crate::clock::Stopwatch;
use crate::control::quic::Quic;
use crate::control::{Control, Flow, is_lost};
use crate::exit::Failure;
use crate::interrupt::Interrupt;

/// How long a coordinator may be away.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(200);

/// The line.
pub(crate) struct Steady<'a> {
    loaded: &'a Loaded,
    interrupt: &'a Interrupt,
    held: RefCell<Option<Rc<Quic>>>,
}

impl<'a> Steady<'a> {
    /// A line that is opened with the first request.
    pub(crate) fn new(loaded: &'a Loaded, interrupt: &'a Interrupt) -> Self {
        Self {
            loaded,
            interrupt,
            held: RefCell::default(),
        }
    }

    fn open(&self) -> Result<Rc<Quic>, Failure> {
        if let Some(quic) = &*self.held.borrow() {
            return Ok(Rc::clone(quic));
        }
        let quic = Rc::new(Quic::connect(self.loaded, self.interrupt)?);
        self.held.replace(Some(Rc::clone(&quic)));
        Ok(quic)
    }

    fn with<T>(&self, ask: impl Fn(&Quic) -> Result<T, Failure>) -> Result<T, Failure> {
        let clock = Stopwatch::start();
        loop {
            match self.open().and_then(|quic| ask(&quic)) {
                Err(failure) if is_lost(&failure) && clock.elapsed() < PATIENCE => {
                    self.held.replace(None);
                    self.interrupt.check()?;
                    thread::park_timeout(PAUSE);
                }
                answered => return answered,
            }
        }
    }
}

impl Control for Steady<'_> {
    fn request(&self, request: &Request) -> Result<Reply, Failure> {
        self.with(|quic| quic.request(request))
    }

    /// What was handed on is not asked again: whoever takes it knows from where to go on.
    fn stream(
        &self,
        request: &Request,
        take: &mut dyn FnMut(Reply) -> Result<Flow, Failure>,
    ) -> Result<(), Failure> {
        let streamed = self.with(|_| Ok(()));
        let streamed = streamed.and_then(|()| self.open()?.stream(request, take));
        if streamed.is_err() {
            self.held.replace(None);
        }
        streamed
    }

    fn upload(&self, file: &FileRef, path: &Path) -> Result<(), Failure> {
        self.with(|quic| quic.upload(file, path))
    }

    fn download(&self, request: &Request, folder: &Path) -> Result<Vec<FileRef>, Failure> {
        self.with(|quic| quic.download(request, folder))
    }

    /// The next request connects.
    fn again(&self) -> Result<(), Failure> {
        self.held.replace(None);
        self.interrupt.check()
    }
}
