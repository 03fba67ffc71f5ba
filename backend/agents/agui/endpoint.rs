//! [`Endpoint`]: posts requests and reads the events of the responses.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{Stream, StreamExt as _, stream, stream::BoxStream};
use reqwest::{
    Response, StatusCode, Url,
    header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER},
};
use serde_json::Value;
use sse_stream::SseByteStream;

use crate::{
    agents::models::Web,
    client::describe,
    config::{self, File, Secret},
    domain::limits::{AGUI_EVENT_BYTES_MAX, AGUI_REQUEST_BYTES_MAX, AGUI_STREAM_BYTES_MAX},
};

/// Bytes read of an error response, and characters of it shown in the error.
const ERROR_BYTES_MAX: usize = 4 * 1024;
const ERROR_CHARS_MAX: usize = 500;
/// Maximum events recorded together, if they arrived together.
const EVENTS_TOGETHER: usize = 64;

/// The error code for an exceeded bound.
pub(super) const TOO_LARGE: &str = "agui_too_large";

/// Why a request got no response, or its stream ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// The stable error code.
    pub code: &'static str,
    /// For the endpoint's operator. Contains no header.
    pub message: String,
    /// Whether the same request may succeed later.
    pub is_temporary: bool,
    /// How long the endpoint asked to wait.
    pub retry_after: Option<Duration>,
}

impl Failure {
    fn new(code: &'static str, message: String, is_temporary: bool) -> Self {
        Self { code, message, is_temporary, retry_after: None }
    }

    /// The endpoint is unreachable, or was silent for too long.
    fn away(message: String) -> Self {
        Self::new("agui_unreachable", message, true)
    }

    /// The stream ended early.
    pub(super) fn cut(message: impl Into<String>) -> Self {
        Self::new(super::entry::CUT, message.into(), true)
    }

    pub(super) fn too_large(message: impl Into<String>) -> Self {
        Self::new(TOO_LARGE, message.into(), false)
    }
}

/// The `data` of a response's events, in batches that arrived together.
pub(super) type Events = BoxStream<'static, Vec<Result<String, Failure>>>;

/// An AG-UI endpoint. Its headers appear in no error and no `Debug` output.
pub(in crate::agents) struct Endpoint {
    client: reqwest::Client,
    url: Url,
    headers: HeaderMap,
    secrets: Vec<Secret>,
    silence_max: Duration,
    pub(super) time_max: Duration,
    pub(super) retries: u32,
    pub(super) continues: bool,
}

impl Endpoint {
    /// Reads the headers' values; sends nothing yet.
    pub(in crate::agents) fn new(config: &config::endpoint::Endpoint, web: &Web) -> Result<Self, String> {
        let secrets = File::secrets(&config.headers_env).map_err(|error| format!("headers_env: {error}"))?;
        let mut headers = HeaderMap::new();
        for (name, value) in &secrets {
            let unfit = |_| format!("headers_env: the value of {name} cannot be sent in a header");
            let mut value = HeaderValue::from_str(value.expose()).map_err(unfit)?;
            value.set_sensitive(true);
            let name: HeaderName = name.parse().map_err(|_| format!("headers_env: {name:?} is not a header"))?;
            headers.insert(name, value);
        }
        Ok(Self {
            client: web.client(&config.url)?,
            url: config.url.clone(),
            headers,
            secrets: secrets.into_iter().flat_map(|(_, secret)| with_its_credential(secret)).collect(),
            silence_max: config.silence_max,
            time_max: config.time_max,
            retries: config.retries,
            continues: config.continues,
        })
    }

    /// A text from the endpoint, with the credentials that were sent to it masked.
    pub(super) fn masked(&self, text: &str) -> String {
        self.secrets.iter().fold(text.to_owned(), |text, secret| secret.masked_in(&text))
    }

