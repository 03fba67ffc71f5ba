//! [`Live`]: reads the events of one response.
//!
//! Text is passed on in pieces and recorded when it is complete; a call's arguments are only recorded. The endpoint's
//! ids become spans, unchanged if they are valid ([`fitted`]). An id that this request has used already belongs to
//! something else, and its span gets a number ([`unused`]). An id that an earlier request of this run has used may be a
//! repetition, because the endpoint received that message as history: its content is held back until its end and
//! skipped if it is the same.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{
    entry::Entry,
    reading::{Event, earlier_name, noted, output, word},
    spans::{fitted, unused},
    talk::{Called, End, Talk},
};
use crate::domain::{
    id::SpanId,
    json_patch,
    lenient::Halves,
    limits::{AGUI_EVENT_BYTES_MAX, AGUI_EVENTS_MAX, AGUI_OPEN_MAX, OPEN_TEXT_BYTES_MAX},
};

const TEXT_CHUNK: &str = "TEXT_MESSAGE_CHUNK";
const REASONING_CHUNK: &str = "REASONING_MESSAGE_CHUNK";
const CALL_CHUNK: &str = "TOOL_CALL_CHUNK";

/// What an event adds: a piece of a text that is still being written, or an entry.
#[derive(Debug, PartialEq)]
pub(super) enum Out {
    Piece { span: SpanId, is_reasoning: bool, role: String, text: String },
    Entry(Entry),
}

impl Out {
    /// The entry to record, if it is one.
    pub(super) fn entry(&self) -> Option<&Entry> {
        match self {
            Self::Entry(entry) => Some(entry),
            Self::Piece { .. } => None,
        }
    }
}

/// A text that has not ended.
struct Text {
    id: String,
    is_reasoning: bool,
    /// `None` while it may repeat a text of an earlier request.
    span: Option<SpanId>,
    role: String,
    about: Map<String, Value>,
    text: String,
    halves: Halves,
}

/// A call whose arguments are not complete.
struct Call {
    id: String,
    name: String,
    parent: Option<String>,
    args: String,
    halves: Halves,
}

/// The reader of one response.
pub(super) struct Live<'a> {
    /// The names of the client's tools.
    client_tools: &'a BTreeSet<String>,
    request: u32,
    texts: Vec<Text>,
    calls: Vec<Call>,
    /// The text or call that chunks without an id continue.
    chunk: Option<(&'static str, String)>,
    /// Spans used in this response.
    used: BTreeSet<String>,
    events: usize,
    steps: usize,
    /// Set once the response exceeds a bound; becomes the run's failure.
    pub(super) too_much: Option<String>,
    pub(super) out: Vec<Out>,
}

impl<'a> Live<'a> {
    /// `request` is the request's number in the run, from 1.
    pub(super) fn new(client_tools: &'a BTreeSet<String>, request: u32) -> Self {
        Self {
            client_tools,
            request,
            texts: Vec::new(),
            calls: Vec::new(),
            chunk: None,
            used: BTreeSet::new(),
            events: 0,
            steps: 0,
            too_much: None,
            out: Vec::new(),
        }
    }

    /// Reads one event. Must not be called again once `too_much` is set.
    pub(super) fn take(&mut self, talk: &mut Talk, event: &Event<'_>) {
        self.events += 1;
        if self.events > AGUI_EVENTS_MAX {
            return self.too_much(format!("the endpoint's answer has more than {AGUI_EVENTS_MAX} events"));
        }
        let kind = event["type"].as_str().unwrap_or_default();
        self.end_chunk_before(talk, kind, event);
        let id = |name: &str| event[name].as_str();
        match (kind, id("messageId"), id("toolCallId")) {
            ("RUN_STARTED" | "REASONING_START" | "REASONING_END", ..) => {}
            ("TEXT_MESSAGE_START", Some(id), _) => self.begin(talk, id, false, event),
            ("TEXT_MESSAGE_CONTENT", Some(id), _) => self.more(talk, id, false, event),
            ("TEXT_MESSAGE_END", Some(id), _) => self.end_text(talk, id, false),
            ("REASONING_MESSAGE_START", Some(id), _) => self.begin(talk, id, true, event),
            ("REASONING_MESSAGE_CONTENT", Some(id), _) => self.more(talk, id, true, event),
            ("REASONING_MESSAGE_END", Some(id), _) => self.end_text(talk, id, true),
            (TEXT_CHUNK, ..) => self.text_chunk(talk, TEXT_CHUNK, event),
            (REASONING_CHUNK, ..) => self.text_chunk(talk, REASONING_CHUNK, event),
            ("TOOL_CALL_START", _, Some(id)) => self.begin_call(talk, id, event),
            ("TOOL_CALL_ARGS", _, Some(id)) => self.more_args(talk, id, event),
            ("TOOL_CALL_END", _, Some(id)) => self.end_call(talk, id),
            (CALL_CHUNK, ..) => self.call_chunk(talk, event),
            ("TOOL_CALL_RESULT", message, Some(id)) => self.result(talk, id, message, event),
            ("STEP_STARTED" | "STEP_FINISHED", ..) => self.step(talk, kind, event),
            ("RUN_FINISHED", ..) => self.finished(talk, event),
            ("RUN_ERROR", ..) => self.failed(talk, event),
            _ => self.other(talk, kind, event),
        }
    }

