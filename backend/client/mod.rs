//! The HTTP client of this program's own commands and its fault harness.
//!
//! It implements only the wire contract: JSON in, JSON out, and [`Follow`] for live streams. It retries only where a
//! retry is safe and documented ([`Client::emit_until_stored`], [`Client::insist`], [`Follow`]); everything else is
//! tried once.
//!
//! Invariants kept here: a token leaves this module only in the `Authorization` header of a request to the address it
//! was given for (redirects are not followed, errors and `Debug` do not contain it), and a reader never gets the same
//! seq of a run twice, however often its connection broke.
//!
//! Start reading at [`Client`], then `follow`.

use std::{fmt, sync::Arc, time::Duration};

use reqwest::{
    ClientBuilder, RequestBuilder, Response, StatusCode, Url,
    header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

pub mod artifacts;
mod emit;
mod error;
mod export;
mod follow;
pub mod pace;
mod probe;

#[cfg(test)]
mod tests;

pub use self::error::{describe, parse_retry_after};
use self::pace::{Pace, Retries, SystemPace};
pub use self::{
    error::{Error, Kind},
    export::{Imported, RunLines},
    follow::{Follow, Frame, Notice},
    probe::{Arrival, StreamProbe},
};

use crate::{
    domain::{id::Title, limits::HEAD_MS_MAX},
    wire::{
        events::EventPage,
        health::Health,
        messages::MessageOutcome,
        runs::{Cancel, CreateRun, Resume, Run, RunList},
    },
};

/// Longest wait for a connection.
const CONNECT_WAIT_MAX: Duration = Duration::from_secs(10);
/// Longest time of a request other than a stream, from the first byte sent to the last one read.
const REQUEST_WAIT_MAX: Duration = Duration::from_secs(30);
/// Longest time an unused connection is kept. The server closes it after [`HEAD_MS_MAX`], and a request sent at that
/// moment would fail.
const IDLE_MAX: Duration = Duration::from_millis(HEAD_MS_MAX / 2);
/// Longest silence on an open connection. The server pings every 10 s; two lost pings mean a dead peer.
const SILENCE_MAX: Duration = Duration::from_secs(25);
/// Longest time of a readiness check.
const READY_WAIT_MAX: Duration = Duration::from_secs(2);

/// A client of one server, with one token. Cheap to clone: clones share the connection pool.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    /// For requests whose bodies may take longer to send than a server may be silent.
    uploads: reqwest::Client,
    base: Url,
    pace: Arc<dyn Pace>,
}

impl Client {
    /// A client of the server at `base_url` (`http://127.0.0.1:7717`, with a path if it is behind a proxy).
    ///
    /// Sends nothing yet. [`Kind::Unusable`] if the address is not an http(s) URL or contains a password, a query or a
    /// fragment, or if the token cannot be sent in a header.
    pub fn new(base_url: &str, token: Option<String>) -> Result<Self, Error> {
        // Only the first call in a process installs the provider; later calls find it installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let base = parse_base(base_url)?;
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if let Some(token) = token {
            let bearer = HeaderValue::try_from(format!("Bearer {}", token.trim()));
            let mut bearer =
                bearer.map_err(|_| Error::unusable("the token contains characters not allowed in a header"))?;
            bearer.set_sensitive(true);
            headers.insert(AUTHORIZATION, bearer);
        }
        let built = |builder: ClientBuilder| builder.build().map_err(|error| Error::unusable(error::describe(&error)));
        let http = built(builder(&base, headers.clone()).read_timeout(SILENCE_MAX))?;
        let uploads = built(builder(&base, headers))?;
        Ok(Self { http, uploads, base, pace: Arc::new(SystemPace) })
    }

