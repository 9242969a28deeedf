//! Links within one process: a channel each way, bounded by credit. Values move; they are not copied.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

use super::bell::Bell;
use super::{ChunkLink, LinkError, Parcel};

/// One end.
#[derive(Debug)]
pub struct LocalLink {
    out: Option<Sender<Parcel>>,
    inward: Receiver<Parcel>,
    credits: usize,
    /// Sent and not taken, by this side and by the other.
    under_way: [Arc<AtomicUsize>; 2],
    /// The other side's.
    bell: Bell,
}

/// The two ends of a link on which each side may be `credits` chunks ahead; each gets the bell of its own stage.
///
/// # Panics
/// When there are no credits.
#[must_use]
pub fn pair(credits: usize, bells: [&Bell; 2]) -> [LocalLink; 2] {
    assert!(credits > 0, "without credit nothing moves");
    let (to_second, from_first) = channel();
    let (to_first, from_second) = channel();
    let [a, b] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    let end = |out, inward, under_way, bell: &Bell| LocalLink {
        out: Some(out),
        inward,
        credits,
        under_way,
        bell: bell.clone(),
    };
    let counts = [Arc::clone(&a), Arc::clone(&b)];
    [
        end(to_second, from_second, counts, bells[1]),
        end(to_first, from_first, [b, a], bells[0]),
    ]
}

impl ChunkLink for LocalLink {
    fn credit(&self) -> usize {
        let under_way = self.under_way[0].load(Ordering::Acquire);
        self.credits.saturating_sub(under_way)
    }

    fn send(&mut self, parcel: Parcel) -> Result<(), LinkError> {
        let out = self.out.as_ref().ok_or(LinkError::Closed)?;
        let costs = matches!(parcel, Parcel::Chunk(_));
        if costs && self.credit() == 0 {
            let credits = self.credits;
            return Err(LinkError::NoCredit { credits });
        }
        self.under_way[0].fetch_add(usize::from(costs), Ordering::AcqRel);
        out.send(parcel).map_err(|_| LinkError::Closed)?;
        self.bell.ring();
        Ok(())
    }

    fn receive(&mut self) -> Result<Option<Parcel>, LinkError> {
        match self.inward.try_recv() {
            Ok(parcel) => {
                if matches!(parcel, Parcel::Chunk(_)) {
                    self.under_way[1].fetch_sub(1, Ordering::AcqRel);
                    self.bell.ring();
                }
                Ok(Some(parcel))
            }
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(LinkError::Closed),
        }
    }

    fn close(&mut self) {
        self.out = None;
        self.bell.ring();
    }
}

impl Drop for LocalLink {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::time::Duration;

    use super::super::word::Word;
    use super::super::{Chunk, ChunkHeader, Direction};
    use super::*;

    fn chunk(micro_batch: u64) -> Parcel {
        let header = ChunkHeader {
            epoch: 1,
            micro_batch,
            direction: Direction::Forward,
            rows: 2,
            width: 1,
        };
        let values = vec![1.0, 2.0];
        Parcel::Chunk(Chunk { header, values })
    }

    #[test]
    fn taking_a_chunk_gives_its_credit_back_and_rings() {
        let bells = [Bell::default(), Bell::default()];
        let [mut a, mut b] = pair(2, [&bells[0], &bells[1]]);
        assert_eq!(b.receive(), Ok(None));
        a.send(chunk(0)).unwrap();
        a.send(chunk(1)).unwrap();
        assert_eq!((a.credit(), b.credit()), (0, 2));
        assert_eq!(a.send(chunk(2)), Err(LinkError::NoCredit { credits: 2 }));
        // Words cost nothing.
        let word = Parcel::Word(Word::Forget { text: 1 });
        a.send(word.clone()).unwrap();
        assert!(bells[1].wait(0, Duration::ZERO));
        let heard = bells[0].heard();
        assert_eq!(b.receive().unwrap(), Some(chunk(0)));
        assert!(bells[0].wait(heard, Duration::ZERO));
        assert_eq!(a.credit(), 1);
        a.send(chunk(2)).unwrap();
        // What was sent before the end still arrives.
        a.close();
        assert_eq!(b.receive().unwrap(), Some(chunk(1)));
        assert_eq!(b.receive().unwrap(), Some(word));
        assert_eq!(b.receive().unwrap(), Some(chunk(2)));
        assert_eq!(b.receive(), Err(LinkError::Closed));
        assert_eq!(a.send(chunk(3)), Err(LinkError::Closed));
        drop(b);
        assert_eq!(a.receive(), Err(LinkError::Closed));
    }

    #[test]
    fn a_bell_is_heard_once() {
        let bell = Bell::default();
        bell.ring();
        assert!(bell.wait(0, Duration::ZERO));
        assert!(!bell.wait(bell.heard(), Duration::from_millis(1)));
    }
}
