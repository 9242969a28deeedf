//! The processor: a thread pool that is never larger than asked for, the instruction set chosen once, and the arithmetic of
//! frozen products.

use std::fmt;
use std::sync::Arc;

use rayon::ThreadPool;
use rayon::ThreadPoolBuilder;
use rayon::iter::{IndexedParallelIterator, IntoParallelIterator, ParallelIterator};

pub(crate) mod angle;
pub(crate) mod attention;
pub(crate) mod block_sum;
pub(crate) mod disjoint;
pub(crate) mod elementwise;
pub(crate) mod expand;
pub(crate) mod head;
pub mod isa;
pub(crate) mod math;
pub(crate) mod micro;
pub(crate) mod pieces;
pub mod products;
pub(crate) mod rms_norm;
pub(crate) mod rope;
pub(crate) mod rows;
pub(crate) mod scratch;
pub(crate) mod split;
pub(crate) mod swiglu;
pub(crate) mod tiles;
pub(crate) mod transpose;

pub use isa::Isa;
pub use products::Products;

/// Says why no pool could be made.
#[derive(Debug, thiserror::Error)]
pub enum CpuError {
    /// No thread was asked for.
    #[error("the pool was asked for 0 threads: give at least 1")]
    NoThreads,
    /// The operating system refused the threads.
    #[error(
        "cannot start {threads} compute threads: {source}; ask for fewer threads or raise the process limit"
    )]
    Start {
        /// Threads asked for.
        threads: usize,
        /// What the pool reported.
        source: rayon::ThreadPoolBuildError,
    },
}

/// Holds the compute threads, the instruction set and the arithmetic of frozen products; cloning shares the threads.
#[derive(Clone)]
pub struct Cpu {
    /// `None` for one thread: work then runs where it is called.
    pool: Option<Arc<ThreadPool>>,
    threads: usize,
    isa: Isa,
    products: Products,
}

impl Cpu {
    /// Starts `threads` compute threads that use the best instruction set of this machine.
    ///
    /// # Errors
    /// [`CpuError`] when `threads` is 0 or the system refuses to start them.
    pub fn new(threads: usize) -> Result<Self, CpuError> {
        Self::with_isa(threads, Isa::best())
    }

    /// Starts `threads` compute threads that use the given instruction set.
    ///
    /// # Errors
    /// [`CpuError`] when `threads` is 0 or the system refuses to start them.
    pub fn with_isa(threads: usize, isa: Isa) -> Result<Self, CpuError> {
        let pool = match threads {
            0 => return Err(CpuError::NoThreads),
            1 => None,
            _ => {
                let pool = ThreadPoolBuilder::new()
                    .num_threads(threads)
                    .thread_name(|index| format!("kernels-{index}"))
                    .build()
                    .map_err(|source| CpuError::Start { threads, source })?;
                Some(Arc::new(pool))
            }
        };
        Ok(Self {
            pool,
            threads,
            isa,
            products: Products::default(),
        })
    }

    /// Takes another arithmetic for products with frozen weights.
    #[must_use]
    pub fn with_products(self, products: Products) -> Self {
        Self { products, ..self }
    }

    /// Returns the arithmetic of products with frozen weights.
    pub fn products(&self) -> Products {
        self.products
    }

    /// Returns the number of compute threads.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Returns the instruction set in use.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Runs `f(0)`, `f(1)`, ... `f(tasks - 1)` on the pool, in no particular order, and returns when all are done.
    ///
    /// # Panics
    /// When `f` panics.
    pub fn for_each(&self, tasks: usize, f: impl Fn(usize) + Sync) {
        match &self.pool {
            Some(pool) if tasks > 1 => pool.install(|| {
                (0..tasks).into_par_iter().with_max_len(1).for_each(&f);
            }),
            _ => (0..tasks).for_each(f),
        }
    }

    /// Runs `f` on a thread of the pool, so that the many [`Cpu::for_each`] calls inside it need no hand-over.
    ///
    /// # Panics
    /// When `f` panics.
    pub fn enter<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R {
        match &self.pool {
            Some(pool) => pool.install(f),
            None => f(),
        }
    }
}

impl fmt::Debug for Cpu {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Cpu")
            .field("threads", &self.threads)
            .field("isa", &self.isa)
            .field("products", &self.products)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn every_task_runs_once() {
        for threads in [1, 2, 3] {
            let cpu = Cpu::new(threads).unwrap();
            for tasks in [0, 1, 2, 17, 1000] {
                let counts: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
                cpu.for_each(tasks, |task| {
                    counts[task].fetch_add(1, Ordering::Relaxed);
                });
                assert!(
                    counts
                        .iter()
                        .all(|count| count.load(Ordering::Relaxed) == 1)
                );
            }
        }
    }

    #[test]
    fn tasks_may_start_tasks() {
        let cpu = Cpu::new(2).unwrap();
        let total = AtomicUsize::new(0);
        cpu.enter(|| {
            cpu.for_each(8, |_| {
                cpu.for_each(8, |_| {
                    total.fetch_add(1, Ordering::Relaxed);
                });
            });
        });
        assert_eq!(total.load(Ordering::Relaxed), 64);
    }

    #[test]
    fn zero_threads_are_refused() {
        let error = Cpu::new(0).unwrap_err();
        assert!(error.to_string().contains("at least 1"), "{error}");
    }
}
