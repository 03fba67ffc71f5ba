//! A message as plain data: role, content and tool calls, in the forms of several frameworks.

use serde_json::{Map, Value, json};

use super::plain::is_flat;
use crate::domain::limits::JSON_DEPTH_MAX;

/// A tool call in a message.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub id: Option<String>,
    pub name: String,
    pub args: Value,
}

/// Members of `LangChain`'s messages that are omitted when empty.
const SILENT: [&str; 9] = [
    "name",
    "id",
    "additional_kwargs",
    "response_metadata",
    "usage_metadata",
    "tool_calls",
    "invalid_tool_calls",
    "artifact",
    "example",
];

/// The role `user`, `assistant`, `system` or `tool`, mapped from several frameworks; `None` for any other.
pub fn role_of(message: &Value) -> Option<&'static str> {
    Some(match named_role(message)? {
        "user" | "human" | "HumanMessageChunk" => "user",
        "assistant" | "ai" | "AIMessageChunk" => "assistant",
        "system" | "developer" | "SystemMessageChunk" => "system",
        "tool" | "function" | "ToolMessageChunk" => "tool",
        _ => return None,
    })
}

/// The role as written.
pub fn named_role(message: &Value) -> Option<&str> {
    message.get("role").or_else(|| message.get("type")).and_then(Value::as_str).filter(|role| !role.is_empty())
}

/// The text of a message, each part on its own line.
pub fn text_of(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let text = |part: &Value| part.as_str().or_else(|| part.get("text")?.as_str()).map(str::to_owned);
            parts.iter().filter_map(text).collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

/// The tool calls of a message; invalid ones are left out.
pub fn calls_of(message: &Value) -> Vec<Call> {
    let calls = message["tool_calls"].as_array();
    calls.into_iter().flatten().filter_map(call_of).collect()
}

/// Reads one call, also in the providers' form.
pub fn call_of(call: &Value) -> Option<Call> {
    let id = call["id"].as_str().filter(|id| !id.is_empty()).map(str::to_owned);
    let function = &call["function"];
    let name = call["name"].as_str().or_else(|| function["name"].as_str()).filter(|name| !name.is_empty())?;
    let args = match (call.get("args"), function["arguments"].as_str()) {
        (Some(args), _) => args.clone(),
        (None, Some(text)) => {
            let read = serde_json::from_str(text).ok().filter(|args| is_flat(args, JSON_DEPTH_MAX));
            read.unwrap_or_else(|| json!(text))
        }
        (None, None) => json!({}),
    };
    Some(Call { id, name: name.to_owned(), args })
}

/// Checks that a conversation can continue with this message; an error is the violated rule.
pub fn check(message: &Value) -> Result<(), &'static str> {
    if !message.is_object() {
        return Err("a message must be an object");
    }
    check_shape(message)?;
    let names_call = message["tool_call_id"].as_str().is_some_and(|id| !id.is_empty());
    if role_of(message) == Some("tool") && !names_call {
        return Err("a tool message must name its call as tool_call_id");
    }
    Ok(())
}

/// As [`check`], for a message of any role that is only read.
pub fn check_shape(message: &Value) -> Result<(), &'static str> {
    if !message.is_object() {
        return Err("a message must be an object");
    }
    if named_role(message).is_none() {
        return Err("a message has no role");
    }
    let calls = match message.get("tool_calls") {
        None | Some(Value::Null) => 0,
        Some(Value::Array(calls)) if calls.iter().all(|call| call_of(call).is_some()) => calls.len(),
        Some(_) => return Err("the tool_calls of a message must be a list of objects, each with a name"),
    };
    match message.get("content") {
        Some(Value::String(_)) => Ok(()),
        Some(Value::Array(parts)) if parts.iter().all(|part| part.is_string() || part.is_object()) => Ok(()),
        None | Some(Value::Null) if calls > 0 => Ok(()),
        None => Err("a message has no content"),
        Some(_) => Err("the content of a message must be a string or a list of parts"),
    }
}

/// A message as stored in a file: with its role in this program's terms, and without empty members.
#[must_use]
pub fn kept(message: Value) -> Value {
    let role = role_of(&message).map(str::to_owned).or_else(|| named_role(&message).map(str::to_owned));
    let Value::Object(members) = message else { return message };
    let mut kept = Map::new();
    kept.insert("role".to_owned(), Value::from(role));
    let says_nothing = |name: &str, value: &Value| {
        let is_empty = match value {
            Value::Null | Value::Bool(false) => true,
            Value::Object(members) => members.is_empty(),
            Value::Array(items) => items.is_empty(),
            _ => false,
        };
        is_empty && SILENT.contains(&name)
    };
    let of_role = |name: &str| matches!(name, "role" | "type");
    kept.extend(members.into_iter().filter(|(name, value)| !of_role(name) && !says_nothing(name, value)));
    Value::Object(kept)
}

/// A message as read back from its file: numbers may change their form.
pub fn as_read(message: Value) -> Value {
    let message = kept(message);
    serde_json::from_str(&message.to_string()).unwrap_or(message)
}

