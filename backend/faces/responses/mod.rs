//! `OpenAI` Responses: a run as a response, and as its stream of events.
//!
//! The number of an event is its [`Position`]: a function of the run's log and of the characters delivered, the same on
//! every server, from 0 and below 2^31. Numbers increase, with gaps. A stream that begins after one sends exactly what
//! follows it, so a response in the background can be read in pieces.
//!
//! `docs/protocols/openai-responses.md` has the mapping. Start reading at [`Responses`]; `output.rs` keeps the items,
//! `request.rs` reads what clients send.

mod calls;
mod output;
pub mod request;
pub mod whole;

use std::{collections::BTreeMap, fmt::Write as _};

use bytes::{BufMut as _, Bytes, BytesMut};
use serde_json::{Map, Value, json};

use self::{
    calls::Call,
    output::{AboutItem, Output},
};
use super::{
    conversation::{Dialect, Event, Part},
    position::Position,
};
use crate::domain::{
    id::{RunId, SpanId},
    json::{Json, JsonSlice},
    meaning::{Kind, Text, What},
    usage::Usage,
};

/// Capacity that most events fit into, in bytes.
const MOST_BYTES: usize = 256;

/// An open text: its item, and what was sent of it.
#[derive(Debug)]
struct Begun {
    kind: Kind,
    id: String,
    index: usize,
    so_far: String,
    /// The beginning of its delta events, which are most of a stream.
    delta_head: Vec<u8>,
}

/// Translates a run's conversation to a response.
#[derive(Debug)]
pub struct Responses {
    run: RunId,
    /// The response without its output, status, error and usage.
    head: Map<String, Value>,
    status: &'static str,
    error: Value,
    completed_at: Value,
    usage: Option<Usage>,
    output: Output,
    texts: BTreeMap<SpanId, Begun>,
    /// The items of open calls.
    calls: BTreeMap<String, Call>,
    /// The approvals of calls that have not begun.
    approvals: BTreeMap<String, String>,
    is_caught_up: bool,
}

/// An event without its number: its type, and its JSON without the bracket that ends it.
#[derive(Debug)]
pub struct Said {
    event_type: &'static str,
    members: Vec<u8>,
}

impl Said {
    /// An event about an item.
    fn of(about: &AboutItem<'_>) -> Self {
        let mut members = Vec::with_capacity(MOST_BYTES);
        let written = serde_json::to_writer(&mut members, about);
        debug_assert!(written.is_ok(), "an event is JSON");
        members.pop();
        Self { event_type: about.event_type, members }
    }
}

impl Responses {
    /// For the response with these members: `id`, `created_at`, `model` and what else the request determined.
    pub fn new(run: RunId, head: Map<String, Value>) -> Self {
        Self {
            run,
            head,
            status: "queued",
            error: Value::Null,
            completed_at: Value::Null,
            usage: None,
            output: Output::default(),
            texts: BTreeMap::new(),
            calls: BTreeMap::new(),
            approvals: BTreeMap::new(),
            is_caught_up: false,
        }
    }

    /// The current response.
    pub fn response(&self) -> Value {
        let mut response = self.head.clone();
        response.insert("status".to_owned(), json!(self.status));
        response.insert("error".to_owned(), self.error.clone());
        response.insert("completed_at".to_owned(), self.completed_at.clone());
        response.insert("output".to_owned(), json!(self.output.items()));
        response.insert("usage".to_owned(), json!(self.usage.map(usage_of)));
        if self.output.left_out() > 0 {
            let note = json!(format!("{} items are left out: the output is too large", self.output.left_out()));
            if let Some(Value::Object(metadata)) = response.get_mut("metadata") {
                metadata.insert("runreel_output".to_owned(), note);
            }
        }
        Value::Object(response)
    }

    fn about(&self, event_type: &'static str, out: &mut Vec<Said>) {
        let mut members = json!({"type": event_type, "response": self.response()}).to_string().into_bytes();
        members.pop();
        out.push(Said { event_type, members });
    }

