//! Limits what one principal's work costs the others: while others are active too, a principal that uses a resource for
//! long rests after each use, so that the others find it idle most of the time.
//!
//! Invariant: with `n` principals active, one that does as much as it can has the resource for at least `1 / n` of the
//! time, and one that is alone never rests. Time that the others leave unused is not redistributed: that is the price
//! of their latency.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::domain::{
    limits::{THROTTLE_ACTIVE_MS, THROTTLE_BURST_MS, THROTTLE_OTHERS_MAX, THROTTLE_REST_MS_MAX},
    principal::OwnerId,
};

/// How often active principals are recounted.
const COUNTED_FOR: Duration = Duration::from_millis(50);

/// A resource that principals use in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Connections that read.
    Reading,
    /// The commits of a lane.
    Writing,
}

/// The principals that are active, and how long each rests. Cheap to clone; clones share.
#[derive(Clone, Debug, Default)]
pub struct Throttle(Arc<Mutex<Owners>>);

#[derive(Debug, Default)]
struct Owners {
    owners: HashMap<OwnerId, Account>,
    /// How many were active when they were last counted, and when that was.
    active: usize,
    counted_at: Option<Instant>,
}

#[derive(Debug)]
struct Account {
    seen_at: Instant,
    /// When its use so far is paid for at its share of the time, per resource.
    paid: [Instant; 2],
    /// Moving average of the length of a use, per resource.
    mean: [Duration; 2],
}

/// A use in progress; it is counted when it is dropped.
#[derive(Debug)]
pub struct Usage {
    throttle: Throttle,
    owner: OwnerId,
    resource: Resource,
    /// `None` while it waits.
    began: Option<Instant>,
    /// What was counted in advance, so that many uses of one principal do not begin at once.
    counted: Duration,
}

impl Throttle {
    /// Notes that a principal has used a resource for this long.
    pub fn used(&self, owner: &OwnerId, resource: Resource, took: Duration) {
        self.count(owner, |account, others| _ = account.owe(resource, took * others));
    }

    /// Waits until a principal has rested; the use can then begin.
    pub async fn turn(&self, owner: &OwnerId, resource: Resource) -> Usage {
        let (counted, until) = self.count(owner, |account, others| {
            let until = account.rests_until(resource).filter(|_| others > 0);
            (account.owe(resource, account.mean[resource as usize] * others), until)
        });
        let usage = Usage { throttle: self.clone(), owner: owner.clone(), resource, began: None, counted };
        if let Some(until) = until {
            tokio::time::sleep_until(until).await;
        }
        usage
    }

    /// When a principal may use a resource again; `None` if it may now.
    pub fn rests_until(&self, owner: &OwnerId, resource: Resource) -> Option<Instant> {
        let mut owners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_alone = owners.active(Instant::now()) <= 1;
        owners.owners.get(owner)?.rests_until(resource).filter(|_| !is_alone)
    }

    /// Whether other principals than this one are active.
    pub fn has_company(&self, owner: &OwnerId) -> bool {
        let mut owners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = usize::from(owners.owners.contains_key(owner));
        owners.active(Instant::now()) > own
    }

    /// Marks a principal as active, and runs `work` on its account and the bounded number of other active principals.
    fn count<T>(&self, owner: &OwnerId, work: impl FnOnce(&mut Account, u32) -> T) -> T {
        let now = Instant::now();
        let mut owners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Account { seen_at: now, paid: [now; 2], mean: [Duration::ZERO; 2] };
        owners.owners.entry(owner.clone()).or_insert_with(new).seen_at = now;
        let others = u32::try_from(owners.active(now).saturating_sub(1)).unwrap_or(u32::MAX);
        work(owners.owners.entry(owner.clone()).or_insert_with(new), others.min(THROTTLE_OTHERS_MAX))
    }
}

impl Account {
    /// Adds a cost to the account, up to a bound; returns how much was added.
    fn owe(&mut self, resource: Resource, cost: Duration) -> Duration {
        let (now, paid) = (Instant::now(), &mut self.paid[resource as usize]);
        let (from, most) = ((*paid).max(now), now + Duration::from_millis(THROTTLE_BURST_MS + THROTTLE_REST_MS_MAX));
        *paid = (from + cost).min(most.max(from));
        *paid - from
    }

    fn rests_until(&self, resource: Resource) -> Option<Instant> {
        let until = self.paid[resource as usize].checked_sub(Duration::from_millis(THROTTLE_BURST_MS))?;
        (until > Instant::now()).then_some(until)
    }
}

impl Usage {
    pub fn begin(&mut self) {
        self.began = Some(Instant::now());
    }
}

impl Drop for Usage {
    fn drop(&mut self) {
        let (took, counted) = (self.began.map(|began| began.elapsed()), self.counted);
        self.throttle.count(&self.owner, |account, others| {
            let paid = &mut account.paid[self.resource as usize];
            *paid = paid.checked_sub(counted).unwrap_or(*paid);
            if let Some(took) = took {
                let mean = &mut account.mean[self.resource as usize];
                *mean = (*mean * 3 + took) / 4;
                account.owe(self.resource, took * others);
            }
        });
    }
}

