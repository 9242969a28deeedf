//! Buffers of values that were sent, for values that come.
//!
//! A fresh buffer of megabytes costs a fault a page; as much comes over a link as goes, so what went has room for what
//! comes.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Buffers that nobody uses.
pub(super) struct Pool {
    most: usize,
    idle: Mutex<Vec<Vec<f32>>>,
}

impl Pool {
    /// Keeps at most so many.
    pub(super) fn new(most: usize) -> Arc<Self> {
        let idle = Mutex::new(Vec::new());
        Arc::new(Self { most, idle })
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Vec<f32>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A buffer of this length, with any values in it.
    pub(super) fn take(&self, length: usize) -> Vec<f32> {
        let mut idle = self.idle();
        let smallest = idle
            .iter()
            .enumerate()
            .min_by_key(|(_, buffer)| buffer.capacity());
        let smallest = smallest.map(|(at, _)| at);
        let fits = idle.iter().position(|buffer| buffer.capacity() >= length);
        // Where none fits, the smallest makes room for one that will.
        let reused = fits.or(smallest).map(|at| idle.swap_remove(at));
        drop(idle);
        match reused {
            Some(mut buffer) if fits.is_some() => {
                buffer.truncate(length);
                buffer.resize(length, 0.0);
                buffer
            }
            _ => vec![0.0; length],
        }
    }

    /// Keeps a buffer, if there is room for it.
    fn keep(&self, buffer: Vec<f32>) {
        let mut idle = self.idle();
        if idle.len() < self.most && buffer.capacity() > 0 {
            idle.push(buffer);
        }
    }
}

/// Values while their bytes are under way; then their buffer is idle.
pub(super) struct Lent {
    values: Vec<f32>,
    pool: Arc<Pool>,
}

impl Lent {
    pub(super) fn new(values: Vec<f32>, pool: &Arc<Pool>) -> Self {
        let pool = Arc::clone(pool);
        Self { values, pool }
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.values)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.pool.keep(mem::take(&mut self.values));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_has_room_for_what_comes() {
        let pool = Pool::new(2);
        let values = vec![7.0; 10];
        let place = values.as_ptr();
        drop(Lent::new(values, &pool));
        let reused = pool.take(8);
        assert_eq!((reused.as_ptr(), reused.len()), (place, 8));
        drop(Lent::new(reused, &pool));
        let grown = pool.take(10);
        assert_eq!((grown.as_ptr(), grown.len()), (place, 10));
    }

    #[test]
    fn no_more_are_kept_than_may_be_and_small_ones_give_way() {
        let pool = Pool::new(2);
        for length in [1, 2, 3] {
            drop(Lent::new(vec![0.0; length], &pool));
        }
        assert_eq!(pool.idle().len(), 2);
        assert_eq!(pool.take(100).len(), 100);
        assert_eq!(pool.idle().len(), 1);
        assert_eq!(pool.idle()[0].len(), 2);
    }
}
