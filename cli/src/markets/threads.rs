//! Pieces of work on threads, their results in order.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Runs tasks on at most so many threads and returns what they gave, in the order of the tasks.
pub(crate) fn parallel<T: Send>(
    tasks: usize,
    threads: usize,
    work: impl Fn(usize) -> T + Sync,
) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::with_capacity(tasks));
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, tasks.max(1)) {
            scope.spawn(|| {
                loop {
                    let task = next.fetch_add(1, Ordering::Relaxed);
                    if task >= tasks {
                        break;
                    }
                    let result = work(task);
                    let mut done = results.lock().unwrap_or_else(PoisonError::into_inner);
                    done.push((task, result));
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(task, _)| *task);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_stand_in_the_order_of_the_tasks() {
        for threads in [0, 1, 3, 64] {
            let squares = parallel(9, threads, |task| task * task);
            assert_eq!(squares, [0, 1, 4, 9, 16, 25, 36, 49, 64]);
        }
        assert_eq!(parallel(0, 4, |task| task), [0usize; 0]);
    }
}
