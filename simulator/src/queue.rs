//! Virtual time: what happens when.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use shared::units::Micros;

/// One thing to happen.
#[derive(Debug)]
struct Posted<T> {
    at: Micros,
    number: u64,
    what: T,
}

impl<T> PartialEq for Posted<T> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl<T> Eq for Posted<T> {}

impl<T> PartialOrd for Posted<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Posted<T> {
    /// The earliest is the greatest; of two at one instant, the one posted first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

/// What will happen, and what time it is.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    posted: BinaryHeap<Posted<T>>,
    count: u64,
    now: Micros,
}

impl<T> Queue<T> {
    pub(crate) fn new() -> Self {
        Self {
            posted: BinaryHeap::new(),
            count: 0,
            now: Micros(0),
        }
    }

    pub(crate) fn now(&self) -> Micros {
        self.now
    }

    pub(crate) fn at(&mut self, at: Micros, what: T) {
        self.count += 1;
        self.posted.push(Posted {
            at: at.max(self.now),
            number: self.count,
            what,
        });
    }

    pub(crate) fn after(&mut self, delay: Micros, what: T) {
        self.at(self.now.plus(delay), what);
    }

    /// The next thing; time goes on to it.
    pub(crate) fn next(&mut self) -> Option<T> {
        let posted = self.posted.pop()?;
        self.now = posted.at;
        Some(posted.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_and_ties_keep_their_order() {
        let mut queue = Queue::new();
        queue.at(Micros(5), "b");
        queue.at(Micros(5), "c");
        queue.at(Micros(1), "a");
        assert_eq!([queue.next(), queue.next()], [Some("a"), Some("b")]);
        queue.at(Micros(0), "late");
        assert_eq!(
            [queue.next(), queue.next(), queue.next()],
            [Some("c"), Some("late"), None]
        );
        assert_eq!(queue.now(), Micros(5));
    }
}
