//! Repricing: a server that starts with other prices than those of the stored costs recomputes all costs, in steps,
//! while it serves.

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    domain::price::Prices,
    store::{Error, Store},
};

/// Pause after a step that failed.
const PAUSE: Duration = Duration::from_secs(1);

/// Recomputes the stored costs with this server's prices.
#[derive(Clone, Debug)]
pub struct Pricing {
    store: Store,
    prices: Arc<Prices>,
}

impl Pricing {
    pub fn new(store: Store, prices: Arc<Prices>) -> Self {
        Self { store, prices }
    }

    /// Recomputes the costs if necessary, then waits for `stop`.
    pub async fn run(self, stop: CancellationToken) {
        while let Err(error) = self.follow(&stop).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "the costs of calls do not follow the prices yet");
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
        stop.cancelled().await;
    }

    async fn follow(&self, stop: &CancellationToken) -> Result<(), Error> {
        let (calls, fingerprint) = (self.store.model_calls(), self.prices.fingerprint());
        if calls.price_list().await? == fingerprint {
            return Ok(());
        }
        let (mut after, mut count) = ((Uuid::nil(), 0), 0);
        while !stop.is_cancelled() {
            let page = calls.all_after(after).await?;
            let Some(last) = page.last() else {
                calls.note_price_list(&fingerprint).await?;
                tracing::info!(calls = count, "costs computed anew with these prices");
                return Ok(());
            };
            after = (last.run_id, last.seq);
            count += page.len();
            let by = Arc::clone(&self.prices);
            // Not on the event loop: the prices that come with the program are read on first use.
            let priced = tokio::task::spawn_blocking(move || {
                let cost = |call: &crate::store::model_calls::Priced| {
                    (call.run_id, call.seq, by.cost(call.model.as_deref(), &call.usage, call.at))
                };
                page.iter().map(cost).collect::<Vec<_>>()
            });
            calls.reprice(&priced.await.map_err(|_| Error::timeout())?).await?;
        }
        Ok(())
    }
}
