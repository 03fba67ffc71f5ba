//! AG-UI 1.0: a run as the event stream that chat front ends of many frameworks read.
//!
//! `docs/protocols/ag-ui.md` has the mapping, and what it loses. Agents that speak AG-UI are recorded by its inverse,
//! so their events come out as they went in.
//!
//! An AG-UI run ends where a person has to answer; the answer begins another AG-UI run, which continues the same run
//! here. Both are parts of one log.
//!
//! Invariants: every event of a run's own log is sent at most once, everything opened is closed before `RUN_FINISHED`,
//! and the ids of messages and calls are unique in their thread. Start reading at [`AgUi`]; [`history`] collects the
//! state of a joining reader, [`words`] has the most frequent events, [`input`] the clients' requests.

mod calls;
mod history;
mod ids;
pub mod input;
mod messages;
mod recent;
mod shapes;
mod subagents;
mod texts;
mod words;

use std::{collections::BTreeMap, fmt::Write as _};

use bytes::{BufMut as _, Bytes, BytesMut};
use serde::Serialize;
use serde_json::{Value, json};

pub use self::history::Earlier;
use self::{calls::plain, history::History, ids::Ids, recent::Recent, subagents::Subagents, words::Word};
use super::{
    conversation::{Dialect, Event, Part},
    position::Position,
    sse,
};
use crate::{
    domain::{
        id::{RunId, Seq, SpanId},
        json::Json,
        limits::AGUI_STEPS_MAX,
        meaning::{Text, What},
        run::Status,
    },
    quota::Share,
};

/// The version of the protocol.
const VERSION: &str = "1.0";

/// One event of AG-UI.
#[derive(Debug)]
pub struct Said {
    json: String,
    /// Time of the log event, Unix milliseconds; `None` for events that readers get at different times.
    at_ms: Option<i64>,
    /// Whether it ends the AG-UI run.
    is_last: bool,
}

impl Said {
    fn new(event: &impl Serialize) -> Self {
        Self::of_json(serde_json::to_string(event).unwrap_or_default())
    }

    fn of_json(json: String) -> Self {
        Self { json, at_ms: None, is_last: false }
    }

    /// Several events, of which a reader gets all or none: the id follows the last one.
    fn together(events: impl Iterator<Item = Value>) -> Option<Self> {
        let events: Vec<String> = events.map(|event| event.to_string()).collect();
        (!events.is_empty()).then(|| Self::of_json(events.join("\n\ndata: ")))
    }

    fn last(event: &Value) -> Self {
        Self { is_last: true, ..Self::new(event) }
    }
}

/// The client's ids of a run, and the run's own id.
#[derive(Clone, Debug)]
pub struct Names {
    pub thread_id: String,
    pub run_id: String,
    pub run: RunId,
}

/// Translates a run's conversation to AG-UI.
pub struct AgUi {
    names: Names,
    /// Whether the stream opens with `RUN_STARTED`.
    announces: bool,
    /// The event after which the reader begins, and the last one that paused the run for an answer.
    after: Seq,
    paused: Seq,
    is_over: bool,
    /// State to send to a joining reader.
    history: Option<Box<History>>,
    /// Memory reserved for that state, until it is written.
    room: Option<Share>,
    ids: Ids,
    /// Number of open steps by name.
    steps: BTreeMap<String, usize>,
    subagents: Subagents,
    /// Calls that were sent.
    calls: Recent,
    /// Open texts.
    texts: BTreeMap<SpanId, texts::Begun>,
    /// Calls that the client has to execute.
    pending: Vec<String>,
    /// Unanswered interrupts by their ids, in order.
    asked: Vec<(String, Json)>,
    usage: Option<Value>,
    /// The run's end, until a joining reader gets it.
    finish: Option<Said>,
    is_interrupted: bool,
}

impl AgUi {
    /// For a reader that begins a run, at its start or after an answer.
    pub fn beginning(names: Names, after: Seq) -> Self {
        Self {
            ids: Ids::new(names.run),
            names,
            announces: true,
            after,
            paused: Seq::ZERO,
            is_over: false,
            history: None,
            room: None,
            steps: BTreeMap::new(),
            subagents: Subagents::default(),
            calls: Recent::default(),
            texts: BTreeMap::new(),
            pending: Vec::new(),
            asked: Vec::new(),
            usage: None,
            finish: None,
            is_interrupted: false,
        }
    }

    /// For a reader that joins in the middle and has nothing of the run.
    pub fn joining(names: Names, earlier: Earlier) -> Self {
        Self { history: Some(Box::new(History::after(earlier))), ..Self::beginning(names, Seq::ZERO) }
    }

    /// For a reader that was cut off at this event.
    pub fn resuming(names: Names, at: Seq) -> Self {
        Self { announces: false, ..Self::beginning(names, at) }
    }

