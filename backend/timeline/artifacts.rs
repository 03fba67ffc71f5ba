//! Artifacts on their way into the log: uploaded files, and payloads that are too large for their event.
//!
//! The bytes are durable before the event goes to the lane, so every reader of a pointer can follow it. If the lane
//! refuses the event, or already has it, the new artifact is released; if the outcome is unknown, the sweep decides.

use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::{
    Timeline,
    emit::{Ack, EmitError},
};
use crate::{
    artifacts::{self, Artifacts, Upload},
    domain::{
        artifact::{ArtifactId, ArtifactName, Hash, MediaType, Pointer},
        context::RunContext,
        event::{EventKind, NewEvent},
        export::index::mention,
        id::{EventId, SpanId},
        interrupt::OWN_EVENT_IDS,
        json::Json,
        limits::PAYLOAD_BYTES_MAX,
        principal::OwnerId,
        run::Spec,
    },
    store::{self, artifacts::Artifact},
};

/// The kind of an input's artifact in the id of its event.
const INPUT: &str = "input";
/// Payloads of one request that are written concurrently.
const SPILL_AT_ONCE: usize = 8;

/// The description of an uploaded file.
#[derive(Clone, Debug)]
pub struct Draft {
    pub name: ArtifactName,
    pub media_type: MediaType,
    pub span_id: Option<SpanId>,
    pub parent_span_id: Option<SpanId>,
    /// Chosen by the producer; makes a retry safe.
    pub event_id: Option<EventId>,
}

/// A stored artifact.
#[derive(Clone, Debug)]
pub struct StoredArtifact {
    pub artifact: Artifact,
    /// An earlier request with the same `event_id` had stored it.
    pub already_kept: bool,
}

/// Why an artifact was not stored.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    #[error(transparent)]
    Artifact(#[from] artifacts::Error),
    #[error(transparent)]
    Emit(#[from] EmitError),
    #[error("this event_id is used by an event of another kind")]
    OtherEvent,
    #[error("a different artifact with this id exists")]
    OtherArtifact,
    #[error("the event with this event_id describes a different artifact")]
    ToldOtherwise,
}

impl From<artifacts::Error> for EmitError {
    fn from(error: artifacts::Error) -> Self {
        use artifacts::Error as E;
        match error {
            E::Database(error) => error.into(),
            E::Full(_) => Self::StorageFull,
            E::Busy(_) => Self::Busy,
            E::TooLarge | E::Slow | E::Unavailable(_) | E::Damaged => {
                tracing::error!(error = &error as &dyn std::error::Error, "payload not stored");
                Self::StorageUnavailable
            }
        }
    }
}

/// The payload of `artifact.created`.
#[derive(Serialize)]
struct Created<'a> {
    artifact_id: ArtifactId,
    name: &'a ArtifactName,
    media_type: &'a MediaType,
    size: u64,
    sha256: Hash,
    url: String,
}

/// The path an artifact is read at.
pub fn url_of(artifact: ArtifactId) -> String {
    format!("/api/artifacts/{artifact}")
}

impl Timeline {
    pub fn artifacts(&self) -> &Artifacts {
        &self.shared.artifacts
    }

    /// Stores an uploaded file and emits `artifact.created`.
    pub async fn keep_artifact(
        &self,
        context: &Arc<RunContext>,
        upload: Upload,
        draft: Draft,
    ) -> Result<StoredArtifact, KeepError> {
        let owner = &context.owner_id;
        let earlier = async |event: &EventId| {
            let found = self
                .store()
                .artifacts()
                .of_event(owner, context.run_id, event)
                .await
                .map_err(artifacts::Error::from)?;
            Ok::<_, KeepError>(found.map(|artifact| StoredArtifact { artifact, already_kept: true }))
        };
        if let Some(event_id) = &draft.event_id
            && let Some(kept) = earlier(event_id).await?
        {
            return Ok(kept);
        }
        let id = self.artifacts().new_id();
        let event_id = draft.event_id.clone().unwrap_or_else(|| own_event_id("artifact", id));
        let artifact = self.artifact(context, id, event_id.clone(), draft.name, draft.media_type, &upload);
        let kept = self.artifacts().keep(owner, vec![(upload, artifact)]).await?;
        let artifact = kept.into_iter().next().ok_or(EmitError::Broken)?;
        let event = NewEvent { span_id: draft.span_id, ..created(&artifact).parent_span(draft.parent_span_id) };
        match self.emit_run_event(context, vec![event]).await {
            Ok(ack) if ack.events.iter().any(|event| event.duplicate) => {
                self.artifacts().forget(owner, &[id]).await;
                earlier(&event_id).await?.ok_or(KeepError::OtherEvent)
            }
            Ok(_) => Ok(StoredArtifact { artifact, already_kept: false }),
            Err(error) => {
                self.give_up(context, &[id], &error).await;
                Err(error.into())
            }
        }
    }

