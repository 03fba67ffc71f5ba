//! The bytes of artifacts, to the server and back.

use bytes::{Bytes, BytesMut};
use reqwest::{
    StatusCode,
    header::{CONTENT_RANGE, CONTENT_TYPE, ETAG, RANGE},
};
use serde_json::Value;

use super::{Client, Error, REQUEST_WAIT_MAX};

impl Client {
    /// Uploads bytes as an artifact of a run; the answer is the artifact, durable. With an `event_id` in the query the
    /// same upload may be made again.
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

    /// Bytes of an artifact from a place on, at most so many.
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
            // There is nothing from that place on.
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
    /// Of the whole, bytes.
    pub size: u64,
    pub media_type: String,
    /// Of the whole, hexadecimal.
    pub sha256: String,
}
