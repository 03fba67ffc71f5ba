//! [`RemoteHost`]: a run of a remote server, over HTTP, with its events over the runner's socket.

use std::{collections::HashMap, sync::Arc, time::Duration};

use bytes::Bytes;
use serde::{Deserialize, Serialize, de::IgnoredAny};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::{
    answers::Answers,
    bodies::{Artifact, Created, Put, PutWrites, Run, Runs},
};
use crate::{
    client::{Client, Error, Kind},
    domain::{
        checkpoint::Checkpoint,
        context::{Role, RunContext},
        event::NewEvent,
        id::{RunId, SpanId, ThreadId, Title},
        interrupt::OWN_EVENT_IDS,
        run::Status,
    },
    emitters::host::{Answered, ArtifactRef, Child, ChildEnd, HostError, Hosted, Piece, RunHost, artifact_event_id},
    runners::client::Outlet,
    store::checkpoints::{NewCheckpoint, NewWrites},
    threads::{own_thread, state_thread},
};

/// How long one request is retried before the work pauses and starts again.
pub(super) const PATIENCE: Duration = Duration::from_mins(1);
/// Runs per page.
const PAGE_RUNS: usize = 100;

/// One run of the server that `client` is connected to. The id of a checkpoint, the place of a write and the id of a
/// run are fixed before a request is sent, so each request may be repeated.
pub struct RemoteHost {
    client: Client,
    context: Arc<RunContext>,
    outlet: Outlet,
    answers: Answers,
    thread: ThreadId,
}

/// A run that has not ended.
#[derive(Deserialize)]
struct LiveRun {
    run_id: RunId,
    status: Status,
}

#[derive(Deserialize)]
struct Below {
    runs: Vec<LiveRun>,
}

impl RemoteHost {
    /// `outlet` takes the run's events.
    pub fn new(client: Client, context: Arc<RunContext>, outlet: Outlet) -> Self {
        let thread = state_thread(&context);
        Self { client, context, outlet, answers: Answers::default(), thread }
    }

    /// The path of the thread's checkpoints, followed by `rest`.
    fn checkpoints<'a>(&'a self, rest: &[&'a str]) -> Vec<&'a str> {
        [&["threads", self.thread.as_str(), "checkpoints"], rest].concat()
    }

    async fn put(&self, segments: &[&str], body: &impl Serialize) -> Result<(), Error> {
        self.client.insist(PATIENCE, |_| self.client.put::<IgnoredAny>(segments, body)).await.map(drop)
    }

    /// Sets how long the run's own thread lives, seconds; 0 for forever.
    async fn put_ttl(&self, ttl_s: i64) -> Result<(), Error> {
        self.put(&["threads", self.thread.as_str()], &json!({"ttl_s": ttl_s})).await
    }

    fn is_alone(&self) -> bool {
        self.thread == own_thread(self.context.run_id)
    }

    /// The wanted runs below this one. The newest are listed first, and those are the ones it waits for.
    async fn below(&self, wanted: &[RunId]) -> Result<HashMap<RunId, Run>, Error> {
        let (mut found, mut cursor) = (HashMap::new(), None::<String>);
        loop {
            let mut query = vec![("parent_run_id", self.context.run_id.to_string()), ("role", Role::any())];
            query.push(("limit", PAGE_RUNS.to_string()));
            query.extend(cursor.map(|cursor| ("cursor", cursor)));
            let page: Runs = self.client.insist(PATIENCE, |_| self.client.get(&["runs"], &query)).await?;
            found.extend(page.runs.into_iter().map(|run| (run.run_id, run)).filter(|(id, _)| wanted.contains(id)));
            cursor = page.next_cursor;
            if cursor.is_none() || found.len() == wanted.len() {
                return Ok(found);
            }
        }
    }

    async fn run<T: serde::de::DeserializeOwned>(&self, run: RunId) -> Result<Option<T>, Error> {
        let run = run.to_string();
        let segments = ["runs", run.as_str()];
        found(self.client.insist(PATIENCE, |_| self.client.get(&segments, &[])).await)
    }
}

impl RunHost for RemoteHost {
    fn context(&self) -> &Arc<RunContext> {
        &self.context
    }

    fn emit(&self, events: Vec<NewEvent>) -> Hosted<'_, ()> {
        // Ids of the server's own form are assigned by the server.
        let with_id = |event: NewEvent| {
            let is_own = event.event_id.as_ref().is_some_and(|id| id.as_str().starts_with(OWN_EVENT_IDS));
            if is_own { NewEvent { event_id: None, ..event } } else { event }
        };
        Box::pin(async move {
            let emitted = self.outlet.emit(events.into_iter().map(with_id).collect()).await;
            emitted.map_err(|error| error.because("the events were not accepted"))
        })
    }

