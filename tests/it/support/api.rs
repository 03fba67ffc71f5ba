//! One client of one server: the calls of the tests.

use std::time::Duration;

use reqwest::{Method, RequestBuilder, header::HeaderMap};
use runreel::domain::limits::HEAD_MS_MAX;
use serde_json::{Value, value::RawValue};

use super::{patiently, sse::Stream};

/// A server as one client sees it.
#[derive(Clone)]
pub struct Api {
    pub base: String,
    pub http: reqwest::Client,
    pub token: Option<String>,
}

/// A response, read to its end.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub text: String,
}

impl Reply {
    pub fn json(&self) -> Value {
        self.text.parse().unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The response's body, provided it has this status.
    #[track_caller]
    pub fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        if self.text.is_empty() { Value::Null } else { self.json() }
    }

    /// An error in the form of RFC 9457.
    #[track_caller]
    pub fn refused(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        let problem = self.json();
        assert_eq!(problem["code"], code, "{}", self.text);
        assert_eq!(problem["status"], status);
        assert_eq!(self.headers["content-type"], "application/problem+json");
        assert_eq!(self.headers["x-content-type-options"], "nosniff");
        for member in ["type", "title", "detail"] {
            assert!(problem[member].as_str().is_some_and(|text| !text.is_empty()), "{member}: {}", self.text);
        }
        problem
    }
}

impl Api {
    pub fn new(base: String) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().tls_certs_only([]).pool_max_idle_per_host(64);
        // The server closes unused connections; a request that is sent just then fails.
        let http = http.pool_idle_timeout(Duration::from_millis(HEAD_MS_MAX / 2)).build().unwrap();
        Self { base, http, token: None }
    }

    /// The same server with another token.
    pub fn with(&self, token: impl Into<String>) -> Self {
        Self { token: Some(token.into()), ..self.clone() }
    }

    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.base));
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    pub async fn send(&self, request: RequestBuilder) -> Reply {
        patiently("an answer", async {
            let response = request.send().await.unwrap();
            let (status, headers) = (response.status().as_u16(), response.headers().clone());
            Reply { status, headers, text: response.text().await.unwrap() }
        })
        .await
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.send(self.request(Method::GET, path)).await
    }

    pub async fn delete(&self, path: &str) -> Reply {
        self.send(self.request(Method::DELETE, path)).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Reply {
        // Written as text by the library, which is optimised; `json` would be compiled here, and slow for megabytes.
        self.post_text(path, "application/json", body.to_string()).await
    }

    /// A body sent unchanged.
    pub async fn post_text(&self, path: &str, media_type: &str, body: impl Into<reqwest::Body>) -> Reply {
        self.send(self.request(Method::POST, path).header("content-type", media_type).body(body)).await
    }

    /// Emits a body unchanged.
    pub async fn emit_text(&self, run: &str, body: impl Into<reqwest::Body>) -> Reply {
        self.post_text(&format!("/api/runs/{run}/events"), "application/json", body).await
    }

    pub async fn try_emit(&self, run: &str, body: Value) -> Reply {
        self.post(&format!("/api/runs/{run}/events"), body).await
    }

    /// Emits and expects it to be stored.
    pub async fn emit(&self, run: &str, body: Value) -> Value {
        self.try_emit(run, body).await.expect(200)
    }

    /// All events of a run as the bytes of the page endpoint.
    pub async fn events(&self, run: &str) -> Vec<String> {
        #[derive(serde::Deserialize)]
        struct Page {
            events: Vec<Box<RawValue>>,
            last_id: String,
            has_more: bool,
        }
        let (mut events, mut after) = (Vec::new(), "0".to_owned());
        loop {
            let reply = self.get(&format!("/api/runs/{run}/events?after={after}&limit=1000")).await;
            assert_eq!(reply.status, 200, "{}", reply.text);
            let page: Page = serde_json::from_str(&reply.text).unwrap();
            events.extend(page.events.into_iter().map(|event| event.get().to_owned()));
            after = page.last_id;
            if !page.has_more {
                return events;
            }
        }
    }

    /// The same as NDJSON.
    pub async fn ndjson(&self, run: &str) -> Vec<String> {
        let path = format!("/api/runs/{run}/events");
        let reply = self.send(self.request(Method::GET, &path).header("accept", "application/x-ndjson")).await;
        assert_eq!(reply.status, 200, "{}", reply.text);
        assert_eq!(reply.headers["content-type"], "application/x-ndjson");
        reply.text.split_terminator('\n').map(str::to_owned).collect()
    }

    /// A run as it is now. If the server got no connection to its database in time, the request is repeated after the
    /// time it names, as docs/protocol.md tells clients to do.
    pub async fn run(&self, run: &str) -> Value {
        let path = format!("/api/runs/{run}");
        let asked = async {
            loop {
                let reply = self.get(&path).await;
                let is_asked_again = reply.status == 503 && reply.json()["code"] == "unavailable";
                let Some(after) = reply.headers.get("retry-after").filter(|_| is_asked_again) else {
                    return reply;
                };
                eprintln!("no connection to the database in time: {path} is asked again");
                tokio::time::sleep(Duration::from_secs(after.to_str().unwrap().parse().unwrap())).await;
            }
        };
        // On the heap: it is part of many tests' own futures.
        patiently("the run", Box::pin(asked)).await.expect(200)
    }

    /// Opens a stream.
    pub async fn stream(&self, path: &str) -> Stream {
        self.stream_after(path, None).await
    }

    /// Opens a stream after the id of a frame.
    pub async fn stream_after(&self, path: &str, last_event_id: Option<&str>) -> Stream {
        let mut request = self.request(Method::GET, path);
        if let Some(id) = last_event_id {
            request = request.header("last-event-id", id);
        }
        let response = patiently("a stream", request.send()).await.unwrap();
        assert!(
            response.status().as_u16() == 200,
            "{path}: {} {}",
            response.status(),
            response.text().await.unwrap_or_default()
        );
        Stream::of(response)
    }

    /// The response if a stream is not opened.
    pub async fn no_stream(&self, path: &str, last_event_id: Option<&str>) -> Reply {
        let mut request = self.request(Method::GET, path);
        if let Some(id) = last_event_id {
            request = request.header("last-event-id", id);
        }
        let response = patiently("an answer", request.send()).await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        assert_ne!(status, 200, "{path} opened a stream");
        Reply { status, headers, text: response.text().await.unwrap() }
    }
}

/// The stream of a run.
pub fn stream_of(run: &str) -> String {
    format!("/api/stream/runs/{run}")
}
