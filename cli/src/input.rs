//! Standard input, waited for no longer than the user wants.
//!
//! A read goes on after a signal was handled, so none is begun before it can end.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;

/// How often a wait looks whether the user wants to stop.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// Waits until there is something to read, or nothing more to come; false once the user wants to stop.
pub(crate) fn comes(input: &impl AsFd, interrupt: &Interrupt) -> bool {
    while !interrupt.asked() {
        let mut watched = [PollFd::new(input, PollFlags::IN)];
        match poll(&mut watched, Some(&LOOK)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return !interrupt.asked(),
            // What cannot be waited for tells why when it is read.
            Err(_) => return true,
        }
    }
    false
}

/// Input that ends with an error once the user wants to stop.
#[derive(Debug)]
pub(crate) struct Input<'a> {
    file: File,
    interrupt: &'a Interrupt,
}

impl<'a> Input<'a> {
    /// Standard input, without a buffer.
    ///
    /// # Errors
    /// When the system refuses another handle of it.
    pub(crate) fn standard(interrupt: &'a Interrupt) -> io::Result<Self> {
        Self::of(io::stdin(), interrupt)
    }

    fn of(input: impl AsFd, interrupt: &'a Interrupt) -> io::Result<Self> {
        Ok(Self {
            file: input.as_fd().try_clone_to_owned()?.into(),
            interrupt,
        })
    }
}

impl Read for Input<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !comes(&self.file, self.interrupt) {
            return Err(io::Error::other("interrupted"));
        }
        self.file.read(buffer)
    }
}

/// Whether reading ended because the user wanted it to.
///
/// # Errors
/// [`Exit::Interrupted`] then.
pub(crate) fn ended_by_user(interrupt: &Interrupt) -> Result<(), Failure> {
    match interrupt.asked() {
        true => Err(Failure::new(Exit::Interrupted, "interrupted")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::io::Write;

    use super::*;

    #[test]
    fn a_wait_ends_when_the_user_wants_to_stop() {
        let (unread, mut write) = io::pipe().unwrap();
        let interrupt = Interrupt::default();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| comes(&unread, &interrupt));
            interrupt.ask();
            assert!(!waits.join().unwrap(), "nothing was said");
        });
        write.write_all(b"y\n").unwrap();
        // What comes after the wish to stop is not taken.
        assert!(!comes(&unread, &interrupt));
        let mut text = String::new();
        let mut input = Input::of(&unread, &interrupt).unwrap();
        assert!(input.read_to_string(&mut text).is_err());
        interrupt.forget();
        assert!(comes(&unread, &interrupt));
        drop(write);
        let mut input = Input::of(&unread, &interrupt).unwrap();
        assert_eq!(input.read_to_string(&mut text).unwrap(), 2);
    }
}
