//! Calls of tools, and the questions about them.

use serde_json::json;

use super::{AgUi, Said};
use crate::{
    domain::{id::SpanId, json::Json},
    faces::conversation::{Event, What},
};

impl AgUi {
    pub(super) fn tool(&mut self, event: &Event, out: &mut Vec<Said>) {
        match &event.what {
            What::ToolStarted { tool_call_id, name, args, is_client } => {
                self.call(tool_call_id, name, args.as_ref(), event.frame.parent_span_id.as_ref(), out);
                if *is_client {
                    self.pending.push(self.id(tool_call_id));
                }
            }
            What::ToolCompleted { tool_call_id, result, .. } => {
                let content = result.as_ref().map(plain).unwrap_or_default();
                self.result(tool_call_id, &content, event, out);
            }
            What::ToolFailed { tool_call_id, error, .. } => {
                let message = error.as_ref().map(|error| error.member("message").unwrap_or_else(|| plain(error)));
                self.result(tool_call_id, &message.unwrap_or_else(|| "the call failed".to_owned()), event, out);
            }
            _ => {}
        }
    }

    /// A call with its arguments, unless it was said when a person was asked about it.
    fn call(&mut self, call: &str, name: &str, args: Option<&Json>, parent: Option<&SpanId>, out: &mut Vec<Said>) {
        if !self.calls.insert(call.to_owned()) {
            return;
        }
        let id = self.id(call);
        let parent = self.parents.get(call).or(parent).map(|span| self.id(span.as_str()));
        let parent = parent.filter(|parent| self.history.has_own_ids() || self.history.has(parent));
        let args = args.map_or_else(|| "{}".to_owned(), plain);
        let mut start = json!({"type": "TOOL_CALL_START", "toolCallId": id, "toolCallName": name});
        if let Some(parent) = &parent {
            start["parentMessageId"] = json!(parent);
        }
        self.history.call(&id, name, &args, parent.as_deref());
        out.push(Said::new(&start));
        if !args.is_empty() {
            out.push(Said::new(&json!({"type": "TOOL_CALL_ARGS", "toolCallId": id, "delta": args})));
        }
        out.push(Said::new(&json!({"type": "TOOL_CALL_END", "toolCallId": id})));
    }

    fn result(&mut self, call: &str, content: &str, event: &Event, out: &mut Vec<Said>) {
        let id = self.id(call);
        let message: Option<String> = event.payload.member("message_id");
        let message = message.unwrap_or_else(|| format!("{id}/result"));
        self.pending.retain(|pending| *pending != id);
        self.history.result(&message, &id, content);
        out.push(Said::new(&json!({
            "type": "TOOL_CALL_RESULT", "messageId": message, "toolCallId": id, "content": content, "role": "tool",
        })));
    }

    pub(super) fn ask(&mut self, interrupt_id: &str, event: &Event, out: &mut Vec<Said>) {
        let payload = &event.payload;
        let text = |name: &str| payload.member::<String>(name);
        let call = text("tool_call_id");
        if let (Some(call), Some(tool)) = (&call, text("tool")) {
            // The log has the call once it is made; its question comes before.
            self.call(call, &tool, payload.raw_member("args").as_ref(), None, out);
        }
        let kind = text("kind").unwrap_or_default();
        let reason = text("reason").unwrap_or_else(|| match (kind.as_str(), &call) {
            ("approval", Some(_)) => "tool_call".to_owned(),
            ("approval", None) => "confirmation".to_owned(),
            ("question" | "", _) => "input_required".to_owned(),
            _ => kind,
        });
        let mut interrupt = json!({"id": interrupt_id, "reason": reason});
        let parts = [
            ("message", text("prompt").map(|text| json!(text))),
            ("toolCallId", call.map(|call| json!(self.id(&call)))),
            ("responseSchema", payload.member("response_schema")),
            ("expiresAt", text("expires_at").map(|text| json!(text))),
            ("metadata", payload.member("metadata")),
        ];
        for (name, value) in parts {
            if let Some(value) = value {
                interrupt[name] = value;
            }
        }
        self.asked.push((interrupt_id.to_owned(), interrupt));
    }
}

/// A JSON value as the text that it is for people: a string without its quotes.
pub(super) fn plain(json: &Json) -> String {
    serde_json::from_str(json.as_str()).unwrap_or_else(|_| json.as_str().to_owned())
}
