//! [`Model`]: messages in, a streamed answer out, in provider-independent types.
//!
//! The types here are stored: conversations in checkpoints, and the content of a message in `message.completed` events.
//! So their JSON is a contract: members are added, never renamed, and a missing one has a default.

use std::{fmt, ops::AddAssign, time::Duration};

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageRole {
    System,
    User,
    Assistant,
    /// The result of a tool call; the message names the call.
    Tool,
}

/// Where an image's bytes are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ImageSource {
    /// Base64, as after the comma of a data URI.
    Data(String),
    /// Fetched by the provider.
    Url(String),
    /// An artifact; the caller of a model replaces it with [`ImageSource::Data`] first.
    ArtifactId(String),
}

/// A piece of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Part {
    Text {
        text: String,
    },
    /// `{"type":"image","media_type":"image/png","data":"…"}`, or `url`, or `artifact_id` instead of `data`.
    Image {
        media_type: String,
        #[serde(flatten)]
        source: ImageSource,
    },
    /// A model's reasoning, in the form its provider expects back. No event carries it.
    Reasoning {
        text: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
    },
}

impl Part {
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }

    /// The image of a base64 `data:` URI; `None` if it is not one.
    pub fn image_of_data_uri(uri: &str) -> Option<Self> {
        let (media_type, data) = uri.strip_prefix("data:")?.split_once(";base64,")?;
        Some(Self::Image { media_type: media_type.to_owned(), source: ImageSource::Data(data.to_owned()) })
    }
}

/// A tool call's id at its provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The provider: the name of its API, and a digest of its address.
    pub provider: String,
    /// Byte for byte as given; absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// A tool call that a model requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Unique in its conversation, and valid as a span id: 1 to 128 characters, none of them a control character.
    pub id: String,
    pub name: String,
    /// Normally an object; text that was not JSON is kept as a string.
    pub args: Value,
    /// Opaque data that some providers expect back with the call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signatures: Vec<String>,
    /// Its id at the provider that made it; absent if no provider did, or if an earlier version stored the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    pub role: MessageRole,
    #[serde(default, deserialize_with = "parts_of")]
    pub content: Vec<Part>,
    /// Only in an assistant's message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// Only in a tool's result: the call it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
}

/// Parts as stored, or a plain text. Another framework's parts in a restored thread are read as an image or as text,
/// because a conversation that cannot be read would start over.
fn parts_of<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<Part>, D::Error> {
    let read = |part: Value| {
        let picture = part["image_url"]["url"].as_str().and_then(Part::image_of_data_uri);
        let text = |part: &Value| part.as_str().map_or_else(|| part.to_string(), str::to_owned);
        picture.unwrap_or_else(|| Part::deserialize(&part).unwrap_or_else(|_| Part::text(text(&part))))
    };
    match Value::deserialize(deserializer)? {
        Value::String(text) => Ok(vec![Part::text(text)]),
        parts => Ok(Vec::deserialize(parts).map_err(serde::de::Error::custom)?.into_iter().map(read).collect()),
    }
}

impl Message {
    fn of(role: MessageRole, text: impl Into<String>) -> Self {
        Self { role, content: vec![Part::text(text)], tool_calls: Vec::new(), tool_call_id: None }
    }

    pub fn system(text: impl Into<String>) -> Self {
        Self::of(MessageRole::System, text)
    }

    pub fn user(text: impl Into<String>) -> Self {
        Self::of(MessageRole::User, text)
    }

    pub fn assistant(text: impl Into<String>) -> Self {
        Self::of(MessageRole::Assistant, text)
    }

    /// A tool's result, or why there is none.
    pub fn tool(call_id: impl Into<String>, text: impl Into<String>) -> Self {
        Self { tool_call_id: Some(call_id.into()), ..Self::of(MessageRole::Tool, text) }
    }

    /// Its text parts, joined as paragraphs.
    pub fn text(&self) -> String {
        let texts = self.content.iter().filter_map(|part| match part {
            Part::Text { text } => Some(text.as_str()),
            Part::Image { .. } | Part::Reasoning { .. } => None,
        });
        texts.collect::<Vec<_>>().join("\n\n")
    }