impl Owners {
    /// The number of active principals, which may be up to [`COUNTED_FOR`] old.
    fn active(&mut self, now: Instant) -> usize {
        if self.counted_at.is_none_or(|at| now.duration_since(at) >= COUNTED_FOR) {
            let is_active = |account: &Account| {
                now.duration_since(account.seen_at) < Duration::from_millis(THROTTLE_ACTIVE_MS)
                    || account.paid.iter().any(|paid| *paid > now)
            };
            self.owners.retain(|_, account| is_active(account));
            self.active = self.owners.len();
            self.counted_at = Some(now);
        }
        self.active
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOOK: Duration = Duration::from_millis(40);

    fn owner(name: &str) -> OwnerId {
        OwnerId::trusted(name)
    }

    /// How long a principal rests now.
    fn rest(throttle: &Throttle, name: &str, resource: Resource) -> Duration {
        let until = throttle.rests_until(&owner(name), resource);
        until.map_or(Duration::ZERO, |until| until - Instant::now())
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_is_alone_never_rests() {
        let throttle = Throttle::default();
        for _ in 0..100 {
            throttle.used(&owner("a"), Resource::Writing, TOOK);
            assert_eq!(rest(&throttle, "a", Resource::Writing), Duration::ZERO);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_uses_much_beside_others_rests_as_long_for_each_of_them() {
        let throttle = Throttle::default();
        let burst = Duration::from_millis(THROTTLE_BURST_MS);
        for (n, name) in ["b", "c", "d", "e", "f", "g"].into_iter().enumerate() {
            throttle.used(&owner(name), Resource::Writing, Duration::ZERO);
            tokio::time::advance(COUNTED_FOR).await;
            throttle.used(&owner("a"), Resource::Writing, TOOK);
            let others = u32::try_from(n + 1).unwrap().min(THROTTLE_OTHERS_MAX);
            assert_eq!(rest(&throttle, "a", Resource::Writing) + burst, TOOK * others);
            assert_eq!(rest(&throttle, "a", Resource::Reading), Duration::ZERO);
            assert_eq!(rest(&throttle, name, Resource::Writing), Duration::ZERO);
            tokio::time::advance(TOOK * others).await;
            assert_eq!(rest(&throttle, "a", Resource::Writing), Duration::ZERO);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn uses_of_one_principal_begin_one_after_the_other_and_none_waits_for_longer_than_a_rest() {
        let (throttle, long) = (Throttle::default(), Duration::from_millis(THROTTLE_REST_MS_MAX));
        throttle.used(&owner("b"), Resource::Reading, Duration::ZERO);
        tokio::time::advance(COUNTED_FOR).await;
        let mut first = throttle.turn(&owner("a"), Resource::Reading).await;
        first.begin();
        tokio::time::advance(TOOK).await;
        drop(first);
        let mut waited = Vec::new();
        for _ in 0..4 {
            let (began, mut usage) = (Instant::now(), throttle.turn(&owner("a"), Resource::Reading).await);
            usage.begin();
            tokio::time::advance(TOOK).await;
            waited.push(began.elapsed());
            drop(usage);
        }
        // As long as the previous use, less the burst that the first had.
        assert!(waited[1..].iter().all(|waited| *waited >= TOOK * 3 / 2), "{waited:?}");
        // A turn that is abandoned while it waits costs nothing.
        let before = rest(&throttle, "a", Resource::Reading);
        let a = owner("a");
        let given_up = tokio::time::timeout(Duration::from_millis(1), throttle.turn(&a, Resource::Reading));
        assert!(given_up.await.is_err());
        assert!(rest(&throttle, "a", Resource::Reading) <= before);
        throttle.used(&owner("a"), Resource::Reading, long * 10);
        assert_eq!(rest(&throttle, "a", Resource::Reading), long);
        // What was counted in advance is refunded, and nothing else.
        let turn = throttle.turn(&a, Resource::Reading);
        assert!(tokio::time::timeout(long / 2, turn).await.is_err());
        assert!(rest(&throttle, "a", Resource::Reading) + TOOK >= long / 2);
        // A principal that is alone by now stops resting.
        tokio::time::advance(Duration::from_millis(THROTTLE_ACTIVE_MS)).await;
        throttle.used(&a, Resource::Reading, long);
        assert_eq!(rest(&throttle, "a", Resource::Reading), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn principals_that_do_nothing_are_forgotten() {
        let throttle = Throttle::default();
        for n in 0..1_000 {
            throttle.used(&owner(&n.to_string()), Resource::Reading, Duration::ZERO);
        }
        tokio::time::advance(Duration::from_millis(2 * THROTTLE_ACTIVE_MS)).await;
        throttle.used(&owner("a"), Resource::Reading, TOOK);
        assert_eq!(rest(&throttle, "a", Resource::Reading), Duration::ZERO);
        assert_eq!(throttle.0.lock().unwrap().owners.len(), 1);
        assert!(!throttle.has_company(&owner("a")));
    }
}
