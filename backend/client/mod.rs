//! The HTTP client of this program's own commands and its fault harness.
//!
//! It speaks the wire contract and nothing else: JSON in, JSON out, and [`Follow`] for live streams. It retries only
//! where a retry is safe and says so ([`Client::emit_until_stored`], [`Client::insist`], [`Follow`]); everything else is one try.
//!
//! Invariants kept here: a token leaves this module only in the `Authorization` header of a request to the address it
//! was given for (redirects are not followed, errors and `Debug` do not hold it), and a reader never gets the same seq
//! of a run twice, however often its connection broke.
//!
//! Start reading at [`Client`], then `follow`.

use std::{fmt, sync::Arc, time::Duration};

use reqwest::{
    ClientBuilder, RequestBuilder, Response, StatusCode, Url,
    header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::time::Instant;

pub mod artifacts;
mod emit;
mod error;
mod export;
mod follow;
pub(crate) mod pace;
mod probe;

#[cfg(test)]
pub(crate) mod tests;

pub(crate) use self::error::{describe, parse_retry_after};
use self::pace::{Backoff, Pace, SystemPace};
pub use self::{
    emit::{Ack, AckEvent},
    error::{Error, Kind},
    export::{Imported, RunLines},
    follow::{Follow, Frame, Notice},
    probe::{Arrival, StreamProbe},
};

/// Longest wait for a connection.
const CONNECT_WAIT_MAX: Duration = Duration::from_secs(10);
/// Longest a request other than a stream may take, from the first byte sent to the last one read.
const REQUEST_WAIT_MAX: Duration = Duration::from_secs(30);
/// Longest silence on an open connection. The server pings every 10 s; two lost pings mean a dead peer.
const SILENCE_MAX: Duration = Duration::from_secs(25);
/// Longest a readiness check may take.
const READY_WAIT_MAX: Duration = Duration::from_secs(2);

/// A connection to one server, in the name of one token. Cheap to clone: clones share the connection pool.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    /// For requests whose bodies may take longer to send than a server may be silent.
    uploads: reqwest::Client,
    base: Url,
    pace: Arc<dyn Pace>,
}

