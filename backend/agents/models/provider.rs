//! [`Provider`]: a model behind an HTTP API, reached through the `genai` library.
//!
//! A call is retried only while no piece of its answer was passed on, and only after a temporary failure.

use std::{fmt, sync::Arc, time::Duration};

use futures::StreamExt;
use genai::{
    ModelIden, ServiceTarget,
    adapter::AdapterKind,
    chat::{ChatOptions, ChatStreamEvent, ReasoningEffort, StreamEnd},
    resolver::{AuthData, Endpoint},
};
use reqwest::Url;

use super::{error, translate, web::Web};
use crate::{
    agents::model::{Completing, Completion, Delta, Deltas, Model, ModelError, ModelErrorKind, Request},
    client::pace::{Backoff, Pace, SystemPace},
    config::Secret,
    domain::limits::{MODEL_ANSWER_BYTES_MAX, MODEL_RETRY_WAIT_MS_MAX, MODEL_TOOL_CALLS_MAX},
};

pub use crate::config::models::{Kind, Reasoning};

fn adapter(kind: Kind) -> AdapterKind {
    match kind {
        Kind::OpenAi => AdapterKind::OpenAI,
        Kind::OpenAiResponses => AdapterKind::OpenAIResp,
        Kind::Anthropic => AdapterKind::Anthropic,
        Kind::Gemini => AdapterKind::Gemini,
        Kind::Ollama => AdapterKind::Ollama,
    }
}

/// How a model is reached.
#[derive(Clone, Debug)]
pub struct Settings {
    pub kind: Kind,
    /// The provider's name for it.
    pub model: String,
    pub base_url: Url,
    /// Sent to `base_url` and nowhere else.
    pub key: Option<Secret>,
    /// Longest time for one whole answer.
    pub answer_time_max: Duration,
    /// Longest silence: before the first byte and between two.
    pub silence_max: Duration,
    /// How often a failed call is retried.
    pub retries: u32,
    /// The reasoning effort, in the terms that providers share.
    pub reasoning: Option<Reasoning>,
}

/// A model of a provider.
#[derive(Clone)]
pub struct Provider {
    name: String,
    settings: Settings,
    client: genai::Client,
    target: ServiceTarget,
    pace: Arc<dyn Pace>,
}

impl Provider {
    /// Sends nothing yet. The error states why it never could.
    pub fn new(settings: Settings, web: &Web) -> Result<Self, String> {
        let name = format!("{}:{}", settings.kind.as_str(), settings.model);
        let client = genai::Client::builder().with_reqwest(web.client(&settings.base_url)?).build();
        let client = client.map_err(|_| "the HTTP client cannot be created".to_owned())?;
        let target = ServiceTarget {
            endpoint: Endpoint::from_owned(settings.base_url.as_str()),
            auth: auth(&settings),
            model: ModelIden::new(adapter(settings.kind), settings.model.as_str()),
        };
        Ok(Self { name, settings, client, target, pace: Arc::new(SystemPace) })
    }

    fn options(&self, request: &Request) -> ChatOptions {
        let options = ChatOptions::default()
            .with_capture_usage(true)
            .with_capture_content(true)
            .with_capture_reasoning_content(true)
            .with_capture_tool_calls(true)
            .with_stream_header_timeout(self.settings.silence_max)
            .with_stream_read_timeout(self.settings.silence_max);
        let effort = self.settings.reasoning.map(|reasoning| match reasoning {
            Reasoning::None => ReasoningEffort::Zero,
            Reasoning::Low => ReasoningEffort::Low,
            Reasoning::Medium => ReasoningEffort::Medium,
            Reasoning::High => ReasoningEffort::High,
            Reasoning::Max => ReasoningEffort::Max,
        });
        ChatOptions {
            temperature: request.temperature,
            max_tokens: request.max_tokens,
            reasoning_effort: effort,
            ..options
        }
    }

