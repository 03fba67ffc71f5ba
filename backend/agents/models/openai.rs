//! Chat completions: `OpenAI` and compatible providers.

use serde_json::{Value, json};

use super::{
    answer::{Answer, count},
    calls::Piece,
    conversation::{Shown, Turn, arguments, texts, turns},
    error,
    ids::Ids,
    provider::{Reasoning, Settings},
};
use crate::{
    agents::model::{ModelError, Part, Request, ToolCall, ToolSpec},
    domain::lenient::{Unread, UnreadMembers},
};

pub(super) const PATH: &str = "chat/completions";

/// Models that take `max_completion_tokens` instead of `max_tokens`.
const COMPLETION_TOKENS: [&str; 5] = ["gpt-5", "gpt-6", "o1", "o3", "o4"];

pub(super) fn effort(reasoning: Reasoning) -> &'static str {
    match reasoning {
        Reasoning::None => "none",
        Reasoning::Low => "low",
        Reasoning::Medium => "medium",
        Reasoning::High => "high",
        Reasoning::Max => "max",
    }
}

/// Whether a model writes to its cache, at a price, by default: GPT-5.6 and later.
pub(super) fn caches_unasked(model: &str) -> bool {
    let version = model.strip_prefix("gpt-").unwrap_or_default().split('-').next().unwrap_or_default();
    let (major, minor) = version.split_once('.').unwrap_or((version, "0"));
    matches!((major.parse::<u32>(), minor.parse::<u32>()), (Ok(major), Ok(minor)) if (major, minor) >= (5, 6))
}

pub(super) fn body(settings: &Settings, ids: &Ids, request: &Request) -> Result<Value, ModelError> {
    let mut body = json!({"model": settings.model, "stream": true});
    if caches_unasked(&settings.model) {
        body["prompt_cache_options"] = json!({"mode": "explicit"});
    }
    if let Some(reasoning) = settings.reasoning {
        body["reasoning_effort"] = json!(effort(reasoning));
    }
    if !request.tools.is_empty() {
        let tool = |tool: &ToolSpec| {
            let function = json!({
                "name": tool.name, "description": tool.description, "parameters": tool.schema, "strict": false,
            });
            json!({"type": "function", "function": function})
        };
        body["tools"] = request.tools.iter().map(tool).collect();
    }
    body["messages"] = messages(ids, request)?.into();
    body["stream_options"] = json!({"include_usage": true});
    if let Some(temperature) = request.temperature {
        body["temperature"] = json!(temperature);
    }
    if let Some(max_tokens) = request.max_tokens {
        let is_newer = COMPLETION_TOKENS.iter().any(|begins| settings.model.starts_with(begins));
        body[if is_newer { "max_completion_tokens" } else { "max_tokens" }] = json!(max_tokens);
    }
    Ok(body)
}

fn messages(ids: &Ids, request: &Request) -> Result<Vec<Value>, ModelError> {
    let known = ids.theirs(&request.messages);
    let id = |ours: &str| known.get(ours).and_then(Option::as_ref).map_or_else(|| ours.to_owned(), |id| id.id.clone());
    let mut messages = Vec::new();
    for turn in turns(request)? {
        match turn {
            Turn::System(text) => messages.push(json!({"role": "system", "content": text})),
            Turn::User(shown) => messages.push(json!({"role": "user", "content": content(&shown)})),
            Turn::Assistant { message, is_of_this_turn } => {
                let text = texts(message).collect::<Vec<_>>().join("\n\n");
                let mut reply = json!({"role": "assistant", "content": text});
                if !message.tool_calls.is_empty() {
                    let call = |call: &ToolCall| {
                        let function = json!({"name": call.name, "arguments": arguments(call).to_string()});
                        json!({"type": "function", "id": id(&call.id), "function": function})
                    };
                    reply["tool_calls"] = message.tool_calls.iter().map(call).collect();
                }
                // Some compatible providers expect the reasoning of the same turn back; the others ignore it.
                let thought = |part: &Part| match part {
                    Part::Reasoning { text, signature: None } if is_of_this_turn => Some(text.clone()),
                    _ => None,
                };
                let thoughts: Vec<String> = message.content.iter().filter_map(thought).collect();
                if !thoughts.is_empty() {
                    reply["reasoning_content"] = json!(thoughts.join("\n"));
                }
                messages.push(reply);
            }
            Turn::Results(results) => messages.extend(results.into_iter().map(|result| {
                let id = id(result.tool_call_id.as_deref().unwrap_or_default());
                json!({"role": "tool", "content": result.text(), "tool_call_id": id})
            })),
        }
    }
    Ok(messages)
}

