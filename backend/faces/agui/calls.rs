//! Calls of tools, and the questions about them.

use serde_json::json;

use super::{AgUi, Said, messages::result_id, words::Word};
use crate::{
    domain::{id::SpanId, json::Json, meaning::What},
    faces::conversation::Event,
};

impl AgUi {
    pub(super) fn tool(&mut self, event: &Event<'_>, out: &mut Vec<Said>) {
        match event.what {
            What::ToolStarted { tool_call_id, name, args, is_client } => {
                self.call(tool_call_id, name, args.as_ref(), event.frame.parent_span_id.as_ref(), out);
                if *is_client {
                    self.pending.push(self.history.id(tool_call_id));
                }
            }
            What::ToolCompleted { tool_call_id, result, message_id, .. } => {
                let content = result.as_ref().map(plain).unwrap_or_default();
                self.result(tool_call_id, message_id.as_deref(), &content, out);
            }
            What::ToolFailed { tool_call_id, error, message_id, .. } => {
                self.result(tool_call_id, message_id.as_deref(), &failure(error.as_ref()), out);
            }
            _ => {}
        }
    }

    /// A call with its arguments, unless it was said when a person was asked about it.
    fn call(&mut self, call: &str, name: &str, args: Option<&Json>, parent: Option<&SpanId>, out: &mut Vec<Said>) {
        if !self.calls.insert(call.to_owned()) {
            return;
        }
        let (id, parent) = (self.history.id(call), self.history.parent_of(call, parent));
        let (tool_call_id, parent_message_id) = (id.as_str(), parent.as_deref());
        out.push(Said::new(&Word::ToolCallStart { tool_call_id, tool_call_name: name, parent_message_id }));
        let args = args.map_or_else(|| "{}".to_owned(), plain);
        if !args.is_empty() {
            out.push(Said::new(&Word::ToolCallArgs { tool_call_id, delta: &args }));
        }
        out.push(Said::new(&Word::ToolCallEnd { tool_call_id }));
    }

    fn result(&mut self, call: &str, message: Option<&str>, content: &str, out: &mut Vec<Said>) {
        let id = self.history.id(call);
        self.pending.retain(|pending| *pending != id);
        let message = message.map_or_else(|| result_id(&id), ToOwned::to_owned);
        let (message_id, tool_call_id) = (message.as_str(), id.as_str());
        out.push(Said::new(&Word::ToolCallResult { message_id, tool_call_id, content, role: "tool" }));
    }

    pub(super) fn ask(&mut self, interrupt_id: &str, event: &Event<'_>, out: &mut Vec<Said>) {
        let payload = event.payload;
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
            ("toolCallId", call.map(|call| json!(self.history.id(&call)))),
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

/// What went wrong with a call, in words.
pub(super) fn failure(error: Option<&Json>) -> String {
    let message = error.map(|error| error.member("message").unwrap_or_else(|| plain(error)));
    message.unwrap_or_else(|| "the call failed".to_owned())
}

/// A JSON value as the text that it is for people: a string without its quotes.
pub(super) fn plain(json: &Json) -> String {
    serde_json::from_str(json.as_str()).unwrap_or_else(|_| json.as_str().to_owned())
}
