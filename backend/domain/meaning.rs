//! The meaning of an event in a conversation, independent of the protocol it is shown in.
//!
//! Producers omit members and spell some in several ways; this is resolved here, once per event and not per reader
//! ([`Frame::meaning`](crate::bus::Frame::meaning)).

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;

use super::{
    event::{EventKind, EventType},
    id::{Seq, SpanId},
    json::{Json, JsonSlice, Members},
    limits::CHAT_RECENT_MAX,
    run::Status,
    usage::Usage,
};

/// The kind of a text: a message or reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Message,
    Reasoning,
}

impl Kind {
    /// The kind of text that an event or a token belongs to.
    pub fn of(event_type: &EventType) -> Option<Self> {
        match event_type.kind()? {
            EventKind::MessageDelta | EventKind::MessageCompleted => Some(Self::Message),
            EventKind::ReasoningDelta | EventKind::ReasoningCompleted => Some(Self::Reasoning),
            _ => None,
        }
    }
}

/// A text, identified by its span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    pub span: SpanId,
    pub parent: Option<SpanId>,
    pub kind: Kind,
    pub role: Cow<'static, str>,
}

impl Text {
    /// A text of an agent.
    pub fn new(span: SpanId, kind: Kind) -> Self {
        Self { span, parent: None, kind, role: Cow::Borrowed("assistant") }
    }

    /// Whether it is a message from the run's input, which the server's agents record under spans `input.N`. Such a
    /// message may be the agent's own.
    pub fn is_input(&self) -> bool {
        let number = self.span.as_str().strip_prefix("input.");
        self.parent.is_none() && number.is_some_and(|number| number.parse::<u32>().is_ok())
    }
}

/// The meaningful parts of an event's payload. JSON is as its producer wrote it, `None` where omitted.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    RunCreated,
    RunStarted,
    RunResumed,
    /// `waiting` or `interrupted`.
    RunPaused(Status),
    RunCompleted {
        output: Option<Json>,
    },
    RunFailed {
        error: Option<Json>,
    },
    RunCancelled {
        reason: Option<String>,
    },
    /// `is_client`: the client makes the call, and its result is not in the run.
    ToolStarted {
        tool_call_id: String,
        name: String,
        args: Option<Json>,
        is_client: bool,
    },
    /// `message_id`: the id of the result's message in its producer's protocol.
    ToolCompleted {
        tool_call_id: String,
        name: String,
        result: Option<Json>,
        message_id: Option<String>,
    },
    ToolFailed {
        tool_call_id: String,
        name: String,
        error: Option<Json>,
        message_id: Option<String>,
    },
    StepStarted {
        name: String,
    },
    /// `error` is set if the step failed.
    StepEnded {
        name: String,
        error: Option<Json>,
    },
    /// The interrupt's id is its span. `tool_call_id` is the call that it is about.
    InterruptRequested {
        interrupt_id: String,
        tool_call_id: Option<String>,
    },
    InterruptResolved {
        interrupt_id: String,
    },
    Checkpointed,
    /// A complete message or reasoning. `content` is `None` if the payload became an artifact or has no text. A text
    /// without a span is identified by its seq.
    Text {
        text: Text,
        content: Option<String>,
        /// The ids of the first calls that the message announces.
        tool_call_ids: Vec<String>,
        usage: Option<Usage>,
    },
    /// A part of a text in progress; `offset` is the number of characters before it.
    Token {
        text: Text,
        offset: usize,
        piece: String,
    },
    /// Any other: `custom.*`, `log.*`, `artifact.created`, `worker.*`, `state.compacted`, and families of producers.
    Other,
}

impl What {
    /// Reads an event; one without a seq is ephemeral.
    pub fn of(
        event_type: &EventType,
        (span, parent): (Option<&SpanId>, Option<&SpanId>),
        seq: Option<Seq>,
        payload: JsonSlice<'_>,
    ) -> Self {
        let Some(seq) = seq else { return token(event_type, (span, parent), payload).unwrap_or(Self::Other) };
        let members = payload.members();
        match Kind::of(event_type) {
            Some(kind) => {
                let span = span.cloned().unwrap_or_else(|| SpanId::trusted(&format!("event-{seq}")));
                let role = members.read("role").map_or(Cow::Borrowed("assistant"), Cow::Owned);
                Self::Text {
                    text: Text { span, parent: parent.cloned(), kind, role },
                    content: content(&members),
                    tool_call_ids: call_ids(&members),
                    usage: members.slice("usage").and_then(Usage::of),
                }
            }
            None => what(event_type, span, payload, &members),
        }
    }
}

fn call_ids(members: &Members<'_>) -> Vec<String> {
    #[derive(Deserialize)]
    struct Call {
        id: Option<Value>,
    }
    let calls: Vec<Call> = members.read("tool_calls").unwrap_or_default();
    let ids = calls.into_iter().filter_map(|call| match call.id {
        Some(Value::String(id)) => Some(id),
        _ => None,
    });
    ids.take(CHAT_RECENT_MAX).collect()
}

/// The text of a durable payload: from `content`, a text or a list of parts, else from `text`.
pub fn content_of(payload: JsonSlice<'_>) -> Option<String> {
    content(&payload.members())
}

