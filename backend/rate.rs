//! Rate limits per principal: an average rate, with a burst of what the rate allows in its unit of time.
//!
//! A principal within its rate may do any amount at once, and then waits accordingly longer. So a rate limit makes
//! nothing impossible, only slow.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use crate::{clock::Stopwatch, domain::principal::OwnerId};

/// Entries of principals within the rate are removed when there are more than about this many.
const IDLE_MAX: usize = 64;

/// A rate limit for each principal. Cheap to clone; clones share.
#[derive(Clone)]
pub struct Rate {
    /// The time that one costs, seconds; 0 for no limit.
    cost_s: f64,
    /// How far ahead of the rate a principal may be.
    burst: Duration,
    stopwatch: Stopwatch,
    owners: Arc<Mutex<Owners>>,
}

#[derive(Debug, Default)]
struct Owners {
    /// When everything done so far would be finished at exactly this rate.
    paid_at: HashMap<OwnerId, Duration>,
    /// The size at which entries of principals within the rate are removed.
    sweep_at: usize,
}

impl Rate {
    /// A limit of `amount` in each `time` for each principal; 0 for none.
    pub fn new(amount: usize, time: Duration, stopwatch: Stopwatch) -> Self {
        let cost_s = if amount == 0 { 0.0 } else { time.as_secs_f64() / amount as f64 };
        Self { cost_s, burst: time, stopwatch, owners: Arc::default() }
    }

    /// Counts `amount`, or returns how long to wait before the next try.
    pub fn take(&self, owner: &OwnerId, amount: usize) -> Result<(), Duration> {
        self.count(owner, amount, self.burst)
    }

    /// Counts what has been used already.
    pub fn used(&self, owner: &OwnerId, amount: usize) {
        let counted = self.count(owner, amount, Duration::MAX);
        debug_assert!(counted.is_ok(), "nobody is that far ahead");
    }

    fn count(&self, owner: &OwnerId, amount: usize, burst: Duration) -> Result<(), Duration> {
        if self.cost_s == 0.0 {
            return Ok(());
        }
        let now = (self.stopwatch)();
        // A panicking thread cannot leave the map inconsistent: every change to it is a single call.
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        if owners.paid_at.len() >= owners.sweep_at {
            owners.paid_at.retain(|_, paid_at| *paid_at > now);
            owners.sweep_at = 2 * owners.paid_at.len() + IDLE_MAX;
        }
        let paid_at = owners.paid_at.get(owner).copied().unwrap_or_default().max(now);
        if let Some(wait) = paid_at.saturating_sub(now).checked_sub(burst) {
            return Err(wait);
        }
        let cost = Duration::from_secs_f64(amount as f64 * self.cost_s);
        owners.paid_at.insert(owner.clone(), paid_at + cost);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn one_principal_waits_for_its_own_rate_alone() {
        let now_ms = Arc::new(AtomicU64::new(5_000));
        let clock = Arc::clone(&now_ms);
        let rate = Rate::new(10, SECOND, Arc::new(move || Duration::from_millis(clock.load(Ordering::SeqCst))));
        let (a, b) = (OwnerId::trusted("a"), OwnerId::trusted("b"));
        for _ in 0..10 {
            assert_eq!(rate.take(&a, 1), Ok(()));
        }
        assert_eq!(rate.take(&a, 1), Err(Duration::ZERO));
        assert_eq!(rate.take(&b, 50), Ok(()), "more than a second holds, and then a longer wait");
        assert_eq!(rate.take(&b, 1), Err(Duration::from_secs(4)));
        now_ms.store(5_100, Ordering::SeqCst);
        assert_eq!(rate.take(&a, 1), Ok(()));
        assert_eq!(rate.take(&a, 1), Err(Duration::ZERO));
        now_ms.store(9_100, Ordering::SeqCst);
        assert_eq!(rate.take(&b, 1), Ok(()));
    }

    #[test]
    fn what_was_used_is_waited_for_before_the_next() {
        let rate = Rate::new(60, Duration::from_mins(1), Arc::new(|| Duration::ZERO));
        let owner = OwnerId::trusted("a");
        assert_eq!(rate.take(&owner, 0), Ok(()));
        rate.used(&owner, 100);
        assert_eq!(rate.take(&owner, 0), Err(Duration::from_secs(40)));
    }

    #[test]
    fn principals_within_the_rate_are_forgotten() {
        let now_ms = Arc::new(AtomicU64::new(0));
        let clock = Arc::clone(&now_ms);
        let rate = Rate::new(1_000, SECOND, Arc::new(move || Duration::from_millis(clock.load(Ordering::SeqCst))));
        for n in 0..10_000 {
            rate.take(&OwnerId::trusted(&n.to_string()), 1).unwrap();
            now_ms.fetch_add(1, Ordering::SeqCst);
        }
        assert!(rate.owners.lock().unwrap().paid_at.len() <= 2 * IDLE_MAX);
    }
}
