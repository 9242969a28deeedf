//! Ctrl-C and the system's request to end: at once where nothing is at stake, else after the step at hand; the second
//! always at once.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::exit::{Exit, Failure};
use crate::remark;

/// Whether the user asked to stop.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt(Arc<State>);

#[derive(Debug, Default)]
struct State {
    asked: AtomicBool,
    /// Whether somebody looks at `asked` soon.
    looks: AtomicBool,
    /// Whether the one who looks says so itself.
    silent: AtomicBool,
    /// Whether the process is of no use without its terminal.
    at_terminal: AtomicBool,
}

impl Interrupt {
    /// Listens for Ctrl-C and for the system's request to end: at first they end the command at once. Again, in one
    /// process, begins anew.
    ///
    /// # Errors
    /// When the system refuses a handler.
    pub(crate) fn listen() -> Result<Self, Failure> {
        static HEARD: OnceLock<Interrupt> = OnceLock::new();
        if let Some(interrupt) = HEARD.get() {
            interrupt.0.looks.store(false, Ordering::SeqCst);
            interrupt.0.silent.store(false, Ordering::SeqCst);
            interrupt.forget();
            return Ok(interrupt.clone());
        }
        let interrupt = Self::default();
        let state = Arc::clone(&interrupt.0);
        let heard = ctrlc::set_handler(move || {
            let again = state.asked.swap(true, Ordering::SeqCst);
            // A terminal that hung up asks by the same signal, and nobody will ever read or write there again.
            let gone = state.at_terminal.load(Ordering::SeqCst) && !std::io::stdin().is_terminal();
            if gone {
                std::process::exit(i32::from(Exit::Interrupted.code()));
            }
            if state.silent.load(Ordering::SeqCst) {
                return;
            }
            if again || !state.looks.load(Ordering::SeqCst) {
                std::process::exit(i32::from(Exit::Interrupted.code()));
            }
            remark::say("\nstopping after this step; press Ctrl-C again to stop at once");
        });
        heard.map_err(|error| {
            Failure::new(Exit::Internal, format!("cannot listen for Ctrl-C: {error}"))
        })?;
        Ok(HEARD.get_or_init(|| interrupt).clone())
    }

    /// From here on [`Self::asked`] or [`Self::check`] is called every step, so that what is under way is saved.
    pub(crate) fn after_steps(&self) {
        self.0.looks.store(true, Ordering::SeqCst);
    }

    /// From here on [`Self::asked`] is looked at all the time, and answered by who looks: the process is never ended here.
    pub(crate) fn silently(&self) {
        self.0.silent.store(true, Ordering::SeqCst);
        self.after_steps();
    }

    /// The process ends with its terminal.
    pub(crate) fn at_terminal(&self) {
        self.0.at_terminal.store(true, Ordering::SeqCst);
    }

    /// Asks as the user would.
    pub(crate) fn ask(&self) {
        self.0.asked.store(true, Ordering::SeqCst);
    }

    /// Takes the request as met: what comes next may be asked to stop anew.
    pub(crate) fn forget(&self) {
        self.0.asked.store(false, Ordering::SeqCst);
    }

    /// From here on there is nothing to save: a request ends the command at once.
    pub(crate) fn at_once(&self) {
        self.0.looks.store(false, Ordering::SeqCst);
        if self.asked() {
            std::process::exit(i32::from(Exit::Interrupted.code()));
        }
    }

    /// Whether to stop now.
    pub(crate) fn asked(&self) -> bool {
        self.0.asked.load(Ordering::SeqCst)
    }

    /// Ends a command that has nothing to save.
    ///
    /// # Errors
    /// [`Exit::Interrupted`] when the user asked to stop.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.asked() {
            return Err(Failure::new(Exit::Interrupted, "interrupted"));
        }
        Ok(())
    }
}
