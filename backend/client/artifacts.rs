//! Uploads and downloads the bytes of artifacts.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::{
    StatusCode,
    header::{CONTENT_RANGE, CONTENT_TYPE, ETAG, RANGE},
};
use serde::Deserialize;
use serde_json::Value;

use super::{Client, Error, REQUEST_WAIT_MAX};
use crate::domain::{
    artifact::{ArtifactId, ArtifactName, Hash, MediaType},
    export::index::AttachedArtifact,
    id::{RunId, Seq},
    limits::PAGE_ROWS_MAX,
};

#[derive(Deserialize)]
struct Page {
    artifacts: Vec<Listed>,
    next_cursor: Option<String>,
}

#[derive(Deserialize)]
struct Listed {
    artifact_id: ArtifactId,
    name: ArtifactName,
    media_type: MediaType,
    size: u64,
    sha256: Hash,
    seq: Seq,
}

impl Client {
    /// The artifacts of a run, in the order of their events in the log.
    pub async fn artifacts(&self, run: RunId, patience: Duration) -> Result<Vec<AttachedArtifact>, Error> {
        let (id, mut found, mut cursor) = (run.to_string(), Vec::new(), None);
        loop {
            let mut query = vec![("limit", PAGE_ROWS_MAX.to_string())];
            query.extend(cursor.map(|cursor: String| ("cursor", cursor)));
            let segments = ["runs", id.as_str(), "artifacts"];
            let page: Page = self.insist(patience, |_| self.get(&segments, &query)).await?;
            found.extend(page.artifacts.into_iter().map(|one| AttachedArtifact {
                run_id: run,
                seq: one.seq,
                artifact_id: one.artifact_id,
                name: one.name,
                media_type: one.media_type,
                size: one.size,
                sha256: one.sha256,
            }));
            cursor = page.next_cursor;
            if cursor.is_none() {
                found.sort_by_key(|one| one.seq);
                return Ok(found);
            }
        }
    }

    /// Uploads bytes as an artifact of a run; returns the artifact, which is durable. With an `event_id` in the query
    /// the same upload may be repeated.
    pub async fn upload(
        &self,
        run_id: &str,
        query: &[(&str, &str)],
        media_type: &str,
        bytes: Bytes,
    ) -> Result<Value, Error> {
        let url = self.at(&["runs", run_id, "artifacts"]);
        self.json(self.http.post(url).query(query).header(CONTENT_TYPE, media_type).body(bytes)).await
    }

    /// Bytes of an artifact from an offset, at most `bytes_max`.
    pub async fn download(&self, artifact_id: &str, from: u64, bytes_max: usize) -> Result<Part, Error> {
        let range = format!("bytes={from}-{}", from.saturating_add(bytes_max.max(1) as u64 - 1));
        let request = self.http.get(self.at(&["artifacts", artifact_id])).timeout(REQUEST_WAIT_MAX);
        let sent = request.header(RANGE, range).send().await;
        let mut response = sent.map_err(|error| Error::unreachable(self, &error))?;
        let text = |name| response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let size = text(CONTENT_RANGE).rsplit('/').next().and_then(|size| size.parse().ok());
        let (media_type, sha256) = (text(CONTENT_TYPE).to_owned(), text(ETAG).trim_matches('"').to_owned());
        let mut bytes = BytesMut::new();
        let part = |bytes: BytesMut, size| Part { bytes: bytes.freeze(), size, media_type, sha256 };
        match (response.status(), size) {
            // There is nothing at this offset.
            (StatusCode::RANGE_NOT_SATISFIABLE, Some(size)) => Ok(part(bytes, size)),
            (StatusCode::PARTIAL_CONTENT, Some(size)) => {
                while let Some(chunk) = response.chunk().await.map_err(|error| Error::unreachable(self, &error))? {
                    if bytes.len() + chunk.len() > bytes_max {
                        return Err(Error::unexpected("the server's answer is longer than requested"));
                    }
                    bytes.extend_from_slice(&chunk);
                }
                Ok(part(bytes, size))
            }
            (status, _) if status.is_success() => {
                Err(Error::unexpected("the server did not return a part of the artifact"))
            }
            _ => Err(Error::of(response).await),
        }
    }
}

/// Bytes of an artifact.
#[derive(Clone, Debug)]
pub struct Part {
    pub bytes: Bytes,
    /// Size of the whole artifact, bytes.
    pub size: u64,
    pub media_type: String,
    /// Hash of the whole artifact, hexadecimal.
    pub sha256: String,
}
