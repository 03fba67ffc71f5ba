//! [`LocalHost`]: a run executed inside the server, directly on its timeline and store.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::TryStreamExt as _;
use sha2::{Digest as _, Sha256};

use crate::{
    artifacts,
    domain::{
        artifact::{ArtifactId, ArtifactName, MediaType},
        checkpoint::Checkpoint,
        context::{Role, RunContext},
        event::{EventKind, NewEvent},
        id::{EventId, RunId, SpanId, Title},
        interrupt::Decision,
        json::Json,
        run::{RunFields, Spec, Status},
    },
    emitters::host::{Answered, ArtifactRef, Child, ChildEnd, HostError, Hosted, Piece, RunHost, artifact_event_id},
    store::{
        Store,
        checkpoints::{NewCheckpoint, NewWrites},
        events::INTERRUPT_EVENTS,
    },
    threads::{Threads, own_thread, state_thread},
    timeline::{Timeline, artifacts::Draft},
};

/// How long an emit is retried before it fails.
const EMIT_PATIENCE: Duration = Duration::from_mins(1);
/// Pause before an emit is retried.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// One run of this process's timeline. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LocalHost {
    timeline: Timeline,
    threads: Threads,
    context: Arc<RunContext>,
    patience: Duration,
}

impl LocalHost {
    pub fn new(timeline: Timeline, threads: Threads, context: Arc<RunContext>) -> Self {
        Self { timeline, threads, context, patience: EMIT_PATIENCE }
    }

    /// Sets how long an emit is retried.
    #[must_use]
    pub fn patient(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    fn store(&self) -> &Store {
        self.timeline.store()
    }

    /// Whether the run has a thread of its own.
    fn is_alone(&self) -> bool {
        state_thread(&self.context) == own_thread(self.context.run_id)
    }

    async fn end_of(&self, run_id: RunId) -> Result<Option<ChildEnd>, HostError> {
        let Some(record) = self.store().runs().get(&self.context.owner_id, run_id).await? else { return Ok(None) };
        let head = record.head;
        let value = |json: Option<Json>| json.and_then(|json| serde_json::from_str(json.as_str()).ok());
        Ok(head.ended_at.map(|ended_at| ChildEnd {
            run_id,
            status: head.status,
            took: (ended_at - head.created_at).to_std().unwrap_or_default(),
            output: value(head.output),
            error: value(head.error),
        }))
    }
}

impl RunHost for LocalHost {
    fn context(&self) -> &Arc<RunContext> {
        &self.context
    }

    /// Retries while the database is unavailable and the process is not stopping: the events' ids ensure that each is
    /// stored once.
    fn emit(&self, events: Vec<NewEvent>) -> Hosted<'_, ()> {
        Box::pin(async move {
            let began = tokio::time::Instant::now();
            loop {
                let emitted = self.timeline.emit_run_event(&self.context, events.clone()).await;
                let Err(error) = emitted else { return Ok(()) };
                let error = HostError { is_retryable: error.is_retryable(), reason: error.to_string() };
                if !error.is_retryable || began.elapsed() >= self.patience || self.timeline.is_stopping() {
                    return Err(error.because(NOT_ACCEPTED));
                }
                tokio::time::sleep(AGAIN_AFTER).await;
            }
        })
    }

