//! One process of the system: whether it lives, and asking it to end.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

/// A process, told from a later one of the same number by when it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub id: u32,
    /// When it started, in ticks since the machine did; none where the system does not say.
    pub start: Option<u64>,
}

impl Process {
    /// The process that has this number now.
    pub fn of(id: u32) -> Self {
        let start = start(id);
        Self { id, start }
    }

    /// Whether it still runs.
    pub fn lives(self) -> bool {
        match (self.start, start(self.id)) {
            (Some(then), Some(now)) => then == now,
            (Some(_), None) => false,
            (None, _) => self
                .pid()
                .is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok()),
        }
    }

    /// Asks it to end; nothing when it is gone.
    pub fn terminate(self) {
        self.send(Signal::TERM);
    }

    /// Ends it; nothing when it is gone.
    pub fn kill(self) {
        self.send(Signal::KILL);
    }

    fn send(self, signal: Signal) {
        if let Some(pid) = self.pid().filter(|_| self.lives()) {
            // It may have ended meanwhile.
            let _ = kill_process(pid, signal);
        }
    }

    fn pid(self) -> Option<Pid> {
        i32::try_from(self.id).ok().and_then(Pid::from_raw)
    }
}

/// When a process started, in ticks; none when it is gone, a remainder that nobody waited for, or the system has no
/// `/proc`.
fn start(id: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    start_in(&stat)
}

fn start_in(stat: &str) -> Option<u64> {
    // The name in parentheses may hold spaces and parentheses itself.
    let after = stat.rsplit_once(')')?.1;
    let mut fields = after.split_ascii_whitespace();
    let state = fields.next()?;
    if state == "Z" || state == "X" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_is_told_from_a_later_one() {
        let own = Process::of(std::process::id());
        assert!(own.lives());
        let earlier = Process {
            start: own.start.map(|start| start - 1),
            ..own
        };
        assert!(!earlier.lives());
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let process = Process::of(child.id());
        assert!(process.lives());
        process.terminate();
        let status = child.wait().unwrap();
        assert!(!status.success() && !process.lives());
        process.kill();
    }

    #[test]
    fn what_nobody_waited_for_does_not_live() {
        let stat = "7 (a) b) Z 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 9 0 100 1 2";
        assert_eq!(start_in(stat), None);
        assert_eq!(start_in(&stat.replace(" Z ", " S ")), Some(100));
    }
}
