//! Ctrl-C: the first asks to stop after the step at hand, the second stops at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::exit::{Exit, Failure};

/// Whether the user asked to stop.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Listens for Ctrl-C and for the system's request to end.
    ///
    /// # Errors
    /// When the system refuses a handler.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let interrupt = Self::default();
        let flag = Arc::clone(&interrupt.0);
        let heard = ctrlc::set_handler(move || {
            if flag.swap(true, Ordering::SeqCst) {
                std::process::exit(i32::from(Exit::Interrupted.code()));
            }
            eprintln!("\nstopping after this step; press Ctrl-C again to stop at once");
        });
        heard.map_err(|error| {
            Failure::new(Exit::Internal, format!("cannot listen for Ctrl-C: {error}"))
        })?;
        Ok(interrupt)
    }

    /// Whether to stop now.
    pub(crate) fn asked(&self) -> bool {
        self.0.load(Ordering::SeqCst)
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
