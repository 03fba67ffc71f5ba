//! Converts our messages to the provider library's types, and its answers to ours.
//!
//! A conversation may continue with another provider than it began with. So what only its own provider can read (signed
//! reasoning) is stored with that provider's name and left out for others, and ids of tool calls are made to fit.

use std::collections::{BTreeMap, BTreeSet};

use genai::chat::{
    ChatMessage, ChatRequest, ContentPart, MessageContent, StopReason, StreamEnd, Tool, ToolCall as TheirCall,
    ToolName, ToolResponse,
};
use serde_json::{Map, Value, json};

use super::provider::Kind;
use crate::agents::model::{
    Completion, Finish, ImageSource, Message, MessageRole, ModelError, ModelErrorKind, Part, Request, ToolCall, Usage,
};

/// Longest id of a tool call that every provider accepts, characters.
const CALL_ID_CHARS_MAX: usize = 64;
/// Marks a signature that is a whole block of its provider's.
const BLOCK: &str = "block:";

/// A signature with the name of the provider that can read it.
fn mark(kind: Kind, signature: &str) -> String {
    format!("{}!{signature}", kind.as_str())
}

/// The signature, if it is this provider's.
fn own(kind: Kind, marked: &str) -> Option<&str> {
    marked.split_once('!').filter(|(name, _)| *name == kind.as_str()).map(|(_, signature)| signature)
}

/// Some compatible APIs expect unsigned reasoning of the same turn back; the others would refuse or ignore it.
fn wants_thoughts_back(kind: Kind) -> bool {
    kind == Kind::OpenAi
}

/// A conversation in the library's types.
pub(super) fn request(kind: Kind, request: &Request) -> Result<ChatRequest, ModelError> {
    let names: BTreeMap<&str, &str> = calls_of(&request.messages).map(|call| (&*call.id, &*call.name)).collect();
    let last_user = request.messages.iter().rposition(|message| message.role == MessageRole::User).unwrap_or(0);
    let (mut messages, mut results) = (Vec::new(), Results::default());
    for (at, message) in request.messages.iter().enumerate() {
        if message.role == MessageRole::Tool {
            results.add(kind, message, &names)?;
            continue;
        }
        results.close(&mut messages);
        messages.push(match message.role {
            MessageRole::System => ChatMessage::system(message.text()),
            MessageRole::User => ChatMessage::user(MessageContent::from_parts(parts(&message.content)?)),
            // Reasoning belongs to the turn it was produced in; earlier reasoning only costs tokens.
            MessageRole::Assistant | MessageRole::Tool => assistant(kind, message, at > last_user),
        });
    }
    results.close(&mut messages);
    let tool = |spec: &crate::agents::model::ToolSpec| {
        let tool = Tool::new(ToolName::Custom(spec.name.clone())).with_description(spec.description.clone());
        tool.with_schema(spec.schema.clone())
    };
    let asked = ChatRequest::new(messages);
    Ok(if request.tools.is_empty() { asked } else { asked.with_tools(request.tools.iter().map(tool)) })
}

fn calls_of(messages: &[Message]) -> impl Iterator<Item = &ToolCall> {
    messages.iter().flat_map(|message| &message.tool_calls)
}

/// Consecutive results are one message; the images among them follow it, because a result is text.
#[derive(Default)]
struct Results {
    texts: Vec<ContentPart>,
    images: Vec<ContentPart>,
}

impl Results {
    fn add(&mut self, kind: Kind, message: &Message, names: &BTreeMap<&str, &str>) -> Result<(), ModelError> {
        let id = message.tool_call_id.as_deref().unwrap_or_default();
        let response = ToolResponse::new(outgoing_id(kind, id), message.text());
        let name = names.get(id).map_or_else(|| id.to_owned(), |name| (*name).to_owned());
        self.texts.push(ContentPart::ToolResponse(response.with_fn_name(name)));
        let images = parts(&message.content)?.into_iter().filter(ContentPart::is_binary);
        self.images.extend(images);
        Ok(())
    }

    fn close(&mut self, messages: &mut Vec<ChatMessage>) {
        if !self.texts.is_empty() {
            messages.push(ChatMessage::tool(MessageContent::from_parts(std::mem::take(&mut self.texts))));
        }
        if !self.images.is_empty() {
            let mut content = vec![ContentPart::from_text("Images returned by the tools:")];
            content.append(&mut self.images);
            messages.push(ChatMessage::user(MessageContent::from_parts(content)));
        }
    }
}

