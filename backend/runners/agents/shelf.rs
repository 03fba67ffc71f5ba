//! [`RemoteShelf`]: artifacts of a server elsewhere, as agents use them.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures::future::BoxFuture;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::PATIENCE;
use crate::{
    agents::{
        assistant::Pictures,
        spill::{Kept, Spill, spill_event_id},
    },
    client::Client,
    domain::{context::RunContext, limits::IMAGE_BYTES_MAX},
};

/// Puts and gets artifacts over HTTP, and believes no bytes whose hash is another.
#[derive(Clone, Debug)]
pub struct RemoteShelf(Client);

/// An artifact as the server tells of it.
#[derive(Deserialize)]
struct Artifact {
    artifact_id: uuid::Uuid,
    sha256: String,
    size: u64,
    media_type: String,
}

impl RemoteShelf {
    pub fn new(client: Client) -> Self {
        Self(client)
    }
}

impl Spill for RemoteShelf {
    fn keep<'a>(
        &'a self,
        context: &'a RunContext,
        name: &'a str,
        media_type: &'a str,
        bytes: Bytes,
    ) -> BoxFuture<'a, Result<Kept, String>> {
        Box::pin(async move {
            let (run, digest) = (context.run_id.to_string(), hex::encode(Sha256::digest(&bytes)));
            let event_id = spill_event_id(name, &digest);
            let query = [("name", name), ("event_id", event_id.as_str())];
            let uploading = |_| self.0.upload(&run, &query, media_type, bytes.clone());
            let told = self.0.insist(PATIENCE, uploading).await.map_err(|error| error.to_string())?;
            let kept: Artifact = serde_json::from_value(told).map_err(|error| format!("the answer: {error}"))?;
            if kept.sha256 != digest {
                return Err("the server kept other bytes than it was sent".to_owned());
            }
            let Artifact { artifact_id, sha256, size, media_type } = kept;
            Ok(Kept { artifact_id: artifact_id.to_string(), sha256, size, media_type })
        })
    }
}

impl Pictures for RemoteShelf {
    fn load<'a>(&'a self, _: &'a RunContext, artifact: &'a str) -> BoxFuture<'a, Option<String>> {
        Box::pin(async move {
            let loading = |_| self.0.download(artifact, IMAGE_BYTES_MAX);
            let (bytes, sha256) = self.0.insist(PATIENCE, loading).await.ok()??;
            let is_whole = hex::encode(Sha256::digest(&bytes)) == sha256;
            is_whole.then(|| STANDARD.encode(bytes))
        })
    }
}
