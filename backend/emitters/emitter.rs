//! [`Emitter`]: the events a run can emit, one method each.
//!
//! A caller names what happened; type, role, agent, run and event id come from the emitter. Only `emitters` can create
//! a [`Draft`], so no caller can emit a tool event of another type or for another run.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::host::{HostError, Hosted};
use crate::domain::{
    context::RunContext,
    event::{EventKind, EventType, NewEvent},
    id::{EventId, RunId, SpanId, ThreadId},
    json::Json,
};

/// Resolves when the event is stored (or, for a delta, passed on).
pub type Emitted<'a> = Hosted<'a, ()>;

/// An event with its type, before an emitter has given it an identity.
#[derive(Clone, Debug)]
pub struct Draft(NewEvent);

impl Draft {
    pub(super) fn new(event_type: impl Into<EventType>, payload: &Value) -> Self {
        Self(NewEvent::new(event_type, Json::of(payload)))
    }

    pub(super) fn span(self, span: &SpanId) -> Self {
        Self(self.0.span(span.clone()))
    }

    pub(super) fn under(self, parent: Option<&SpanId>) -> Self {
        Self(self.0.parent_span(parent.cloned()))
    }

    /// With an event id that its producer derives the same way again after a crash.
    pub(super) fn known_as(self, id: &EventId) -> Self {
        Self(self.0.event_id(id.clone()))
    }

    /// For implementers of [`Emitter`].
    pub fn into_event(self) -> NewEvent {
        self.0
    }
}

/// The severity of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Debug,
    Info,
    Warn,
    Error,
}

impl Level {
    fn kind(self) -> EventKind {
        match self {
            Self::Debug => EventKind::LogDebug,
            Self::Info => EventKind::LogInfo,
            Self::Warn => EventKind::LogWarn,
            Self::Error => EventKind::LogError,
        }
    }
}

/// An interrupt to log: its id, what is asked, the step that asks.
pub type Asked<'a> = (&'a SpanId, &'a Value, &'a SpanId);