    /// The server's address, without a trailing slash.
    pub fn base_url(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// The address of a run's page in the UI.
    pub fn page_of(&self, run_id: &str) -> String {
        format!("{}/runs/{run_id}", self.base_url())
    }

    /// Whether the server is on this machine, judging by its address.
    pub fn is_of_this_machine(&self) -> bool {
        is_loopback(&self.base)
    }

    /// Creates a run, or finds the one that the same request created before or that has its `external_id`.
    pub async fn create_run(&self, new: &CreateRun) -> Result<Run, Error> {
        let request = match &new.external_id {
            Some(id) => self.http.put(self.at(&["runs", "by-external-id", id.as_str()])),
            None => self.http.post(self.at(&["runs"])),
        };
        self.json(request.json(new)).await
    }

    /// One run.
    pub async fn run(&self, run_id: &str) -> Result<Run, Error> {
        self.json(self.http.get(self.at(&["runs", run_id]))).await
    }

    /// A page of runs, newest first. `query` takes the filters of the contract.
    pub async fn runs(&self, query: &[(&str, String)]) -> Result<RunList, Error> {
        self.json(self.http.get(self.at(&["runs"])).query(query)).await
    }

    /// A page of a run's events. `query` takes the parameters of the contract; `after` is the `last_id` of the page
    /// before.
    pub async fn events_page(&self, run_id: &str, query: &[(&str, &str)]) -> Result<EventPage, Error> {
        self.json(self.http.get(self.at(&["runs", run_id, "events"])).query(query)).await
    }

    /// Requests the cancellation of a run and its descendants; returns the run, which may not have ended yet.
    pub async fn cancel(&self, run_id: &str, reason: Option<Title>) -> Result<Run, Error> {
        self.post(&["runs", run_id, "cancel"], &Cancel { reason }).await
    }

    /// Answers an interrupt; returns the run.
    pub async fn resume(&self, run_id: &str, answer: &Resume) -> Result<Run, Error> {
        self.post(&["runs", run_id, "resume"], answer).await
    }

    /// Sends a message to a channel, in one try: a repeat is a second message, unless it has a `message_id`.
    pub async fn message(&self, channel: &str, message: &Value) -> Result<MessageOutcome, Error> {
        self.post(&["channels", channel, "messages"], message).await
    }

    /// Whether the server reports that it is ready; `false` after any error.
    pub async fn ready(&self) -> bool {
        let Ok(url) = self.join("/readyz") else { return false };
        let answer = self.http.get(url).timeout(READY_WAIT_MAX).send().await;
        answer.is_ok_and(|response| response.status() == StatusCode::OK)
    }

    /// Whether the server is alive, and its version.
    pub async fn health(&self) -> Result<Health, Error> {
        self.json(self.http.get(self.join("/livez")?)).await
    }

    /// Gets the resource below `/api` at these segments, which are escaped. Parsed directly, without a [`Value`] in
    /// between.
    pub async fn get<T: DeserializeOwned>(&self, segments: &[&str], query: &[(&str, String)]) -> Result<T, Error> {
        self.json(self.http.get(self.at(segments)).query(query)).await
    }

    /// Posts below `/api`; returns the server's answer. One try.
    pub async fn post<T: DeserializeOwned>(&self, segments: &[&str], body: &impl Serialize) -> Result<T, Error> {
        self.json(self.http.post(self.at(segments)).json(body)).await
    }

    /// Puts below `/api`; returns the server's answer.
    pub async fn put<T: DeserializeOwned>(&self, segments: &[&str], body: &impl Serialize) -> Result<T, Error> {
        self.json(self.http.put(self.at(segments)).json(body)).await
    }

    /// Deletes the resource below `/api` at these segments.
    pub async fn delete(&self, segments: &[&str]) -> Result<(), Error> {
        self.answer(self.http.delete(self.at(segments)).timeout(REQUEST_WAIT_MAX)).await.map(drop)
    }

    /// Retries a request while the server is busy or unreachable, for at most `patience`; only for idempotent requests.
    /// `request` gets its time limit.
    ///
    /// A refusal is final. After `patience`, the error is the last one met.
    pub async fn insist<T, F>(&self, patience: Duration, request: impl Fn(Duration) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut retries = self.retries(patience);
        loop {
            let error = match request(retries.left().min(REQUEST_WAIT_MAX)).await {
                Err(error) if error.kind.is_retryable() => error,
                outcome => return outcome,
            };
            if !retries.wait(error.retry_after).await {
                return Err(error);
            }
        }
    }

    /// For requests that [`Client::insist`] cannot repeat as a whole.
    pub fn retries(&self, patience: Duration) -> Retries {
        Retries::new(Arc::clone(&self.pace), patience)
    }

    /// Follows a stream such as `/api/stream/runs/{run_id}?tokens=false` and reconnects automatically.
    ///
    /// `after` is the id of the last frame already seen; `None` begins where the path says.
    pub fn follow(&self, path_and_query: &str, after: Option<String>) -> Follow {
        Follow::new(self.clone(), self.join(path_and_query), after)
    }

    /// A URL below `/api`; segments are escaped, so a hostile id stays one segment.
    fn at(&self, segments: &[&str]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().push("api").extend(segments);
        }
        url
    }

