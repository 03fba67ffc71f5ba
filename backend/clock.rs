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

/// A time that only grows, counted from any start.
pub type Stopwatch = Arc<dyn Fn() -> Duration + Send + Sync>;

/// The runtime's monotonic clock; a test that pauses it pauses this one.
pub fn monotonic() -> Stopwatch {
    let start = Instant::now();
    Arc::new(move || start.elapsed())
}

/// Where the time comes from. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    /// The machine's wall clock.
    #[default]
    System,
    /// The database's clock, as [`Clock::follow`] was last told it, carried on by the machine's monotonic one. However
    /// wrong the machine's wall clock is, and whoever sets it, this time is the same for all servers of a database.
    Database(Arc<Followed>),
    /// A clock that a test moves by hand, microseconds since the Unix epoch.
    Manual(Arc<AtomicI64>),
}

/// A time that was told, and a time that only grows since.
#[derive(Debug)]
pub struct Followed {
    began: Instant,
    /// The time told, less what had passed by then; microseconds since the Unix epoch.
    micros_at_begin: AtomicI64,
}

/// A smaller difference comes from the asking.
const FOLLOWED_FROM_MICROS: u64 = 50_000;

impl Clock {
    /// A clock that begins as the machine's wall clock, and follows the database once it is told its time.
    pub fn database() -> Self {
        let micros_at_begin = AtomicI64::new(Self::System.now().timestamp_micros());
        Self::Database(Arc::new(Followed { began: Instant::now(), micros_at_begin }))
    }

    /// Tells what time it is in the database. Clocks that follow nobody go on as they are.
    pub fn follow(&self, now: DateTime<Utc>) {
        let Self::Database(followed) = self else { return };
        let off = now.timestamp_micros() - self.now().timestamp_micros();
        if off.unsigned_abs() >= FOLLOWED_FROM_MICROS {
            followed.micros_at_begin.fetch_add(off, Ordering::SeqCst);
        }
    }

    /// The time that a test holds; `None` leaves it to the database's own `now()`, for what may not be off at all.
    pub fn held(&self) -> Option<DateTime<Utc>> {
        matches!(self, Self::Manual(_)).then(|| self.now())
    }

    /// A clock that stands still at `at` until [`Clock::advance`].
    pub fn manual(at: DateTime<Utc>) -> Self {
        Self::Manual(Arc::new(AtomicI64::new(at.timestamp_micros())))
    }

    /// Now, cut to the microseconds the table keeps, so that a live frame and its replay carry the same time.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_follows_the_database_goes_on_from_what_it_was_told() {
        let clock = Clock::database();
        let told = DateTime::from_timestamp_micros(1_000_000_000_000_000).unwrap();
        clock.follow(told);
        assert_eq!(clock.now(), told);
        tokio::time::advance(Duration::from_secs(7)).await;
        assert_eq!(clock.now(), told + TimeDelta::seconds(7));
        // What comes from the asking alone does not move it.
        clock.follow(told + TimeDelta::milliseconds(6_990));
        assert_eq!(clock.now(), told + TimeDelta::seconds(7));
        clock.follow(told - TimeDelta::days(300));
        assert_eq!(clock.now(), told - TimeDelta::days(300));
    }
}
