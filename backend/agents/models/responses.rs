//! `OpenAI`'s Responses API: items of output, each with a number and an id.

use serde_json::{Value, json};

use super::{
    answer::{Answer, count},
    calls::{Form, Piece},
    conversation::{Shown, Turn, arguments, texts, turns},
    error,
    ids::{Ids, own},
    openai::{caches_unasked, effort},
    provider::{Kind, Settings},
};
use crate::{
    agents::model::{ModelError, Part, Request, ToolCall, ToolSpec},
    domain::lenient::{Unread, UnreadMembers},
};

pub(super) const PATH: &str = "responses";

pub(super) fn body(settings: &Settings, ids: &Ids, request: &Request) -> Result<Value, ModelError> {
    let mut body = json!({"store": false, "model": settings.model, "stream": true});
    if caches_unasked(&settings.model) && settings.base_url.host_str() == Some("api.openai.com") {
        body["prompt_cache_options"] = json!({"mode": "explicit"});
    }
    body["reasoning"] = json!({"summary": "detailed"});
    if let Some(reasoning) = settings.reasoning {
        body["reasoning"]["effort"] = json!(effort(reasoning));
    }
    // Without storage at the provider, reasoning is returned encrypted.
    body["include"] = json!(["reasoning.encrypted_content"]);
    if !request.tools.is_empty() {
        let tool = |tool: &ToolSpec| {
            json!({
                "type": "function", "name": tool.name, "parameters": tool.schema, "description": tool.description,
            })
        };
        body["tools"] = request.tools.iter().map(tool).collect();
    }
    body["input"] = input(ids, request)?.into();
    if let Some(temperature) = request.temperature {
        body["temperature"] = json!(temperature);
    }
    if let Some(max_tokens) = request.max_tokens {
        body["max_output_tokens"] = json!(max_tokens);
    }
    Ok(body)
}

fn input(ids: &Ids, request: &Request) -> Result<Vec<Value>, ModelError> {
    let known = ids.theirs(&request.messages);
    let id = |ours: &str| known.get(ours).and_then(Option::as_ref).map_or_else(|| ours.to_owned(), |id| id.id.clone());
    let mut items = Vec::new();
    for turn in turns(request)? {
        match turn {
            Turn::System(text) => items.push(json!({"role": "system", "content": text})),
            Turn::User(shown) => items.push(json!({"role": "user", "content": content(&shown)})),
            Turn::Assistant { message, is_of_this_turn } => {
                let signature = |part: &Part| match part {
                    Part::Reasoning { signature: Some(signature), .. } if is_of_this_turn => {
                        own(Kind::OpenAiResponses, signature).map(str::to_owned)
                    }
                    _ => None,
                };
                let thought = |thought| json!({"type": "reasoning", "encrypted_content": thought, "summary": []});
                items.extend(message.content.iter().filter_map(signature).map(thought));
                let text = |text| json!({"type": "output_text", "text": text});
                let content: Vec<Value> = texts(message).map(text).collect();
                if !content.is_empty() {
                    items.push(json!({"type": "message", "role": "assistant", "content": content}));
                }
                let call = |call: &ToolCall| {
                    json!({
                        "type": "function_call", "call_id": id(&call.id), "name": call.name,
                        "arguments": arguments(call).to_string(),
                    })
                };
                items.extend(message.tool_calls.iter().map(call));
            }
            Turn::Results(results) => items.extend(results.into_iter().map(|result| {
                let id = id(result.tool_call_id.as_deref().unwrap_or_default());
                json!({"type": "function_call_output", "call_id": id, "output": result.text()})
            })),
        }
    }
    Ok(items)
}

fn content(shown: &[Shown<'_>]) -> Value {
    if let Some(text) = Turn::only_text(shown) {
        return json!(text);
    }
    let part = |shown: &Shown<'_>| match shown {
        Shown::Text(text) => json!({"type": "input_text", "text": text}),
        image => json!({"type": "input_image", "detail": "auto", "image_url": image.url()}),
    };
    shown.iter().map(part).collect()
}