fn parts(content: &[Part]) -> Result<Vec<ContentPart>, ModelError> {
    let part = |part: &Part| match part {
        Part::Text { text } => Some(Ok(ContentPart::from_text(text))),
        Part::Image { media_type, source } => Some(match source {
            ImageSource::Data(data) => Ok(ContentPart::from_binary_base64(media_type, data.as_str(), None)),
            ImageSource::Url(url) => Ok(ContentPart::from_binary_url(media_type, url, None)),
            ImageSource::ArtifactId(id) => {
                Err(ModelError::new(ModelErrorKind::Other, format!("the image in artifact {id} was not read")))
            }
        }),
        Part::Reasoning { .. } => None,
    };
    content.iter().filter_map(part).collect()
}

fn assistant(kind: Kind, message: &Message, of_this_turn: bool) -> ChatMessage {
    let mut content = Vec::new();
    for part in &message.content {
        match part {
            Part::Text { text } => content.push(ContentPart::from_text(text)),
            Part::Reasoning { text, signature: Some(signature) } => {
                let Some(signature) = own(kind, signature).filter(|_| of_this_turn) else { continue };
                if let Some(block) = signature.strip_prefix(BLOCK).and_then(|block| serde_json::from_str(block).ok()) {
                    content.push(ContentPart::from_custom(block, None));
                    continue;
                }
                content.push(ContentPart::ThoughtSignature(signature.to_owned()));
                if !text.is_empty() {
                    content.push(ContentPart::ReasoningContent(text.clone()));
                }
            }
            Part::Reasoning { text, signature: None } if of_this_turn && wants_thoughts_back(kind) => {
                content.push(ContentPart::ReasoningContent(text.clone()));
            }
            Part::Reasoning { .. } | Part::Image { .. } => {}
        }
    }
    content.extend(message.tool_calls.iter().map(|call| {
        let signatures: Vec<_> = call.signatures.iter().filter_map(|text| own(kind, text)).map(str::to_owned).collect();
        ContentPart::ToolCall(TheirCall {
            call_id: outgoing_id(kind, &call.id),
            fn_name: call.name.clone(),
            fn_arguments: arguments(&call.args),
            thought_signatures: (!signatures.is_empty()).then_some(signatures),
        })
    }));
    ChatMessage::assistant(MessageContent::from_parts(content))
}

/// Providers want an object; anything else that a model wrote is shown to it.
fn arguments(args: &Value) -> Value {
    match args {
        Value::Object(_) => args.clone(),
        Value::Null => Value::Object(Map::new()),
        other => json!({"invalid_arguments": other}),
    }
}

/// The library's own Gemini ids are passed unchanged (it omits them); others are made to fit everywhere.
fn outgoing_id(kind: Kind, id: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if kind == Kind::Gemini { id.to_owned() } else { id.chars().map(|c| if fits(c) { c } else { '_' }).collect() }
}

/// An answer in our types. `earlier` is the conversation so far, whose ids are taken.
pub(super) fn completion(kind: Kind, end: StreamEnd, text: String, earlier: &[Message]) -> Completion {
    let usage = end.captured_usage.map(usage).unwrap_or_default();
    let (mut thoughts, mut calls) = (Vec::new(), Vec::new());
    for part in end.captured_content.map(MessageContent::into_parts).unwrap_or_default() {
        match part {
            ContentPart::ThoughtSignature(signature) => {
                thoughts.push(Part::Reasoning { text: String::new(), signature: Some(mark(kind, &signature)) });
            }
            ContentPart::ReasoningContent(thought) => match thoughts.last_mut() {
                Some(Part::Reasoning { text, .. }) if text.is_empty() => *text = thought,
                _ => thoughts.push(Part::Reasoning { text: thought, signature: None }),
            },
            ContentPart::Custom(block) => {
                let signature = Some(mark(kind, &format!("{BLOCK}{}", block.data)));
                thoughts.push(Part::Reasoning { text: String::new(), signature });
            }
            ContentPart::ToolCall(call) => calls.push(call),
            ContentPart::Text(_) | ContentPart::Binary(_) | ContentPart::ToolResponse(_) => {}
        }
    }
    let told = thoughts.iter().any(|part| matches!(part, Part::Reasoning { text, .. } if !text.is_empty()));
    if let (false, Some(text)) = (told, end.captured_reasoning_content.filter(|text| !text.is_empty())) {
        thoughts.insert(0, Part::Reasoning { text, signature: None });
    }
    let mut content = thoughts;
    if !text.is_empty() {
        content.push(Part::Text { text });
    }
    let tool_calls = our_calls(kind, calls, earlier);
    let finish = match end.captured_stop_reason {
        _ if !tool_calls.is_empty() => Finish::ToolCalls,
        Some(StopReason::MaxTokens(_)) => Finish::Length,
        Some(StopReason::ContentFilter(_)) => Finish::Filtered,
        Some(StopReason::Other(reason)) => Finish::Other(reason),
        _ => Finish::Stop,
    };
    let message = Message { role: MessageRole::Assistant, content, tool_calls, tool_call_id: None };
    Completion { message, usage, finish }
}

