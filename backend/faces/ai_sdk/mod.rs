//! The Vercel AI SDK: a run as a UI message stream, version 1.
//!
//! A stream is one message of the assistant, from its beginning: the client rebuilds the message from the chunks. So a
//! reader that reconnects gets the whole message again and replaces its own. The message ends where the client has to
//! act: with the run, or when the run waits for a person.
//!
//! A message may span several runs, and a chat many, so ids of calls, approvals and data are `{run_id}/{id}`.
//!
//! `docs/protocols/ai-sdk.md` has the mapping.

pub mod request;

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashSet},
};

use bytes::{BufMut as _, Bytes, BytesMut};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{
    conversation::{Dialect, Event, Part},
    position::Position,
};
use crate::domain::{
    id::SpanId,
    interrupt::Decision,
    json::Json,
    meaning::{Kind, Text, What},
    run::Status,
};

/// Name and value of the header that every response has.
pub const HEADER: (&str, &str) = ("x-vercel-ai-ui-message-stream", "v1");

/// Ends the last run of a message: the client has nothing more to expect.
const DONE: &str = "[DONE]";

/// An interrupt: the approval of a call, or another question.
#[derive(Debug)]
enum Question {
    Approval { tool_call_id: String },
    Other(Value),
}

/// The stage of a stream. A wait read from the log may be over already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Replaying,
    Live,
    /// The run waits for a person, so the message has ended.
    Over,
}

/// Translates a run's conversation to the AI SDK's protocol.
#[derive(Debug)]
pub struct AiSdk {
    message_id: String,
    /// The message's metadata about the run.
    metadata: Map<String, Value>,
    /// Whether the message ends with this run.
    is_last: bool,
    /// Open texts: the kind of each, and whether it was begun again under another id.
    texts: BTreeMap<SpanId, (Kind, bool)>,
    /// Calls whose input was sent and whose output was not; `true` while the arguments are unknown.
    calls: BTreeMap<String, bool>,
    denied: HashSet<String>,
    /// Open steps of the message.
    steps: HashSet<SpanId>,
    open: BTreeMap<String, Question>,
    is_interrupted: bool,
    stage: Stage,
    /// Output of earlier runs of the message.
    before: Bytes,
}

impl AiSdk {
    /// For a run of this message.
    pub fn new(message_id: &str, metadata: Map<String, Value>) -> Self {
        Self {
            message_id: message_id.to_owned(),
            metadata,
            is_last: true,
            texts: BTreeMap::new(),
            calls: BTreeMap::new(),
            denied: HashSet::new(),
            steps: HashSet::new(),
            open: BTreeMap::new(),
            is_interrupted: false,
            stage: Stage::Replaying,
            before: Bytes::new(),
        }
    }

    /// Prepends the output of earlier runs of the message.
    #[must_use]
    pub fn after(self, before: Bytes) -> Self {
        Self { before, ..self }
    }

    /// For a run that another one of the message follows.
    #[must_use]
    pub fn continued(self) -> Self {
        Self { is_last: false, ..self }
    }

    fn text(&mut self, part: &Part<'_>, out: &mut Chunks) {
        match part {
            Part::Opened(text) => {
                self.texts.insert(text.span.clone(), (text.kind, false));
                out.push(json!({"type": kinds(text.kind).0, "id": text.span}));
            }
            Part::Delta(text, delta) => {
                if let Some((kind, again)) = self.texts.get(&text.span) {
                    out.push(TextDelta { kind: kinds(*kind).1, id: id_of(text, *again), delta });
                }
            }
            // The protocol cannot replace a text: it ends, and another begins.
            Part::Replaced(text, whole) => {
                if let Some(begun) = self.texts.get_mut(&text.span) {
                    let (kind, again) = std::mem::replace(begun, (text.kind, true));
                    out.push(json!({"type": kinds(kind).2, "id": id_of(text, again)}));
                    let (start, delta, _) = kinds(text.kind);
                    out.push(json!({"type": start, "id": id_of(text, true)}));
                    out.push(TextDelta { kind: delta, id: id_of(text, true), delta: whole });
                }
            }
            Part::Closed(text, _) => {
                if let Some((kind, again)) = self.texts.remove(&text.span) {
                    out.push(json!({"type": kinds(kind).2, "id": id_of(text, again)}));
                }
            }
            _ => {}
        }
    }

