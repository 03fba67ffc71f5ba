//! The task that fills the search index.
//!
//! It works behind the log: no emit waits for it, and while events are emitted it rests seven times as long as it
//! worked. Its lag is in `/metrics` and in every answer to a search. Several servers on one database take turns.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    domain::limits::{INDEXER_LOOK_MS, INDEXER_REST, INDEXER_REST_MS_MAX},
    store::{
        self,
        search::{Indexed, Indexing},
    },
    timeline::Timeline,
};

/// A handle on the indexer. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Indexer {
    pub timeline: Timeline,
    /// Pause between two checks of a fully indexed log, and after a failure.
    pub poll: Duration,
}

impl Indexer {
    /// Indexes until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let work = async {
            let (mut indexing, mut done, mut due) = (None, None, Instant::now());
            loop {
                tokio::time::sleep(self.poll).await;
                // Without new events there is nothing to do, but it checks now and then, because the index may have
                // been emptied.
                let tail = self.timeline.tail();
                if done.as_ref() == Some(&tail) && Instant::now() < due {
                    continue;
                }
                due = Instant::now() + Duration::from_millis(INDEXER_LOOK_MS);
                done = Some(tail);
                if let Err(error) = Box::pin(self.follow(&mut indexing)).await {
                    (indexing, done) = (None, None);
                    tracing::warn!(error = &error as &dyn std::error::Error, "the search index is not filled");
                }
            }
        };
        stop.run_until_cancelled(work).await;
    }

    /// Indexes until nothing is left.
    async fn follow(&self, indexing: &mut Option<Indexing>) -> Result<(), store::Error> {
        let mut connection = match indexing.take() {
            Some(connection) => connection,
            None => self.timeline.store().indexing().await?,
        };
        let lanes = connection.lanes().await?;
        let mut before = i64::MAX;
        loop {
            let (began, now) = (Instant::now(), self.timeline.clock().now());
            let mut steps = Vec::new();
            for lane in &lanes {
                steps.push(connection.step(*lane, now).await?);
            }
            self.report(&steps);
            let head: i64 = steps.iter().map(|step| step.head).sum();
            if steps.iter().all(|step| step.position >= step.head) {
                self.timeline.store().note_searched(now);
                break;
            }
            if head > before {
                let rest = (began.elapsed() * INDEXER_REST).min(Duration::from_millis(INDEXER_REST_MS_MAX));
                tokio::time::sleep(rest).await;
            }
            before = head;
        }
        *indexing = Some(connection);
        Ok(())
    }

    /// Reports the progress to the metrics.
    fn report(&self, steps: &[Indexed]) {
        let events: u64 = steps.iter().map(|step| step.events).sum();
        metrics::counter!("runreel_search_indexed_events_total").increment(events);
        let left: i64 = steps.iter().map(|step| (step.head - step.position).max(0)).sum();
        metrics::gauge!("runreel_search_lag_events").set(left as f64);
        if let Some(up_to) = steps.iter().map(|step| step.up_to).min().flatten() {
            let lag_ms = if left == 0 { 0 } else { (self.timeline.clock().now() - up_to).num_milliseconds().max(0) };
            metrics::gauge!("runreel_search_lag_seconds").set(lag_ms as f64 / 1_000.0);
        }
    }
}
