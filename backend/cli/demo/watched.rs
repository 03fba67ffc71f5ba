//! [`Watched`]: the way to the server, with somebody looking on.

use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;

use crate::{
    domain::{
        context::RunContext,
        event::NewEvent,
        id::{EventId, RunId},
    },
    emitters::sink::{RemoteSink, Sink, SinkError},
};

/// Sees every event after the server has acknowledged it.
pub(super) trait Observer: Send + Sync {
    fn saw(&self, context: &RunContext, event: &NewEvent);
}

/// A sink that tells its observers, and remembers which events the server said it has.
pub(super) struct Watched {
    sink: RemoteSink,
    observers: Vec<Arc<dyn Observer>>,
    acknowledged: Mutex<Vec<(RunId, EventId)>>,
}

impl Watched {
    pub(super) fn new(sink: RemoteSink, observers: Vec<Arc<dyn Observer>>) -> Self {
        Self { sink, observers, acknowledged: Mutex::default() }
    }

    pub(super) fn acknowledged(&self) -> Vec<(RunId, EventId)> {
        self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Sink for Watched {
    fn emit<'a>(&'a self, context: &'a RunContext, events: Vec<NewEvent>) -> BoxFuture<'a, Result<(), SinkError>> {
        Box::pin(async move {
            self.sink.emit(context, events.clone()).await?;
            for event in &events {
                if let Some(event_id) = &event.event_id {
                    let mut acknowledged = self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner);
                    acknowledged.push((context.run_id, event_id.clone()));
                }
                self.observers.iter().for_each(|observer| observer.saw(context, event));
            }
            Ok(())
        })
    }
}
