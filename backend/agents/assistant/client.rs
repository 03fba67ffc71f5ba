//! Tools of the client: offered to the model like the agent's own, called by whoever reads the run.
//!
//! A run whose model calls one is over: its output names the calls, and the next run of the thread brings their results
//! among its messages. Invariant kept here: a result is taken only for a call that waits for the client, so no input can
//! make up what a tool of the agent has said.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Assistant, Conversation, content_of, delegate::SPAWN_WORKER};
use crate::{
    agents::{
        builtin::artifact::READ_ARTIFACT,
        model::{Message, ToolSpec},
        schema::Schema,
        tools::check_name,
    },
    domain::{
        id::SpanId,
        limits::{CLIENT_TOOLS_BYTES_MAX, CLIENT_TOOLS_MAX},
    },
};

/// The stable name of an input whose tools cannot be offered.
pub(super) const INVALID: &str = "client_tools";

/// A call that waits for its client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Waiting {
    /// The id in the log, which is what the client knows.
    pub span: SpanId,
    /// The id in the conversation.
    pub call_id: String,
}

/// The tools of a run's input. The error is for the person who reads the failed run.
pub(super) fn tools(assistant: &Assistant, input: &Value) -> Result<Vec<ToolSpec>, String> {
    let tools = match input.get("tools") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(tools)) => tools,
        Some(_) => return Err("tools of the input must be a list".to_owned()),
    };
    if tools.len() > CLIENT_TOOLS_MAX || json!(tools).to_string().len() > CLIENT_TOOLS_BYTES_MAX {
        let bounds = format!("{CLIENT_TOOLS_MAX} tools of {CLIENT_TOOLS_BYTES_MAX} bytes together");
        return Err(format!("tools of the input can be at most {bounds}"));
    }
    let mut names = BTreeSet::new();
    let read = |(n, tool): (usize, &Value)| {
        let name = tool["name"].as_str().ok_or_else(|| format!("tools[{n}] of the input has no name"))?;
        check_name(name).map_err(|why| format!("tools[{n}] of the input: {why}"))?;
        let is_own = assistant.toolbox.get(name).is_ok() || [SPAWN_WORKER, READ_ARTIFACT].contains(&name);
        if is_own || !names.insert(name.to_owned()) {
            let whose = if is_own { "the agent has a tool of this name" } else { "it is there twice" };
            return Err(format!("tools[{n}] of the input: {name}: {whose}"));
        }
        let schema = match &tool["parameters"] {
            Value::Null => json!({"type": "object"}),
            schema => schema.clone(),
        };
        if let Some(why) = Schema::new(&schema).invalid() {
            return Err(format!("tools[{n}] of the input: parameters of {name} are not a schema: {why}"));
        }
        let description = tool["description"].as_str().unwrap_or_default().to_owned();
        Ok(ToolSpec { name: name.to_owned(), description, schema })
    };
    tools.iter().enumerate().map(read).collect()
}

/// A message that brings the result of a call: the call's id, and the content.
pub(super) fn result_of(message: &Value) -> Option<(&str, &Value)> {
    let id = message.get("tool_call_id").or_else(|| message.get("toolCallId"))?.as_str()?;
    (message["role"] == "tool").then_some((id, &message["content"]))
}

impl Conversation {
    /// The answers to the calls that have none, from a new run's input where they waited for the client.
    pub(super) fn answers(&self, input: &Value) -> Vec<Message> {
        let results: Vec<_> = input["messages"].as_array().into_iter().flatten().filter_map(result_of).collect();
        let answer = |call: String| {
            let Some(waiting) = self.waiting.iter().find(|waiting| waiting.call_id == call) else {
                return Message::tool(call, "the run ended before this call");
            };
            let found = results.iter().find(|(id, _)| *id == waiting.span.as_str() || *id == waiting.call_id);
            match found {
                Some((_, content)) => Message { content: content_of(content), ..Message::tool(call, "") },
                None => Message::tool(call, "the client gave no result for this call"),
            }
        };
        self.open_calls().into_iter().map(answer).collect()
    }

    /// Whether a message of an input is one of [`Conversation::answers`].
    pub(super) fn is_answer(&self, message: &Value) -> bool {
        result_of(message).is_some_and(|(id, _)| {
            self.waiting.iter().any(|waiting| id == waiting.span.as_str() || id == waiting.call_id)
        })
    }

    /// What a run of this conversation brings: the last answer, and the calls that wait for the client.
    pub(super) fn output(&self) -> Value {
        let mut output = json!({"response": self.answer()});
        let calls = self.messages.iter().rev().find(|message| !message.tool_calls.is_empty());
        let calls: Vec<Value> = calls
            .into_iter()
            .flat_map(|message| &message.tool_calls)
            .filter_map(|call| {
                let waiting = self.waiting.iter().find(|waiting| waiting.call_id == call.id)?;
                Some(json!({"id": waiting.span, "name": call.name, "args": call.args}))
            })
            .collect();
        if !calls.is_empty() {
            output["tool_calls"] = Value::Array(calls);
        }
        output
    }
}
