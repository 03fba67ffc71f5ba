//! [`Shelf`]: artifacts as agents use them: a place for what is too large, and the pictures they look at.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures::{TryStreamExt as _, future::BoxFuture};
use sha2::{Digest as _, Sha256};

use super::LocalSpawner;
use crate::{
    agents::{
        assistant::Pictures,
        roster::Reach,
        spill::{Kept, Spill, spill_event_id},
    },
    domain::{
        artifact::{ArtifactId, ArtifactName, MediaType},
        context::RunContext,
        id::EventId,
        limits::IMAGE_BYTES_MAX,
    },
    timeline::{Timeline, artifacts::Draft},
};

/// The artifacts of this process's timeline.
#[derive(Clone, Debug)]
pub struct Shelf(Timeline);

impl Shelf {
    pub fn new(timeline: Timeline) -> Self {
        Self(timeline)
    }
}

impl Reach {
    /// What is in this process.
    pub fn local(timeline: &Timeline) -> Self {
        let shelf = Arc::new(Shelf::new(timeline.clone()));
        Self { spill: shelf.clone(), pictures: shelf, spawner: Arc::new(LocalSpawner::new(timeline.clone())) }
    }
}

impl Spill for Shelf {
    fn keep<'a>(
        &'a self,
        context: &'a RunContext,
        name: &'a str,
        media_type: &'a str,
        bytes: Bytes,
    ) -> BoxFuture<'a, Result<Kept, String>> {
        Box::pin(async move {
            let digest = hex::encode(Sha256::digest(&bytes));
            let draft = Draft {
                name: name.parse::<ArtifactName>().map_err(|rule| rule.to_string())?,
                media_type: media_type.parse::<MediaType>().map_err(|rule| rule.to_string())?,
                span_id: None,
                parent_span_id: None,
                event_id: spill_event_id(name, &digest).parse::<EventId>().ok(),
            };
            let upload = self.0.artifacts().take(&context.owner_id, bytes).await.map_err(|error| error.to_string())?;
            let kept = self.0.keep_artifact(&Arc::new(context.clone()), upload, draft).await;
            let artifact = kept.map_err(|error| error.to_string())?.artifact;
            Ok(Kept {
                artifact_id: artifact.artifact_id.to_string(),
                sha256: artifact.sha256.to_string(),
                size: artifact.size,
                media_type: artifact.media_type.to_string(),
            })
        })
    }
}

impl Pictures for Shelf {
    fn load<'a>(&'a self, context: &'a RunContext, artifact: &'a str) -> BoxFuture<'a, Option<String>> {
        Box::pin(async move {
            let id: ArtifactId = artifact.parse().ok()?;
            let found = self.0.store().artifact(&context.owner_id, id).await.ok()??;
            if found.size > IMAGE_BYTES_MAX as u64 {
                return None;
            }
            let stream = self.0.artifacts().read(&context.owner_id, &found, 0, found.size).await.ok()?;
            let bytes: Vec<u8> = stream
                .try_fold(Vec::new(), |mut all, piece| async move {
                    all.extend_from_slice(&piece);
                    Ok(all)
                })
                .await
                .ok()?;
            Some(STANDARD.encode(bytes))
        })
    }
}
