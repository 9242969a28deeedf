//! Work beside training, on a thread of its own: its outcome is sent to the lead, whose bell is rung then.

use std::sync::mpsc::Sender;
use std::thread;

use crate::link::bell::Bell;

/// Starts work that may fail; `tell` makes of its outcome what is sent.
pub(super) fn start<T: Send + 'static, M: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
    tell: impl FnOnce(Result<T, String>) -> M + Clone + Send + 'static,
    told: Sender<M>,
    bell: Bell,
) {
    let (refused, inbox, ring) = (tell.clone(), told.clone(), bell.clone());
    let run = move || {
        // A lead that is gone is told nothing more: what it asked for is asked again by the next.
        let _ = told.send(tell(work()));
        bell.ring();
    };
    if let Err(error) = thread::Builder::new().name(name.into()).spawn(run) {
        let outcome = Err(format!("the system gives no thread: {error}"));
        // As above.
        let _ = inbox.send(refused(outcome));
        ring.ring();
    }
}