/// The transition between two steps of a graph.
#[derive(Debug)]
pub struct Turn<'a> {
    /// Nodes of the previous step whose end is not emitted yet: span, name, how long they took.
    pub ended: Vec<(SpanId, &'a str, Duration)>,
    /// The checkpoint that holds their updates, if one was saved and is reported.
    pub checkpoint: Option<SpanId>,
    pub thread: &'a ThreadId,
    /// Completed steps.
    pub step: u32,
    /// The nodes that follow.
    pub next: Vec<&'a str>,
    /// Those of them that begin now.
    pub begun: Vec<(SpanId, &'a str)>,
}

/// Emits for exactly one run. Object safe; implement [`Emitter::emit_all`], the other methods are provided.
pub trait Emitter: Send + Sync {
    /// Gives the drafts their identity and sends them, all or none.
    fn emit_all(&self, drafts: Vec<Draft>) -> Emitted<'_>;

    fn emit(&self, draft: Draft) -> Emitted<'_> {
        self.emit_all(vec![draft])
    }

    /// The run is suspended until the named runs have ended.
    fn run_waiting(&self, reason: &str, runs: &[RunId]) -> Emitted<'_> {
        self.emit(Draft::new(EventKind::RunWaiting, &json!({"reason": reason, "run_ids": runs})))
    }

    /// The run waits for people. Questions and interruption are emitted together, so that no answer comes in between.
    fn run_interrupted(&self, asked: &[Asked<'_>]) -> Emitted<'_> {
        let ids: Vec<&SpanId> = asked.iter().map(|(id, _, _)| *id).collect();
        let last = Draft::new(EventKind::RunInterrupted, &json!({"interrupt_ids": ids}));
        let requested = |(id, payload, step): &Asked<'_>| {
            Draft::new(EventKind::InterruptRequested, payload).span(id).under(Some(step))
        };
        self.emit_all(asked.iter().map(requested).chain([last]).collect())
    }

    /// One step is over and the next begins. The checkpoint's id is its span. All of it is emitted together.
    fn step_turned(&self, turn: &Turn<'_>) -> Emitted<'_> {
        let Turn { ended, checkpoint, thread, step, next, begun } = turn;
        let kept = checkpoint.as_ref().map(|checkpoint| {
            let kept = json!({"checkpoint_id": checkpoint, "thread_id": thread, "step": step, "next": next});
            Draft::new(EventKind::StateCheckpointed, &kept).span(checkpoint)
        });
        let ended = ended.iter().map(|(span, name, took)| step_completed(span, name, *took));
        let begun = begun.iter().map(|(span, name)| step_started(span, name));
        let drafts: Vec<Draft> = ended.chain(kept).chain(begun).collect();
        if drafts.is_empty() { Box::pin(std::future::ready(Ok(()))) } else { self.emit_all(drafts) }
    }

    /// Messages were left out of the model's input: `messages_left_out`, `summary`, `tokens_before`, `tokens_after`.
    fn state_compacted(&self, span: &SpanId, payload: &Value, parent: Option<&SpanId>) -> Emitted<'_> {
        self.emit(Draft::new(EventKind::StateCompacted, payload).span(span).under(parent))
    }

    fn run_resumed(&self, reason: &str) -> Emitted<'_> {
        self.emit(Draft::new(EventKind::RunResumed, &json!({"reason": reason})))
    }

    fn run_completed(&self, output: Value) -> Emitted<'_> {
        self.emit(Draft::new(EventKind::RunCompleted, &json!({"output": output})))
    }

    fn run_failed(&self, error: &str) -> Emitted<'_> {
        self.run_failed_as(None, error)
    }

    /// With a stable name of the failure, for programs.
    fn run_failed_as(&self, code: Option<&str>, error: &str) -> Emitted<'_> {
        let mut payload = failure(error);
        if let Some(code) = code {
            payload["error"]["code"] = json!(code);
        }
        self.emit(Draft::new(EventKind::RunFailed, &payload))
    }

    fn step_started(&self, span: &SpanId, name: &str) -> Emitted<'_> {
        self.emit(step_started(span, name))
    }

    fn step_completed(&self, span: &SpanId, name: &str, took: Duration) -> Emitted<'_> {
        self.emit(step_completed(span, name, took))
    }

    fn step_failed(&self, span: &SpanId, name: &str, error: &str, took: Duration) -> Emitted<'_> {
        let payload = with(failure(error), [("name", json!(name)), ("duration_ms", json!(millis(took)))]);
        self.emit(Draft::new(EventKind::StepFailed, &payload).span(span))
    }

    /// `span` is the tool call's id; its end carries the same one.
    fn tool_started(&self, span: &SpanId, name: &str, args: &Value, parent: Option<&SpanId>) -> Emitted<'_> {
        let (args, truncated) = bounded(args);
        let payload = flagged(json!({"tool_call_id": span, "name": name, "args": args}), truncated);
        self.emit(Draft::new(EventKind::ToolStarted, &payload).span(span).under(parent))
    }

    /// A call of a tool that the client executes: the run ends without its result.
    fn client_tool_started(&self, span: &SpanId, name: &str, args: &Value, parent: Option<&SpanId>) -> Emitted<'_> {
        let (args, truncated) = bounded(args);
        let payload = json!({"tool_call_id": span, "name": name, "args": args, "client": true});
        self.emit(Draft::new(EventKind::ToolStarted, &flagged(payload, truncated)).span(span).under(parent))
    }

    /// A result over [`RESULT_BYTES_MAX`] is replaced by its beginning and flagged `truncated`.
    fn tool_completed(
        &self,
        span: &SpanId,
        name: &str,
        result: &Value,
        took: Duration,
        parent: Option<&SpanId>,
    ) -> Emitted<'_> {
        let (result, truncated) = bounded(result);
        let payload = json!({"tool_call_id": span, "name": name, "result": result, "duration_ms": millis(took)});
        let payload = flagged(payload, truncated);
        self.emit(Draft::new(EventKind::ToolCompleted, &payload).span(span).under(parent))
    }

    fn tool_failed(
        &self,
        span: &SpanId,
        name: &str,
        error: &str,
        took: Duration,
        parent: Option<&SpanId>,
    ) -> Emitted<'_> {
        let more = [("tool_call_id", json!(span)), ("name", json!(name)), ("duration_ms", json!(millis(took)))];
        let payload = with(failure(error), more);
        self.emit(Draft::new(EventKind::ToolFailed, &payload).span(span).under(parent))
    }

    /// A piece of a message that is still being written; streamed to readers and never stored.
    fn message_delta(&self, span: &SpanId, text: &str) -> Emitted<'_> {
        self.emit(Draft::new(EventKind::MessageDelta, &json!({"text": text})).span(span))
    }

    /// A piece of the model's reasoning; streamed to readers and never stored.
    fn reasoning_delta(&self, span: &SpanId, text: &str) -> Emitted<'_> {
        self.emit(Draft::new(EventKind::ReasoningDelta, &json!({"text": text})).span(span))
    }

    fn reasoning_completed(&self, span: &SpanId, text: &str, parent: Option<&SpanId>) -> Emitted<'_> {
        self.emit(Draft::new(EventKind::ReasoningCompleted, &json!({"text": text})).span(span).under(parent))
    }

    /// A whole message, with the caller's payload: `role` and `content` (a list of parts), for an answer also
    /// `tool_calls`, `usage`, `model`, `finish`, `duration_ms`.
    fn message(&self, span: &SpanId, payload: &Value, parent: Option<&SpanId>) -> Emitted<'_> {
        self.emit(Draft::new(EventKind::MessageCompleted, payload).span(span).under(parent))
    }

    /// `child` is the run that was created for the worker; its id is also the span.
    fn worker_spawned(&self, child: &RunContext, title: &str, parent: Option<&SpanId>) -> Emitted<'_> {
        let payload = json!({"run_id": child.run_id, "agent": child.agent, "name": title});
        self.emit(Draft::new(EventKind::WorkerSpawned, &payload).span(&worker_span(child.run_id)).under(parent))
    }

    fn worker_completed(&self, child: RunId, title: &str, summary: &Value, took: Duration) -> Emitted<'_> {
        let (summary, truncated) = bounded(summary);
        let payload = json!({"run_id": child, "name": title, "summary": summary, "duration_ms": millis(took)});
        self.emit(Draft::new(EventKind::WorkerCompleted, &flagged(payload, truncated)).span(&worker_span(child)))
    }

    fn worker_failed(&self, child: RunId, title: &str, error: &str, took: Duration) -> Emitted<'_> {
        let about = [("run_id", json!(child)), ("name", json!(title)), ("duration_ms", json!(millis(took)))];
        self.emit(Draft::new(EventKind::WorkerFailed, &with(failure(error), about)).span(&worker_span(child)))
    }

    fn log(&self, level: Level, text: &str) -> Emitted<'_> {
        self.emit(Draft::new(level.kind(), &json!({"message": text})))
    }

    /// A log line about a span; with repeatable ids it exists once, however often the span is repeated.
    fn log_in(&self, span: &SpanId, level: Level, text: &str) -> Emitted<'_> {
        self.emit(Draft::new(level.kind(), &json!({"message": text})).span(span))
    }

    /// A log line that is stored once in the run, however often it is emitted.
    fn log_once(&self, id: &EventId, level: Level, text: &str) -> Emitted<'_> {
        self.emit(Draft::new(level.kind(), &json!({"message": text})).known_as(id))
    }

    /// A custom event, `custom.<kind>`, with a span of its own; a kind that is not an event word is refused.
    fn custom(&self, span: &SpanId, kind: &str, payload: &Value) -> Emitted<'_> {
        match format!("custom.{kind}").parse::<EventType>() {
            Ok(event_type) => self.emit(Draft::new(event_type, payload).span(span)),
            Err(error) => Box::pin(std::future::ready(Err(HostError::refused(error)))),
        }
    }
}

