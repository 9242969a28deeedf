//! Work beside training, on a thread of its own: its outcome is sent to the lead, whose bell is rung then. A panic is an outcome too.

use std::sync::mpsc::Sender;
use std::thread;

use shared::actor::exit::caught;

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
        let outcome = caught(work).unwrap_or_else(|panic| Err(panic.to_string()));
        let _ = told.send(tell(outcome));
        bell.ring();
    };
    if let Err(error) = thread::Builder::new().name(name.into()).spawn(run) {
        let outcome = Err(format!("the system gives no thread: {error}"));
        // As above.
        let _ = inbox.send(refused(outcome));
        ring.ring();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_panic_is_told_as_an_outcome() {
        let (told, hears) = channel();
        let work = || -> Result<u8, String> { panic!("no such file") };
        start("test", work, |outcome| outcome, told, Bell::default());
        let outcome = hears.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!(outcome, Err("panicked: no such file".to_owned()));
    }
}
