//! The Bot API: send a message, fetch a file.

use std::{sync::Arc, time::Duration};

use futures::StreamExt as _;
use reqwest::{StatusCode, Url};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{FileId, Target};
use crate::domain::limits::IMAGE_BYTES_MAX;

/// Longest duration of a request.
const REQUEST_WAIT_MAX: Duration = Duration::from_secs(20);
/// Largest response of a method, bytes.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// Phrases of Telegram's error for a deleted topic, in lower case.
const TOPIC_GONE: [&str; 2] = ["message thread not found", "topic_deleted"];

/// A failed request; its text never contains the token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    pub reason: String,
    /// Whether a retry may succeed.
    pub is_retryable: bool,
    /// How long Telegram asks to wait before the next request, seconds.
    pub after_s: Option<i64>,
}

impl ApiError {
    pub fn lasting(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), is_retryable: false, after_s: None }
    }

    fn passing(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), is_retryable: true, after_s: None }
    }

    /// Maps an error without its URL, which contains the token.
    fn of(error: &reqwest::Error) -> Self {
        let what = if error.is_timeout() {
            "Telegram did not answer in time"
        } else if error.is_connect() {
            "Telegram cannot be reached"
        } else {
            "the connection to Telegram broke"
        };
        Self::passing(what)
    }
}

/// A failed call of a method.
struct Refused {
    error: ApiError,
    /// The new id of the chat, if Telegram reports one.
    moved: Option<i64>,
    topic_is_gone: bool,
}

/// A response of the Bot API.
#[derive(Deserialize)]
struct Answer<T> {
    ok: bool,
    result: Option<T>,
    description: Option<String>,
    parameters: Option<Parameters>,
}

#[derive(Deserialize)]
struct Parameters {
    retry_after: Option<i64>,
    migrate_to_chat_id: Option<i64>,
}

#[derive(Deserialize)]
struct File {
    file_path: Option<String>,
    file_size: Option<usize>,
}

/// A client of one bot. Cheap to clone.
#[derive(Clone)]
pub struct Api {
    http: reqwest::Client,
    base: Arc<str>,
    token: Arc<str>,
}

impl Api {
    pub fn new(base: &str, token: &str) -> Result<Self, String> {
        let wrong = || format!("--telegram-api-base must be an http(s) URL without a query, not {base}");
        let url = Url::parse(base).map_err(|_| wrong())?;
        let plain = matches!(url.scheme(), "http" | "https") && url.query().is_none() && url.fragment().is_none();
        if !plain || url.host().is_none() {
            return Err(wrong());
        }
        // Only the first call in a process installs the provider; for later ones it is already installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("runreel/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .timeout(REQUEST_WAIT_MAX);
        if url.scheme() == "http" {
            // A machine without certificates must still be able to reach a plain HTTP server.
            builder = builder.tls_certs_only([]).no_proxy();
        }
        let http = builder.build().map_err(|_| "the HTTP client cannot be created".to_owned())?;
        Ok(Self { http, base: Arc::from(base.trim_end_matches('/')), token: Arc::from(token.trim()) })
    }

    /// Sends a text as a message. Updates the target if it has changed: a group that became a supergroup has a new id
    /// and none of the old messages; if the topic was deleted, the chat itself is used.
    pub async fn send(&self, target: &mut Target, text: &str, is_first: bool) -> Result<(), ApiError> {
        loop {
            let mut body = json!({ "chat_id": target.chat_id, "text": text });
            if let Some(topic) = target.message_thread_id {
                body["message_thread_id"] = Value::from(topic);
            }
            if let Some(message) = target.reply_to.filter(|_| is_first) {
                body["reply_parameters"] = json!({ "message_id": message, "allow_sending_without_reply": true });
            }
            let Err(refused) = self.call::<Value>("sendMessage", &body).await else { return Ok(()) };
            match refused.moved.filter(|chat_id| *chat_id != target.chat_id) {
                Some(chat_id) if !target.has_moved => {
                    *target = Target { chat_id, message_thread_id: None, reply_to: None, has_moved: true };
                }
                _ if refused.topic_is_gone && target.message_thread_id.is_some() => target.message_thread_id = None,
                _ => return Err(refused.error),
            }
        }
    }

    /// Fetches a file, at most as large as an image may be.
    pub async fn file(&self, file: &FileId) -> Result<Vec<u8>, ApiError> {
        let too_large = || ApiError::lasting(format!("an image may have at most {IMAGE_BYTES_MAX} bytes"));
        let found: File = self.call("getFile", &json!({ "file_id": file.0 })).await.map_err(|refused| refused.error)?;
        if found.file_size.is_some_and(|bytes| bytes > IMAGE_BYTES_MAX) {
            return Err(too_large());
        }
        let path = found.file_path.filter(|path| is_plain(path));
        let path = path.ok_or_else(|| ApiError::lasting("Telegram returned no file path"))?;
        let url = format!("{}/file/bot{}/{path}", self.base, self.token);
        let response = self.http.get(url).send().await.map_err(|error| ApiError::of(&error))?;
        match response.status() {
            StatusCode::OK => {}
            status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
                return Err(ApiError::passing(format!("Telegram responded with {status} for a file")));
            }
            status => return Err(ApiError::lasting(format!("Telegram responded with {status} for a file"))),
        }
        bounded(response, IMAGE_BYTES_MAX).await?.ok_or_else(too_large)
    }

    async fn call<T: DeserializeOwned>(&self, method: &str, body: &Value) -> Result<T, Refused> {
        let plain = |error: ApiError| Refused { error, moved: None, topic_is_gone: false };
        let url = format!("{}/bot{}/{method}", self.base, self.token);
        let response = self.http.post(url).json(body).send().await.map_err(|error| plain(ApiError::of(&error)))?;
        let status = response.status();
        let bytes = bounded(response, ANSWER_BYTES_MAX).await.map_err(plain)?;
        let answer: Option<Answer<T>> = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let Some(answer) = answer else {
            let reason = format!("Telegram responded to {method} with {status} and an unreadable body");
            return Err(plain(ApiError { reason, is_retryable: !status.is_client_error(), after_s: None }));
        };
        if let Some(result) = answer.result.filter(|_| answer.ok) {
            return Ok(result);
        }
        let (after_s, moved) = answer.parameters.map_or((None, None), |p| (p.retry_after, p.migrate_to_chat_id));
        let is_retryable = status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error();
        let description: String =
            answer.description.unwrap_or_default().replace(&*self.token, "***").chars().take(200).collect();
        let topic_is_gone = TOPIC_GONE.iter().any(|gone| description.to_ascii_lowercase().contains(gone));
        let reason = format!("Telegram refused {method} ({status}): {description}");
        Err(Refused { error: ApiError { reason, is_retryable, after_s }, moved, topic_is_gone })
    }
}

/// Whether the path stays below the folder of the bot's files.
fn is_plain(path: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-/".contains(&b);
    path.bytes().all(plain) && path.split('/').all(|part| !part.is_empty() && !part.starts_with('.'))
}

/// Reads a body; `None` if it exceeds the bound.
async fn bounded(response: reqwest::Response, bytes_max: usize) -> Result<Option<Vec<u8>>, ApiError> {
    let mut bytes = Vec::new();
    let mut chunks = response.bytes_stream();
    while let Some(chunk) = chunks.next().await {
        bytes.extend_from_slice(&chunk.map_err(|error| ApiError::of(&error))?);
        if bytes.len() > bytes_max {
            return Ok(None);
        }
    }
    Ok(Some(bytes))
}