    fn too_much(&mut self, why: String) {
        self.too_much.get_or_insert(why);
    }

    pub(super) fn put(&mut self, talk: &mut Talk, entry: Entry) {
        talk.record(&entry);
        self.out.push(Out::Entry(entry));
    }

    fn raw(&mut self, talk: &mut Talk, event: &Event<'_>) {
        self.put(talk, Entry::Noted { word: "raw".to_owned(), payload: json!({"event": event.value}) });
    }

    /// Whether an id may repeat one from an earlier request.
    fn may_be_again(&self, talk: &Talk, id: &str) -> bool {
        let span = fitted(id);
        talk.turn.spans.contains(span.as_str()) && !self.used.contains(span.as_str())
    }

    fn span_for(&mut self, talk: &Talk, id: &str) -> SpanId {
        let span = unused(&fitted(id), |span| talk.turn.spans.contains(span) || self.used.contains(span));
        self.used.extend([fitted(id).to_string(), span.to_string()]);
        span
    }

    fn begin(&mut self, talk: &mut Talk, id: &str, is_reasoning: bool, event: &Event<'_>) {
        self.end_text(talk, id, is_reasoning);
        if self.texts.len() >= AGUI_OPEN_MAX {
            return self.too_much(format!("the endpoint writes more than {AGUI_OPEN_MAX} messages at once"));
        }
        let text = |name: &str| event[name].as_str().map(word);
        let mut about = Map::new();
        for (name, from) in [("name", "name"), ("subagent_run_id", "subagentRunId")] {
            about.extend(text(from).map(|value| (name.to_owned(), Value::from(value))));
        }
        let span = if self.may_be_again(talk, id) { None } else { Some(self.span_for(talk, id)) };
        if let Some(span) = &span {
            self.put(talk, Entry::Opened { span: span.clone(), is_reasoning });
        }
        let role = text("role").filter(|_| !is_reasoning);
        let role = role.unwrap_or_else(|| if is_reasoning { "reasoning" } else { "assistant" }.to_owned());
        self.texts.push(Text {
            id: id.to_owned(),
            is_reasoning,
            span,
            role,
            about,
            text: String::new(),
            halves: Halves::default(),
        });
    }

    fn more(&mut self, talk: &mut Talk, id: &str, is_reasoning: bool, event: &Event<'_>) {
        let is_it = |text: &Text| text.id == id && text.is_reasoning == is_reasoning;
        let Some(at) = self.texts.iter().position(is_it) else { return self.raw(talk, event) };
        let delta = event.delta.and_then(|delta| self.texts[at].halves.join(delta)).unwrap_or_default();
        if self.texts[at].text.len() + delta.len() > OPEN_TEXT_BYTES_MAX {
            return self.too_much(format!("a message of the endpoint is longer than {OPEN_TEXT_BYTES_MAX} bytes"));
        }
        self.add(at, &delta);
    }

    fn add(&mut self, at: usize, delta: &str) {
        let Text { span, is_reasoning, role, text, .. } = &mut self.texts[at];
        text.push_str(delta);
        let Some(span) = span.clone().filter(|_| !delta.is_empty()) else { return };
        match self.out.last_mut() {
            Some(Out::Piece { span: last, text: piece, .. }) if *last == span => piece.push_str(delta),
            _ => {
                let (is_reasoning, role) = (*is_reasoning, role.clone());
                self.out.push(Out::Piece { span, is_reasoning, role, text: delta.to_owned() });
            }
        }
    }