    /// The parts a reader of the run may see, as `message.completed` carries them.
    pub fn visible(&self) -> Vec<Part> {
        self.content.iter().filter(|part| !matches!(part, Part::Reasoning { .. })).cloned().collect()
    }
}

/// A tool as described to a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    pub name: String,
    pub description: String,
    /// JSON Schema of the arguments.
    pub schema: Value,
}

/// A request to a model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// The conversation, oldest first. System messages come first.
    pub messages: Vec<Message>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolSpec>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Longest answer, tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
}

/// A piece of an answer that is still being written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delta {
    Text(String),
    Reasoning(String),
}

/// Why an answer ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The model was done.
    Stop,
    /// The model requests tool calls.
    ToolCalls,
    /// The answer reached its maximum length.
    Length,
    /// The provider cut it off because of its content.
    Filtered,
    Other(String),
}

/// Token usage of an answer. The numbers of several answers may be added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    pub input_tokens: u64,
    pub output_tokens: u64,
    /// Of the input: read from the provider's cache.
    #[serde(skip_serializing_if = "is_zero")]
    pub cached_tokens: u64,
    /// Of the output: reasoning that is not part of the answer.
    #[serde(skip_serializing_if = "is_zero")]
    pub reasoning_tokens: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.cached_tokens = self.cached_tokens.saturating_add(other.cached_tokens);
        self.reasoning_tokens = self.reasoning_tokens.saturating_add(other.reasoning_tokens);
    }
}

/// A complete answer. Its message is an assistant's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Completion {
    pub message: Message,
    pub usage: Usage,
    pub finish: Finish,
}

/// What the caller can do about a model's failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelErrorKind {
    /// The same request may succeed later.
    Transient,
    /// The provider rejects the key, or there is none.
    Auth,
    /// The conversation is longer than the model accepts.
    ContextTooLong,
    /// The provider refuses to answer.
    Refused,
    /// The caller cancelled the call.
    Cancelled,
    /// The request itself, or the configuration, is wrong.
    Other,
}

impl ModelErrorKind {
    /// The stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::Auth => "auth",
            Self::ContextTooLong => "context_too_long",
            Self::Refused => "refused",
            Self::Cancelled => "cancelled",
            Self::Other => "other",
        }
    }
}

/// A failed model call. Contains no key and no part of the conversation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{message}")]
pub struct ModelError {
    pub kind: ModelErrorKind,
    pub message: String,
    /// How long the provider asked the caller to wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<Duration>,
}

impl ModelError {
    pub fn new(kind: ModelErrorKind, message: impl fmt::Display) -> Self {
        Self { kind, message: message.to_string(), retry_after: None }
    }

    pub fn cancelled() -> Self {
        Self::new(ModelErrorKind::Cancelled, "the call was cancelled")
    }
}

/// Receives the pieces of an answer as it is written.
pub type Deltas<'a> = dyn FnMut(Delta) + Send + 'a;

/// The result of a call.
pub type Completing<'a> = BoxFuture<'a, Result<Completion, ModelError>>;

/// A language model. It is stateless, so that a conversation can continue anywhere.
pub trait Model: Send + Sync {
    /// The name that users write, such as `openai:gpt-5`.
    fn name(&self) -> &str;

    /// Returns the answer; its pieces are passed to `deltas` as they arrive and add up to its text. Dropping the future
    /// ends the call. A call that failed after a piece was passed on is not retried by the model.
    fn complete<'a>(&'a self, request: &'a Request, deltas: &'a mut Deltas<'_>) -> Completing<'a>;
}

/// Calls the model, and ends the call when the token is cancelled.
pub async fn complete_until(
    model: &dyn Model,
    request: &Request,
    deltas: &mut Deltas<'_>,
    cancel: &CancellationToken,
) -> Result<Completion, ModelError> {
    tokio::select! {
        biased;
        () = cancel.cancelled() => Err(ModelError::cancelled()),
        answer = model.complete(request, deltas) => answer,
    }
}

#[cfg(test)]
mod tests;
