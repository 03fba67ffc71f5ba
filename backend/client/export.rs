//! Exports and imports whole logs.

use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use reqwest::{
    Body, Response,
    header::{CONTENT_TYPE, RANGE},
};
use serde::Deserialize;

use super::{Client, Error};
use crate::domain::limits::EXPORT_LINE_BYTES_MAX;

/// Time limit of an upload, plus one second per `UPLOAD_BYTES_PER_S` bytes.
const UPLOAD_WAIT: Duration = Duration::from_mins(1);
const UPLOAD_BYTES_PER_S: u64 = 128 * 1024;

/// The server's answer to an imported part of a run.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Imported {
    /// The last seq of the run's log.
    pub last_seq: i64,
    /// Events that did not exist before.
    pub stored: u64,
}

/// The lines of an exported run as they arrive.
#[derive(Debug)]
pub struct RunLines {
    client: Client,
    response: Response,
    buffer: BytesMut,
    searched: usize,
}

impl RunLines {
    /// The next line without its newline; the run's last line shows the caller that all have arrived.
    pub async fn next(&mut self) -> Result<String, Error> {
        loop {
            if let Some(at) = memchr::memchr(b'\n', &self.buffer[self.searched..]) {
                let line = self.buffer.split_to(self.searched + at);
                self.buffer.advance(1);
                self.searched = 0;
                return String::from_utf8(line.into()).map_err(|_| Error::unexpected("the export is not UTF-8"));
            }
            self.searched = self.buffer.len();
            if self.searched > EXPORT_LINE_BYTES_MAX {
                return Err(Error::unexpected("a line of the export is too long"));
            }
            let chunk = self.response.chunk().await.map_err(|error| Error::unreachable(&self.client, &error))?;
            self.buffer.extend_from_slice(&chunk.ok_or_else(Error::cut_off)?);
        }
    }
}

/// Bytes as they arrive.
#[derive(Debug)]
pub struct Download {
    client: Client,
    response: Response,
}

impl Download {
    /// The next chunk; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        self.response.chunk().await.map_err(|error| Error::unreachable(&self.client, &error))
    }
}

impl Client {
    /// Starts a run's export.
    pub async fn export_run(&self, run_id: &str) -> Result<RunLines, Error> {
        let response = self.answer(self.http.get(self.at(&["runs", run_id, "export"]))).await?;
        Ok(RunLines { client: self.clone(), response, buffer: BytesMut::new(), searched: 0 })
    }

    /// Imports a part of a run, with retries while the server is busy or unreachable; a repeat changes nothing.
    pub async fn import_lines(&self, run_id: &str, lines: Bytes, patience: Duration) -> Result<Imported, Error> {
        self.insist(patience, |wait_max| {
            let request = self.http.post(self.at(&["runs", run_id, "import"])).timeout(wait_max);
            let request = request.header(CONTENT_TYPE, "application/x-ndjson").body(lines.clone());
            async move {
                let response = self.answer(request).await?;
                let body = response.bytes().await.map_err(|error| Error::unreachable(self, &error))?;
                serde_json::from_slice(&body).map_err(|_| Error::unexpected("the server's answer is malformed"))
            }
        })
        .await
    }

    /// Imports the bytes of an artifact, in one try.
    pub async fn import_artifact(
        &self,
        segments: &[&str],
        query: &[(&str, String)],
        media_type: &str,
        (body, size): (Body, u64),
    ) -> Result<(), Error> {
        let wait = UPLOAD_WAIT + Duration::from_secs(size / UPLOAD_BYTES_PER_S);
        let request = self.uploads.put(self.at(segments)).query(query).timeout(wait);
        self.answer(request.header(CONTENT_TYPE, media_type).body(body)).await.map(drop)
    }

    /// The bytes of an artifact from the offset `from`, which must be less than its size.
    pub async fn artifact_bytes(&self, artifact_id: &str, from: u64) -> Result<Download, Error> {
        let request = self.http.get(self.at(&["artifacts", artifact_id])).header(RANGE, format!("bytes={from}-"));
        Ok(Download { client: self.clone(), response: self.answer(request).await? })
    }
}