impl Client {
    /// A client of the server at `base_url` (`http://127.0.0.1:7717`, also with a path when it is behind a proxy).
    ///
    /// Nothing is sent yet. [`Kind::Unusable`] when the address is not an http(s) URL, holds a password, a query or a
    /// fragment, or when the token cannot be sent in a header.
    pub fn new(base_url: &str, token: Option<String>) -> Result<Self, Error> {
        // Only the first caller in a process installs the provider; for the others it is already there.
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

    /// The address of the server, without a slash at its end.
    pub fn base_url(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// Whether the server is on this machine, as far as its address tells.
    pub fn is_of_this_machine(&self) -> bool {
        is_loopback(&self.base)
    }

    /// Creates a run, or finds it when the same body created it before; the answer is the run.
    pub async fn create_run(&self, body: &Value) -> Result<Value, Error> {
        self.json(self.http.post(self.at(&["runs"])).json(body)).await
    }

    /// One run.
    pub async fn run(&self, run_id: &str) -> Result<Value, Error> {
        self.json(self.http.get(self.at(&["runs", run_id]))).await
    }

    /// A page of runs, newest first: `{runs, next_cursor}`. `query` takes the filters of the contract.
    pub async fn runs(&self, query: &[(&str, String)]) -> Result<Value, Error> {
        self.json(self.http.get(self.at(&["runs"])).query(query)).await
    }

    /// A page of a run's events: `{events, next_after, last_id, last_seq, has_more}`. `after` is the `last_id` of the page before, or `0`.
    pub async fn events_page(&self, run_id: &str, after: &str, limit: i64) -> Result<Value, Error> {
        let url = self.at(&["runs", run_id, "events"]);
        self.json(self.http.get(url).query(&[("after", after), ("limit", &limit.to_string())])).await
    }

    /// Asks for a run's end; the answer is what the server says about the request, which is not the end yet.
    pub async fn cancel(&self, run_id: &str, reason: Option<&str>) -> Result<Value, Error> {
        let body = reason.map_or_else(|| serde_json::json!({}), |reason| serde_json::json!({ "reason": reason }));
        self.json(self.http.post(self.at(&["runs", run_id, "cancel"])).json(&body)).await
    }

    /// Answers an interrupt: `{interrupt_id, decision, value}`; the answer is the run.
    pub async fn resume(&self, run_id: &str, answer: &Value) -> Result<Value, Error> {
        self.json(self.http.post(self.at(&["runs", run_id, "resume"])).json(answer)).await
    }

    /// Says something in a channel; the answer is what became of the message. One try: sent again it is said again,
    /// unless it has a `message_id`.
    pub async fn message(&self, channel: &str, message: &Value) -> Result<Value, Error> {
        self.json(self.http.post(self.at(&["channels", channel, "messages"])).json(message)).await
    }

    /// Whether the server says it can serve. Every error on the way is a no.
    pub async fn ready(&self) -> bool {
        let Ok(url) = self.join("/readyz") else { return false };
        let answer = self.http.get(url).timeout(READY_WAIT_MAX).send().await;
        answer.is_ok_and(|response| response.status() == StatusCode::OK)
    }

    /// The JSON at a path of the server, such as `/api/runs?limit=1`.
    pub async fn get_json(&self, path: &str) -> Result<Value, Error> {
        self.json(self.http.get(self.join(path)?)).await
    }

    /// What lies below `/api` at these segments; they are escaped. Read as it is written, without a detour over [`Value`].
    pub async fn get<T: DeserializeOwned>(&self, segments: &[&str], query: &[(&str, String)]) -> Result<T, Error> {
        self.json(self.http.get(self.at(segments)).query(query)).await
    }

    /// Posts something below `/api`; the answer is what the server says of it. One try.
    pub async fn post<T: DeserializeOwned>(&self, segments: &[&str], body: &impl Serialize) -> Result<T, Error> {
        self.json(self.http.post(self.at(segments)).json(body)).await
    }

    /// Puts something below `/api`; the answer is what the server says of it.
    pub async fn put<T: DeserializeOwned>(&self, segments: &[&str], body: &impl Serialize) -> Result<T, Error> {
        self.json(self.http.put(self.at(segments)).json(body)).await
    }

    /// Removes what lies below `/api` at these segments.
    pub async fn delete(&self, segments: &[&str]) -> Result<(), Error> {
        self.answer(self.http.delete(self.at(segments)).timeout(REQUEST_WAIT_MAX)).await.map(drop)
    }

    /// Makes a request again while the server is busy or out of reach, for at most `patience`; for those that change
    /// nothing when they are carried out twice. The request gets how long it may take at most.
    ///
    /// A refusal is final at once. When patience ends, the error is the last one met.
    pub async fn insist<T, F>(&self, patience: Duration, request: impl Fn(Duration) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let (started, mut backoff) = (Instant::now(), Backoff::default());
        loop {
            let left = patience.saturating_sub(started.elapsed());
            let error = match request(left.min(REQUEST_WAIT_MAX)).await {
                Err(error) if error.kind.is_retryable() => error,
                outcome => return outcome,
            };
            let wait = backoff.next(error.retry_after, self.pace.jitter());
            if started.elapsed() + wait >= patience {
                return Err(error);
            }
            self.pace.wait(wait).await;
        }
    }

    /// Follows a stream such as `/api/stream/runs/{run_id}?tokens=false` and comes back by itself when it breaks.
    ///
    /// `after` is the id of the last frame already seen, `None` for what the path itself asks for.
    pub fn follow(&self, path_and_query: &str, after: Option<String>) -> Follow {
        Follow::new(self.clone(), self.join(path_and_query), after)
    }

    /// Below `/api`; segments are escaped, so a hostile id cannot leave its place.
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
        // What is compressed is held back on the way, and the server compresses nothing.
        .no_gzip()
        .no_brotli()
        .no_deflate()
        .no_zstd()
        .connect_timeout(CONNECT_WAIT_MAX);
    if base.scheme() == "http" {
        // A machine without certificates must still reach a plain server; the platform's verifier refuses to start.
        builder = builder.tls_certs_only([]);
    }
    // A proxy of the environment cannot reach the server on this machine.
    if is_loopback(base) { builder.no_proxy() } else { builder }
}

/// Checks a server address. The address itself is not repeated in errors: it may hold a secret.
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
