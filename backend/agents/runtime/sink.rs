//! [`TimelineSink`]: events of this process, straight into its timeline.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;

use crate::{
    domain::{context::RunContext, event::NewEvent},
    emitters::sink::{Sink, SinkError},
    timeline::Timeline,
};

/// Wait before an emission is tried again.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Emits, and tries again while the database is away: the events' ids make sure that each is stored once.
#[derive(Clone, Debug)]
pub struct TimelineSink {
    timeline: Timeline,
    patience: Duration,
}

impl TimelineSink {
    /// `patience` is how long one call may try before it gives up.
    pub fn new(timeline: Timeline, patience: Duration) -> Self {
        Self { timeline, patience }
    }
}

impl Sink for TimelineSink {
    fn emit<'a>(&'a self, context: &'a RunContext, events: Vec<NewEvent>) -> BoxFuture<'a, Result<(), SinkError>> {
        Box::pin(async move {
            let (context, began) = (Arc::new(context.clone()), tokio::time::Instant::now());
            loop {
                let emitted = self.timeline.emit_run_event(&context, events.clone()).await;
                let Err(error) = emitted else { return Ok(()) };
                if !error.is_passing() {
                    return Err(SinkError::new(error));
                }
                if began.elapsed() >= self.patience {
                    return Err(SinkError::passing(error));
                }
                tokio::time::sleep(AGAIN_AFTER).await;
            }
        })
    }
}