    fn text_begins(&mut self, text: &Text, out: &mut Vec<Said>) {
        if text.role != "assistant" || text.is_input() {
            return;
        }
        let id = self.item_id(if text.kind == Kind::Message { "msg" } else { "rs" }, text.span.as_str());
        let (item, part) = match text.kind {
            Kind::Message => (
                json!({"id": id, "type": "message", "role": "assistant", "status": "in_progress", "content": []}),
                output_text(""),
            ),
            Kind::Reasoning => (
                json!({"id": id, "type": "reasoning", "status": "in_progress", "summary": [], "content": []}),
                json!({"type": "reasoning_text", "text": ""}),
            ),
        };
        let index = self.output.add(&item, out);
        out.push(Said::of(&AboutItem {
            event_type: "response.content_part.added",
            part: Some(&part),
            ..of_text(&id, index)
        }));
        let (event_type, logprobs) = delta_of(text.kind);
        let Said { members: mut delta_head, .. } = Said::of(&AboutItem { event_type, logprobs, ..of_text(&id, index) });
        delta_head.extend_from_slice(b",\"delta\":");
        let begun = Begun { kind: text.kind, id, index, so_far: String::new(), delta_head };
        self.texts.insert(text.span.clone(), begun);
    }

    fn text_goes_on(&mut self, text: &Text, delta: &str, out: &mut Vec<Said>) {
        let Some(begun) = self.texts.get_mut(&text.span) else { return };
        begun.so_far.push_str(delta);
        let mut members = Vec::with_capacity(begun.delta_head.len() + delta.len() + 8);
        members.extend_from_slice(&begun.delta_head);
        let written = serde_json::to_writer(&mut members, delta);
        debug_assert!(written.is_ok(), "a text is JSON");
        out.push(Said { event_type: delta_of(begun.kind).0, members });
    }

    fn text_ends(&mut self, text: &Text, whole: Option<&str>, status: &str, out: &mut Vec<Said>) {
        let Some(Begun { kind, id, index, so_far, .. }) = self.texts.remove(&text.span) else { return };
        let whole = whole.unwrap_or(&so_far);
        let (event_type, logprobs, part, mut item) = match kind {
            Kind::Message => {
                let item = json!({"id": id, "type": "message", "role": "assistant", "status": status});
                ("response.output_text.done", Some([]), output_text(whole), item)
            }
            Kind::Reasoning => {
                let item = json!({"id": id, "type": "reasoning", "status": status, "summary": []});
                ("response.reasoning_text.done", None, json!({"type": "reasoning_text", "text": whole}), item)
            }
        };
        out.push(Said::of(&AboutItem { event_type, text: Some(whole), logprobs, ..of_text(&id, index) }));
        let event_type = "response.content_part.done";
        out.push(Said::of(&AboutItem { event_type, part: Some(&part), ..of_text(&id, index) }));
        item["content"] = Value::Array(vec![part]);
        self.output.done(index, &item, out);
    }

    /// The id of an item, unique among those of all responses.
    fn item_id(&self, kind: &str, id: &str) -> String {
        format!("{kind}_{}", self.run.scoped(id))
    }

    fn add(&mut self, usage: Option<Usage>) {
        let Some(more) = usage else { return };
        *self.usage.get_or_insert_default() += more;
    }

