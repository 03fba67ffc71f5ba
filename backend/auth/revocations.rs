//! Ends the streams of revoked tokens.
//!
//! One task queries the database for all tokens with open streams, once per [`POLL`], so the cost does not grow with
//! the number of streams.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::store::Store;

/// A revoked token's streams end within little more than this.
const POLL: Duration = Duration::from_secs(2);

type Live = Arc<Mutex<HashMap<Uuid, (usize, CancellationToken)>>>;

/// The tokens with open streams. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Revocations {
    live: Live,
}

/// A stream's registration of its token.
#[derive(Debug)]
pub struct Watched {
    token_id: Uuid,
    revoked: CancellationToken,
    live: Live,
}

impl Revocations {
    /// Watches a token until the returned value is dropped.
    pub fn watch(&self, token_id: Uuid) -> Watched {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = live.entry(token_id).or_insert_with(|| (0, CancellationToken::new()));
        entry.0 += 1;
        Watched { token_id, revoked: entry.1.clone(), live: Arc::clone(&self.live) }
    }

    /// Polls until `stop`.
    pub async fn run(self, store: Store, stop: CancellationToken) {
        let work = async {
            loop {
                tokio::time::sleep(POLL).await;
                let ids: Vec<Uuid> = {
                    let live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
                    live.keys().copied().collect()
                };
                if ids.is_empty() {
                    continue;
                }
                let Ok(revoked) = store.tokens().revoked(&ids).await else { continue };
                let live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
                for (_, token) in revoked.iter().filter_map(|id| live.get(id)) {
                    token.cancel();
                }
            }
        };
        stop.run_until_cancelled(Box::pin(work)).await;
    }
}

impl Watched {
    pub fn is_revoked(&self) -> bool {
        self.revoked.is_cancelled()
    }

    /// Completes when the token is revoked.
    pub async fn revoked(&self) {
        self.revoked.cancelled().await;
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = live.get_mut(&self.token_id) {
            entry.0 -= 1;
            if entry.0 == 0 {
                live.remove(&self.token_id);
            }
        }
    }
}
