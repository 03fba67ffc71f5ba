//! A bounded resource that principals share: one bound for all of them together and one for each.
//!
//! Invariant: no principal holds more than the bound for one, so the rest is always left to the others. A waiter queues
//! behind its own principal's waiters first, and only then in the queue of all, first come, first served.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use crate::domain::principal::OwnerId;

/// Entries of principals that hold nothing are removed when there are more than about this many.
const IDLE_MAX: usize = 64;

/// Why an amount was not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// The bound for one principal is reached.
    Own,
    /// The bound for all principals is reached.
    All,
}

/// The bounds, for all and for one, and what is in use. Cheap to clone; clones share.
#[derive(Clone, Debug)]
pub struct Quota {
    all: Arc<Semaphore>,
    own_max: usize,
    owners: Arc<Mutex<Owners>>,
}

#[derive(Debug, Default)]
struct Owners {
    own: HashMap<OwnerId, Weak<Semaphore>>,
    /// The size at which entries of principals that hold nothing are removed.
    sweep_at: usize,
}

/// An amount a principal holds until this is dropped.
#[derive(Debug)]
pub struct Share {
    own: OwnedSemaphorePermit,
    all: OwnedSemaphorePermit,
}

impl Share {
    /// The amount held.
    pub fn amount(&self) -> usize {
        self.all.num_permits()
    }

    /// Merges another share of the same principal into this one.
    pub fn join(&mut self, other: Self) {
        self.own.merge(other.own);
        self.all.merge(other.all);
    }

    /// Releases what exceeds `amount`.
    pub fn shrink(&mut self, amount: usize) {
        let over = self.amount().saturating_sub(amount);
        drop((self.own.split(over), self.all.split(over)));
    }
}

impl Quota {
    /// A quota with a bound for all principals together and one for each.
    pub fn new(all_max: usize, own_max: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(all_max)), own_max, owners: Arc::default() }
    }

    /// Takes `amount` for a principal, or returns which bound is reached.
    pub fn try_take(&self, owner: &OwnerId, amount: u32) -> Result<Share, Full> {
        let own = self.own(owner).try_acquire_many_owned(amount).map_err(|_| Full::Own)?;
        let all = Arc::clone(&self.all).try_acquire_many_owned(amount).map_err(|_| Full::All)?;
        Ok(Share { own, all })
    }

    /// Waits until `amount` can be taken: forever if it exceeds a bound.
    pub async fn take(&self, owner: &OwnerId, amount: u32) -> Result<Share, AcquireError> {
        let own = self.own(owner).acquire_many_owned(amount).await?;
        let all = Arc::clone(&self.all).acquire_many_owned(amount).await?;
        Ok(Share { own, all })
    }

    /// Adds `amount` to a share, or leaves it unchanged.
    pub fn grow(&self, share: &mut Share, amount: u32) -> Result<(), Full> {
        let own = Arc::clone(share.own.semaphore()).try_acquire_many_owned(amount).map_err(|_| Full::Own)?;
        let all = Arc::clone(&self.all).try_acquire_many_owned(amount).map_err(|_| Full::All)?;
        share.join(Share { own, all });
        Ok(())
    }

    fn own(&self, owner: &OwnerId) -> Arc<Semaphore> {
        // A panicking thread cannot leave the map inconsistent: every change to it is a single call.
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = owners.own.get(owner).and_then(Weak::upgrade) {
            return own;
        }
        if owners.own.len() >= owners.sweep_at {
            owners.own.retain(|_, own| own.strong_count() > 0);
            owners.sweep_at = 2 * owners.own.len() + IDLE_MAX;
        }
        let own = Arc::new(Semaphore::new(self.own_max));
        owners.own.insert(owner.clone(), Arc::downgrade(&own));
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(name: &str) -> OwnerId {
        OwnerId::trusted(name)
    }

    #[test]
    fn one_principal_cannot_take_what_is_left_to_the_others() {
        let quota = Quota::new(5, 3);
        let mut mine = quota.try_take(&owner("a"), 2).unwrap();
        assert_eq!(quota.grow(&mut mine, 2).unwrap_err(), Full::Own);
        quota.grow(&mut mine, 1).unwrap();
        let theirs = quota.try_take(&owner("b"), 2).unwrap();
        assert_eq!(quota.try_take(&owner("c"), 1).unwrap_err(), Full::All);
        drop(mine);
        let mut mine = quota.try_take(&owner("a"), 2).unwrap();
        mine.join(quota.try_take(&owner("a"), 1).unwrap());
        mine.shrink(1);
        assert_eq!(mine.amount(), 1);
        assert!(quota.try_take(&owner("a"), 2).is_ok());
        drop(theirs);
    }

    #[test]
    fn principals_that_hold_nothing_are_forgotten() {
        let quota = Quota::new(1_000, 1);
        let held: Vec<Share> = (0..100).map(|n| quota.try_take(&owner(&n.to_string()), 1).unwrap()).collect();
        for n in 0..10_000 {
            drop(quota.try_take(&owner(&format!("idle {n}")), 1).unwrap());
        }
        assert!(quota.owners.lock().unwrap().own.len() <= 2 * (held.len() + IDLE_MAX));
        assert_eq!(quota.try_take(&owner("7"), 1).unwrap_err(), Full::Own);
    }
}