    /// One attempt. `told` states afterwards whether the caller has seen a piece of the answer.
    async fn attempt(
        &self,
        request: &Request,
        deltas: &mut Deltas<'_>,
        told: &mut bool,
    ) -> Result<Completion, ModelError> {
        let asked = translate::request(self.settings.kind, request)?;
        let options = self.options(request);
        let answer = self.client.exec_chat_stream(self.target.clone(), asked, Some(&options)).await;
        let mut stream = answer.map_err(|error| error::model_error(&error))?.stream;
        let (mut text, mut bytes, mut args) = (String::new(), 0, 0);
        while let Some(event) = stream.next().await {
            match event.map_err(|error| error::model_error(&error))? {
                ChatStreamEvent::Chunk(chunk) => {
                    bytes += chunk.content.len();
                    text.push_str(&chunk.content);
                    *told = true;
                    deltas(Delta::Text(chunk.content));
                }
                ChatStreamEvent::ReasoningChunk(chunk) => {
                    bytes += chunk.content.len();
                    *told = true;
                    deltas(Delta::Reasoning(chunk.content));
                }
                ChatStreamEvent::ToolCallChunk(chunk) => {
                    // Holds the arguments so far, or the whole call.
                    args = chunk.tool_call.fn_arguments.as_str().map_or(0, str::len).max(args);
                }
                ChatStreamEvent::End(end) => return self.ended(end, text, request),
                ChatStreamEvent::Start | ChatStreamEvent::ThoughtSignatureChunk(_) | ChatStreamEvent::Heartbeat => {}
            }
            if bytes.saturating_add(args) > MODEL_ANSWER_BYTES_MAX {
                return Err(too_long());
            }
        }
        Err(error::cut())
    }

    fn ended(&self, end: StreamEnd, text: String, request: &Request) -> Result<Completion, ModelError> {
        // The library also ends a stream that was cut, for providers whose format has no end marker.
        let unfinished = match self.settings.kind {
            Kind::OpenAi | Kind::OpenAiResponses => false,
            Kind::Anthropic | Kind::Gemini => end.captured_stop_reason.is_none(),
            Kind::Ollama => end.captured_stop_reason.is_none() && end.captured_usage.is_none(),
        };
        if unfinished {
            return Err(error::cut());
        }
        let completion = translate::completion(self.settings.kind, end, text, &request.messages);
        if completion.message.tool_calls.len() > MODEL_TOOL_CALLS_MAX {
            return Err(too_long());
        }
        Ok(completion)
    }

    async fn answer(&self, request: &Request, deltas: &mut Deltas<'_>) -> Result<Completion, ModelError> {
        let mut backoff = Backoff::default();
        let mut failures = 0;
        loop {
            let mut told = false;
            let attempt = self.attempt(request, deltas, &mut told);
            let late = || ModelError::new(ModelErrorKind::Transient, "no complete response in time");
            let done = tokio::time::timeout(self.settings.answer_time_max, attempt).await;
            let error = match done.unwrap_or_else(|_| Err(late())) {
                Ok(completion) => return Ok(completion),
                Err(error) => self.masked(error),
            };
            let wait_max = Duration::from_millis(MODEL_RETRY_WAIT_MS_MAX);
            let patient = error.retry_after.is_none_or(|wait| wait <= wait_max);
            if told || error.kind != ModelErrorKind::Transient || failures >= self.settings.retries || !patient {
                return Err(error);
            }
            failures += 1;
            tracing::info!(model = self.name, failures, "retrying a model call: {error}");
            self.pace.wait(backoff.next(error.retry_after, self.pace.jitter())).await;
        }
    }

    fn masked(&self, error: ModelError) -> ModelError {
        let Some(key) = &self.settings.key else { return error };
        ModelError { message: key.masked_in(&error.message), ..error }
    }
}

fn too_long() -> ModelError {
    ModelError::new(
        ModelErrorKind::Other,
        format!(
            "the response is longer than {MODEL_ANSWER_BYTES_MAX} bytes or has more than {MODEL_TOOL_CALLS_MAX} tool \
             calls"
        ),
    )
}

/// A snapshot: the library is given the key itself and never a place to look one up.
fn auth(settings: &Settings) -> AuthData {
    match (&settings.key, settings.kind) {
        (Some(key), _) => AuthData::from_single(key.expose()),
        (None, Kind::Ollama) => AuthData::None,
        // Without a key no `Authorization` header is sent at all.
        (None, Kind::OpenAi) => AuthData::RequestOverride {
            url: format!("{}chat/completions", settings.base_url),
            headers: genai::Headers::default(),
        },
        (None, Kind::OpenAiResponses | Kind::Anthropic | Kind::Gemini) => AuthData::from_single(""),
    }
}

impl Model for Provider {
    fn name(&self) -> &str {
        &self.name
    }

    fn complete<'a>(&'a self, request: &'a Request, deltas: &'a mut Deltas<'_>) -> Completing<'a> {
        Box::pin(self.answer(request, deltas))
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provider").field("name", &self.name).finish_non_exhaustive()
    }
}
