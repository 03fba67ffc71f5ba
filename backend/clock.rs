//! Time, ids and randomness, passed in so that tests can be exact.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use chrono::{DateTime, TimeDelta, Utc};
use uuid::Uuid;

/// A time that only grows, counted from any start.
pub type Stopwatch = Arc<dyn Fn() -> Duration + Send + Sync>;

/// The runtime's monotonic clock; a test that pauses it pauses this one.
pub fn monotonic() -> Stopwatch {
    let start = tokio::time::Instant::now();
    Arc::new(move || start.elapsed())
}

/// Where the time comes from. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    /// The machine's wall clock.
    #[default]
    System,
    /// A clock that a test moves by hand, microseconds since the Unix epoch.
    Manual(Arc<AtomicI64>),
}

impl Clock {
    /// A clock that stands still at `at` until [`Clock::advance`].
    pub fn manual(at: DateTime<Utc>) -> Self {
        Self::Manual(Arc::new(AtomicI64::new(at.timestamp_micros())))
    }

    /// Now, cut to the microseconds the table keeps, so that a live frame and its replay carry the same time.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
    pub fn now(&self) -> DateTime<Utc> {
        let micros = match self {
            Self::System => Utc::now().timestamp_micros(),
            Self::Manual(micros) => micros.load(Ordering::SeqCst),
        };
        DateTime::from_timestamp_micros(micros).unwrap_or(DateTime::UNIX_EPOCH)
    }

    /// Moves a manual clock; the wall clock moves by itself.
    pub fn advance(&self, by: TimeDelta) {
        if let Self::Manual(micros) = self {
            micros.fetch_add(by.num_microseconds().unwrap_or(0), Ordering::SeqCst);
        }
    }
}

/// Where new ids come from. Cheap to clone.
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
    /// Random ids, as a server makes them.
    pub fn random(clock: Clock) -> Self {
        Self { clock, seed: Seed::Random }
    }

    /// Ids that a test can foretell.
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

    /// 32 bytes nobody can guess.
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
