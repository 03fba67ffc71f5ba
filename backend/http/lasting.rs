//! The lifetime of a request that waits: until its credential expires or is revoked.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::{Server, extract::Caller};
use crate::{auth::Watched, clock::Clock, domain::limits::PING_MS};

/// The credential of a request that waits.
pub(super) struct Lasting {
    expires_at: Option<DateTime<Utc>>,
    watched: Option<Watched>,
    clock: Clock,
}

impl Lasting {
    pub(super) fn of(server: &Server, caller: &Caller) -> Self {
        Self {
            expires_at: caller.expires_at(),
            watched: caller.token_id().map(|token| server.revocations.watch(token)),
            clock: server.timeline.clock().clone(),
        }
    }

    fn left(&self) -> Option<Duration> {
        self.expires_at.map(|expires_at| (expires_at - self.clock.now()).to_std().unwrap_or_default())
    }

    pub(super) fn is_over(&self) -> bool {
        self.left() == Some(Duration::ZERO) || self.watched.as_ref().is_some_and(Watched::is_revoked)
    }

    /// Completes when the credential is revoked, or when it is time to check its expiry and to ping the peer.
    pub(super) async fn pause(&self) {
        let ping = Duration::from_millis(PING_MS);
        let pause = tokio::time::sleep(self.left().map_or(ping, |left| left.min(ping)));
        match &self.watched {
            Some(watched) => tokio::select! {
                () = watched.revoked() => {}
                () = pause => {}
            },
            None => pause.await,
        }
    }
}