    /// Moves an input that is too large for the log into an artifact of its run, and adds its event to `events`.
    pub(super) async fn spill_input(
        &self,
        spec: &mut Spec,
        events: &mut Vec<NewEvent>,
    ) -> Result<Option<ArtifactId>, EmitError> {
        let Some(input) = spec.fields.input.take_if(|input| input.as_str().len() > PAYLOAD_BYTES_MAX) else {
            return Ok(None);
        };
        let (id, owner) = (self.artifacts().new_id(), &spec.context.owner_id);
        let upload = self.artifacts().take(owner, Bytes::copy_from_slice(input.as_str().as_bytes())).await?;
        let (name, media_type) = (ArtifactName::trusted("input.json"), MediaType::trusted("application/json"));
        let artifact = self.artifact(&spec.context, id, own_event_id(INPUT, id), name, media_type, &upload);
        let kept = self.artifacts().keep(owner, vec![(upload, artifact)]).await?;
        let artifact = kept.into_iter().next().ok_or(EmitError::Broken)?;
        events.push(created(&artifact));
        spec.fields.input = Some(pointer(&artifact).input(&input));
        Ok(Some(id))
    }

    /// Releases the artifact of an input that is unused according to the lane's answer.
    pub(super) async fn after_input(&self, context: &RunContext, input: ArtifactId, answer: &Result<Ack, EmitError>) {
        match answer {
            Ok(ack) if ack.already_open => self.artifacts().forget(&context.owner_id, &[input]).await,
            Ok(_) => {}
            Err(error) => self.give_up(context, &[input], error).await,
        }
    }

    /// The input that a run was created with, read from its artifact if it was too large for the log.
    pub async fn whole_input(&self, context: &RunContext, input: Json) -> Result<Json, artifacts::Error> {
        let Some(id) = Pointer::of_input(&input) else { return Ok(input) };
        let found = self.store().artifacts().get(&context.owner_id, id).await?;
        let is_own = |found: &Artifact| found.run_id == context.run_id && found.event_id == own_event_id(INPUT, id);
        let Some(artifact) = found.filter(is_own) else { return Ok(input) };
        let bytes = self.artifacts().read(&context.owner_id, &artifact, 0, artifact.size).await?;
        let bytes: Vec<Bytes> = bytes.try_collect().await.map_err(artifacts::Error::from)?;
        let text = String::from_utf8(bytes.concat()).map_err(|_| artifacts::Error::Damaged)?;
        Json::parse(&text).map_err(|_| artifacts::Error::Damaged)
    }

