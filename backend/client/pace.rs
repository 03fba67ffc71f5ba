//! How long to wait before trying again.
//!
//! Full jitter: a random part of a ceiling that doubles with every failure, so that a thousand readers disconnected at
//! once do not reconnect at once. The delay that the server asked for is added.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use tokio::time::Instant;

/// Ceiling of the first wait.
const CEILING_FIRST: Duration = Duration::from_millis(250);
/// Ceiling of every later wait.
const CEILING_MAX: Duration = Duration::from_secs(15);
/// Longest delay that a server may request of a reader; a wrong number must not block it for a day.
const REQUESTED_MAX: Duration = Duration::from_mins(5);

/// Randomness and time, replaceable in tests.
pub trait Pace: Send + Sync {
    /// A number from 0 up to 1.
    fn jitter(&self) -> f64;
    fn wait(&self, duration: Duration) -> BoxFuture<'static, ()>;
}

/// The pace outside tests.
pub struct SystemPace;

impl Pace for SystemPace {
    fn jitter(&self) -> f64 {
        rand::random()
    }

    fn wait(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }
}

/// Counts consecutive failures.
#[derive(Clone, Copy, Debug, Default)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Counts a failure and returns how long to wait: `requested` by the server, plus a random part of the ceiling.
    pub fn next(&mut self, requested: Option<Duration>, jitter: f64) -> Duration {
        let ceiling = CEILING_FIRST.saturating_mul(1 << self.failures.min(16)).min(CEILING_MAX);
        self.failures = self.failures.saturating_add(1);
        requested.unwrap_or_default().min(REQUESTED_MAX) + ceiling.mul_f64(jitter.clamp(0.0, 1.0))
    }

    /// Resets the count after a success.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

/// Retries an operation while it makes progress from time to time.
pub struct Retries {
    pace: Arc<dyn Pace>,
    backoff: Backoff,
    patience: Duration,
    since: Instant,
}

impl Retries {
    pub(super) fn new(pace: Arc<dyn Pace>, patience: Duration) -> Self {
        Self { pace, backoff: Backoff::default(), patience, since: Instant::now() }
    }

    /// The remaining patience.
    pub fn left(&self) -> Duration {
        self.patience.saturating_sub(self.since.elapsed())
    }

    /// To call when the last try made progress, even if it failed in the end.
    pub fn progressed(&mut self) {
        self.since = Instant::now();
        self.backoff.reset();
    }

    /// Waits before the next try, at least as long as the server asked for. Returns `false` at once if that would
    /// exceed the patience.
    pub async fn wait(&mut self, asked: Option<Duration>) -> bool {
        let wait = self.backoff.next(asked, self.pace.jitter());
        let goes_on = wait < self.left();
        if goes_on {
            self.pace.wait(wait).await;
        }
        goes_on
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ceiling_doubles_from_a_quarter_second_to_fifteen_and_starts_again_after_a_success() {
        let mut backoff = Backoff::default();
        let waits: Vec<u128> = (0..8).map(|_| backoff.next(None, 1.0).as_millis()).collect();
        assert_eq!(waits, [250, 500, 1_000, 2_000, 4_000, 8_000, 15_000, 15_000]);
        backoff.reset();
        assert_eq!(backoff.next(None, 0.5), Duration::from_millis(125));
        assert_eq!(backoff.next(None, 0.0), Duration::ZERO);
    }

    #[test]
    fn what_the_server_asked_for_is_a_floor_and_has_a_bound() {
        let requested = Some(Duration::from_secs(7));
        assert_eq!(Backoff::default().next(requested, 0.0), Duration::from_secs(7));
        assert_eq!(Backoff::default().next(requested, 1.0), Duration::from_millis(7_250));
        assert_eq!(Backoff::default().next(Some(Duration::MAX), 0.0), REQUESTED_MAX);
    }
}
