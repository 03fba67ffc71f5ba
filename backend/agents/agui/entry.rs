//! [`Entry`]: one item reported by an endpoint, as stored in the journal and as emitted.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::talk::{Asked, End, read};
use crate::{
    domain::id::{EventId, SpanId},
    emitters::{
        emitter::Draft,
        proxied::{Said, draft},
    },
};

/// The error code for what a broken stream cut off.
pub(super) const CUT: &str = "agui_cut";

/// Event types of the family `agui`, without its prefix.
const WORDS: [&str; 12] = [
    "activity_delta",
    "activity_snapshot",
    "custom",
    "messages_snapshot",
    "raw",
    "reasoning_encrypted_value",
    "state_delta",
    "state_snapshot",
    "subagent_error",
    "subagent_finished",
    "subagent_started",
    "usage",
];

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub(super) enum Entry {
    /// A request was made.
    Posted,
    /// A text begins; its pieces follow, and are not stored.
    Opened {
        span: SpanId,
        is_reasoning: bool,
    },
    /// A complete message, or reasoning. `message` has AG-UI's form; `about` holds the event's other members.
    Text {
        span: SpanId,
        is_reasoning: bool,
        message: Value,
        about: Map<String, Value>,
    },
    /// `parent` is the id of the message that the call belongs to, `args` the text as received.
    Called {
        span: SpanId,
        id: String,
        parent: Option<String>,
        name: String,
        args: String,
        is_client: bool,
    },
    /// `message` has AG-UI's form and the role `tool`.
    Returned {
        span: SpanId,
        id: String,
        name: String,
        message: Value,
    },
    Messages {
        messages: Vec<Value>,
    },
    State {
        snapshot: Value,
    },
    StateDelta {
        delta: Value,
    },
    Signed {
        payload: Value,
    },
    StepBegan {
        span: SpanId,
        name: String,
    },
    StepEnded {
        span: SpanId,
        name: String,
    },
    /// Another event of AG-UI; `word` is its type within the family `agui`.
    Noted {
        word: String,
        payload: Value,
    },
    /// A text that was lost with its stream. `text` is the part received, if this process has it.
    TextCut {
        span: SpanId,
        is_reasoning: bool,
        text: Option<String>,
        why: String,
    },
    CallCut {
        span: SpanId,
        id: String,
        name: String,
        why: String,
    },
    StepCut {
        span: SpanId,
        name: String,
        why: String,
    },
    /// The stream of the last request ended before the run did.
    Cut {
        message: String,
        span: Option<SpanId>,
    },
    Warned {
        message: String,
    },
    Asked {
        asked: Vec<Asked>,
    },
    Ended {
        end: End,
    },
}

impl Entry {
    /// The event that records the entry, if there is one.
    pub(super) fn draft(&self, id: &EventId) -> Option<Draft> {
        let event = |kind, span, payload: &Value| Some(draft(kind, id, span, None, payload));
        match self {
            Self::Text { span, is_reasoning: true, message, about } => {
                event(Said::Reasoning, Some(span), &with(json!({"text": message["content"]}), about))
            }
            Self::Text { span, message, about, .. } => {
                let content = json!([{"type": "text", "text": message["content"]}]);
                let payload = with(json!({"role": message["role"], "content": content}), about);
                event(Said::Message, Some(span), &payload)
            }
            Self::Called { span, parent, name, args, is_client, .. } => {
                let mut payload = json!({"tool_call_id": span, "name": name, "args": read(args)});
                if *is_client {
                    payload["client"] = json!(true);
                }
                let parent = parent.as_deref().map(super::spans::fitted);
                Some(draft(Said::ToolStarted, id, Some(span), parent.as_ref(), &payload))
            }
            Self::Returned { span, name, message, .. } => {
                let (result, message_id) = (&message["content"], &message["id"]);
                let payload = json!({"tool_call_id": span, "name": name, "result": result, "message_id": message_id});
                event(Said::ToolCompleted, Some(span), &payload)
            }
            Self::Messages { messages } => event(Said::Agui("messages_snapshot"), None, &json!({"messages": messages})),
            Self::State { snapshot } => event(Said::Agui("state_snapshot"), None, &json!({"snapshot": snapshot})),
            Self::StateDelta { delta } => event(Said::Agui("state_delta"), None, &json!({"delta": delta})),
            Self::Signed { payload } => event(Said::Agui("reasoning_encrypted_value"), None, payload),
            Self::Noted { word, payload } => {
                let word = WORDS.into_iter().find(|known| known == word).unwrap_or("raw");
                event(Said::Agui(word), None, payload)
            }
            Self::StepBegan { span, name } => event(Said::StepStarted, Some(span), &json!({"name": name})),
            Self::StepEnded { span, name } => event(Said::StepCompleted, Some(span), &json!({"name": name})),
            Self::StepCut { span, name, why } => {
                event(Said::StepFailed, Some(span), &json!({"name": name, "error": cut(why)}))
            }
            Self::TextCut { span, is_reasoning, text, why } => {
                let what = if *is_reasoning { "reasoning" } else { "message" };
                let mut payload = json!({"what": what, "message_id": span, "error": cut(why)});
                if let Some(text) = text {
                    payload["text"] = json!(text);
                }
                event(Said::Agui("failed"), Some(span), &payload)
            }
            Self::CallCut { span, name, why, .. } => {
                let payload = json!({"tool_call_id": span, "name": name, "error": cut(why)});
                event(Said::ToolFailed, Some(span), &payload)
            }
            Self::Cut { message, span } => event(Said::Warning, span.as_ref(), &json!({"message": message})),
            Self::Warned { message } => event(Said::Warning, None, &json!({"message": message})),
            Self::Posted | Self::Opened { .. } | Self::Asked { .. } | Self::Ended { .. } => None,
        }
    }
}

fn cut(why: &str) -> Value {
    json!({"code": CUT, "message": why})
}

fn with(mut payload: Value, about: &Map<String, Value>) -> Value {
    for (name, value) in about {
        payload[name] = value.clone();
    }
    payload
}