fn content(members: &Members<'_>) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Content {
        Text(String),
        Parts(Vec<PartOf>),
    }
    #[derive(Deserialize)]
    struct PartOf {
        #[serde(rename = "type")]
        kind: Option<String>,
        text: Option<String>,
    }
    match members.read("content") {
        Some(Content::Text(text)) => Some(text),
        Some(Content::Parts(parts)) => {
            let texts = parts.into_iter().filter(|part| part.kind.as_deref() == Some("text"));
            Some(texts.filter_map(|part| part.text).collect())
        }
        None => members.read("text"),
    }
}

fn token(
    event_type: &EventType,
    (span, parent): (Option<&SpanId>, Option<&SpanId>),
    payload: JsonSlice<'_>,
) -> Option<What> {
    #[derive(Deserialize)]
    struct Token {
        text: String,
        offset: usize,
        role: Option<Value>,
    }
    let mut text = Text { parent: parent.cloned(), ..Text::new(span?.clone(), Kind::of(event_type)?) };
    let token: Token = serde_json::from_str(payload.as_str()).ok()?;
    if let Some(Value::String(role)) = token.role {
        text.role = Cow::Owned(role);
    }
    Some(What::Token { text, offset: token.offset, piece: token.text })
}

fn what(event_type: &EventType, span: Option<&SpanId>, payload: JsonSlice<'_>, members: &Members<'_>) -> What {
    let text = |name: &str| members.read::<String>(name);
    let span = || span.map_or_else(String::new, |span| span.as_str().to_owned());
    let name = || text("name").unwrap_or_else(span);
    let tool_call_id = || text("tool_call_id").unwrap_or_else(span);
    let message_id = || text("message_id");
    let error = || members.raw("error");
    let Some(kind) = event_type.kind() else { return What::Other };
    match kind {
        EventKind::RunCreated => What::RunCreated,
        EventKind::RunStarted => What::RunStarted,
        EventKind::RunResumed => What::RunResumed,
        EventKind::RunWaiting => What::RunPaused(Status::Waiting),
        EventKind::RunInterrupted => What::RunPaused(Status::Interrupted),
        EventKind::RunCompleted => What::RunCompleted { output: members.raw("output") },
        EventKind::RunFailed => {
            What::RunFailed { error: error().or_else(|| Some(Json::trusted(payload.as_str().to_owned()))) }
        }
        EventKind::RunCancelled => What::RunCancelled { reason: text("reason") },
        EventKind::ToolStarted => What::ToolStarted {
            tool_call_id: tool_call_id(),
            name: name(),
            args: members.raw("args"),
            is_client: members.read("client").unwrap_or(false),
        },
        EventKind::ToolCompleted => What::ToolCompleted {
            tool_call_id: tool_call_id(),
            name: name(),
            result: members.raw("result"),
            message_id: message_id(),
        },
        EventKind::ToolFailed => {
            What::ToolFailed { tool_call_id: tool_call_id(), name: name(), error: error(), message_id: message_id() }
        }
        EventKind::StepStarted => What::StepStarted { name: name() },
        EventKind::StepCompleted => What::StepEnded { name: name(), error: None },
        EventKind::StepFailed => What::StepEnded { name: name(), error: error().or_else(|| Some(Json::empty())) },
        EventKind::InterruptRequested => {
            What::InterruptRequested { interrupt_id: span(), tool_call_id: text("tool_call_id") }
        }
        EventKind::InterruptResolved => What::InterruptResolved { interrupt_id: span() },
        EventKind::StateCheckpointed => What::Checkpointed,
        _ => What::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meaning(event_type: &str, seq: Option<i64>, payload: &str) -> What {
        let (span, seq) = (SpanId::trusted("s"), seq.and_then(Seq::new));
        What::of(&event_type.parse().unwrap(), (Some(&span), None), seq, JsonSlice::trusted(payload))
    }

    #[test]
    fn a_text_is_read_in_each_of_its_spellings() {
        let content = |payload: &str| match meaning("message.completed", Some(1), payload) {
            What::Text { content, .. } => content,
            other => panic!("{other:?}"),
        };
        assert_eq!(content(r#"{"content":"a"}"#).as_deref(), Some("a"));
        assert_eq!(content(r#"{"text":"b"}"#).as_deref(), Some("b"));
        let parts = r#"{"content":[{"type":"text","text":"c"},{"type":"image"},{"type":"text","text":"d"}]}"#;
        assert_eq!(content(parts).as_deref(), Some("cd"));
        assert_eq!(content("[]"), None);
    }

    #[test]
    fn what_a_producer_left_out_comes_from_the_span_or_is_empty() {
        let (tool_call_id, name) = ("s".to_owned(), "s".to_owned());
        assert_eq!(
            meaning("tool.started", Some(1), "{}"),
            What::ToolStarted { tool_call_id, name, args: None, is_client: false }
        );
        assert_eq!(meaning("run.failed", Some(1), "7"), What::RunFailed { error: Json::parse("7").ok() });
    }

    #[test]
    fn a_token_is_of_the_role_that_it_says() {
        let role = |payload: &str| match meaning("message.delta", None, payload) {
            What::Token { text, .. } => text.role,
            other => panic!("{other:?}"),
        };
        assert_eq!(role(r#"{"text":"a","offset":0,"role":"user"}"#), "user");
        assert_eq!(role(r#"{"text":"a","offset":0,"role":7}"#), "assistant");
    }

    #[test]
    fn only_an_ephemeral_event_is_a_token() {
        assert!(matches!(
            meaning("message.delta", None, r#"{"text":"a","offset":4}"#),
            What::Token { offset: 4, piece, .. } if piece == "a"
        ));
        assert_eq!(meaning("message.delta", None, "{}"), What::Other);
    }
}