    /// Stores the bytes of an artifact whose event was emitted elsewhere and is, or is about to be, imported.
    ///
    /// A repeat stores nothing; as long as the event is not imported, each repeat postpones the artifact's sweep.
    pub async fn import_artifact(
        &self,
        owner: &OwnerId,
        upload: Upload,
        artifact: Artifact,
    ) -> Result<StoredArtifact, KeepError> {
        let reported = self.store().events().by_key(owner, artifact.run_id, &artifact.event_id).await;
        if let Some(event) = reported.map_err(artifacts::Error::from)? {
            match mention(&event) {
                Some(mention) if artifact.is_told_by(&mention) => {}
                Some(mention) if mention.enclosed.artifact_id == artifact.artifact_id => {
                    return Err(KeepError::ToldOtherwise);
                }
                _ => return Err(KeepError::OtherEvent),
            }
        }
        let is_same = |found: &Artifact| Artifact { created_at: artifact.created_at, ..found.clone() } == artifact;
        let key = (artifact.event_id.clone(), artifact.sha256);
        let (store, run, now) = (self.store(), artifact.run_id, artifact.created_at);
        let found = store.artifacts().reuse(owner, run, &[key], now).await.map_err(artifacts::Error::from)?;
        if found.iter().any(is_same) {
            return Ok(StoredArtifact { artifact, already_kept: true });
        }
        match self.artifacts().keep(owner, vec![(upload, artifact.clone())]).await {
            Ok(_) => Ok(StoredArtifact { artifact, already_kept: false }),
            // The id is taken: by another import of the same artifact, by another artifact, or by another owner.
            Err(artifacts::Error::Database(store::Error::Conflict(_))) => {
                let found = store.artifacts().get(owner, artifact.artifact_id).await.map_err(artifacts::Error::from)?;
                let is_here = found.as_ref().is_some_and(is_same);
                if is_here {
                    Ok(StoredArtifact { artifact, already_kept: true })
                } else {
                    Err(KeepError::OtherArtifact)
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    fn artifact(
        &self,
        context: &RunContext,
        artifact_id: ArtifactId,
        event_id: EventId,
        name: ArtifactName,
        media_type: MediaType,
        upload: &Upload,
    ) -> Artifact {
        let (size, sha256, created_at) = (upload.size, upload.sha256, self.clock().now());
        Artifact { artifact_id, run_id: context.run_id, event_id, name, media_type, size, sha256, created_at }
    }

    /// Moves payloads that are too large for their event into artifacts. Returns those that are new, by event index.
    pub(super) async fn spill(
        &self,
        context: &RunContext,
        events: &mut [NewEvent],
    ) -> Result<Vec<(usize, ArtifactId)>, EmitError> {
        let due = |event: &NewEvent| Pointer::is_due(&event.event_type, &event.payload);
        let large: Vec<usize> = (0..events.len()).filter(|index| due(&events[*index])).collect();
        let mut pending = Vec::new();
        let earlier = self.earlier(context, events, &large).await?;
        for index in large {
            let event = &mut events[index];
            let found = earlier.iter().find(|(at, _)| *at == index).map(|(_, artifact)| artifact.clone());
            if let Some(artifact) = found {
                // A repeat of the request: the event points to the artifact of the first try.
                point_to(event, &artifact);
            } else {
                let id = self.artifacts().new_id();
                event.event_id.get_or_insert_with(|| own_event_id("payload", id));
                pending.push((index, id, Bytes::copy_from_slice(event.payload.as_str().as_bytes())));
            }
        }
        let take = |(index, id, bytes)| async move {
            Ok::<_, EmitError>((index, id, self.artifacts().take(&context.owner_id, bytes).await?))
        };
        let written: Vec<(usize, ArtifactId, Upload)> =
            futures::stream::iter(pending).map(take).buffered(SPILL_AT_ONCE).try_collect().await?;
        let (mut fresh, mut uploads) = (Vec::new(), Vec::new());
        for (index, id, upload) in written {
            let event_id = events[index].event_id.clone().unwrap_or_else(|| own_event_id("payload", id));
            let (name, media_type) = (ArtifactName::trusted("payload.json"), MediaType::trusted("application/json"));
            let artifact = self.artifact(context, id, event_id, name, media_type, &upload);
            fresh.push((index, id));
            uploads.push((upload, artifact));
        }
        if !uploads.is_empty() {
            let kept = self.artifacts().keep(&context.owner_id, uploads).await?;
            for ((index, _), artifact) in fresh.iter().zip(&kept) {
                point_to(&mut events[*index], artifact);
            }
        }
        Ok(fresh)
    }

    /// The artifacts left by earlier tries of these events, by event index.
    async fn earlier(
        &self,
        context: &RunContext,
        events: &[NewEvent],
        large: &[usize],
    ) -> Result<Vec<(usize, Artifact)>, EmitError> {
        let hash = |event: &NewEvent| Hash::new(Sha256::digest(event.payload.as_str().as_bytes()).into());
        let wanted: Vec<(usize, (EventId, Hash))> = large
            .iter()
            .filter_map(|index| Some((*index, (events[*index].event_id.clone()?, hash(&events[*index])))))
            .collect();
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let keys: Vec<(EventId, Hash)> = wanted.iter().map(|(_, key)| key.clone()).collect();
        let (owner, run) = (&context.owner_id, context.run_id);
        let found = self.store().artifacts().reuse(owner, run, &keys, self.clock().now()).await?;
        let of = |key: &(EventId, Hash)| found.iter().find(|found| (&found.event_id, found.sha256) == (&key.0, key.1));
        Ok(wanted.iter().filter_map(|(index, key)| Some((*index, of(key)?.clone()))).collect())
    }

    /// Releases the artifacts made for these events that are unused according to the lane's answer.
    pub(super) async fn after_spill(
        &self,
        context: &RunContext,
        fresh: &[(usize, ArtifactId)],
        answer: &Result<Ack, EmitError>,
    ) {
        let ids = |of: &dyn Fn(usize) -> bool| -> Vec<ArtifactId> {
            fresh.iter().filter(|(index, _)| of(*index)).map(|(_, id)| *id).collect()
        };
        match answer {
            Ok(ack) => {
                let unused = ids(&|index| ack.events.get(index).is_some_and(|event| event.duplicate));
                if !unused.is_empty() {
                    self.artifacts().forget(&context.owner_id, &unused).await;
                }
            }
            Err(error) => self.give_up(context, &ids(&|_| true), error).await,
        }
    }

    /// Releases artifacts whose events were not stored, if that is certain.
    async fn give_up(&self, context: &RunContext, artifacts: &[ArtifactId], error: &EmitError) {
        if !artifacts.is_empty() && *error != EmitError::OutcomeUnknown {
            self.artifacts().forget(&context.owner_id, artifacts).await;
        }
    }
}

/// The event id of an artifact whose producer chose none; it links the artifact to its event.
fn own_event_id(kind: &str, artifact: ArtifactId) -> EventId {
    EventId::trusted(&format!("{OWN_EVENT_IDS}{kind}:{artifact}"))
}

fn point_to(event: &mut NewEvent, artifact: &Artifact) {
    event.payload = pointer(artifact).payload(&event.event_type, &event.payload);
}

fn pointer(artifact: &Artifact) -> Pointer {
    Pointer {
        artifact_id: artifact.artifact_id,
        sha256: artifact.sha256,
        size: artifact.size,
        media_type: artifact.media_type.clone(),
    }
}

/// The `artifact.created` event of an artifact.
fn created(artifact: &Artifact) -> NewEvent {
    let created = Created {
        artifact_id: artifact.artifact_id,
        name: &artifact.name,
        media_type: &artifact.media_type,
        size: artifact.size,
        sha256: artifact.sha256,
        url: url_of(artifact.artifact_id),
    };
    NewEvent::new(EventKind::ArtifactCreated, Json::of(&created)).event_id(artifact.event_id.clone())
}