fn content(shown: &[Shown<'_>]) -> Value {
    if let Some(text) = Turn::only_text(shown) {
        return json!(text);
    }
    let part = |shown: &Shown<'_>| match shown {
        Shown::Text(text) => json!({"type": "text", "text": text}),
        image => json!({"type": "image_url", "image_url": {"url": image.url()}}),
    };
    shown.iter().map(part).collect()
}

pub(super) fn read(answer: &mut Answer<'_, '_>, chunk: &UnreadMembers<'_>) -> Result<(), ModelError> {
    if let Some(error) = chunk.get("error") {
        return Err(error::of_event(error));
    }
    if let Some(usage) = chunk.get("usage").map(Unread::members) {
        let tokens = &mut answer.usage;
        tokens.input_tokens = count(&usage, "prompt_tokens").unwrap_or(tokens.input_tokens);
        tokens.output_tokens = count(&usage, "completion_tokens").unwrap_or(tokens.output_tokens);
        let cached = count(&usage.inside("prompt_tokens_details"), "cached_tokens");
        tokens.cached_tokens = cached.unwrap_or(tokens.cached_tokens);
        let thought = count(&usage.inside("completion_tokens_details"), "reasoning_tokens");
        tokens.reasoning_tokens = thought.unwrap_or(tokens.reasoning_tokens);
    }
    let Some(choice) = chunk.get("choices").and_then(|choices| choices.items().next()) else { return Ok(()) };
    let choice = choice.members();
    match (choice.get("delta"), choice.get("message")) {
        (Some(delta), _) => {
            answer.heard |= delta.as_str().starts_with('{');
            read_delta(answer, &delta.members())?;
        }
        // A whole answer, unless its pieces were sent before.
        (None, Some(message)) if !answer.told && answer.calls.is_empty() => {
            answer.heard |= read_delta(answer, &message.members())?;
        }
        _ => {}
    }
    answer.finish = choice.text("finish_reason").or(answer.finish.take());
    Ok(())
}

/// Reads a piece of an answer; returns whether it contained anything.
fn read_delta(answer: &mut Answer<'_, '_>, delta: &UnreadMembers<'_>) -> Result<bool, ModelError> {
    let mut is_read = answer.think(delta.get("reasoning_content")) || answer.think(delta.get("reasoning"));
    let content = delta.get("content");
    is_read |= answer.say(content);
    // Mistral's reasoning models send typed pieces.
    for piece in content.into_iter().flat_map(Unread::items) {
        let piece = piece.members();
        is_read |= answer.say(piece.get("text"));
        let thinking = piece.get("thinking");
        is_read |= answer.think(thinking);
        for thought in thinking.into_iter().flat_map(Unread::items) {
            is_read |= answer.think(thought.members().get("text"));
        }
    }
    for call in delta.get("tool_calls").into_iter().flat_map(Unread::items) {
        let call = call.members();
        let piece =
            Piece { number: call.get("index").and_then(Unread::whole), id: call.text("id"), ..Piece::default() };
        is_read = true;
        answer.calls.add(piece.of_function(&call.inside("function")))?;
    }
    if let Some(call) = delta.get("function_call").map(Unread::members) {
        is_read = true;
        answer.calls.add(Piece::default().of_function(&call))?;
    }
    Ok(is_read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_that_write_to_their_cache_unasked_are_known_by_their_version() {
        for model in ["gpt-5.6", "gpt-5.10-mini", "gpt-6", "gpt-6.0-pro"] {
            assert!(caches_unasked(model), "{model}");
        }
        for model in ["gpt-5", "gpt-5.5", "gpt-4.1", "gpt-oss-20b", "o3", "some-model", ""] {
            assert!(!caches_unasked(model), "{model}");
        }
    }
}