    fn event(&mut self, event: &Event<'_>, out: &mut Chunks) {
        match event.what {
            What::RunCreated => {
                out.push(json!({"type": "start", "messageId": self.message_id, "messageMetadata": self.metadata}));
            }
            What::RunResumed => self.is_interrupted = false,
            What::RunPaused(status) => {
                self.is_interrupted = *status == Status::Interrupted;
                self.pause(out);
            }
            What::RunCompleted { output } => {
                let calls: Option<Vec<Value>> = output.as_ref().and_then(|output| output.member("tool_calls"));
                let reason = if calls.is_some_and(|calls| !calls.is_empty()) { "tool-calls" } else { "stop" };
                self.finish(reason, "completed", out);
            }
            What::RunFailed { error } => {
                out.push(json!({"type": "error", "errorText": message_of(error.as_ref(), "the run failed")}));
                self.finish("error", "failed", out);
            }
            What::RunCancelled { reason } => {
                out.push(json!({"type": "abort", "reason": reason.as_deref().unwrap_or("the run was cancelled")}));
                self.finish("other", "cancelled", out);
            }
            What::StepStarted { .. } if event.frame.parent_span_id.is_none() => {
                out.push(json!({"type": "start-step"}));
                self.steps.extend(event.frame.span_id.clone());
            }
            What::StepEnded { .. } => {
                let begun = event.frame.span_id.as_ref().is_some_and(|span| self.steps.remove(span));
                if begun {
                    out.push(json!({"type": "finish-step"}));
                }
            }
            What::ToolStarted { .. } | What::ToolCompleted { .. } | What::ToolFailed { .. } => self.tool(event, out),
            What::InterruptRequested { interrupt_id, tool_call_id } => {
                self.asked(event, interrupt_id, tool_call_id.as_deref(), out);
            }
            What::InterruptResolved { interrupt_id } => self.answered(event, interrupt_id, out),
            What::Other => data_part(event, out),
            _ => {}
        }
    }

    fn tool(&mut self, event: &Event<'_>, out: &mut Chunks) {
        match event.what {
            What::ToolStarted { tool_call_id, name, args, is_client } => {
                self.call(&id_in(event, tool_call_id), name, args.as_ref(), !is_client, out);
            }
            What::ToolCompleted { tool_call_id, name, result, .. } => {
                let id = id_in(event, tool_call_id);
                self.call(&id, name, None, true, out);
                let output = result.as_ref().map_or_else(|| event.payload(), Json::slice);
                out.push(json!({"type": "tool-output-available", "toolCallId": id, "output": output,
                    "providerExecuted": true, "dynamic": true}));
                self.calls.remove(&id);
            }
            What::ToolFailed { tool_call_id, name, error, .. } => {
                let id = id_in(event, tool_call_id);
                self.call(&id, name, None, true, out);
                out.push(if self.denied.remove(&id) {
                    json!({"type": "tool-output-denied", "toolCallId": id})
                } else {
                    json!({"type": "tool-output-error", "toolCallId": id, "providerExecuted": true,
                        "dynamic": true, "errorText": message_of(error.as_ref(), "the call failed")})
                });
                self.calls.remove(&id);
            }
            _ => {}
        }
    }

    /// Sends a call's input, unless it was sent. A call that the client does not execute is marked as the provider's:
    /// the client neither executes it nor sends its result back.
    fn call(&mut self, id: &str, name: &str, args: Option<&Json>, is_ours: bool, out: &mut Chunks) {
        // A person may have been asked about the call before its arguments were known.
        if self.calls.get(id).is_some_and(|is_bare| !is_bare || args.is_none()) {
            return;
        }
        self.calls.insert(id.to_owned(), args.is_none());
        let mut input = json!({"type": "tool-input-available", "toolCallId": id, "toolName": name,
            "input": args.map_or_else(|| json!({}), |args| json!(args))});
        if is_ours {
            input["providerExecuted"] = json!(true);
            input["dynamic"] = json!(true);
        }
        out.push(input);
    }

    fn asked(&mut self, event: &Event<'_>, interrupt: &str, call: Option<&str>, out: &mut Chunks) {
        let (payload, id) = (event.payload(), id_in(event, interrupt));
        if payload.member::<String>("kind").as_deref() != Some("approval") {
            let run = event.frame.context.run_id;
            let data = json!({"status": "open", "run_id": run, "interrupt_id": interrupt, "request": payload});
            out.push(json!({"type": "data-interrupt", "id": id, "data": data}));
            self.open.insert(interrupt.to_owned(), Question::Other(data));
            return;
        }
        // The protocol approves only calls: an approval without one gets a call of its own.
        let tool_call_id = call.map_or_else(|| format!("{id}/approval"), |call| id_in(event, call));
        // A call has one approval: the client forgets an earlier one that is open.
        self.open.retain(|_, open| !matches!(open, Question::Approval { tool_call_id: of } if *of == tool_call_id));
        let tool: String = payload.member("tool").unwrap_or_else(|| "approval".to_owned());
        self.call(&tool_call_id, &tool, payload.members().raw("args").as_ref(), true, out);
        let mut request = json!({"type": "tool-approval-request", "approvalId": id, "toolCallId": tool_call_id});
        if let Some(prompt) = payload.member::<String>("prompt") {
            request["reason"] = json!(prompt);
        }
        out.push(request);
        self.open.insert(interrupt.to_owned(), Question::Approval { tool_call_id });
    }

