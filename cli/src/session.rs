//! What commands of one process share: settings, who reads, the connection to a cluster.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use shared::config::load::Loaded;
use shared::wire::request::{FileRef, Reply, Request};

use crate::args::{ClusterArgs, Command};
use crate::clock;
use crate::cluster_file;
use crate::control::quic::{PATIENCE, Quic};
use crate::control::{Control, Flow};
use crate::desk::{Asker, Desk};
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::local::cluster::COORDINATOR;
use crate::local::state::State;
use crate::render::Output;
use crate::settings::Settings;

/// Before a connection that was lost is made anew: who ends one still answers for a moment.
const PAUSE: Duration = Duration::from_millis(500);

/// A connection that is kept while it works.
type Held = Option<(ClusterArgs, Rc<Quic>)>;

/// What does a command of the tree.
pub(crate) type Dispatch = fn(&Command, &Session<'_>) -> Result<Exit, Failure>;

/// What commands share.
pub(crate) struct Session<'a> {
    /// What the environment says.
    pub(crate) settings: &'a Settings,
    /// Who reads.
    pub(crate) output: &'a Output,
    /// Who is asked.
    pub(crate) asker: &'a dyn Asker,
    /// The cluster of commands that name none.
    own: ClusterArgs,
    dispatch: Dispatch,
    held: RefCell<Held>,
}

impl<'a> Session<'a> {
    /// One whose commands mean this cluster where they name none.
    pub(crate) fn new(
        settings: &'a Settings,
        output: &'a Output,
        asker: &'a dyn Asker,
        own: ClusterArgs,
        dispatch: Dispatch,
    ) -> Self {
        Self {
            settings,
            output,
            asker,
            own,
            dispatch,
            held: RefCell::default(),
        }
    }

    /// The same for another cluster and another who is asked.
    pub(crate) fn within<'b>(&self, asker: &'b dyn Asker, own: ClusterArgs) -> Session<'b>
    where
        'a: 'b,
    {
        Session::new(self.settings, self.output, asker, own, self.dispatch)
    }

    /// The same with another reader of results; the connection stays.
    pub(crate) fn showing<T>(&self, output: &Output, work: impl FnOnce(&Session<'_>) -> T) -> T {
        let other = Session {
            settings: self.settings,
            output,
            asker: self.asker,
            own: self.own.clone(),
            dispatch: self.dispatch,
            held: RefCell::new(self.held.take()),
        };
        let outcome = work(&other);
        self.held.replace(other.held.take());
        outcome
    }

    /// The cluster that arguments name, or the session's.
    pub(crate) fn cluster(&self, named: &ClusterArgs) -> ClusterArgs {
        let mut cluster = self.own.clone();
        if named.config.is_some() {
            cluster = named.clone();
        } else {
            cluster.set.extend(named.set.iter().cloned());
        }
        cluster
    }

    /// A connection to the cluster that arguments name.
    ///
    /// # Errors
    /// As [`cluster_file::load`] and [`Quic::connect`].
    pub(crate) fn connect(&self, named: &ClusterArgs) -> Result<Rc<Quic>, Failure> {
        let cluster = self.cluster(named);
        if let Some((held, quic)) = &*self.held.borrow()
            && *held == cluster
        {
            return Ok(Rc::clone(quic));
        }
        let interrupt = Interrupt::listen()?;
        interrupt.silently();
        self.open(cluster, &interrupt, false)
    }

    /// A new connection, which is kept; `again` where there was one that was lost.
    fn open(
        &self,
        cluster: ClusterArgs,
        interrupt: &Interrupt,
        again: bool,
    ) -> Result<Rc<Quic>, Failure> {
        let loaded = cluster_file::load(&cluster, self.settings)?;
        let quic = Rc::new(self.reach(&loaded, interrupt, again)?);
        *self.held.borrow_mut() = Some((cluster, Rc::clone(&quic)));
        Ok(quic)
    }

    /// Connects; where this machine runs the coordinator, or it was there before, one that was started again has the time to
    /// lead once more.
    fn reach(&self, loaded: &Loaded, interrupt: &Interrupt, again: bool) -> Result<Quic, Failure> {
        let state = State::of(loaded);
        let watcher = state.watcher();
        let told = |failure: Failure| match (failure.exit, &watcher, state.ended_alone()) {
            (Exit::Unreachable, Some(_), _) => {
                failure.hint(format!("its log: {}", state.log(COORDINATOR).display()))
            }
            (Exit::Unreachable, None, Some(why)) => failure.hint(why),
            _ => failure,
        };
        if watcher.is_none() && !again {
            return Quic::connect(loaded, interrupt).map_err(told);
        }
        let lease = Duration::from_secs(loaded.config.coordinator.lease_seconds);
        let waits = || {
            let runs = match &watcher {
                Some(watcher) => format!("; `spotmux up` (process {}) runs it", watcher.id),
                None => String::new(),
            };
            let most = (lease + PATIENCE * 2).as_secs();
            self.output.note(format!(
                "the coordinator does not answer{runs}: waiting for it, up to {most} s"
            ));
        };
        Quic::connect_within(loaded, interrupt, lease + PATIENCE, waits).map_err(told)
    }

    /// Does something with a cluster.
    ///
    /// # Errors
    /// As [`Self::connect`], and what it says.
    pub(crate) fn with_cluster<T>(
        &self,
        named: &ClusterArgs,
        work: impl FnOnce(&Desk<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let quic = self.connect(named)?;
        let interrupt = Interrupt::listen()?;
        interrupt.silently();
        let line = Line {
            session: self,
            cluster: self.cluster(named),
            interrupt: &interrupt,
            quic: RefCell::new(quic),
        };
        let outcome = work(&Desk {
            control: &line,
            output: self.output,
            asker: self.asker,
            interrupt: &interrupt,
            now: clock::now(),
        });
        if matches!(&outcome, Err(failure) if failure.exit == Exit::Unreachable) {
            // The next command tries anew.
            *self.held.borrow_mut() = None;
        }
        outcome
    }

    /// Runs a command of the tree.
    ///
    /// # Errors
    /// What it says.
    pub(crate) fn run(&self, command: &Command) -> Result<Exit, Failure> {
        (self.dispatch)(command, self)
    }
}

/// The line of one command to its cluster: a connection, and another one where that was lost.
struct Line<'a> {
    session: &'a Session<'a>,
    cluster: ClusterArgs,
    interrupt: &'a Interrupt,
    quic: RefCell<Rc<Quic>>,
}

impl Line<'_> {
    /// The connection of now: what is under way on one goes on there.
    fn quic(&self) -> Rc<Quic> {
        Rc::clone(&self.quic.borrow())
    }
}

impl Control for Line<'_> {
    fn request(&self, request: &Request) -> Result<Reply, Failure> {
        self.quic().request(request)
    }

    fn stream(
        &self,
        request: &Request,
        take: &mut dyn FnMut(Reply) -> Result<Flow, Failure>,
    ) -> Result<(), Failure> {
        self.quic().stream(request, take)
    }

    fn upload(&self, file: &FileRef, path: &Path) -> Result<(), Failure> {
        self.quic().upload(file, path)
    }

    fn download(&self, request: &Request, folder: &Path) -> Result<Vec<FileRef>, Failure> {
        self.quic().download(request, folder)
    }

    fn again(&self) -> Result<(), Failure> {
        *self.session.held.borrow_mut() = None;
        thread::park_timeout(PAUSE);
        self.interrupt.check()?;
        let cluster = self.cluster.clone();
        let quic = self.session.open(cluster, self.interrupt, true)?;
        self.quic.replace(quic);
        Ok(())
    }
}