    /// Whether the reader joins.
    pub fn is_joining(&self) -> bool {
        self.history.is_some()
    }

    fn started(&self) -> Value {
        let Names { thread_id, run_id, .. } = &self.names;
        json!({"type": "RUN_STARTED", "threadId": thread_id, "runId": run_id, "protocolVersion": VERSION})
    }

    fn finished(&self, outcome: &Value) -> Value {
        let Names { thread_id, run_id, .. } = &self.names;
        json!({"type": "RUN_FINISHED", "threadId": thread_id, "runId": run_id, "outcome": outcome})
    }

    fn event(&mut self, event: &Event<'_>, out: &mut Vec<Said>) {
        self.ids.keep(event);
        match event.what {
            What::RunResumed => {
                if std::mem::take(&mut self.is_interrupted) {
                    // A reader that begins after the answer has got it in the opening.
                    let is_announced = self.after > self.paused;
                    out.extend(Some(Said::new(&self.started())).filter(|_| !is_announced));
                    // They ended with the previous AG-UI run.
                    self.subagents.begin_again();
                    out.extend(self.begun());
                }
            }
            What::RunPaused(Status::Interrupted) => {
                // The interrupt may have been answered before this event.
                self.is_interrupted = !self.asked.is_empty();
                self.paused = event.frame.place.map_or(self.paused, |place| place.seq);
                out.extend(self.interrupted());
            }
            What::RunCompleted { .. } | What::RunFailed { .. } | What::RunCancelled { .. } => self.end(event, out),
            What::ToolStarted { .. } | What::ToolCompleted { .. } | What::ToolFailed { .. } => self.tool(event, out),
            What::StepStarted { name } => {
                let is_new = self.steps.len() < AGUI_STEPS_MAX && !self.steps.contains_key(name);
                if is_new {
                    out.push(Said::new(&Word::StepStarted { step_name: name }));
                }
                if is_new || self.steps.contains_key(name) {
                    *self.steps.entry(name.clone()).or_default() += 1;
                }
            }
            What::StepEnded { name, .. } => {
                let Some(count) = self.steps.get_mut(name) else { return };
                *count -= 1;
                if *count == 0 {
                    self.steps.remove(name);
                    out.push(Said::new(&Word::StepFinished { step_name: name }));
                }
            }
            What::InterruptRequested { interrupt_id, tool_call_id } => {
                self.ask(interrupt_id, tool_call_id.as_deref(), event, out);
            }
            What::InterruptResolved { interrupt_id } => self.asked.retain(|(id, _)| id != interrupt_id),
            What::Other => self.other(event, out),
            What::RunCreated
            | What::RunStarted
            | What::RunPaused(_)
            | What::Checkpointed
            | What::Text { .. }
            | What::Token { .. } => {}
        }
    }

    /// The end of the AG-UI run, if a person has to answer.
    fn interrupted(&self) -> Vec<Said> {
        let interrupts: Vec<&Json> = self.asked.iter().map(|(_, interrupt)| interrupt).collect();
        if !self.is_interrupted || interrupts.is_empty() {
            return Vec::new();
        }
        let outcome = json!({"type": "interrupt", "interrupts": interrupts});
        let mut events: Vec<Said> = self.ended(&json!({"type": "suspended"})).collect();
        events.push(Said::last(&self.finished(&outcome)));
        events
    }

    /// The start events of open subagents and steps.
    fn begun(&self) -> impl Iterator<Item = Said> {
        let steps = self.steps.keys().map(|step_name| Said::new(&Word::StepStarted { step_name }));
        Said::together(self.subagents.begun()).into_iter().chain(steps)
    }

    /// The end events of open steps and subagents.
    fn ended(&self, outcome: &Value) -> impl Iterator<Item = Said> {
        let steps = self.steps.keys().map(|step_name| Said::new(&Word::StepFinished { step_name }));
        let end = |id| json!({"type": "SUBAGENT_FINISHED", "subagentRunId": id, "outcome": outcome});
        steps.chain(Said::together(self.subagents.open().map(end)))
    }