    fn join(&self, path_and_query: &str) -> Result<Url, Error> {
        let path = path_and_query.strip_prefix('/').ok_or_else(|| Error::unusable("a path must begin with a slash"))?;
        let url = Url::parse(&format!("{}/{path}", self.base_url()));
        url.map_err(|error| Error::unusable(format!("invalid path: {error}")))
    }

    async fn json<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, Error> {
        let response = self.answer(request.timeout(REQUEST_WAIT_MAX)).await?;
        let body = response.bytes().await.map_err(|error| Error::unreachable(self, &error))?;
        serde_json::from_slice(&body)
            .map_err(|_| Error::unexpected("the server's answer does not have the expected JSON form"))
    }

    /// One try; everything but a 2xx is an error.
    async fn answer(&self, request: RequestBuilder) -> Result<Response, Error> {
        let response = request.send().await.map_err(|error| Error::unreachable(self, &error))?;
        if response.status().is_success() { Ok(response) } else { Err(Error::of(response).await) }
    }
}

impl fmt::Debug for Client {
    /// The address only: the token stays out of logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("base_url", &self.base_url()).finish_non_exhaustive()
    }
}

fn builder(base: &Url, headers: HeaderMap) -> ClientBuilder {
    let mut builder = reqwest::Client::builder()
        .user_agent(concat!("runreel/", env!("CARGO_PKG_VERSION")))
        .default_headers(headers)
        .redirect(reqwest::redirect::Policy::none())
        // Proxies buffer compressed responses, and the server compresses nothing.
        .no_gzip()
        .no_brotli()
        .no_deflate()
        .no_zstd()
        .connect_timeout(CONNECT_WAIT_MAX)
        .pool_idle_timeout(IDLE_MAX);
    if base.scheme() == "http" {
        // A machine without certificates must reach a plain server, where the platform's verifier would not start.
        builder = builder.tls_certs_only([]);
    }
    // A proxy from the environment cannot reach the server on this machine.
    if is_loopback(base) { builder.no_proxy() } else { builder }
}

/// Validates a server address. Errors do not repeat it: it may hold a secret.
fn parse_base(base_url: &str) -> Result<Url, Error> {
    let base = Url::parse(base_url.trim()).map_err(|error| {
        Error::unusable(format!("the server address is not a URL such as http://127.0.0.1:7717 ({error})"))
    })?;
    let refusal = if !matches!(base.scheme(), "http" | "https") {
        "the server address must begin with http:// or https://"
    } else if !base.username().is_empty() || base.password().is_some() {
        "the server address must not contain a user name or password; use a token instead"
    } else if base.query().is_some() || base.fragment().is_some() {
        "the server address must not contain ? or #"
    } else {
        return Ok(base);
    };
    Err(Error::unusable(refusal))
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
}
