//! [`LocalOffice`]: the server as a run sees it that is carried out inside it.

use std::{sync::Arc, time::Duration};

use serde_json::json;

use super::{StoreFacts, TimelineSink};
use crate::{
    agents::carry::{Office, Outside, Told},
    domain::{
        context::RunContext,
        event::NewEvent,
        id::{SpanId, ThreadId, Title},
        interrupt::{Answer, Decision},
        job::started_event_id,
        json::Json,
        run::Status,
    },
    emitters::sink::{Sink, SinkError},
    engine::{
        journal::{Journal, ThreadJournal},
        visit::Facts,
    },
    threads::Threads,
    timeline::{Timeline, emit::EmitError},
};

/// How long one emission tries before the work is given back.
const LOG_PATIENCE: Duration = Duration::from_mins(1);

/// One run of this process's timeline.
#[derive(Clone, Debug)]
pub struct LocalOffice {
    pub timeline: Timeline,
    pub threads: Threads,
    pub context: Arc<RunContext>,
}

impl LocalOffice {
    async fn say(&self, event: NewEvent) -> Result<(), EmitError> {
        self.timeline.emit_run_event(&self.context, vec![event]).await.map(drop)
    }
}

impl Office for LocalOffice {
    fn sink(&self) -> Arc<dyn Sink> {
        Arc::new(TimelineSink::new(self.timeline.clone(), LOG_PATIENCE))
    }

    fn journal(&self, thread: ThreadId) -> Arc<dyn Journal> {
        Arc::new(ThreadJournal {
            store: self.timeline.store().clone(),
            clock: self.timeline.clock().clone(),
            owner: self.context.owner_id.clone(),
            thread,
        })
    }

    fn facts(&self) -> Arc<dyn Facts> {
        Arc::new(StoreFacts::new(self.timeline.store().clone(), &self.context))
    }

    fn status(&self) -> Told<'_, Option<Status>> {
        Box::pin(async move {
            let record = self.timeline.run(&self.context.owner_id, self.context.run_id).await;
            Ok(record.map_err(Outside::away)?.map(|record| record.head.status))
        })
    }

    fn begin(&self) -> Told<'_, ()> {
        Box::pin(async move {
            let started = NewEvent::new("run.started", Json::empty()).event_id(started_event_id());
            Ok(self.say(started).await.map_err(SinkError::new)?)
        })
    }

    /// The event's id is the answer's, so that it is told once whoever tells it.
    fn go_on<'a>(&'a self, interrupt: &'a SpanId) -> Told<'a, ()> {
        Box::pin(async move {
            let id = Answer::of_nobody(interrupt.clone(), Decision::Expired).resumed_event_id();
            let resumed = NewEvent::new("run.resumed", Json::of(&json!({"interrupt_id": interrupt}))).event_id(id);
            match self.say(resumed).await {
                Ok(()) | Err(EmitError::Refused(_)) => Ok(()),
                Err(error) => Err(SinkError::new(error).into()),
            }
        })
    }

    fn cancel_below<'a>(&'a self, reason: &'a str) -> Told<'a, ()> {
        Box::pin(async move {
            let (owner, why) = (&self.context.owner_id, Title::trusted(reason));
            let cancelled = self.timeline.cancel_below(owner, self.context.run_id, Some(&why)).await;
            Ok(cancelled.map_err(SinkError::new)?)
        })
    }

    fn open_own_thread(&self) -> Told<'_, ()> {
        Box::pin(async move {
            let own = self.threads.own(&self.context.owner_id, self.context.run_id).await;
            own.map(drop).map_err(Outside::away)
        })
    }

    fn drop_own_thread(&self) -> Told<'_, ()> {
        Box::pin(async move {
            let gone = self.threads.forget_own(&self.context.owner_id, self.context.run_id).await;
            gone.map_err(Outside::away)
        })
    }
}
