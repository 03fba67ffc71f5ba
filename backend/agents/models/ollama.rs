//! `Ollama`'s own API: a line of JSON for each piece.

use serde_json::{Map, Value, json};

use super::{
    answer::{Answer, count},
    calls::{Form, Piece},
    conversation::{Shown, Turn, arguments, texts, turns},
    error,
    ids::{Ids, WireId},
    openai::effort,
    provider::{Reasoning, Settings},
};
use crate::{
    agents::model::{ModelError, Request, ToolCall, ToolSpec},
    domain::lenient::{Unread, UnreadMembers},
};

pub(super) const PATH: &str = "api/chat";

pub(super) fn body(settings: &Settings, ids: &Ids, request: &Request) -> Result<Value, ModelError> {
    let mut body = json!({"model": settings.model, "stream": true});
    let mut options = Map::new();
    options.extend(request.temperature.map(|temperature| ("temperature".to_owned(), json!(temperature))));
    options.extend(request.max_tokens.map(|max_tokens| ("num_predict".to_owned(), json!(max_tokens))));
    if !options.is_empty() {
        body["options"] = Value::Object(options);
    }
    if !request.tools.is_empty() {
        let tool = |tool: &ToolSpec| {
            let function = json!({"name": tool.name, "description": tool.description, "parameters": tool.schema});
            json!({"type": "function", "function": function})
        };
        body["tools"] = request.tools.iter().map(tool).collect();
    }
    body["messages"] = messages(ids, request)?.into();
    if let Some(reasoning) = settings.reasoning {
        body["think"] = if reasoning == Reasoning::None { json!(false) } else { json!(effort(reasoning)) };
    }
    Ok(body)
}

fn messages(ids: &Ids, request: &Request) -> Result<Vec<Value>, ModelError> {
    let known = ids.theirs(&request.messages);
    // Ids are only sent back to a server that assigned them.
    let own = |ours: &str| known.get(ours).and_then(Option::as_ref).filter(|id| id.is_own).map(|id: &WireId| &id.id);
    let calls = || request.messages.iter().flat_map(|message| &message.tool_calls);
    let mut messages = Vec::new();
    for turn in turns(request)? {
        match turn {
            Turn::System(text) => messages.push(json!({"role": "system", "content": text})),
            Turn::User(shown) => {
                let (mut text, mut images) = (String::new(), Vec::new());
                for shown in shown {
                    match shown {
                        Shown::Text(more) => text += more,
                        Shown::Data { data, .. } => images.push(data),
                        Shown::Url { .. } => {}
                    }
                }
                let mut entry = json!({"role": "user", "content": text});
                if !images.is_empty() {
                    entry["images"] = json!(images);
                }
                messages.push(entry);
            }
            Turn::Assistant { message, .. } => {
                let mut reply = json!({"role": "assistant", "content": texts(message).collect::<String>()});
                if !message.tool_calls.is_empty() {
                    let call = |call: &ToolCall| {
                        let mut entry = json!({"function": {"name": call.name, "arguments": arguments(call)}});
                        if let Some(id) = own(&call.id) {
                            entry["id"] = json!(id);
                        }
                        entry
                    };
                    reply["tool_calls"] = message.tool_calls.iter().map(call).collect();
                }
                messages.push(reply);
            }
            Turn::Results(results) => messages.extend(results.into_iter().map(|result| {
                let ours = result.tool_call_id.as_deref().unwrap_or_default();
                let mut entry = json!({"role": "tool", "content": result.text()});
                if let Some(call) = calls().find(|call| call.id == ours) {
                    entry["tool_name"] = json!(call.name);
                }
                if let Some(id) = own(ours) {
                    entry["tool_call_id"] = json!(id);
                }
                entry
            })),
        }
    }
    Ok(messages)
}

pub(super) fn read(answer: &mut Answer<'_, '_>, line: &UnreadMembers<'_>) -> Result<(), ModelError> {
    if let Some(error) = line.get("error") {
        return Err(error::of_event(error));
    }
    if let Some(message) = line.get("message") {
        answer.heard |= message.as_str().starts_with('{');
        let message = message.members();
        _ = answer.think(message.get("thinking")) || answer.think(message.get("reasoning_content"));
        answer.say(message.get("content"));
        for call in message.get("tool_calls").into_iter().flat_map(Unread::items) {
            let call = call.members();
            let piece = Piece { id: call.text("id"), form: Form::Whole, ..Piece::default() };
            answer.calls.add(piece.of_function(&call.inside("function")))?;
        }
    }
    answer.finish = line.text("done_reason").or(answer.finish.take());
    if line.get("done").is_some_and(|done| done.as_str() == "true") {
        answer.is_done = true;
        answer.usage.input_tokens = count(line, "prompt_eval_count").unwrap_or(0);
        answer.usage.output_tokens = count(line, "eval_count").unwrap_or(0);
        answer.usage.cached_tokens = count(line, "prompt_eval_cached_count").unwrap_or(0);
    }
    Ok(())
}