fn our_calls(kind: Kind, calls: Vec<TheirCall>, earlier: &[Message]) -> Vec<ToolCall> {
    let mut taken: BTreeSet<String> = calls_of(earlier).map(|call| call.id.clone()).collect();
    let ours = |call: TheirCall| {
        let id = free_id(&call.call_id, &taken);
        taken.insert(id.clone());
        let signatures = call.thought_signatures.unwrap_or_default();
        ToolCall {
            id,
            name: call.fn_name,
            args: call.fn_arguments,
            signatures: signatures.iter().map(|signature| mark(kind, signature)).collect(),
        }
    };
    calls.into_iter().map(ours).collect()
}

/// The provider's id if it is valid as a span's, else one like it. Some providers count from 0 in every answer.
fn free_id(id: &str, taken: &BTreeSet<String>) -> String {
    let fits = !id.is_empty() && id.chars().count() <= CALL_ID_CHARS_MAX && !id.chars().any(char::is_control);
    let id = if fits { id } else { "call" };
    if fits && !taken.contains(id) {
        return id.to_owned();
    }
    // `call#name#0` is the library's own form for ids that the provider does not know; any number will do.
    let (stem, between) = match id.rsplit_once('#').filter(|(stem, _)| stem.starts_with("call#")) {
        Some((stem, _)) => (stem, '#'),
        None => (id, '_'),
    };
    // One number more than there are taken ids suffices.
    let mut free = (1..=taken.len() + 1).map(|n| format!("{stem}{between}{n}")).filter(|id| !taken.contains(id));
    free.next().unwrap_or_else(|| id.to_owned())
}

fn usage(theirs: genai::chat::Usage) -> Usage {
    let count = |number: Option<i32>| number.and_then(|number| u64::try_from(number).ok()).unwrap_or(0);
    Usage {
        input_tokens: count(theirs.prompt_tokens),
        output_tokens: count(theirs.completion_tokens),
        cached_tokens: count(theirs.prompt_tokens_details.and_then(|details| details.cached_tokens)),
        reasoning_tokens: count(theirs.completion_tokens_details.and_then(|details| details.reasoning_tokens)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_calls_are_free_and_fit() {
        let taken: BTreeSet<String> = ["c1", "call", "call#get#0", "c1_1"].map(str::to_owned).into();
        for (id, expected) in [
            ("c2", "c2"),
            ("c1", "c1_2"),
            ("", "call_1"),
            ("a\nb", "call_1"),
            ("call#get#0", "call#get#1"),
            ("call#set#0", "call#set#0"),
        ] {
            assert_eq!(free_id(id, &taken), expected, "{id:?}");
        }
        assert_eq!(free_id(&"x".repeat(65), &taken), "call_1");
        assert_eq!(outgoing_id(Kind::Anthropic, "call#get#1"), "call_get_1");
        assert_eq!(outgoing_id(Kind::Gemini, "call#get#1"), "call#get#1");
    }

    #[test]
    fn signed_thoughts_go_back_to_their_own_provider_and_to_no_other() {
        let thought =
            |signature: &str| Part::Reasoning { text: "hm".to_owned(), signature: Some(signature.to_owned()) };
        let signature = mark(Kind::Anthropic, "s1");
        let block = mark(Kind::Anthropic, &format!("{BLOCK}{}", json!({"type": "redacted_thinking", "data": "x"})));
        let message = Message {
            content: vec![thought(&signature), thought(&block), Part::text("yes")],
            ..Message::assistant("")
        };
        let kinds = |message: ChatMessage| -> Vec<String> {
            let name = |part: &ContentPart| format!("{part:?}").chars().take_while(|c| *c != '(').collect();
            message.content.parts().iter().map(name).collect()
        };
        assert_eq!(
            kinds(assistant(Kind::Anthropic, &message, true)),
            ["ThoughtSignature", "ReasoningContent", "Custom", "Text"]
        );
        assert_eq!(kinds(assistant(Kind::Anthropic, &message, false)), ["Text"]);
        assert_eq!(kinds(assistant(Kind::Gemini, &message, true)), ["Text"]);
    }
}