    fn status(&self) -> Hosted<'_, Option<Status>> {
        Box::pin(async move { Ok(self.run::<LiveRun>(self.context.run_id).await?.map(|run| run.status)) })
    }

    fn answer<'a>(&'a self, interrupt: &'a SpanId) -> Hosted<'a, Option<Answered>> {
        Box::pin(async move { Ok(self.answers.get(&self.client, self.context.run_id, interrupt).await?) })
    }

    fn spawn(&self, child: Child) -> Hosted<'_, RunContext> {
        Box::pin(async move {
            let body = json!({
                "run_id": child.run_id, "parent_run_id": self.context.run_id, "role": Role::Worker.as_str(),
                "agent": child.agent, "title": child.title, "input": child.input,
                "thread_id": own_thread(child.run_id), "start": false,
            });
            let made = self.client.insist(PATIENCE, |_| self.client.post::<Created>(&["runs"], &body)).await?;
            let Created { run_id, root_run_id, thread_id, session_id, agent } = made;
            let (parent_run_id, role) = (Some(self.context.run_id), Role::Worker);
            let context = (*self.context).clone();
            Ok(RunContext { run_id, root_run_id, parent_run_id, thread_id, session_id, role, agent, ..context })
        })
    }

    fn ends<'a>(&'a self, runs: &'a [RunId]) -> Hosted<'a, Vec<ChildEnd>> {
        Box::pin(async move {
            let mut below = self.below(runs).await?;
            let mut ends = Vec::with_capacity(runs.len());
            for id in runs {
                let run = match below.remove(id) {
                    Some(run) => Some(run),
                    None => self.run(*id).await?,
                };
                ends.extend(run.and_then(Run::end));
            }
            Ok(ends)
        })
    }

    fn cancel_below<'a>(&'a self, reason: &'a str) -> Hosted<'a, ()> {
        Box::pin(async move {
            // Cancelled runs leave the list, so its first page is enough.
            let query = [
                ("parent_run_id", self.context.run_id.to_string()),
                ("role", Role::any()),
                ("status", "queued,running,waiting,interrupted".to_owned()),
            ];
            loop {
                let below = self.client.insist(PATIENCE, |_| self.client.get::<Below>(&["runs"], &query)).await?.runs;
                if below.is_empty() {
                    return Ok(());
                }
                for LiveRun { run_id, .. } in below {
                    let run = run_id.to_string();
                    match self.client.insist(PATIENCE, |_| self.client.cancel(&run, Some(Title::trusted(reason)))).await
                    {
                        Ok(_) => {}
                        // It has ended meanwhile, or no longer exists.
                        Err(error) if error.status == Some(409) || error.kind == Kind::NotFound => {}
                        Err(error) => return Err(HostError::unavailable(error)),
                    }
                }
            }
        })
    }

    fn latest_checkpoint(&self) -> Hosted<'_, Option<Checkpoint>> {
        Box::pin(async move {
            let segments = self.checkpoints(&["latest"]);
            Ok(found(self.client.insist(PATIENCE, |_| self.client.get(&segments, &[])).await)?)
        })
    }

    fn put_checkpoint(&self, new: NewCheckpoint) -> Hosted<'_, ()> {
        Box::pin(async move { Ok(self.put(&self.checkpoints(&[new.checkpoint_id.as_str()]), &Put::from(&new)).await?) })
    }

    fn put_writes(&self, new: NewWrites) -> Hosted<'_, ()> {
        Box::pin(async move {
            let segments = self.checkpoints(&[new.checkpoint_id.as_str(), "writes"]);
            Ok(self.put(&segments, &PutWrites::from(&new)).await?)
        })
    }

    fn hold_state(&self) -> Hosted<'_, ()> {
        Box::pin(async move { if self.is_alone() { Ok(self.put_ttl(0).await?) } else { Ok(()) } })
    }

    /// The server does the same when the run's job ends, and may be first. A token that may not delete lets the thread
    /// expire: the server removes it at its next check.
    fn drop_state(&self) -> Hosted<'_, ()> {
        Box::pin(async move {
            if !self.is_alone() {
                return Ok(());
            }
            let segments = ["threads", self.thread.as_str()];
            let gone = match self.client.insist(PATIENCE, |_| self.client.delete(&segments)).await {
                Err(error) if error.kind == Kind::Refused => self.put_ttl(1).await,
                gone => gone,
            };
            Ok(found(gone).map(drop)?)
        })
    }

    fn keep_artifact<'a>(&'a self, name: &'a str, media_type: &'a str, bytes: Bytes) -> Hosted<'a, ArtifactRef> {
        Box::pin(async move {
            let (run, digest) = (self.context.run_id.to_string(), hex::encode(Sha256::digest(&bytes)));
            let event_id = artifact_event_id(name, &digest);
            let query = [("name", name), ("event_id", event_id.as_str())];
            let uploading = |_| self.client.upload(&run, &query, media_type, bytes.clone());
            let artifact = self.client.insist(PATIENCE, uploading).await?;
            let Artifact { artifact_id, sha256, size, media_type } =
                serde_json::from_value(artifact).map_err(|error| HostError::refused(error).because("the answer"))?;
            if sha256 != digest {
                return Err(HostError::refused("the server stored different bytes from those sent"));
            }
            Ok(ArtifactRef { artifact_id: artifact_id.to_string(), sha256, size, media_type })
        })
    }

    /// Rejects a whole artifact whose hash differs; a part of one cannot be checked.
    fn read_artifact<'a>(&'a self, artifact_id: &'a str, from: u64, bytes_max: usize) -> Hosted<'a, Option<Piece>> {
        Box::pin(async move {
            let reading = |_| self.client.download(artifact_id, from, bytes_max);
            let Some(part) = found(self.client.insist(PATIENCE, reading).await)? else { return Ok(None) };
            if part.bytes.len() as u64 == part.size && hex::encode(Sha256::digest(&part.bytes)) != part.sha256 {
                return Err(HostError::unavailable("the downloaded bytes do not match the artifact's hash"));
            }
            Ok(Some(Piece { bytes: part.bytes, size: part.size, media_type: part.media_type }))
        })
    }
}

/// Maps "not found" to `None`.
fn found<T>(answer: Result<T, Error>) -> Result<Option<T>, Error> {
    match answer {
        Ok(there) => Ok(Some(there)),
        Err(error) if error.kind == Kind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

impl From<Error> for HostError {
    /// An error about the request itself is permanent; every other one concerns the server, the connection or the
    /// token, and not the run.
    fn from(error: Error) -> Self {
        let is_retryable = !matches!(error.kind, Kind::Invalid | Kind::Unusable);
        Self { is_retryable, reason: error.to_string() }
    }
}