    fn end_text(&mut self, talk: &mut Talk, id: &str, is_reasoning: bool) {
        let is_it = |text: &Text| text.id == id && text.is_reasoning == is_reasoning;
        let Some(at) = self.texts.iter().position(is_it) else { return };
        if let Some(half) = self.texts[at].halves.end() {
            self.add(at, half.encode_utf8(&mut [0; 4]));
        }
        let Text { id, span, role, mut about, text, .. } = self.texts.remove(at);
        let mut message = json!({"id": id, "role": role, "content": text});
        if let Some(name) = about.get("name") {
            message["name"] = name.clone();
        }
        let same = |there: &Value| there["content"] == message["content"] && there["role"] == message["role"];
        if span.is_none() && talk.message(&id).is_some_and(same) {
            return;
        }
        let span = span.unwrap_or_else(|| self.span_for(talk, &id));
        if span.as_str() != id {
            about.insert("message_id".to_owned(), Value::from(id));
        }
        self.put(talk, Entry::Text { span, is_reasoning, message, about });
    }

    fn begin_call(&mut self, talk: &mut Talk, id: &str, event: &Event<'_>) {
        self.end_call(talk, id);
        if self.calls.len() >= AGUI_OPEN_MAX {
            return self.too_much(format!("the endpoint begins more than {AGUI_OPEN_MAX} tool calls at once"));
        }
        let name = word(event["toolCallName"].as_str().unwrap_or("unnamed"));
        let parent = event["parentMessageId"].as_str().map(str::to_owned);
        self.calls.push(Call { id: id.to_owned(), name, parent, args: String::new(), halves: Halves::default() });
    }

    fn more_args(&mut self, talk: &mut Talk, id: &str, event: &Event<'_>) {
        let Some(call) = self.calls.iter_mut().find(|call| call.id == id) else {
            return self.raw(talk, event);
        };
        let delta = event.delta.and_then(|delta| call.halves.join(delta)).unwrap_or_default();
        if call.args.len() + delta.len() > OPEN_TEXT_BYTES_MAX {
            return self.too_much(format!("a call's arguments are longer than {OPEN_TEXT_BYTES_MAX} bytes"));
        }
        call.args.push_str(&delta);
    }

    fn end_call(&mut self, talk: &mut Talk, id: &str) {
        let Some(at) = self.calls.iter().position(|call| call.id == id) else { return };
        let Call { id, name, parent, mut args, mut halves } = self.calls.remove(at);
        args.extend(halves.end());
        let same = |there: &Called| there.name == name && there.args == super::talk::read(&args);
        if self.may_be_again(talk, &id) && talk.turn.calls.get(&id).is_some_and(same) {
            return;
        }
        let is_client = self.client_tools.contains(&name);
        let span = self.span_for(talk, &id);
        self.put(talk, Entry::Called { span, id, parent, name, args, is_client });
    }

    fn result(&mut self, talk: &mut Talk, id: &str, message_id: Option<&str>, event: &Event<'_>) {
        self.end_call(talk, id);
        let (span, name) = match talk.turn.calls.get(id) {
            Some(called) if called.is_answered => {
                let is_again = |message: &Value| {
                    message["role"] == "tool" && message["toolCallId"] == id && message["content"] == event["content"]
                };
                if !talk.messages.iter().any(is_again) {
                    self.raw(talk, event);
                }
                return;
            }
            Some(called) => (called.span.clone(), called.name.clone()),
            // A call of an earlier run.
            None => (fitted(id), earlier_name(talk, id)),
        };
        let message_id = message_id.map_or_else(|| format!("{id}.result"), str::to_owned);
        let content = event["content"].clone();
        let message = json!({"id": message_id, "role": "tool", "toolCallId": id, "content": content});
        self.put(talk, Entry::Returned { span, id: id.to_owned(), name, message });
    }

    fn step(&mut self, talk: &mut Talk, kind: &str, event: &Event<'_>) {
        let name = word(event["stepName"].as_str().unwrap_or_default());
        if kind == "STEP_STARTED" {
            self.steps += 1;
            let span = SpanId::trusted(&format!("r{}.step{}", self.request, self.steps));
            return self.put(talk, Entry::StepBegan { span, name });
        }
        match talk.turn.steps.iter().rev().find(|(_, open)| *open == name).cloned() {
            Some((span, name)) => self.put(talk, Entry::StepEnded { span, name }),
            None => self.raw(talk, event),
        }
    }

    /// Ends all open texts and calls, even if the endpoint did not.
    fn end_all(&mut self, talk: &mut Talk) {
        for (id, is_reasoning) in self.texts.iter().map(|text| (text.id.clone(), text.is_reasoning)).collect::<Vec<_>>()
        {
            self.end_text(talk, &id, is_reasoning);
        }
        for id in self.calls.iter().map(|call| call.id.clone()).collect::<Vec<_>>() {
            self.end_call(talk, &id);
        }
    }