    fn end(&mut self, event: &Event<'_>, out: &mut Vec<Said>) {
        let mut finish = match event.what {
            What::RunFailed { error } => {
                let text = |name: &str| error.as_ref().and_then(|error| error.member::<String>(name));
                let message = text("message").or_else(|| error.as_ref().map(plain));
                let mut failed =
                    json!({"type": "RUN_ERROR", "message": message.unwrap_or_else(|| "the run failed".into())});
                if let Some(code) = text("code") {
                    failed["code"] = json!(code);
                }
                failed
            }
            What::RunCancelled { .. } => self.finished(&json!({"type": "cancelled"})),
            What::RunCompleted { output } => {
                let mut outcome = json!({"type": "success"});
                if !self.pending.is_empty() {
                    outcome["pendingToolCallIds"] = json!(self.pending);
                }
                let mut finished = self.finished(&outcome);
                if let Some(output) = output.as_ref().filter(|output| output.as_str() != "null") {
                    finished["result"] = json!(output);
                }
                finished
            }
            _ => return,
        };
        if let Some(usage) = &self.usage {
            finish["usage"] = usage.clone();
        }
        let is_error = finish["type"] == "RUN_ERROR";
        let finish = Said { at_ms: Some(event.frame.at.timestamp_millis()), ..Said::last(&finish) };
        if self.is_joining() {
            self.finish = Some(finish);
        } else {
            out.extend(self.ended(&json!({"type": "success"})).filter(|_| !is_error));
            out.push(finish);
        }
    }

    /// Events of the family `agui`, and those of the application, which become `CUSTOM`.
    fn other(&mut self, event: &Event<'_>, out: &mut Vec<Said>) {
        let (name, payload) = (event.frame.event_type.as_str(), event.payload());
        let word = name.strip_prefix("agui.");
        let renamed = match word {
            Some("usage") => {
                let usage: Option<Value> = payload.member("usage");
                self.usage = usage.filter(|usage| shapes::fits("usage", usage));
                return;
            }
            Some("custom") => {
                let name: Option<String> = payload.member("name");
                name.map(|name| json!({"type": "CUSTOM", "name": name, "value": payload.member::<Value>("value")}))
            }
            Some(word) => history::renamed(word, payload).filter(|event| match word {
                "subagent_started" | "subagent_finished" | "subagent_error" => self.subagents.take(word, event),
                _ => true,
            }),
            None => None,
        };
        if let Some(history) = &mut self.history {
            return history.event(word.unwrap_or_default(), renamed);
        }
        // One that does not match its schema is sent as the application's own.
        out.push(Said::new(&renamed.unwrap_or_else(|| json!({"type": "CUSTOM", "name": name, "value": payload}))));
    }

    /// Events for a joining reader: the state, the messages, the open steps, and the end if there is one.
    fn prelude(&mut self, history: History, out: &mut Vec<Said>) {
        self.room = Some(history.tell(out));
        self.subagents.begin_again();
        let finish = self.finish.take();
        let interrupted = self.interrupted();
        if self.is_interrupted && interrupted.is_empty() {
            // Answered, but not resumed yet: the opening was already that of the next AG-UI run.
            self.after = self.paused.next();
        } else if finish.is_none() && interrupted.is_empty() {
            out.extend(self.begun());
        }
        out.extend(finish);
        out.extend(interrupted.into_iter().filter(|event| event.is_last));
    }
}

impl Dialect for AgUi {
    type Said = Said;

    fn say(&mut self, part: &Part<'_>, out: &mut Vec<Said>) {
        let before = out.len();
        match part {
            Part::Event(event) => self.event(event, out),
            Part::CaughtUp => {
                if let Some(history) = self.history.take() {
                    self.prelude(*history, out);
                }
            }
            Part::Gap | Part::Ended(_) | Part::SentAway { .. } => {}
            text => self.text(text, out),
        }
        if let Part::Event(event) | Part::Closed(_, Some(event)) = part {
            out[before..].iter_mut().for_each(|output| output.at_ms = Some(event.frame.at.timestamp_millis()));
        }
    }

    fn write(&mut self, chunk: &mut BytesMut, event: Said, at: Option<&Position>) {
        self.is_over |= event.is_last;
        chunk.put_slice(b"data: ");
        match event.at_ms.zip(event.json.strip_suffix('}')) {
            Some((at_ms, open)) => {
                chunk.put_slice(open.as_bytes());
                let _ = write!(chunk, ",\"timestamp\":{at_ms}}}");
            }
            None => chunk.put_slice(event.json.as_bytes()),
        }
        chunk.put_slice(b"\n");
        if let Some(at) = at {
            let _ = writeln!(chunk, "id: {at}");
        }
        chunk.put_slice(b"\n");
    }

    fn shows(&self, text: &Text) -> bool {
        // The result of a call is not a text.
        text.role != "tool"
    }

    fn ends_with(&self, event: &Event<'_>) -> bool {
        event.frame.terminal.is_some() || (event.pauses() && !self.asked.is_empty())
    }

    fn written(&mut self) {
        self.room = None;
    }

    fn is_over(&self) -> bool {
        self.is_over
    }

    fn opening(&self) -> Bytes {
        let mut opening = BytesMut::from(&*sse::opening());
        if self.announces {
            opening.put_slice(format!("data: {}\n\n", self.started()).as_bytes());
        }
        opening.freeze()
    }
}

#[cfg(test)]
mod tests;
