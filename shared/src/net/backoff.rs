//! How long to wait before the next try.

use std::future::Future;
use std::time::Duration;

use super::fault::NetError;

/// Waits that double up to a limit, spread so that many who lost one peer do not come back as one.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    most: Duration,
    key: u64,
    tries: u32,
}

impl Backoff {
    /// From a first wait up to the longest; the key differs between processes.
    #[must_use]
    pub fn new(first: Duration, most: Duration, key: u64) -> Self {
        Self {
            first,
            most,
            key,
            tries: 0,
        }
    }

    /// The next wait: between half and all of the doubled one.
    #[must_use]
    pub fn next_wait(&mut self) -> Duration {
        let doubled = self.first.saturating_mul(1 << self.tries.min(20));
        let full = doubled.min(self.most);
        self.tries = self.tries.saturating_add(1);
        // A keyed share of 256: the same key waits the same.
        let mut mixed = self.key ^ u64::from(self.tries).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let share = u32::try_from(mixed >> 56).unwrap_or(0);
        full / 2 + full / 512 * share
    }

    /// Begins anew, after a success.
    pub fn reset(&mut self) {
        self.tries = 0;
    }

    /// Waits, then counts the try.
    #[expect(
        clippy::disallowed_methods,
        reason = "a pause between tries is time, not an event"
    )]
    pub async fn pause(&mut self) {
        tokio::time::sleep(self.next_wait()).await;
    }

    /// Tries until it works, until it cannot, or for so long.
    ///
    /// # Errors
    /// The last error.
    pub async fn retry<T, F: Future<Output = Result<T, NetError>>>(
        mut self,
        patience: Duration,
        mut attempt: impl FnMut() -> F,
    ) -> Result<T, NetError> {
        let mut last = None;
        let trying = async {
            loop {
                match attempt().await {
                    Err(error) if error.may_pass() => last = Some(error),
                    outcome => return outcome,
                }
                self.pause().await;
            }
        };
        let outcome = tokio::time::timeout(patience, trying).await;
        outcome.unwrap_or_else(|_| {
            let seconds = patience.as_secs_f64();
            Err(last.unwrap_or_else(|| NetError::Lost {
                reason: format!("no answer within {seconds:.1} s"),
            }))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_limit_and_differ_by_key() {
        let wait = |key| {
            let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(2), key);
            (0..40).map(|_| backoff.next_wait()).collect::<Vec<_>>()
        };
        let waits = wait(1);
        for (tries, wait) in waits.iter().enumerate() {
            let full = Duration::from_millis(100 << tries.min(10)).min(Duration::from_secs(2));
            assert!(*wait >= full / 2 && *wait <= full, "{tries}: {wait:?}");
        }
        assert_ne!(waits, wait(2));
        assert_eq!(waits, wait(1));
    }
}
