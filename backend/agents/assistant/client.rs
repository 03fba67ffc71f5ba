//! Tools of the client: offered to the model like the agent's own, executed by a client that reads the run.
//!
//! A call of such a tool ends the run: its output names the calls, and the next run of the thread has their results
//! among its messages. Invariant kept here: a result is accepted only for a call that waits for the client, so no input
//! can forge a result of the agent's own tools; any other result is ignored, and never becomes a user's message.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Assistant, Conversation, delegate::SPAWN_WORKER};
use crate::{
    agents::{
        builtin::artifact::READ_ARTIFACT,
        model::{Message, ToolSpec},
        schema::Schema,
        tools::check_name,
    },
    domain::limits::{CLIENT_TOOLS_BYTES_MAX, CLIENT_TOOLS_MAX},
};

/// The error code for an input whose tools cannot be offered.
pub(super) const INVALID: &str = "client_tools";

/// A call that waits for its client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Waiting {
    /// The id that the client knows: the run's id, then the id in the log, which is unique in its run only. Threads
    /// stored by older versions have the latter alone.
    #[serde(alias = "span")]
    pub id: String,
    /// The model's id.
    pub call_id: String,
}

/// The tools of a run's input. The error becomes the run's failure.
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

impl Conversation {
    /// Results for the calls that have none: from a new run's input for those that waited for the client, else a note
    /// that there is none.
    pub(super) fn answers(&self, input: &[Message]) -> Vec<Message> {
        let answer = |call: String| {
            let Some(waiting) = self.waiting.iter().find(|waiting| waiting.call_id == call) else {
                return Message::tool(call, "the run ended before this call");
            };
            match input.iter().find(|message| message.tool_call_id.as_ref() == Some(&waiting.id)) {
                Some(result) => Message { content: result.content.clone(), ..Message::tool(call, "") },
                None => Message::tool(call, "the client gave no result for this call"),
            }
        };
        self.open_calls().into_iter().map(answer).collect()
    }

    /// A run's output: the last answer, and the calls that wait for the client.
    pub(super) fn output(&self) -> Value {
        let mut output = json!({"response": self.answer()});
        let calls = self.messages.iter().rev().find(|message| !message.tool_calls.is_empty());
        let calls: Vec<Value> = calls
            .into_iter()
            .flat_map(|message| &message.tool_calls)
            .filter_map(|call| {
                let waiting = self.waiting.iter().find(|waiting| waiting.call_id == call.id)?;
                Some(json!({"id": waiting.id, "name": call.name, "args": call.args}))
            })
            .collect();
        if !calls.is_empty() {
            output["tool_calls"] = Value::Array(calls);
        }
        output
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agents::model::{MessageRole, ToolCall};

    /// A conversation whose call `c` waits for the client, which knows it as `id`.
    fn waiting(id: &str) -> Conversation {
        let (id_of_model, name) = ("c".to_owned(), "look".to_owned());
        let call = ToolCall { id: id_of_model, name, args: json!({}), signatures: Vec::new(), origin: None };
        let messages = vec![Message { tool_calls: vec![call], ..Message::assistant("") }];
        let waiting = vec![Waiting { id: id.to_owned(), call_id: "c".to_owned() }];
        Conversation { messages, waiting, ..Conversation::default() }
    }

    #[test]
    fn what_a_tool_has_said_is_the_result_of_the_call_it_names_and_never_the_words_of_a_user() {
        let brought = |id: Value, role: &str| {
            let message = json!({"role": role, "tool_call_id": id, "content": "sun"});
            let asked = waiting("r/s1.tools.0").asked(&json!({"messages": [message]}));
            assert!(asked.messages.iter().all(|message| message.role != MessageRole::User), "{id} {role}");
            asked.messages[1].text()
        };
        assert_eq!(brought(json!("r/s1.tools.0"), "tool"), "sun");
        for other in [json!("c"), json!("s1.tools.0"), json!("q/s1.tools.0"), Value::Null] {
            for role in ["tool", "function"] {
                assert_eq!(brought(other.clone(), role), "the client gave no result for this call");
            }
        }
    }

    #[test]
    fn a_call_of_a_thread_that_an_older_version_stored_still_waits() {
        let stored: Waiting = serde_json::from_value(json!({"span": "s1.tools.0", "call_id": "c"})).unwrap();
        assert_eq!(waiting("s1.tools.0").waiting, [stored]);
    }
}