    fn answered(&mut self, event: &Event<'_>, interrupt: &str, out: &mut Chunks) {
        let (payload, id) = (event.payload(), id_in(event, interrupt));
        let decision: Decision = payload.member("decision").unwrap_or(Decision::Cancelled);
        match self.open.remove(interrupt) {
            Some(Question::Approval { tool_call_id }) => {
                let is_approved = matches!(decision, Decision::Approve | Decision::Respond);
                let mut response = json!({"type": "tool-approval-response", "approvalId": id, "approved": is_approved});
                if let Some(reason) = payload.member::<String>("value").filter(|_| !is_approved) {
                    response["reason"] = json!(reason);
                }
                out.push(response);
                if !is_approved {
                    self.denied.insert(tool_call_id);
                }
            }
            Some(Question::Other(mut data)) => {
                data["status"] = json!("resolved");
                data["decision"] = json!(decision);
                data["value"] = json!(payload.members().raw("value"));
                out.push(json!({"type": "data-interrupt", "id": id, "data": data}));
            }
            None => {}
        }
    }

    /// Ends the message if the run waits for a person who has not answered.
    fn pause(&mut self, out: &mut Chunks) {
        if self.waits() {
            self.finish("tool-calls", "interrupted", out);
            self.stage = Stage::Over;
        }
    }

    fn waits(&self) -> bool {
        self.stage == Stage::Live && self.is_interrupted && !self.open.is_empty()
    }

    fn finish(&mut self, reason: &str, status: &str, out: &mut Chunks) {
        for _ in std::mem::take(&mut self.steps) {
            out.push(json!({"type": "finish-step"}));
        }
        if self.is_last {
            let metadata = json!({"status": status});
            out.push(json!({"type": "finish", "finishReason": reason, "messageMetadata": metadata}));
            out.done();
        }
    }
}

/// The chunks of a part, as they are written.
#[derive(Debug, Default)]
pub struct Chunks(String);

impl Chunks {
    fn push(&mut self, chunk: impl Serialize) {
        // A chunk is made of JSON values, so this does not fail.
        let json = serde_json::to_string(&chunk).unwrap_or_default();
        self.0.extend(["data: ", &json, "\n\n"]);
    }

    fn done(&mut self) {
        self.0.extend(["data: ", DONE, "\n\n"]);
    }
}

/// The most frequent chunk.
#[derive(Serialize)]
struct TextDelta<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    id: Cow<'a, str>,
    delta: &'a str,
}

impl Dialect for AiSdk {
    type Said = Chunks;

    fn say(&mut self, part: &Part<'_>, out: &mut Vec<Chunks>) {
        let mut chunks = Chunks::default();
        match part {
            Part::Event(event) => self.event(event, &mut chunks),
            Part::CaughtUp => {
                self.stage = Stage::Live;
                self.pause(&mut chunks);
            }
            Part::SentAway { .. } => {
                let what = "the server closes this stream; the run goes on, resume it";
                chunks.push(json!({"type": "error", "errorText": what}));
            }
            Part::Gap | Part::Ended(_) => {}
            text => self.text(text, &mut chunks),
        }
        if !chunks.0.is_empty() {
            out.push(chunks);
        }
    }

    fn write(&mut self, chunk: &mut BytesMut, chunks: Chunks, _: Option<&Position>) {
        chunk.put_slice(chunks.0.as_bytes());
    }

    fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    fn ends_with(&self, event: &Event<'_>) -> bool {
        event.frame.terminal.is_some() || (event.pauses() && self.stage == Stage::Live && !self.open.is_empty())
    }

    fn opening(&self) -> Bytes {
        self.before.clone()
    }
}

/// Chunk types for a kind of text: its start, a delta, its end.
fn kinds(kind: Kind) -> (&'static str, &'static str, &'static str) {
    match kind {
        Kind::Message => ("text-start", "text-delta", "text-end"),
        Kind::Reasoning => ("reasoning-start", "reasoning-delta", "reasoning-end"),
    }
}

fn id_of(text: &Text, is_again: bool) -> Cow<'_, str> {
    if is_again { Cow::Owned(format!("{}~", text.span)) } else { Cow::Borrowed(text.span.as_str()) }
}

/// The chat's id for an id of the event's run.
fn id_in(event: &Event<'_>, id: &str) -> String {
    format!("{}/{id}", event.frame.context.run_id)
}

/// The text of an error.
fn message_of(error: Option<&Json>, otherwise: &str) -> String {
    let Some(error) = error else { return otherwise.to_owned() };
    let text: Option<String> = serde_json::from_str(error.as_str()).ok();
    text.or_else(|| error.member("message")).unwrap_or_else(|| error.to_string())
}

/// An application event as a data part; a later event of the same type and span updates it.
fn data_part(event: &Event<'_>, out: &mut Chunks) {
    let event_type = event.frame.event_type.as_str();
    if event_type.starts_with("log.") || event_type.starts_with("state.") {
        return;
    }
    let mut part = json!({"type": format!("data-{event_type}"), "data": event.payload()});
    if let Some(span) = &event.frame.span_id {
        part["id"] = json!(id_in(event, span.as_str()));
    }
    out.push(part);
}
