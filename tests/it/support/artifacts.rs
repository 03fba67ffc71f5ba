//! Artifacts in tests, and what is on the disk.

use std::path::{Path, PathBuf};

use reqwest::{Method, Response};
use serde_json::Value;

use super::{
    api::{Api, Reply},
    patiently,
    threads::encoded,
};

impl Api {
    /// Uploads and returns the response; `query` follows the name.
    pub async fn try_upload(&self, run: &str, name: &str, query: &str, body: impl Into<reqwest::Body>) -> Reply {
        let path = format!("/api/runs/{run}/artifacts?name={}{query}", encoded(name));
        self.post_text(&path, "application/octet-stream", body).await
    }

    /// Uploads and expects it to be stored.
    pub async fn upload(&self, run: &str, name: &str, body: impl Into<reqwest::Body>) -> Value {
        self.try_upload(run, name, "", body).await.expect(201)
    }

    /// Requests an artifact with these headers; the response's body is not read yet.
    pub async fn download(&self, artifact: &str, headers: &[(&str, &str)]) -> Response {
        let request = self.request(Method::GET, &format!("/api/artifacts/{artifact}"));
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        patiently("a download", request.send()).await.unwrap()
    }

    /// The bytes of an artifact.
    pub async fn bytes_of(&self, artifact: &Value) -> Vec<u8> {
        let response = self.download(artifact["artifact_id"].as_str().unwrap(), &[]).await;
        assert_eq!(response.status(), 200);
        patiently("the bytes", response.bytes()).await.unwrap().to_vec()
    }

    /// The run's artifacts, all pages, newest first.
    pub async fn artifacts(&self, run: &str) -> Vec<Value> {
        self.pages(&format!("/api/runs/{run}/artifacts?limit=2"), "artifacts").await
    }
}

/// Every file below a folder.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let kind = entry.file_type().unwrap();
            if kind.is_dir() { folders.push(entry.path()) } else { found.push(entry.path()) }
        }
    }
    found.sort();
    found
}

/// The hashes of the contents below a folder, by their names.
pub fn hashes(folder: &Path) -> Vec<String> {
    let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
    let mut names: Vec<String> = files(folder).iter().map(name).filter(|name| name.len() == 64).collect();
    names.sort();
    names
}
