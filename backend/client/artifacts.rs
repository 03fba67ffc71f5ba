//! The bytes of artifacts, to the server and back.

use bytes::{Bytes, BytesMut};
use reqwest::header::CONTENT_TYPE;
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

    /// The bytes of an artifact with their SHA-256 as the server knows it; `None` when there are more than `bytes_max`.
    pub async fn download(&self, artifact_id: &str, bytes_max: usize) -> Result<Option<(Bytes, String)>, Error> {
        let request = self.http.get(self.at(&["artifacts", artifact_id])).timeout(REQUEST_WAIT_MAX);
        let mut response = self.answer(request).await?;
        let etag = response.headers().get(reqwest::header::ETAG).and_then(|tag| tag.to_str().ok());
        let sha256 = etag.unwrap_or_default().trim_matches('"').to_owned();
        let mut bytes = BytesMut::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| Error::unreachable(self, &error))? {
            if bytes.len() + chunk.len() > bytes_max {
                return Ok(None);
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(Some((bytes.freeze(), sha256)))
    }
}
