//! The `ask` node: the endpoint's questions to people, and their answers in the form its next request carries.

use serde_json::{Value, json};

use super::talk::{Asked, Resume, Talk};
use crate::{
    domain::{
        interrupt::Decision,
        limits::{AGUI_INTERRUPTS_MAX, PAYLOAD_BYTES_MAX},
    },
    emitters::host::Answered,
    engine::{NodeContext, Stop, context::Question},
};

pub(super) async fn ask(context: NodeContext<Talk>) -> Result<Talk, Stop> {
    let (mut talk, mut open) = ((*context.state).clone(), Vec::new());
    for Asked { span, id, call, payload } in std::mem::take(&mut talk.turn.asked) {
        match context.env.host.answer(&span).await? {
            Some(answered) if answered.is_of(&payload) => {
                talk.turn.resume.push(Resume { entry: entry(&id, answered), call });
            }
            Some(_) => return Err(Stop::failed("a question changed after it was asked")),
            None => {
                let call = payload["tool_call_id"].as_str().and_then(|call| call.parse().ok());
                open.push(Question { interrupt_id: span, payload, step: call.unwrap_or_else(|| context.span.clone()) });
            }
        }
    }
    if open.is_empty() { Ok(talk) } else { Err(Stop::Ask(open)) }
}

/// An answer as an entry of AG-UI's `resume`. In an approval, an object from the person is passed on with `approved`
/// set to the decision.
fn entry(id: &str, answered: Answered) -> Value {
    let decided = |approved: bool, value: Option<Value>, name: &str| match value {
        Some(Value::Object(mut members)) => {
            members.insert("approved".to_owned(), json!(approved));
            Value::Object(members)
        }
        Some(Value::Null) | None => json!({"approved": approved}),
        Some(other) => json!({"approved": approved, name: other}),
    };
    let payload = match answered.decision {
        Decision::Approve => decided(true, answered.value, "value"),
        Decision::Reject => decided(false, answered.value, "reason"),
        Decision::Respond => answered.value.unwrap_or_default(),
        Decision::Expired | Decision::Cancelled => return json!({"interruptId": id, "status": "cancelled"}),
    };
    json!({"interruptId": id, "status": "resolved", "payload": payload})
}

/// The questions of a `RUN_FINISHED` event that interrupts the run. The error becomes the run's failure.
pub(super) fn questions(talk: &Talk, interrupts: &Value) -> Result<Vec<Asked>, String> {
    let interrupts = interrupts.as_array().filter(|interrupts| !interrupts.is_empty());
    let interrupts = interrupts.ok_or("the run was interrupted without a question")?;
    if interrupts.len() > AGUI_INTERRUPTS_MAX {
        return Err(format!("the endpoint asks more than {AGUI_INTERRUPTS_MAX} questions at once"));
    }
    let mut asked: Vec<Asked> = Vec::new();
    for interrupt in interrupts {
        let id = interrupt["id"].as_str().ok_or("a question has no id")?;
        let fitted = super::spans::fitted(id);
        let is_taken = |span: &str| {
            talk.turn.questions.contains(span) || asked.iter().any(|earlier| earlier.span.as_str() == span)
        };
        let span = super::spans::unused(&fitted, is_taken);
        let call = interrupt["toolCallId"].as_str().map(str::to_owned);
        asked.push(Asked { span, id: id.to_owned(), call, payload: payload(talk, interrupt) });
    }
    Ok(asked)
}

/// The payload of an interrupt. Metadata and the answer's schema are included if they fit; if the rest is too large,
/// the arguments are left out and the prompt is cut.
fn payload(talk: &Talk, interrupt: &Value) -> Value {
    let text = |name: &str| interrupt[name].as_str().map(str::to_owned);
    let call = text("toolCallId").and_then(|id| talk.turn.calls.get(&id).cloned());
    let reason = text("reason").unwrap_or_default();
    let kind = if call.is_some() || reason == "tool_call" { "approval" } else { "question" };
    let mut payload = json!({"kind": kind, "prompt": text("message").unwrap_or_else(|| reason.clone())});
    payload["reason"] = json!(reason);
    if let Some(call) = call {
        payload["tool"] = json!(call.name);
        payload["args"] = call.args;
        payload["tool_call_id"] = json!(call.span);
    }
    let expires_at = text("expiresAt").filter(|at| chrono::DateTime::parse_from_rfc3339(at).is_ok());
    if let Some(at) = expires_at {
        payload["expires_at"] = json!(at);
    }
    for (name, from) in [("metadata", "metadata"), ("response_schema", "responseSchema")] {
        let Some(value) = interrupt.get(from).filter(|value| !value.is_null()) else { continue };
        if payload.to_string().len() + value.to_string().len() < PAYLOAD_BYTES_MAX - 1_024 {
            payload[name] = value.clone();
        }
    }
    if payload.to_string().len() >= PAYLOAD_BYTES_MAX {
        payload["args"] = json!({"truncated": true});
        payload["prompt"] = json!(text("message").unwrap_or_default().chars().take(4_000).collect::<String>());
    }
    payload
}
