//! Anthropic's Messages API: blocks of content, each with a number.

use serde_json::{Value, json};

use super::{
    answer::{Answer, BLOCK, count},
    calls::{Form, Piece},
    claude::Claude,
    conversation::{Shown, Turn, arguments, system, turns},
    error,
    ids::{Ids, own},
    openai::effort,
    provider::{Kind, Reasoning, Settings},
};
use crate::{
    agents::model::{Message, ModelError, Part, Request, ToolCall, ToolSpec},
    domain::lenient::{self, Unread, UnreadMembers},
};

pub(super) const PATH: &str = "messages";
pub(super) const VERSION: (&str, &str) = ("anthropic-version", "2023-06-01");

pub(super) fn body(settings: &Settings, ids: &Ids, request: &Request) -> Result<Value, ModelError> {
    let turns = turns(request)?;
    let claude = Claude::parse(&settings.model);
    let mut body = json!({"model": settings.model, "stream": true});
    if let Some(system) = system(&turns, "\n\n") {
        body["system"] = json!(system);
    }
    if !request.tools.is_empty() {
        let tool =
            |tool: &ToolSpec| json!({"name": tool.name, "input_schema": tool.schema, "description": tool.description});
        body["tools"] = request.tools.iter().map(tool).collect();
    }
    body["messages"] = messages(ids, request, turns).into();
    if let Some(reasoning) = settings.reasoning {
        reason(&mut body, &claude, reasoning);
    }
    if let Some(temperature) = request.temperature {
        body["temperature"] = json!(temperature);
    }
    body["max_tokens"] = json!(request.max_tokens.unwrap_or_else(|| claude.tokens_max()));
    Ok(body)
}

fn reason(body: &mut Value, claude: &Claude, reasoning: Reasoning) {
    let budget = match reasoning {
        Reasoning::None => {
            if claude.thinks_unasked() {
                body["thinking"] = json!({"type": "disabled"});
            }
            return;
        }
        Reasoning::Low => 1_024,
        Reasoning::Medium => 8_000,
        Reasoning::High | Reasoning::Max => 24_000,
    };
    if claude.has_effort() {
        let is_too_much = reasoning == Reasoning::Max && !claude.is_adaptive();
        body["output_config"] = json!({"effort": effort(if is_too_much { Reasoning::High } else { reasoning })});
    }
    if claude.is_adaptive() {
        body["thinking"] = json!({"type": "adaptive", "display": "summarized"});
    } else if !claude.has_effort() {
        body["thinking"] = json!({"type": "enabled", "budget_tokens": budget});
    }
}

fn messages(ids: &Ids, request: &Request, turns: Vec<Turn<'_>>) -> Vec<Value> {
    let known = ids.theirs(&request.messages);
    let id = |ours: &str| known.get(ours).and_then(Option::as_ref).map_or_else(|| ours.to_owned(), |id| id.id.clone());
    let mut messages = Vec::new();
    for turn in turns {
        let (role, content) = match turn {
            Turn::System(_) => continue,
            Turn::User(shown) => {
                let content = Turn::only_text(&shown).map(Value::from);
                ("user", content.unwrap_or_else(|| shown.into_iter().map(block).collect()))
            }
            Turn::Assistant { message, is_of_this_turn } => {
                ("assistant", assistant_content(message, is_of_this_turn, &id))
            }
            Turn::Results(results) => {
                let result = |result: &Message| {
                    let id = id(result.tool_call_id.as_deref().unwrap_or_default());
                    json!({"type": "tool_result", "content": result.text(), "tool_use_id": id})
                };
                ("user", results.into_iter().map(result).collect())
            }
        };
        messages.push(json!({"role": role, "content": content}));
    }
    messages
}

