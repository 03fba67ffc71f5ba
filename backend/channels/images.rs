//! Images of messages that are too large for a run's input: artifacts of the router's run.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures::future::BoxFuture;
use serde_json::json;

use crate::{
    domain::{
        artifact::{ArtifactName, MediaType},
        context::RunContext,
        id::EventId,
        session::{ImagePlace, inbound::Image},
    },
    sessions::steps::{Images, StartError},
    timeline::{
        Timeline,
        artifacts::{Draft, url_of},
    },
};

/// Keeps images in this process's artifact store.
#[derive(Clone, Debug)]
pub struct ArtifactImages(Timeline);

impl ArtifactImages {
    pub fn new(timeline: Timeline) -> Self {
        Self(timeline)
    }
}

impl Images for ArtifactImages {
    fn keep<'a>(
        &'a self,
        router: &'a RunContext,
        name: String,
        image: &'a Image,
    ) -> BoxFuture<'a, Result<Option<ImagePlace>, StartError>> {
        Box::pin(async move {
            let other = |reason: String| StartError::Other(format!("the image was not kept: {reason}"));
            let Ok(bytes) = STANDARD.decode(&image.base64) else { return Ok(None) };
            let draft = Draft {
                name: name.parse::<ArtifactName>().map_err(|rule| other(rule.to_string()))?,
                media_type: image.media_type.as_str().parse::<MediaType>().map_err(|rule| other(rule.to_string()))?,
                span_id: None,
                parent_span_id: None,
                // Routed again, the message finds the artifact it made.
                event_id: Some(EventId::trusted("image")),
            };
            let upload = self
                .0
                .artifacts()
                .take(&router.owner_id, bytes.into())
                .await
                .map_err(|error| other(error.to_string()))?;
            let kept = self.0.keep_artifact(&Arc::new(router.clone()), upload, draft).await;
            let artifact = kept.map_err(|error| other(error.to_string()))?.artifact;
            let reference = json!({
                "artifact_id": artifact.artifact_id, "sha256": artifact.sha256, "size": artifact.size,
                "media_type": artifact.media_type,
            });
            Ok(Some(ImagePlace::Artifact { reference, url: url_of(artifact.artifact_id) }))
        })
    }
}
