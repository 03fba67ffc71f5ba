//! Time, ids and randomness, passed in so that tests can be exact.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use chrono::{DateTime, TimeDelta, Utc};
use tokio::time::Instant;
use uuid::Uuid;

/// A monotonic time, counted from an arbitrary start.
pub type Stopwatch = Arc<dyn Fn() -> Duration + Send + Sync>;

/// The runtime's monotonic clock; a test that pauses tokio's time pauses it too.
pub fn monotonic() -> Stopwatch {
    let start = Instant::now();
    Arc::new(move || start.elapsed())
}

/// The source of wall-clock time. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    /// The machine's wall clock.
    #[default]
    System,
    /// The database's clock as last passed to [`Clock::follow`], advanced by the machine's monotonic clock. It is the
    /// same for all servers of a database, however wrong the machine's wall clock is or becomes.
    Database(Arc<Followed>),
    /// A clock that a test moves, microseconds since the Unix epoch.
    Manual(Arc<AtomicI64>),
}

/// The state of [`Clock::Database`]: a known time and the monotonic time since.
#[derive(Debug)]
pub struct Followed {
    began: Instant,
    /// The last known time minus what had passed since `began`; microseconds since the Unix epoch.
    micros_at_begin: AtomicI64,
}

/// Smaller differences are ignored: they come from the latency of the query.
const FOLLOWED_FROM_MICROS: u64 = 50_000;

impl Clock {
    /// A clock that begins with the machine's wall clock and follows the database from the first [`Clock::follow`].
    pub fn database() -> Self {
        let micros_at_begin = AtomicI64::new(Self::System.now().timestamp_micros());
        Self::Database(Arc::new(Followed { began: Instant::now(), micros_at_begin }))
    }

    /// Sets the time to the database's. Has no effect on clocks of other kinds.
    pub fn follow(&self, now: DateTime<Utc>) {
        let Self::Database(followed) = self else { return };
        let off = now.timestamp_micros() - self.now().timestamp_micros();
        if off.unsigned_abs() >= FOLLOWED_FROM_MICROS {
            followed.micros_at_begin.fetch_add(off, Ordering::SeqCst);
        }
    }

    /// The time a test has set; `None` means the database's own `now()`, for what must be exact.
    pub fn held(&self) -> Option<DateTime<Utc>> {
        matches!(self, Self::Manual(_)).then(|| self.now())
    }

    /// A clock that stays at `at` until [`Clock::advance`].
    pub fn manual(at: DateTime<Utc>) -> Self {
        Self::Manual(Arc::new(AtomicI64::new(at.timestamp_micros())))
    }

    /// Now, truncated to the table's microseconds, so that a live frame and its replay carry the same time.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
    pub fn now(&self) -> DateTime<Utc> {
        let micros = match self {
            Self::System => Utc::now().timestamp_micros(),
            Self::Database(followed) => {
                let passed = i64::try_from(followed.began.elapsed().as_micros()).unwrap_or(i64::MAX);
                followed.micros_at_begin.load(Ordering::SeqCst).saturating_add(passed)
            }
            Self::Manual(micros) => micros.load(Ordering::SeqCst),
        };
        DateTime::from_timestamp_micros(micros).unwrap_or(DateTime::UNIX_EPOCH)
    }

    /// Moves a manual clock; has no effect on the others.
    pub fn advance(&self, by: TimeDelta) {
        if let Self::Manual(micros) = self {
            micros.fetch_add(by.num_microseconds().unwrap_or(0), Ordering::SeqCst);
        }
    }
}

/// The source of new ids. Cheap to clone.
#[derive(Clone, Debug)]
pub struct IdSource {
    clock: Clock,
    seed: Seed,
}

#[derive(Clone, Debug)]
enum Seed {
    Random,
    Counter(Arc<AtomicU64>),
}

impl IdSource {
    /// Random ids, as a server uses them.
    pub fn random(clock: Clock) -> Self {
        Self { clock, seed: Seed::Random }
    }

    /// Ids that a test can predict.
    pub fn counting(clock: Clock) -> Self {
        Self { clock, seed: Seed::Counter(Arc::new(AtomicU64::new(1))) }
    }

    /// A new `UUIDv7` (RFC 9562 §5.7): 48 bits of milliseconds, the rest from the seed.
    pub fn uuid(&self) -> Uuid {
        let millis = self.clock.now().timestamp_millis().unsigned_abs();
        let mut tail = [0u8; 10];
        match &self.seed {
            Seed::Random => rand::fill(&mut tail[..]),
            Seed::Counter(next) => {
                tail[2..].copy_from_slice(&next.fetch_add(1, Ordering::SeqCst).to_be_bytes());
            }
        }
        uuid::Builder::from_unix_timestamp_millis(millis, &tail).into_uuid()
    }

    /// 32 unguessable bytes.
    pub fn secret(&self) -> [u8; 32] {
        let mut secret = [0u8; 32];
        match &self.seed {
            Seed::Random => rand::fill(&mut secret[..]),
            Seed::Counter(next) => {
                secret[24..].copy_from_slice(&next.fetch_add(1, Ordering::SeqCst).to_be_bytes());
            }
        }
        secret
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_follows_the_database_goes_on_from_what_it_was_told() {
        let clock = Clock::database();
        let reported = DateTime::from_timestamp_micros(1_000_000_000_000_000).unwrap();
        clock.follow(reported);
        assert_eq!(clock.now(), reported);
        tokio::time::advance(Duration::from_secs(7)).await;
        assert_eq!(clock.now(), reported + TimeDelta::seconds(7));
        // A difference within the latency of the query does not move it.
        clock.follow(reported + TimeDelta::milliseconds(6_990));
        assert_eq!(clock.now(), reported + TimeDelta::seconds(7));
        clock.follow(reported - TimeDelta::days(300));
        assert_eq!(clock.now(), reported - TimeDelta::days(300));
    }
}