pub(super) fn read(answer: &mut Answer<'_, '_>, event: &UnreadMembers<'_>) -> Result<(), ModelError> {
    let number = event.get("output_index").and_then(Unread::whole);
    match event.text("type").unwrap_or_default().as_str() {
        "response.output_text.delta" => _ = answer.say(event.get("delta")),
        "response.reasoning_text.delta" | "response.reasoning_summary_text.delta" => {
            _ = answer.think(event.get("delta"));
        }
        "response.output_item.added" => item(answer, number, &event.inside("item"), Form::More)?,
        "response.output_item.done" => item(answer, number, &event.inside("item"), Form::Whole)?,
        kind @ ("response.function_call_arguments.delta" | "response.function_call_arguments.done") => {
            let is_whole = kind.ends_with("done");
            let args = event.get(if is_whole { "arguments" } else { "delta" });
            let form = if is_whole { Form::Whole } else { Form::More };
            if !args.is_none_or(is_empty) {
                answer.calls.add(Piece { number, item: event.text("item_id"), args, form, ..Piece::default() })?;
            }
        }
        "response.completed" | "response.incomplete" => ended(answer, &event.inside("response"))?,
        "response.failed" => {
            let response = event.inside("response");
            return Err(response.get("error").map_or_else(error::cut, error::of_event));
        }
        "error" => {
            let error = event.get("error").or_else(|| event.get("message"));
            return Err(error.map_or_else(error::cut, error::of_event));
        }
        "" => {
            // A response that was not streamed, or the error of a gateway.
            if let Some(error) = event.get("error") {
                return Err(error::of_event(error));
            }
            if event.get("output").is_some() {
                ended(answer, event)?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn is_empty(args: Unread<'_>) -> bool {
    args.text().is_some_and(|text| text.is_empty())
}

fn item(
    answer: &mut Answer<'_, '_>,
    number: Option<i64>,
    item: &UnreadMembers<'_>,
    form: Form,
) -> Result<(), ModelError> {
    match item.text("type").unwrap_or_default().as_str() {
        "function_call" => {
            let args = item.get("arguments").filter(|args| !is_empty(*args));
            // An item that ends without its arguments does not discard those received before.
            let form = if args.is_some() { form } else { Form::More };
            let (id, name) = (item.text("call_id"), item.text("name"));
            answer.calls.add(Piece { number, item: item.text("id"), id, name, args, form, signature: None })?;
        }
        "reasoning" if form == Form::Whole => {
            answer.sign_answer(&item.text("encrypted_content").unwrap_or_default());
        }
        _ => {}
    }
    Ok(())
}

fn ended(answer: &mut Answer<'_, '_>, response: &UnreadMembers<'_>) -> Result<(), ModelError> {
    answer.is_done = true;
    let status = response.text("status").unwrap_or_else(|| "completed".to_owned());
    answer.heard |= response.get("output").is_some() || status == "incomplete";
    let why = response.inside("incomplete_details").text("reason");
    answer.finish = why.filter(|_| status == "incomplete").or(Some(status));
    let usage = response.inside("usage");
    answer.usage.input_tokens = count(&usage, "input_tokens").unwrap_or(0);
    answer.usage.output_tokens = count(&usage, "output_tokens").unwrap_or(0);
    answer.usage.cached_tokens = count(&usage.inside("input_tokens_details"), "cached_tokens").unwrap_or(0);
    answer.usage.reasoning_tokens = count(&usage.inside("output_tokens_details"), "reasoning_tokens").unwrap_or(0);
    // The last event repeats the output; some servers send it only there.
    let (had_text, had_calls) = (answer.has_text(), !answer.calls.is_empty());
    for (output, number) in response.get("output").into_iter().flat_map(Unread::items).zip(0..) {
        let output = output.members();
        let is_call = output.get("call_id").is_some();
        if !(is_call && had_calls) {
            item(answer, Some(number), &output, Form::Whole)?;
        }
        for part in output.get("content").filter(|_| !had_text).into_iter().flat_map(Unread::items) {
            let part = part.members();
            if part.text("type").as_deref() == Some("output_text") {
                answer.say(part.get("text"));
            }
        }
    }
    Ok(())
}