    fn status(&self) -> Hosted<'_, Option<Status>> {
        Box::pin(async move {
            let record = self.timeline.run(&self.context.owner_id, self.context.run_id).await;
            Ok(record.map_err(HostError::unavailable)?.map(|record| record.head.status))
        })
    }

    fn answer<'a>(&'a self, interrupt: &'a SpanId) -> Hosted<'a, Option<Answered>> {
        Box::pin(async move {
            let RunContext { owner_id, run_id, .. } = &*self.context;
            let known = self.store().events().interrupt(owner_id, *run_id, interrupt.as_str()).await?;
            let resolved = known.iter().find(|event| event.event_type.is(EventKind::InterruptResolved));
            Ok(resolved.and_then(|event| {
                let decision: Decision = event.payload.member("decision")?;
                let requested = known.iter().filter(|event| event.event_type.is(EventKind::InterruptRequested));
                let mut asked: Vec<Json> = requested.map(|event| event.payload.clone()).collect();
                if known.len() as i64 == INTERRUPT_EVENTS {
                    // There may be more questions than were read; an empty one matches none.
                    asked.push(Json::empty());
                }
                Some(Answered { decision, value: event.payload.member("value"), asked })
            }))
        })
    }

    fn spawn(&self, child: Child) -> Hosted<'_, RunContext> {
        Box::pin(async move {
            let parent = &self.context;
            let context = RunContext {
                run_id: child.run_id,
                root_run_id: parent.root_run_id,
                parent_run_id: Some(parent.run_id),
                owner_id: parent.owner_id.clone(),
                // A worker's state is separate from its supervisor's thread.
                thread_id: Some(own_thread(child.run_id)),
                session_id: parent.session_id.clone(),
                role: Role::Worker,
                agent: Some(child.agent),
                origin: parent.origin.clone(),
                trace_id: parent.trace_id.clone(),
            };
            let spec = Spec {
                context: context.clone(),
                fields: RunFields {
                    title: child.title.parse::<Title>().ok(),
                    input: Some(Json::of(&child.input)),
                    ..RunFields::default()
                },
                start: false,
            };
            let hash = spec.content_hash();
            match self.timeline.open_run(spec, hash).await {
                Ok(_) => Ok(context),
                Err(error) => Err(HostError { is_retryable: error.is_retryable(), reason: error.to_string() }),
            }
        })
    }

    fn ends<'a>(&'a self, runs: &'a [RunId]) -> Hosted<'a, Vec<ChildEnd>> {
        Box::pin(async move {
            let mut ends = Vec::with_capacity(runs.len());
            for run_id in runs {
                ends.extend(self.end_of(*run_id).await?);
            }
            Ok(ends)
        })
    }

    fn cancel_below<'a>(&'a self, reason: &'a str) -> Hosted<'a, ()> {
        Box::pin(async move {
            let (owner, why) = (&self.context.owner_id, Title::trusted(reason));
            let cancelled = self.timeline.cancel_below(owner, self.context.run_id, Some(&why)).await;
            cancelled.map_err(|error| HostError { is_retryable: error.is_retryable(), reason: error.to_string() })
        })
    }

    fn latest_checkpoint(&self) -> Hosted<'_, Option<Checkpoint>> {
        Box::pin(async move {
            let (owner, thread) = (&self.context.owner_id, state_thread(&self.context));
            Ok(self.store().checkpoints().latest(owner, &thread).await?)
        })
    }

    fn put_checkpoint(&self, new: NewCheckpoint) -> Hosted<'_, ()> {
        Box::pin(async move {
            let (owner, thread) = (&self.context.owner_id, state_thread(&self.context));
            self.store().checkpoints().put(owner, &thread, &new, self.timeline.clock().now()).await?;
            Ok(())
        })
    }

    fn put_writes(&self, new: NewWrites) -> Hosted<'_, ()> {
        Box::pin(async move {
            let (owner, thread) = (&self.context.owner_id, state_thread(&self.context));
            self.store().checkpoints().put_writes(owner, &thread, &new, self.timeline.clock().now()).await?;
            Ok(())
        })
    }

    fn hold_state(&self) -> Hosted<'_, ()> {
        Box::pin(async move {
            if self.is_alone() {
                self.threads.own(&self.context.owner_id, self.context.run_id).await?;
            }
            Ok(())
        })
    }

    fn drop_state(&self) -> Hosted<'_, ()> {
        Box::pin(async move {
            if self.is_alone() {
                self.threads.forget_own(&self.context.owner_id, &[self.context.run_id]).await?;
            }
            Ok(())
        })
    }

    fn keep_artifact<'a>(&'a self, name: &'a str, media_type: &'a str, bytes: Bytes) -> Hosted<'a, ArtifactRef> {
        Box::pin(async move {
            let digest = hex::encode(Sha256::digest(&bytes));
            let draft = Draft {
                name: name.parse::<ArtifactName>().map_err(HostError::refused)?,
                media_type: media_type.parse::<MediaType>().map_err(HostError::refused)?,
                span_id: None,
                parent_span_id: None,
                event_id: artifact_event_id(name, &digest).parse::<EventId>().ok(),
            };
            let owner = &self.context.owner_id;
            let upload = self.timeline.artifacts().take(owner, bytes).await.map_err(HostError::unavailable)?;
            let kept = self.timeline.keep_artifact(&self.context, upload, draft).await;
            let artifact = kept.map_err(HostError::unavailable)?.artifact;
            Ok(ArtifactRef {
                artifact_id: artifact.artifact_id.to_string(),
                sha256: artifact.sha256.to_string(),
                size: artifact.size,
                media_type: artifact.media_type.to_string(),
            })
        })
    }

    fn read_artifact<'a>(&'a self, artifact_id: &'a str, from: u64, bytes_max: usize) -> Hosted<'a, Option<Piece>> {
        Box::pin(async move {
            let (owner, Ok(id)) = (&self.context.owner_id, artifact_id.parse::<ArtifactId>()) else { return Ok(None) };
            let Some(found) = self.store().artifacts().get(owner, id).await? else { return Ok(None) };
            let (size, media_type) = (found.size, found.media_type.to_string());
            let length = size.saturating_sub(from).min(bytes_max as u64);
            if length == 0 {
                return Ok(Some(Piece { bytes: Bytes::new(), size, media_type }));
            }
            let read = async {
                let stream = self.timeline.artifacts().read(owner, &found, from, length).await?;
                Ok(stream.try_collect::<Vec<Bytes>>().await?)
            };
            match read.await {
                Ok(pieces) => Ok(Some(Piece { bytes: pieces.concat().into(), size, media_type })),
                // Permanent: a retry would not help.
                Err(artifacts::Error::Damaged) => Ok(None),
                Err(error) => Err(HostError::unavailable(error)),
            }
        })
    }
}

/// The error for events that were not stored in the log.
const NOT_ACCEPTED: &str = "the events were not accepted";
