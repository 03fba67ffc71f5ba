//! The database resources that principals share, and how much of them each may use.

use std::time::Duration;

use super::{Error, Store, transaction::Lent};
use crate::{
    domain::{
        limits::{EVENT_PAGE_BYTES_MAX, EVENT_PAGE_SHARED_BYTES_MAX, READ_SHARE_WAIT_MS_MAX},
        principal::OwnerId,
    },
    quota::{Quota, Share},
    throttle::{Resource, Throttle},
};

impl Store {
    /// The right to one of the readers' connections; one principal never has all of them.
    pub(super) async fn share(&self, payer: &OwnerId) -> Result<Lent, Error> {
        // Unauthenticated requests do not count as active principals.
        if *payer == self.nobody {
            return Ok(Lent { _share: wait_for_share(&self.readers, payer).await?, _usage: None });
        }
        let mut usage = self.throttle.turn(payer, Resource::Reading).await;
        let share = wait_for_share(&self.readers, payer).await?;
        usage.begin();
        Ok(Lent { _share: share, _usage: Some(usage) })
    }

    /// Byte limit of a page of events: lower while other principals are active, who wait while it is read.
    pub(super) fn page_bytes(&self, owner: &OwnerId) -> usize {
        if self.throttle.has_company(owner) { EVENT_PAGE_SHARED_BYTES_MAX } else { EVENT_PAGE_BYTES_MAX }
    }

    /// The throttle of the principals' shared resources.
    pub fn throttle(&self) -> &Throttle {
        &self.throttle
    }
}

/// Waits for one unit of a quota; [`Error::Busy`] if the wait takes too long.
pub(super) async fn wait_for_share(quota: &Quota, payer: &OwnerId) -> Result<Share, Error> {
    let wait = Duration::from_millis(READ_SHARE_WAIT_MS_MAX);
    let share = tokio::time::timeout(wait, quota.take(payer, 1)).await;
    share.map_err(|_| Error::Busy)?.map_err(|_| Error::timeout())
}