    fn finished(&mut self, talk: &mut Talk, event: &Event<'_>) {
        self.end_all(talk);
        if event["usage"].is_array() {
            self.put(talk, Entry::Noted { word: "usage".to_owned(), payload: json!({"usage": event["usage"]}) });
        }
        let outcome = &event["outcome"];
        let failed = |code: &str, message: String| Entry::Ended { end: End::Failed { code: code.to_owned(), message } };
        let entry = match outcome["type"].as_str() {
            Some("interrupt") => match super::ask::questions(talk, &outcome["interrupts"]) {
                Ok(asked) => Entry::Asked { asked },
                Err(why) => failed("agui_interrupt", why),
            },
            Some("cancelled") => failed("agui_cancelled", "the endpoint cancelled the run".to_owned()),
            _ => Entry::Ended { end: End::Finished { output: output(talk, &event["result"]) } },
        };
        self.put(talk, entry);
    }

    fn failed(&mut self, talk: &mut Talk, event: &Event<'_>) {
        let message = event["message"].as_str().unwrap_or("the endpoint reported an error").to_owned();
        self.cut(talk, &message);
        let code = event["code"].as_str().map(word).filter(|code| !code.is_empty());
        let end = End::Failed { code: code.unwrap_or_else(|| "agui_run_error".to_owned()), message };
        self.put(talk, Entry::Ended { end });
    }

    /// Closes the open texts as cut off, with what was received.
    pub(super) fn cut(&mut self, talk: &mut Talk, why: &str) {
        for Text { span, is_reasoning, text, .. } in std::mem::take(&mut self.texts) {
            let Some(span) = span else { continue };
            self.put(talk, Entry::TextCut { span, is_reasoning, text: Some(text), why: why.to_owned() });
        }
    }

    fn text_chunk(&mut self, talk: &mut Talk, kind: &'static str, event: &Event<'_>) {
        let is_reasoning = kind == REASONING_CHUNK;
        let open = self.chunk.as_ref().filter(|(open, _)| *open == kind).map(|(_, id)| id.clone());
        let Some(id) = event["messageId"].as_str().map(str::to_owned).or_else(|| open.clone()) else {
            return self.raw(talk, event);
        };
        if open.as_ref() != Some(&id) {
            self.begin(talk, &id, is_reasoning, event);
            self.chunk = Some((kind, id.clone()));
        }
        self.more(talk, &id, is_reasoning, event);
    }

    fn call_chunk(&mut self, talk: &mut Talk, event: &Event<'_>) {
        let open = self.chunk.as_ref().filter(|(open, _)| *open == CALL_CHUNK).map(|(_, id)| id.clone());
        let Some(id) = event["toolCallId"].as_str().map(str::to_owned).or_else(|| open.clone()) else {
            return self.raw(talk, event);
        };
        if open.as_ref() != Some(&id) {
            self.begin_call(talk, &id, event);
            self.chunk = Some((CALL_CHUNK, id.clone()));
        }
        self.more_args(talk, &id, event);
    }

    /// Chunks have no end event: the next event that is not one of theirs ends the text or the call.
    fn end_chunk_before(&mut self, talk: &mut Talk, kind: &str, event: &Event<'_>) {
        let passes = matches!(kind, "RAW" | "ACTIVITY_SNAPSHOT" | "ACTIVITY_DELTA" | "REASONING_ENCRYPTED_VALUE");
        let Some((open, id)) = self.chunk.clone().filter(|_| !passes) else { return };
        let named = event[if open == CALL_CHUNK { "toolCallId" } else { "messageId" }].as_str();
        if open == kind && named.is_none_or(|named| named == id) {
            return;
        }
        self.chunk = None;
        match open {
            CALL_CHUNK => self.end_call(talk, &id),
            open => self.end_text(talk, &id, open == REASONING_CHUNK),
        }
    }

    fn other(&mut self, talk: &mut Talk, kind: &str, event: &Event<'_>) {
        if kind == "STATE_DELTA"
            && let Err(error) = json_patch::apply(&talk.state, &event["delta"], AGUI_EVENT_BYTES_MAX)
        {
            let message = format!("a change of the state does not fit the state: {error}");
            self.put(talk, Entry::Warned { message });
        }
        match noted(kind, &event.value) {
            Some(entry) => self.put(talk, entry),
            None => self.raw(talk, event),
        }
    }
}
