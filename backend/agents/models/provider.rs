//! [`Provider`]: a model behind an HTTP API.
//!
//! A call is retried only while no piece of its answer was passed on, and only after a temporary failure.

use std::{fmt, sync::Arc, time::Duration};

use futures::StreamExt as _;
use reqwest::{
    Response, Url,
    header::{CONTENT_TYPE, HeaderMap, HeaderValue},
};
use serde_json::Value;

use super::{answer::Answer, anthropic, error, frames, gemini, ids::Ids, ollama, openai, responses, web::Web};
use crate::{
    agents::model::{Completing, Completion, Deltas, Model, ModelError, ModelErrorKind, Request},
    client::pace::{Backoff, Pace, SystemPace},
    config::Secret,
    domain::limits::MODEL_RETRY_WAIT_MS_MAX,
};

pub use crate::config::models::{Kind, Reasoning};

/// How a model is reached.
#[derive(Clone, Debug)]
pub struct Settings {
    pub kind: Kind,
    /// The provider's name for it.
    pub model: String,
    pub base_url: Url,
    /// Sent to `base_url` and nowhere else.
    pub key: Option<Secret>,
    /// Longest time for one attempt.
    pub answer_time_max: Duration,
    /// Longest silence, before the first byte and between two.
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
    client: reqwest::Client,
    url: Url,
    ids: Ids,
    pace: Arc<dyn Pace>,
}

impl Provider {
    /// Sends nothing yet. The error states why no request could be sent.
    pub fn new(settings: Settings, web: &Web) -> Result<Self, String> {
        let name = format!("{}:{}", settings.kind.as_str(), settings.model);
        let path = match settings.kind {
            Kind::OpenAi => openai::PATH.to_owned(),
            Kind::OpenAiResponses => responses::PATH.to_owned(),
            Kind::Anthropic => anthropic::PATH.to_owned(),
            Kind::Gemini => gemini::path(&settings.model),
            Kind::Ollama => ollama::PATH.to_owned(),
        };
        let url = format!("{}{path}", settings.base_url).parse().map_err(|_| "the model has no address".to_owned())?;
        let ids = Ids::new(settings.kind, settings.base_url.as_str());
        let client = web.client(&settings.base_url)?;
        Ok(Self { name, settings, client, url, ids, pace: Arc::new(SystemPace) })
    }

    fn body(&self, request: &Request) -> Result<Value, ModelError> {
        let (settings, ids) = (&self.settings, &self.ids);
        match settings.kind {
            Kind::OpenAi => openai::body(settings, ids, request),
            Kind::OpenAiResponses => responses::body(settings, ids, request),
            Kind::Anthropic => anthropic::body(settings, ids, request),
            Kind::Gemini => gemini::body(settings, ids, request),
            Kind::Ollama => ollama::body(settings, ids, request),
        }
    }

    /// The headers of a request; without a key, no authentication header.
    fn headers(&self) -> Result<HeaderMap, ModelError> {
        let mut headers = HeaderMap::new();
        if self.settings.kind == Kind::Anthropic {
            let (name, version) = anthropic::VERSION;
            headers.insert(name, HeaderValue::from_static(version));
        }
        let Some(key) = &self.settings.key else { return Ok(headers) };
        let (name, value) = match self.settings.kind {
            Kind::Anthropic => ("x-api-key", key.expose().to_owned()),
            Kind::Gemini => ("x-goog-api-key", key.expose().to_owned()),
            Kind::OpenAi | Kind::OpenAiResponses | Kind::Ollama => {
                ("authorization", format!("Bearer {}", key.expose()))
            }
        };
        let mut value = HeaderValue::try_from(value).map_err(|_| error::unsendable())?;
        value.set_sensitive(true);
        headers.insert(name, value);
        Ok(headers)
    }

    async fn post(&self, request: &Request) -> Result<Response, ModelError> {
        let body = self.body(request)?;
        let sent = self.client.post(self.url.clone()).headers(self.headers()?).json(&body).send();
        let sent = tokio::time::timeout(self.settings.silence_max, sent).await.map_err(|_| error::silent())?;
        let response = sent.map_err(|error| error::of_transport(&error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let (status, headers) = (response.status(), response.headers().clone());
        let text = tokio::time::timeout(self.settings.silence_max, frames::beginning(response)).await;
        Err(error::of_status(status, &text.unwrap_or_default(), &headers))
    }

    /// One attempt. `passed_on` states afterwards whether a piece of the answer was passed to the caller.
    async fn attempt(
        &self,
        request: &Request,
        deltas: &mut Deltas<'_>,
        passed_on: &mut bool,
    ) -> Result<Completion, ModelError> {
        let response = self.post(request).await?;
        let media_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let media_type = media_type.to_owned();
        let mut events = std::pin::pin!(frames::events(response, self.settings.silence_max));
        let mut answer = Answer::new(self.settings.kind, deltas);
        while !answer.is_done
            && let Some(event) = events.next().await
        {
            let read = event.and_then(|event| answer.read(&event));
            *passed_on = answer.told;
            match read {
                Ok(()) => {}
                // The answer is complete; only its usage is missing.
                Err(error) if error.kind == ModelErrorKind::Transient && answer.finish.is_some() => break,
                Err(error) => return Err(error),
            }
        }
        answer.completion(&self.ids, &request.messages, &media_type)
    }

    async fn answer(&self, request: &Request, deltas: &mut Deltas<'_>) -> Result<Completion, ModelError> {
        let mut backoff = Backoff::default();
        let mut failures = 0;
        loop {
            let mut passed_on = false;
            let attempt = self.attempt(request, deltas, &mut passed_on);
            let late = || ModelError::new(ModelErrorKind::Transient, "no complete response in time");
            let done = tokio::time::timeout(self.settings.answer_time_max, attempt).await;
            let error = match done.unwrap_or_else(|_| Err(late())) {
                Ok(completion) => return Ok(completion),
                Err(error) => self.masked(error),
            };
            let wait_max = Duration::from_millis(MODEL_RETRY_WAIT_MS_MAX);
            let patient = error.retry_after.is_none_or(|wait| wait <= wait_max);
            if passed_on || error.kind != ModelErrorKind::Transient || failures >= self.settings.retries || !patient {
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