fn block(shown: Shown<'_>) -> Value {
    match shown {
        Shown::Text(text) => json!({"type": "text", "text": text}),
        Shown::Data { media_type, data } => {
            json!({"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}})
        }
        Shown::Url { url, .. } => json!({"type": "image", "source": {"type": "url", "url": url}}),
    }
}

/// The content of an assistant's message: thoughts first, in their order, each with its signature.
fn assistant_content(message: &Message, is_of_this_turn: bool, id: &dyn Fn(&str) -> String) -> Value {
    let (mut thoughts, mut blocks) = (Vec::new(), Vec::new());
    for part in &message.content {
        match part {
            Part::Text { text } => blocks.push(json!({"type": "text", "text": text})),
            Part::Reasoning { text, signature: Some(signature) } if is_of_this_turn => {
                let Some(signature) = own(Kind::Anthropic, signature) else { continue };
                let whole = signature.strip_prefix(BLOCK).and_then(|block| serde_json::from_str(block).ok());
                let signed = || json!({"type": "thinking", "thinking": text, "signature": signature});
                thoughts.push(whole.unwrap_or_else(signed));
            }
            Part::Reasoning { .. } | Part::Image { .. } => {}
        }
    }
    if let ([], [text], []) = (thoughts.as_slice(), blocks.as_slice(), message.tool_calls.as_slice()) {
        return text["text"].clone();
    }
    let call =
        |call: &ToolCall| json!({"type": "tool_use", "id": id(&call.id), "name": call.name, "input": arguments(call)});
    thoughts.into_iter().chain(blocks).chain(message.tool_calls.iter().map(call)).collect()
}

pub(super) fn read(answer: &mut Answer<'_, '_>, event: &UnreadMembers<'_>) -> Result<(), ModelError> {
    if let Some(error) = event.get("error") {
        return Err(error::of_event(error));
    }
    let number = event.get("index").and_then(Unread::whole);
    match event.text("type").unwrap_or_default().as_str() {
        "message_start" => usage(answer, &event.inside("message").inside("usage")),
        "message_delta" => {
            usage(answer, &event.inside("usage"));
            answer.heard = true;
            answer.finish = event.inside("delta").text("stop_reason").or(answer.finish.take());
        }
        "message_stop" => answer.is_done = true,
        "content_block_start" => begin(answer, number, event.get("content_block"))?,
        "content_block_delta" => {
            let delta = event.inside("delta");
            answer.say(delta.get("text"));
            let block = number.unwrap_or_default();
            answer.think_in_block(block, delta.get("thinking"));
            if let Some(signature) = delta.text("signature") {
                answer.sign(block, &signature);
            }
            if let Some(args) = delta.get("partial_json") {
                answer.calls.add(Piece { number, args: Some(args), ..Piece::default() })?;
            }
        }
        "error" => return Err(error::cut()),
        _ => {}
    }
    Ok(())
}

fn begin(answer: &mut Answer<'_, '_>, number: Option<i64>, block: Option<Unread<'_>>) -> Result<(), ModelError> {
    let Some(block) = block else { return Ok(()) };
    let members = block.members();
    match members.text("type").unwrap_or_default().as_str() {
        "text" => _ = answer.say(members.get("text")),
        "thinking" => {
            answer.begin_block(number.unwrap_or_default());
            answer.think_in_block(number.unwrap_or_default(), members.get("thinking"));
            if let Some(signature) = members.text("signature") {
                answer.sign(number.unwrap_or_default(), &signature);
            }
        }
        "redacted_thinking" => {
            answer.begin_block(number.unwrap_or_default());
            answer.sign(number.unwrap_or_default(), &format!("{BLOCK}{}", lenient::mended(block.as_str())));
        }
        "tool_use" => {
            let args = members.get("input").filter(|input| input.members().names().next().is_some());
            let (id, name) = (members.text("id"), members.text("name"));
            answer.calls.add(Piece { number, id, name, args, form: Form::Announced, ..Piece::default() })?;
        }
        _ => {}
    }
    Ok(())
}

/// Tokens read from the cache and written to it are counted separately from the rest of the input.
fn usage(answer: &mut Answer<'_, '_>, usage: &UnreadMembers<'_>) {
    let (read, written) = (count(usage, "cache_read_input_tokens"), count(usage, "cache_creation_input_tokens"));
    let tokens = &mut answer.usage;
    if let Some(input) = count(usage, "input_tokens") {
        let cached = read.unwrap_or(0).saturating_add(written.unwrap_or(0));
        tokens.input_tokens = input.saturating_add(cached);
    }
    tokens.output_tokens = count(usage, "output_tokens").unwrap_or(tokens.output_tokens);
    tokens.cached_tokens = read.unwrap_or(tokens.cached_tokens);
    let thought = count(&usage.inside("output_tokens_details"), "thinking_tokens");
    tokens.reasoning_tokens = thought.unwrap_or(tokens.reasoning_tokens);
}