/// The messages in the form of this program's agents: each has a content, each call an id, and a role known only to
/// another framework (a critic, a planner) becomes an assistant with that name.
pub fn usable(messages: &[Value]) -> Vec<Value> {
    messages.iter().enumerate().map(|(number, message)| usable_one(number, message)).collect()
}

pub(super) fn usable_one(number: usize, message: &Value) -> Value {
    let mut usable = kept(message.clone());
    let Value::Object(members) = &mut usable else { return usable };
    if role_of(message).is_none() {
        let role = members.insert("role".to_owned(), json!("assistant"));
        members.entry("name").or_insert(role.unwrap_or_default());
    }
    if !members.get("content").is_some_and(|content| content.is_string() || content.is_array()) {
        members.insert("content".to_owned(), json!(""));
    }
    if !members.get("tool_call_id").is_some_and(Value::is_string) {
        members.remove("tool_call_id");
    }
    if let Some(Value::Array(calls)) = members.get_mut("tool_calls") {
        for (n, call) in calls.iter_mut().enumerate() {
            let Some(Call { id, name, args }) = call_of(call) else { continue };
            let id = id.unwrap_or_else(|| format!("call_{number}_{n}"));
            if call.get("function").is_some() {
                *call = json!({});
            }
            let signatures = call.get("signatures").and_then(Value::as_array);
            if !signatures.is_some_and(|signatures| signatures.iter().all(Value::is_string))
                && let Some(members) = call.as_object_mut()
            {
                members.remove("signatures");
            }
            call["id"] = json!(id);
            call["name"] = json!(name);
            call["args"] = args;
        }
    }
    usable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_several_frameworks_are_one_kind() {
        for (message, role, text) in [
            (json!({"role": "user", "content": "a"}), "user", "a"),
            (
                json!({"type": "human", "content": [{"type": "text", "text": "a"}, "b", {"type": "image"}]}),
                "user",
                "a\nb",
            ),
            (json!({"type": "ai", "content": "", "tool_calls": []}), "assistant", ""),
            (json!({"role": "developer", "content": "a"}), "system", "a"),
        ] {
            assert_eq!((role_of(&message), text_of(&message).as_str()), (Some(role), text), "{message}");
            assert_eq!(check(&message), Ok(()));
        }
        let native = json!({"id": "1", "type": "function", "function": {"name": "search", "arguments": "{\"q\":1}"}});
        let call = Call { id: Some("1".to_owned()), name: "search".to_owned(), args: json!({"q": 1}) };
        assert_eq!(calls_of(&json!({"tool_calls": [native, {"id": "2"}]})), [call]);
    }

    #[test]
    fn what_a_conversation_cannot_go_on_with_is_named() {
        for (message, rule) in [
            (json!("hello"), "must be an object"),
            (json!({"content": "a"}), "no role"),
            (json!({"role": 1, "content": "a"}), "no role"),
            (json!({"role": "user"}), "no content"),
            (json!({"role": "user", "content": 1}), "string or a list"),
            (json!({"role": "user", "content": [1]}), "string or a list"),
            (json!({"role": "tool", "content": "a"}), "tool_call_id"),
            (json!({"role": "assistant", "tool_calls": [{}]}), "with a name"),
        ] {
            assert!(check(&message).unwrap_err().contains(rule), "{message}");
        }
        assert_eq!(check(&json!({"role": "assistant", "content": null, "tool_calls": [{"name": "x"}]})), Ok(()));
        assert_eq!(check(&json!({"role": "critic", "content": "a"})), Ok(()));
    }

    #[test]
    fn a_kept_message_says_who_speaks_and_nothing_empty() {
        let message = json!({"content": "", "additional_kwargs": {}, "type": "ai", "name": null, "id": "7", "x": null});
        assert_eq!(kept(message), json!({"role": "assistant", "content": "", "id": "7", "x": null}));
    }

    #[test]
    fn somebody_whom_another_framework_knows_is_kept_as_such_and_speaks_as_an_assistant() {
        let message = json!({"type": "critic", "content": "no"});
        assert_eq!(kept(message.clone()), json!({"role": "critic", "content": "no"}));
        assert_eq!(usable(&[message]), [json!({"role": "assistant", "content": "no", "name": "critic"})]);
    }

    #[test]
    fn a_usable_message_has_its_content_as_it_was_and_its_calls_have_ids() {
        let call = json!({"name": "x", "args": {"a": 1}, "signatures": ["s"]});
        let native = json!({"id": "1", "function": {"name": "y", "arguments": "{}"}});
        let usable = usable(&[json!({"type": "ai", "content": "a", "tool_calls": [call, native]})]);
        let calls = json!([
            {"name": "x", "args": {"a": 1}, "signatures": ["s"], "id": "call_0_0"},
            {"id": "1", "name": "y", "args": {}},
        ]);
        assert_eq!(usable, [json!({"role": "assistant", "content": "a", "tool_calls": calls})]);
    }
}