/// Largest tool result, tool arguments or worker summary kept inside an event, bytes of JSON.
pub const RESULT_BYTES_MAX: usize = 32 * 1024;
/// Characters kept of an error's text.
const ERROR_CHARS_MAX: usize = 4_000;
/// Characters kept of a result that is too long.
pub const PREVIEW_CHARS: usize = 2_000;

fn bounded(value: &Value) -> (Value, bool) {
    let text = value.to_string();
    if text.len() <= RESULT_BYTES_MAX {
        return (value.clone(), false);
    }
    (json!({"bytes": text.len(), "preview": text.chars().take(PREVIEW_CHARS).collect::<String>()}), true)
}

fn flagged(payload: Value, truncated: bool) -> Value {
    if truncated { with(payload, [("truncated", json!(true))]) } else { payload }
}

fn failure(error: &str) -> Value {
    json!({"error": {"message": error.chars().take(ERROR_CHARS_MAX).collect::<String>()}})
}

fn with<const N: usize>(payload: Value, more: [(&str, Value); N]) -> Value {
    let mut members: Map<String, Value> = match payload {
        Value::Object(members) => members,
        other => return other,
    };
    members.extend(more.map(|(name, value)| (name.to_owned(), value)));
    Value::Object(members)
}

fn step_started(span: &SpanId, name: &str) -> Draft {
    Draft::new(EventKind::StepStarted, &json!({"name": name})).span(span)
}

fn step_completed(span: &SpanId, name: &str, took: Duration) -> Draft {
    Draft::new(EventKind::StepCompleted, &json!({"name": name, "duration_ms": millis(took)})).span(span)
}

fn worker_span(child: RunId) -> SpanId {
    SpanId::trusted(&child.to_string())
}

/// Milliseconds, to the microsecond.
pub fn millis(took: Duration) -> f64 {
    (took.as_secs_f64() * 1_000_000.0).round() / 1_000.0
}
