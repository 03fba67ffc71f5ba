//! What principals share of the database, and how much of it each may use.

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
        // Whoever has no credential is nobody's company.
        if *payer == self.nobody {
            return Ok(Lent { _share: wait_for_share(&self.readers, payer).await?, _usage: None });
        }
        let mut usage = self.throttle.turn(payer, Resource::Reading).await;
        let share = wait_for_share(&self.readers, payer).await?;
        usage.begin();
        Ok(Lent { _share: share, _usage: Some(usage) })
    }

    /// How many bytes a page of events may have: fewer while others are active, who wait while it is made.
    pub(super) fn page_bytes(&self, owner: &OwnerId) -> usize {
        if self.throttle.has_company(owner) { EVENT_PAGE_SHARED_BYTES_MAX } else { EVENT_PAGE_BYTES_MAX }
    }

    /// Who uses how much of what principals share.
    pub fn throttle(&self) -> &Throttle {
        &self.throttle
    }
}

/// One share of what principals share; [`Error::Busy`] if the wait takes too long.
pub(super) async fn wait_for_share(quota: &Quota, payer: &OwnerId) -> Result<Share, Error> {
    let wait = Duration::from_millis(READ_SHARE_WAIT_MS_MAX);
    let share = tokio::time::timeout(wait, quota.take(payer, 1)).await;
    share.map_err(|_| Error::Busy)?.map_err(|_| Error::timeout())
}
