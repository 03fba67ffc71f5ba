//! Tool calls, and the interrupts about them.

use serde_json::{Value, json};

use super::{AgUi, Said, words::Word};
use crate::{
    domain::{
        json::Json,
        limits::{AGUI_QUESTIONS_BYTES_MAX, AGUI_RESUME_MAX, CHAT_RECENT_MAX, PAYLOAD_BYTES_MAX},
        meaning::What,
    },
    faces::conversation::Event,
};

impl AgUi {
    pub(super) fn tool(&mut self, event: &Event<'_>, out: &mut Vec<Said>) {
        match event.what {
            What::ToolStarted { tool_call_id, name, args, is_client } => {
                let parent = self.ids.parent_of(event);
                self.call(tool_call_id, name, args.as_ref(), parent.as_deref(), out);
                if *is_client {
                    self.expect(self.ids.of(tool_call_id));
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

    /// Emits a call with its arguments, unless an interrupt about it already did.
    fn call(&mut self, call: &str, name: &str, args: Option<&Json>, parent: Option<&str>, out: &mut Vec<Said>) {
        if !self.calls.insert(call, ()) {
            return;
        }
        let id = self.ids.of(call);
        let (tool_call_id, parent_message_id) = (id.as_str(), parent);
        let args = args.map_or_else(|| "{}".to_owned(), plain);
        if let Some(history) = &mut self.history {
            return history.messages.call(tool_call_id, name, &args, parent_message_id);
        }
        out.push(Said::new(&Word::ToolCallStart { tool_call_id, tool_call_name: name, parent_message_id }));
        if !args.is_empty() {
            out.push(Said::new(&Word::ToolCallArgs { tool_call_id, delta: &args }));
        }
        out.push(Said::new(&Word::ToolCallEnd { tool_call_id }));
    }

    /// Records a call that the client has to execute, within the bounds.
    fn expect(&mut self, id: String) {
        let bytes: usize = self.pending.iter().map(String::len).sum();
        if self.pending.len() < CHAT_RECENT_MAX && bytes + id.len() <= PAYLOAD_BYTES_MAX {
            self.pending.push(id);
        }
    }

    fn result(&mut self, call: &str, message: Option<&str>, content: &str, out: &mut Vec<Said>) {
        let id = self.ids.of(call);
        if let Some(message) = message {
            self.ids.note_other(message);
        }
        self.pending.retain(|pending| *pending != id);
        // The result's message id: derived from the call if its producer gave none.
        let message = message.map_or_else(|| format!("{id}/result"), ToOwned::to_owned);
        let (message_id, tool_call_id) = (message.as_str(), id.as_str());
        if let Some(history) = &mut self.history {
            return history.messages.result(message_id, tool_call_id, content);
        }
        out.push(Said::new(&Word::ToolCallResult { message_id, tool_call_id, content, role: "tool" }));
    }

    pub(super) fn ask(&mut self, interrupt_id: &str, call: Option<&str>, event: &Event<'_>, out: &mut Vec<Said>) {
        let payload = event.payload().members();
        let text = |name: &str| payload.read::<String>(name);
        if let (Some(call), Some(tool)) = (call, text("tool")) {
            // The interrupt precedes the call in the log.
            self.call(call, &tool, payload.raw("args").as_ref(), None, out);
        }
        let kind = text("kind").unwrap_or_default();
        let reason = text("reason").unwrap_or_else(|| match (kind.as_str(), call) {
            ("approval", Some(_)) => "tool_call".to_owned(),
            ("approval", None) => "confirmation".to_owned(),
            ("question" | "", _) => "input_required".to_owned(),
            _ => kind,
        });
        let mut interrupt = json!({"id": interrupt_id, "reason": reason});
        let parts = [
            ("message", text("prompt").map(|text| json!(text))),
            ("toolCallId", call.map(|call| json!(self.ids.of(call)))),
            ("responseSchema", payload.read("response_schema").filter(Value::is_object)),
            ("expiresAt", text("expires_at").map(|text| json!(text))),
            ("metadata", payload.read("metadata").filter(Value::is_object)),
        ];
        for (name, value) in parts {
            if let Some(value) = value {
                interrupt[name] = value;
            }
        }
        let bytes: usize = self.asked.iter().map(|(_, asked)| asked.as_str().len()).sum();
        let mut asked = Json::of(&interrupt);
        if bytes + asked.as_str().len() > AGUI_QUESTIONS_BYTES_MAX {
            asked = Json::of(&json!({"id": interrupt_id, "reason": "input_required"}));
        }
        if self.asked.len() < AGUI_RESUME_MAX {
            self.asked.push((interrupt_id.to_owned(), asked));
        }
    }
}

/// The error text of a failed call.
pub(super) fn failure(error: Option<&Json>) -> String {
    let message = error.map(|error| error.member("message").unwrap_or_else(|| plain(error)));
    message.unwrap_or_else(|| "the call failed".to_owned())
}

/// A JSON value as readable text: a string without its quotes, anything else as JSON.
pub(super) fn plain(json: &Json) -> String {
    serde_json::from_str(json.as_str()).unwrap_or_else(|_| json.as_str().to_owned())
}
