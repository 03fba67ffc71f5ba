//! [`RemoteOffice`]: the server as a run sees it that is carried out by a runner.

use std::sync::Arc;

use serde::{Deserialize, de::IgnoredAny};
use serde_json::json;

use super::{PATIENCE, RemoteFacts, RemoteJournal};
use crate::{
    agents::carry::{Office, Outside, Told},
    client::{Client, Error, Kind},
    domain::{
        context::RunContext,
        event::NewEvent,
        id::{RunId, SpanId, ThreadId},
        json::Json,
        run::Status,
    },
    emitters::sink::Sink,
    engine::{journal::Journal, visit::Facts},
    threads::own_thread,
};

/// One run of a server elsewhere.
pub struct RemoteOffice {
    client: Client,
    context: Arc<RunContext>,
    sink: Arc<dyn Sink>,
}

#[derive(Deserialize)]
struct Stands {
    run_id: RunId,
    status: Status,
}

#[derive(Deserialize)]
struct Below {
    runs: Vec<Stands>,
}

impl RemoteOffice {
    /// `sink` is the runner's for this run.
    pub fn new(client: Client, context: Arc<RunContext>, sink: Arc<dyn Sink>) -> Self {
        Self { client, context, sink }
    }

    async fn say(&self, event: NewEvent) -> Result<(), Outside> {
        Ok(self.sink.emit(&self.context, vec![event]).await?)
    }

    async fn put_ttl(&self, thread: &ThreadId, ttl_s: i64) -> Result<(), Error> {
        let (segments, body) = (["threads", thread.as_str()], json!({"ttl_s": ttl_s}));
        self.client.insist(PATIENCE, |_| self.client.put::<IgnoredAny>(&segments, &body)).await.map(drop)
    }
}

impl Office for RemoteOffice {
    fn sink(&self) -> Arc<dyn Sink> {
        Arc::clone(&self.sink)
    }

    fn journal(&self, thread: ThreadId) -> Arc<dyn Journal> {
        Arc::new(RemoteJournal::new(self.client.clone(), thread))
    }

    fn facts(&self) -> Arc<dyn Facts> {
        Arc::new(RemoteFacts::new(self.client.clone(), Arc::clone(&self.context)))
    }

    fn status(&self) -> Told<'_, Option<Status>> {
        Box::pin(async move {
            let run = self.context.run_id.to_string();
            let segments = ["runs", run.as_str()];
            match self.client.insist(PATIENCE, |_| self.client.get::<Stands>(&segments, &[])).await {
                Ok(stands) => Ok(Some(stands.status)),
                Err(error) if error.kind == Kind::NotFound => Ok(None),
                Err(error) => Err(Outside::away(error)),
            }
        })
    }

    /// The server knows of a runner's run whether that has been said.
    fn begin(&self) -> Told<'_, ()> {
        Box::pin(self.say(NewEvent::new("run.started", Json::empty())))
    }

    /// A run that goes on already does not take it; whoever looks at its status then sees that.
    fn go_on<'a>(&'a self, interrupt: &'a SpanId) -> Told<'a, ()> {
        Box::pin(self.say(NewEvent::new("run.resumed", Json::of(&json!({"interrupt_id": interrupt})))))
    }

    fn cancel_below<'a>(&'a self, reason: &'a str) -> Told<'a, ()> {
        Box::pin(async move {
            // What is cancelled is off the list, so its beginning is all there is to look at.
            let query = [
                ("parent_run_id", self.context.run_id.to_string()),
                ("status", "queued,running,waiting,interrupted".to_owned()),
            ];
            loop {
                let below = self.client.insist(PATIENCE, |_| self.client.get::<Below>(&["runs"], &query)).await;
                let below = below.map_err(Outside::away)?.runs;
                if below.is_empty() {
                    return Ok(());
                }
                for Stands { run_id, .. } in below {
                    let run = run_id.to_string();
                    match self.client.insist(PATIENCE, |_| self.client.cancel(&run, Some(reason))).await {
                        Ok(_) => {}
                        // It has ended by itself meanwhile, or is gone.
                        Err(error) if error.status == Some(409) || error.kind == Kind::NotFound => {}
                        Err(error) => return Err(Outside::away(error)),
                    }
                }
            }
        })
    }

    fn open_own_thread(&self) -> Told<'_, ()> {
        Box::pin(async move { self.put_ttl(&own_thread(self.context.run_id), 0).await.map_err(Outside::away) })
    }

    /// A token that may not delete lets the thread expire: the server removes it at its next look.
    fn drop_own_thread(&self) -> Told<'_, ()> {
        Box::pin(async move {
            let thread = own_thread(self.context.run_id);
            let segments = ["threads", thread.as_str()];
            match self.client.insist(PATIENCE, |_| self.client.delete(&segments)).await {
                Ok(()) => Ok(()),
                Err(error) if error.kind == Kind::NotFound => Ok(()),
                Err(error) if error.kind == Kind::Refused => self.put_ttl(&thread, 1).await.map_err(Outside::away),
                Err(error) => Err(Outside::away(error)),
            }
        })
    }
}