    /// Posts a request and waits for the response's head. Dropping the events closes the connection.
    pub(super) async fn post(&self, request: &Value) -> Result<Events, Failure> {
        let body = request.to_string();
        if body.len() > AGUI_REQUEST_BYTES_MAX {
            let message = format!("the request would have {} bytes of at most {AGUI_REQUEST_BYTES_MAX}", body.len());
            return Err(Failure::too_large(message));
        }
        let sent = self.client.post(self.url.clone()).headers(self.headers.clone());
        let sent = sent.header(ACCEPT, "text/event-stream").header(CONTENT_TYPE, "application/json").body(body).send();
        let answer = match tokio::time::timeout(self.silence_max, sent).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => {
                return Err(Failure::away(format!("the endpoint cannot be reached: {}", describe(&error))));
            }
            Err(_) => return Err(Failure::away(format!("the endpoint was silent for {:?}", self.silence_max))),
        };
        let media_type = answer.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let is_stream =
            media_type.split(';').next().is_some_and(|word| word.trim().eq_ignore_ascii_case("text/event-stream"));
        match answer.status() {
            StatusCode::OK if is_stream => Ok(self.events(answer)),
            StatusCode::OK => {
                let media_type: String = self.masked(media_type).chars().take(ERROR_CHARS_MAX).collect();
                let message = format!("the endpoint answered with {media_type:?} instead of text/event-stream");
                Err(Failure::new("agui_not_a_stream", message, false))
            }
            _ => Err(self.refused(answer).await),
        }
    }

    async fn refused(&self, answer: Response) -> Failure {
        let status = answer.status();
        if status.is_redirection() {
            let message = format!("the endpoint answered {status}; redirects are not followed: configure its own url");
            return Failure::new("agui_refused", message, false);
        }
        let passes =
            status.is_server_error() || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT);
        let retry_after_s = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let text = tokio::time::timeout(self.silence_max, beginning(answer)).await.unwrap_or_default();
        let text = self.masked(&text);
        let text: String = text.chars().filter(|c| !c.is_control()).take(ERROR_CHARS_MAX).collect();
        let colon = if text.is_empty() { "" } else { ": " };
        let message = format!("the endpoint answered {status}{colon}{text}");
        let code = if passes { "agui_unreachable" } else { "agui_refused" };
        Failure { retry_after: retry_after_s.map(Duration::from_secs), ..Failure::new(code, message, passes) }
    }

    fn events(&self, answer: Response) -> Events {
        // The parser's blocks are unbounded, so bytes are counted before it; each block it returns resets the count.
        let pending = Arc::new(AtomicUsize::new(0));
        let bytes = counted(answer, self.silence_max, Arc::clone(&pending));
        let blocks = SseByteStream::new(bytes.boxed()).inspect(move |_| pending.store(0, Ordering::Relaxed));
        let data = blocks.filter_map(async |block| match block {
            Ok(block) => block.data.map(Ok),
            Err(sse_stream::Error::Body(error)) => Some(Err(match error.downcast::<Broken>() {
                Ok(broken) => broken.0,
                Err(error) => Failure::cut(error.to_string()),
            })),
            Err(error) => Some(Err(Failure::cut(format!("the stream is not one of events: {error}")))),
        });
        data.ready_chunks(EVENTS_TOGETHER).boxed()
    }
}

/// A header's value and, if it begins with a scheme such as `Bearer`, the credential alone.
fn with_its_credential(value: Secret) -> Vec<Secret> {
    let alone = value.expose().split_once(' ').map(|(_, credential)| credential.trim());
    let alone = alone.filter(|credential| !credential.is_empty()).map(Secret::new);
    std::iter::once(value).chain(alone).collect()
}

/// [`Failure`] as the error type of a body.
#[derive(Debug)]
struct Broken(Failure);

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for Broken {}

/// The bytes of a response. Ends with an error if a bound is exceeded or the endpoint is silent for too long.
fn counted(
    answer: Response,
    silence_max: Duration,
    pending: Arc<AtomicUsize>,
) -> impl Stream<Item = Result<bytes::Bytes, Broken>> + Send {
    let bytes = answer.bytes_stream().boxed();
    stream::unfold(Some((bytes, 0)), move |state| {
        let pending = Arc::clone(&pending);
        async move {
            let (mut bytes, all) = state?;
            let chunk = match tokio::time::timeout(silence_max, bytes.next()).await {
                Err(_) => Err(Failure::cut(format!("the endpoint was silent for {silence_max:?}"))),
                Ok(None) => return None,
                Ok(Some(Err(error))) => Err(Failure::cut(describe(&error))),
                Ok(Some(Ok(chunk))) => Ok(chunk),
            };
            let fits = chunk.and_then(|chunk| {
                let all = all + chunk.len();
                let waiting = pending.fetch_add(chunk.len(), Ordering::Relaxed) + chunk.len();
                if waiting > AGUI_EVENT_BYTES_MAX {
                    let message = format!("an event of the endpoint is larger than {AGUI_EVENT_BYTES_MAX} bytes");
                    return Err(Failure::too_large(message));
                }
                if all > AGUI_STREAM_BYTES_MAX {
                    let message = format!("the endpoint's answer is larger than {AGUI_STREAM_BYTES_MAX} bytes");
                    return Err(Failure::too_large(message));
                }
                Ok((chunk, all))
            });
            match fits {
                Ok((chunk, all)) => Some((Ok(chunk), Some((bytes, all)))),
                Err(failure) => Some((Err(Broken(failure)), None)),
            }
        }
    })
}

/// The beginning of a response, at most [`ERROR_BYTES_MAX`], as text.
async fn beginning(answer: Response) -> String {
    let (mut bytes, mut read) = (answer.bytes_stream(), Vec::new());
    while let Some(Ok(chunk)) = bytes.next().await {
        read.extend_from_slice(&chunk);
        if read.len() >= ERROR_BYTES_MAX {
            break;
        }
    }
    read.truncate(ERROR_BYTES_MAX);
    String::from_utf8_lossy(&read).into_owned()
}
