//! Decides which principals' queries run.
//!
//! Invariants: a principal's second query never takes a place for first queries; and while a principal without a place
//! waits, a query that has used its share of the time gives up its place.

use std::time::Duration;

use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use crate::{
    domain::{
        limits::{QUERIES_MAX, QUERIES_OWN_MAX, QUERY_SHARE_MS, QUERY_WAIT_MS_MAX},
        principal::OwnerId,
    },
    quota::{Full, Quota, Share},
};

/// Number of places that also take a principal's second query.
const SECOND_PLACES: usize = 1;

/// The places of queries. Cheap to clone; clones share.
#[derive(Clone, Debug)]
pub struct Turns {
    first: Quota,
    second: Quota,
    line: watch::Sender<Line>,
}

/// Principals waiting for a place, and places promised to them.
#[derive(Debug, Default)]
struct Line {
    waiting: usize,
    /// How many of them a running query is giving its place to; counted until they have one.
    promised: usize,
}

/// Counts as waiting until this is dropped.
#[derive(Debug)]
struct Counted(watch::Sender<Line>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.send_modify(|line| {
            line.waiting -= 1;
            line.promised = line.promised.saturating_sub(1);
        });
    }
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            first: Quota::new(QUERIES_MAX - SECOND_PLACES, 1),
            second: Quota::new(SECOND_PLACES, QUERIES_OWN_MAX - 1),
            line: watch::Sender::default(),
        }
    }
}

impl Turns {
    /// A place, if one is free.
    pub fn try_take(&self, owner: &OwnerId) -> Result<Share, Full> {
        self.first.try_take(owner, 1).or_else(|full| self.second.try_take(owner, 1).map_err(|_| full))
    }

    /// Waits for a place; `None` if none is free in time.
    pub(super) async fn take(&self, owner: &OwnerId) -> Option<Share> {
        let full = match self.try_take(owner) {
            Ok(place) => return Some(place),
            Err(full) => full,
        };
        // A principal that already has a place does not displace others.
        let _counted = (full == Full::All).then(|| {
            self.line.send_modify(|line| line.waiting += 1);
            Counted(self.line.clone())
        });
        let place = async {
            tokio::select! {
                biased;
                place = self.first.take(owner, 1) => place,
                place = self.second.take(owner, 1) => place,
            }
        };
        timeout(Duration::from_millis(QUERY_WAIT_MS_MAX), place).await.ok()?.ok()
    }

    /// Returns when a query that begins now must give up its place to a waiting principal.
    pub(super) async fn is_wanted(&self) {
        sleep(Duration::from_millis(QUERY_SHARE_MS)).await;
        let mut changes = self.line.subscribe();
        loop {
            let is_one = self.line.send_if_modified(|line| {
                let is_one = line.waiting > line.promised;
                line.promised += usize::from(is_one);
                is_one
            });
            if is_one {
                return;
            }
            // Never fails: `self` has a sender.
            let _ = changes.changed().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(name: &str) -> OwnerId {
        OwnerId::trusted(name)
    }

    #[tokio::test(start_paused = true)]
    async fn two_who_ask_all_they_may_leave_a_place_to_a_third() {
        let turns = Turns::default();
        let _held = [turns.try_take(&owner("a")).unwrap(), turns.try_take(&owner("a")).unwrap()];
        let _other = turns.try_take(&owner("b")).unwrap();
        assert_eq!(turns.try_take(&owner("b")).unwrap_err(), Full::Own);
        assert!(turns.take(&owner("b")).await.is_none());
        assert!(turns.take(&owner("c")).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn as_many_make_place_as_wait_after_their_share_of_the_time() {
        let turns = Turns::default();
        let mut held = ["a", "b", "c", "d"].map(|name| Some(turns.try_take(&owner(name)).unwrap()));
        let made = std::sync::atomic::AtomicUsize::new(0);
        let (turns, made) = (&turns, &made);
        let runs = async {
            let all = held.each_mut().map(|place| async move {
                turns.is_wanted().await;
                *place = None;
                sleep(Duration::from_millis(200)).await;
                made.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            });
            futures::future::join_all(all).await;
        };
        let waits = async {
            let e = owner("e");
            let place = turns.take(&e).await;
            sleep(Duration::from_mins(1)).await;
            place
        };
        let place = tokio::select! { place = waits => place, () = runs => None };
        assert!(place.is_some());
        assert_eq!(made.load(std::sync::atomic::Ordering::Relaxed), 1);
    }
}
