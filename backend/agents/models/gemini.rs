//! Gemini's API: content in parts; a call is always complete.

use serde_json::{Value, json};

use super::{
    answer::{Answer, count},
    calls::{Form, Piece},
    conversation::{Shown, Turn, arguments, system, turns},
    error,
    ids::{Ids, own},
    provider::{Kind, Reasoning, Settings},
};
use crate::{
    agents::model::{Message, ModelError, ModelErrorKind, Part, Request, ToolSpec},
    domain::lenient::{Unread, UnreadMembers},
};

/// Accepted by Gemini 3 instead of the signature of a first call that has none.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";
/// Models that take a thinking level instead of a budget.
const WITH_LEVELS: [&str; 2] = ["gemini-3", "gemma-4"];

pub(super) fn path(model: &str) -> String {
    format!("models/{model}:streamGenerateContent?alt=sse")
}

pub(super) fn body(settings: &Settings, ids: &Ids, request: &Request) -> Result<Value, ModelError> {
    let turns = turns(request)?;
    let mut thinking = json!({"includeThoughts": true});
    let is_level = WITH_LEVELS.iter().any(|name| settings.model.contains(name));
    let (level, budget) = match settings.reasoning {
        None | Some(Reasoning::None) => (None, None),
        Some(Reasoning::Low) => (Some("LOW"), Some(1_000)),
        Some(Reasoning::Medium) => (Some("MEDIUM"), Some(8_000)),
        Some(Reasoning::High | Reasoning::Max) => (Some("HIGH"), Some(24_000)),
    };
    if let Some(level) = level.filter(|_| is_level) {
        thinking["thinkingLevel"] = json!(level);
    }
    if let Some(budget) = budget.filter(|_| !is_level) {
        thinking["thinkingBudget"] = json!(budget);
    }
    let mut body = json!({"generationConfig": {"thinkingConfig": thinking}});
    if let Some(system) = system(&turns, "\n") {
        body["systemInstruction"] = json!({"parts": [{"text": system}]});
    }
    if !request.tools.is_empty() {
        let tool = |tool: &ToolSpec| json!({"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.schema});
        let tools: Vec<Value> = request.tools.iter().map(tool).collect();
        body["tools"] = json!([{"functionDeclarations": tools}]);
    }
    body["contents"] = contents(&settings.model, ids, request, turns).into();
    if let Some(temperature) = request.temperature {
        body["generationConfig"]["temperature"] = json!(temperature);
    }
    if let Some(max_tokens) = request.max_tokens {
        body["generationConfig"]["maxOutputTokens"] = json!(max_tokens);
    }
    Ok(body)
}

fn contents(model: &str, ids: &Ids, request: &Request, turns: Vec<Turn<'_>>) -> Vec<Value> {
    let known = ids.theirs(&request.messages);
    let id = |ours: &str| known.get(ours).and_then(Option::as_ref).map(|id| id.id.clone());
    let mut contents = Vec::new();
    for turn in turns {
        let (role, parts) = match turn {
            Turn::System(_) => continue,
            Turn::User(shown) => ("user", shown.into_iter().map(part).collect()),
            Turn::Assistant { message, is_of_this_turn } => {
                ("model", model_parts(model, message, is_of_this_turn, &id))
            }
            Turn::Results(results) => {
                let result = |result: &Message| {
                    let ours = result.tool_call_id.as_deref().unwrap_or_default();
                    let mut calls = request.messages.iter().flat_map(|message| &message.tool_calls);
                    let name = calls.find(|call| call.id == ours).map_or(ours, |call| &call.name);
                    let mut response = json!({"name": name, "response": {"name": name, "content": result.text()}});
                    if let Some(id) = id(ours) {
                        response["id"] = json!(id);
                    }
                    json!({"functionResponse": response})
                };
                ("user", results.into_iter().map(result).collect::<Vec<Value>>())
            }
        };
        if role == "user" || !parts.is_empty() {
            contents.push(json!({"role": role, "parts": parts}));
        }
    }
    contents
}

fn part(shown: Shown<'_>) -> Value {
    match shown {
        Shown::Text(text) => json!({"text": text}),
        Shown::Data { media_type, data } => json!({"inline_data": {"mime_type": media_type, "data": data}}),
        Shown::Url { media_type, url } => json!({"file_data": {"mime_type": media_type, "file_uri": url}}),
    }
}

/// The parts of a model's message. A signature is sent back with the part that follows it, that of a call with the
/// call.
fn model_parts(
    model: &str,
    message: &Message,
    is_of_this_turn: bool,
    id: &dyn Fn(&str) -> Option<String>,
) -> Vec<Value> {
    let (mut parts, mut waiting) = (Vec::new(), None);
    for part in &message.content {
        match part {
            Part::Reasoning { signature: Some(signature), .. } if is_of_this_turn => {
                waiting = own(Kind::Gemini, signature).or(waiting);
            }
            Part::Text { text } => {
                let mut part = json!({"text": text});
                if let Some(signature) = waiting.take() {
                    part["thoughtSignature"] = json!(signature);
                }
                parts.push(part);
            }
            Part::Reasoning { .. } | Part::Image { .. } => {}
        }
    }
    for (at, call) in message.tool_calls.iter().enumerate() {
        let mut function = json!({"name": call.name, "args": arguments(call)});
        if let Some(id) = id(&call.id) {
            function["id"] = json!(id);
        }
        let mut part = json!({"functionCall": function});
        let signature = call.signatures.iter().find_map(|signature| own(Kind::Gemini, signature));
        let placeholder = (at == 0 && model.contains("gemini-3")).then_some(NO_SIGNATURE);
        if let Some(signature) = signature.or_else(|| waiting.take()).or(placeholder) {
            part["thoughtSignature"] = json!(signature);
        }
        parts.push(part);
    }
    parts
}

pub(super) fn read(answer: &mut Answer<'_, '_>, chunk: &UnreadMembers<'_>) -> Result<(), ModelError> {
    if let Some(error) = chunk.get("error") {
        return Err(error::of_event(error));
    }
    if let Some(reason) = chunk.inside("promptFeedback").text("blockReason") {
        let reason: String = reason.chars().filter(|c| !c.is_control()).take(64).collect();
        return Err(ModelError::new(ModelErrorKind::Refused, format!("the provider blocks the prompt: {reason}")));
    }
    let usage = chunk.get("usageMetadata").map(Unread::members);
    if let Some(usage) = &usage {
        // Thoughts and the prompts of built-in tools are counted separately.
        let number = |name| count(usage, name).unwrap_or(0);
        let tokens = &mut answer.usage;
        tokens.reasoning_tokens = number("thoughtsTokenCount");
        tokens.input_tokens = number("promptTokenCount").saturating_add(number("toolUsePromptTokenCount"));
        tokens.output_tokens = number("candidatesTokenCount").saturating_add(tokens.reasoning_tokens);
        tokens.cached_tokens = number("cachedContentTokenCount");
    }
    let Some(candidate) = chunk.get("candidates").and_then(|candidates| candidates.items().next()) else {
        return Ok(());
    };
    let candidate = candidate.members();
    let content = candidate.get("content");
    answer.heard |= content.is_some_and(|content| content.as_str().starts_with('{'));
    for part in content.map(Unread::members).unwrap_or_default().get("parts").into_iter().flat_map(Unread::items) {
        read_part(answer, &part.members())?;
    }
    answer.finish = candidate.text("finishReason").or(answer.finish.take());
    answer.is_done = answer.finish.is_some() && usage.is_some();
    Ok(())
}

fn read_part(answer: &mut Answer<'_, '_>, part: &UnreadMembers<'_>) -> Result<(), ModelError> {
    let signature = part.text("thoughtSignature");
    if let Some(call) = part.get("functionCall").map(Unread::members) {
        return answer.calls.add(Piece {
            id: call.text("id"),
            name: call.text("name"),
            args: call.get("args"),
            form: Form::Whole,
            signature,
            ..Piece::default()
        });
    }
    if part.get("thought").is_some_and(|thought| thought.as_str() == "true") {
        answer.think(part.get("text"));
    } else {
        answer.say(part.get("text"));
    }
    answer.sign_answer(&signature.unwrap_or_default());
    Ok(())
}