    fn event(&mut self, event: &Event<'_>, out: &mut Vec<Said>) {
        match event.what {
            What::RunCreated => {
                self.about("response.created", out);
                self.about("response.queued", out);
            }
            What::RunStarted => {
                self.status = "in_progress";
                self.about("response.in_progress", out);
            }
            What::RunCompleted { .. } => self.ended(event, "completed", "response.completed", out),
            What::RunFailed { error } => {
                self.error = json!({"code": "server_error", "message": words(error.as_ref().map(Json::slice), "the run failed")});
                self.ended(event, "failed", "response.failed", out);
            }
            // The protocol has no event for cancellation.
            What::RunCancelled { .. } => self.ended(event, "cancelled", "response.incomplete", out),
            What::ToolStarted { tool_call_id, name, args, is_client } => {
                let args = args.as_ref().map_or_else(|| "{}".to_owned(), ToString::to_string);
                if *is_client {
                    self.client_call(tool_call_id, name, &args, out);
                } else {
                    self.call(tool_call_id, name, &args, out);
                }
            }
            What::ToolCompleted { tool_call_id, name, result, .. } => {
                let result = result.as_ref().map_or_else(|| event.payload(), Json::slice);
                self.call_ends(tool_call_id, name, Ok(&words(Some(result), "")), out);
            }
            What::ToolFailed { tool_call_id, name, error, .. } => {
                let error = words(error.as_ref().map(Json::slice), "the call failed");
                self.call_ends(tool_call_id, name, Err(&error), out);
            }
            What::InterruptRequested { interrupt_id, tool_call_id } => {
                self.asked(interrupt_id, tool_call_id.as_deref(), event.payload(), out);
            }
            _ => {}
        }
    }

    fn ended(&mut self, event: &Event<'_>, status: &'static str, event_type: &'static str, out: &mut Vec<Said>) {
        self.status = status;
        self.completed_at = if status == "completed" { json!(event.frame.at.timestamp()) } else { Value::Null };
        self.about(event_type, out);
    }
}

/// Usage under the protocol's names.
fn usage_of(Usage { input, cached, cache_write, output, reasoning }: Usage) -> Value {
    json!({"input_tokens": input, "output_tokens": output, "total_tokens": input + output,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": cache_write},
        "output_tokens_details": {"reasoning_tokens": reasoning}})
}

impl Dialect for Responses {
    type Said = Said;

    fn say(&mut self, part: &Part<'_>, out: &mut Vec<Said>) {
        match part {
            Part::Opened(text) => self.text_begins(text, out),
            Part::Delta(text, delta) => self.text_goes_on(text, delta, out),
            // The protocol cannot express these; the event that ends a replaced text has the right one.
            Part::Replaced(..) | Part::Gap | Part::Ended(_) | Part::SentAway { .. } => {}
            Part::Closed(text, Some(event)) => {
                let What::Text { content, usage, .. } = event.what else { return };
                self.add(*usage);
                self.text_ends(text, content.as_deref(), "completed", out);
            }
            Part::Closed(text, None) => self.text_ends(text, None, "incomplete", out),
            Part::Event(event) => self.event(event, out),
            Part::CaughtUp => self.is_caught_up = true,
        }
    }

    /// An answered interrupt continues the same response.
    fn ends_with(&self, event: &Event<'_>) -> bool {
        event.frame.terminal.is_some()
    }

    fn write(&mut self, chunk: &mut BytesMut, event: Said, at: Option<&Position>) {
        let Some(number) = at.and_then(Position::number) else { return };
        let Said { event_type, members } = event;
        for bytes in [b"event: ", event_type.as_bytes(), b"\ndata: ", &members, b",\"sequence_number\":"] {
            chunk.put_slice(bytes);
        }
        let _ = write!(chunk, "{number}}}\n\n");
    }

    fn opening(&self) -> Bytes {
        Bytes::new()
    }
}

/// The members of an event about the text of an item.
fn of_text(item_id: &str, output_index: usize) -> AboutItem<'_> {
    AboutItem { item_id: Some(item_id), output_index, content_index: Some(0), ..AboutItem::default() }
}

/// The delta event of a kind of text, and a member that clients expect in it.
fn delta_of(kind: Kind) -> (&'static str, Option<[u8; 0]>) {
    match kind {
        Kind::Message => ("response.output_text.delta", Some([])),
        Kind::Reasoning => ("response.reasoning_text.delta", None),
    }
}

fn output_text(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

/// A string as it is, the `message` of an object, or JSON.
fn words(value: Option<JsonSlice<'_>>, otherwise: &str) -> String {
    let Some(value) = value else { return otherwise.to_owned() };
    let text: Option<String> = serde_json::from_str(value.as_str()).ok();
    text.or_else(|| value.member("message")).unwrap_or_else(|| value.to_string())
}
