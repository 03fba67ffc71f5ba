//! The timeline: events paired into spans, spans nested into a waterfall, and sums.
//!
//! `X.started` opens a span and `X.completed` or `X.failed` with the same `span_id` closes it; `parent_span_id` nests.
//! A waterfall needs no more, so it is computed from the log and not stored.
//!
//! The fold keeps a bounded number of spans; the others still count in the sums.

use std::{collections::BTreeMap, ops::AddAssign};

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::{
    context::Role,
    event::{Edge, EventKind, Recorded},
    id::{RunId, Seq, SpanId},
    limits::{SPAN_NAME_BYTES_MAX, SPANS_MAX, SUMS_MAX},
    run::Status,
};

/// The name under which names without their own sum are counted.
const OTHERS: &str = "(others)";

/// Whether a span has ended, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SpanStatus {
    Running,
    Completed,
    Failed,
}

/// One bar of the waterfall.
#[derive(Clone, Debug, PartialEq, Serialize, utoipa::ToSchema)]
pub struct Span {
    #[schema(value_type = uuid::Uuid)]
    pub run_id: RunId,
    /// The run's own bar has the run's id here.
    pub span_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_span_id: Option<String>,
    /// `run`, `step`, `tool`, `message`, `reasoning`, `worker` or the producer's own family.
    pub kind: String,
    pub name: String,
    pub role: Role,
    pub agent: Option<String>,
    pub status: SpanStatus,
    #[schema(value_type = i64)]
    pub start_seq: Seq,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<i64>)]
    pub end_seq: Option<Seq>,
    /// Milliseconds after the run's start.
    pub start_ms: f64,
    /// Its duration as reported by its end event, otherwise the time to its end without the time spent waiting for a
    /// person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<f64>,
    /// The rest of the time from its start to its end, when there is any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_ms: Option<f64>,
    /// The run a `worker` span stands for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub child_run_id: Option<String>,
}

/// Totals of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, utoipa::ToSchema)]
pub struct Summary {
    pub total_ms: f64,
    pub tool_ms: f64,
    /// Time in `message` and `reasoning` spans.
    pub model_ms: f64,
    /// Time during which the run was waiting or interrupted.
    pub waiting_ms: f64,
    /// Durations of steps as they report them, by name.
    pub node_durations_ms: BTreeMap<String, f64>,
    /// The remaining time between their starts and ends: waiting for people, and commits.
    pub node_waiting_ms: BTreeMap<String, f64>,
    /// Events by type. Each of these tables has at most 1 000 names; the rest is summed up as `(others)`.
    pub counts: BTreeMap<String, u64>,
    /// Numbers found in the `usage` of completed messages, added up.
    pub usage: BTreeMap<String, f64>,
}

/// The fold: takes the run's events in order, then [`Timeline::finish`].
#[derive(Debug)]
pub struct Timeline {
    run_id: RunId,
    zero: DateTime<Utc>,
    spans: Vec<Span>,
    spans_omitted: usize,
    open: BTreeMap<(String, SpanId), Open>,
    summary: Summary,
    paused_at: Option<DateTime<Utc>>,
    /// Whether the current pause is for a person.
    is_asking: bool,
    asked_ms: f64,
    last_at: DateTime<Utc>,
    last_seq: Seq,
}

/// An open span, and the total of pauses for people before its start.
#[derive(Debug)]
struct Open {
    slot: SpanSlot,
    asked_ms: f64,
}

#[derive(Debug)]
enum SpanSlot {
    /// An index into the spans.
    Shown(usize),
    Omitted(Box<Span>),
}

/// The result of a fold.
#[derive(Debug)]
pub struct Folded {
    /// In start order.
    pub spans: Vec<Span>,
    pub spans_omitted: usize,
    pub summary: Summary,
    /// The last seq of the fold.
    pub last_seq: Seq,
}

impl Timeline {
    pub fn new(run_id: RunId, started_at: DateTime<Utc>) -> Self {
        Self {
            run_id,
            zero: started_at,
            spans: Vec::new(),
            spans_omitted: 0,
            open: BTreeMap::new(),
            summary: Summary::default(),
            paused_at: None,
            is_asking: false,
            asked_ms: 0.0,
            last_at: started_at,
            last_seq: Seq::ZERO,
        }
    }

    /// Takes the next durable event.
    pub fn take(&mut self, event: &Recorded) {
        let seq = event.seq.expect("a timeline is made of durable events");
        add(&mut self.summary.counts, event.event_type.as_str(), 1);
        self.last_seq = seq;
        // The first events of a run that was reported late have the time of the report.
        if !matches!(event.event_type.kind(), Some(EventKind::RunCreated | EventKind::RunStarted)) {
            self.last_at = self.last_at.max(event.at);
        }
        if let Some(status) = Status::after(&event.event_type) {
            return self.lifecycle(status, event, seq);
        }
        let kind = event.event_type.family();
        match event.event_type.edge() {
            Some(Edge::Start) => self.start(kind, event, seq),
            Some(Edge::Completed) => self.end(kind, false, event, seq),
            Some(Edge::Failed) => self.end(kind, true, event, seq),
            None => {}
        }
    }

    fn lifecycle(&mut self, status: Status, event: &Recorded, seq: Seq) {
        match status {
            Status::Queued => {
                let mut span = self.bar("run", event, seq);
                (span.span_id, span.start_ms) = (self.run_id.to_string(), 0.0);
                span.name = text(event, "title").or(span.agent.clone()).unwrap_or_else(|| "run".to_owned());
                self.keep(span);
            }
            Status::Waiting | Status::Interrupted => {
                self.resume(event.at);
                (self.paused_at, self.is_asking) = (Some(event.at), status == Status::Interrupted);
            }
            Status::Running => self.resume(event.at),
            Status::Completed | Status::Failed | Status::Cancelled => {
                self.resume(event.at);
                let failed = status != Status::Completed;
                if let Some(run) = self.spans.first_mut().filter(|span| span.kind == "run") {
                    close(run, seq, failed, ms(self.zero, event.at));
                }
            }
        }
    }

    fn resume(&mut self, at: DateTime<Utc>) {
        if let Some(paused_at) = self.paused_at.take() {
            let paused_ms = ms(paused_at, at);
            self.summary.waiting_ms += paused_ms;
            if self.is_asking {
                self.asked_ms += paused_ms;
            }
        }
    }

    fn start(&mut self, kind: &str, event: &Recorded, seq: Seq) {
        let mut span = self.bar(kind, event, seq);
        span.child_run_id = text(event, "run_id");
        let open = Open { slot: self.keep(span), asked_ms: self.asked_ms };
        // Beyond this bound, the end of a span counts as one without a start.
        let is_known = matches!(open.slot, SpanSlot::Shown(_)) || self.open.len() < 2 * SPANS_MAX;
        if let Some(span_id) = event.span_id.as_ref().filter(|_| is_known) {
            self.open.insert((kind.to_owned(), span_id.clone()), open);
        }
    }

    /// Keeps a span while there is room.
    fn keep(&mut self, span: Span) -> SpanSlot {
        if self.spans.len() >= SPANS_MAX {
            self.spans_omitted += 1;
            return SpanSlot::Omitted(Box::new(span));
        }
        self.spans.push(span);
        SpanSlot::Shown(self.spans.len() - 1)
    }

    fn end(&mut self, kind: &str, failed: bool, event: &Recorded, seq: Seq) {
        let end_ms = ms(self.zero, event.at);
        let opened = event.span_id.as_ref().and_then(|span_id| self.open.remove(&(kind.to_owned(), span_id.clone())));
        let own_ms = event.payload.member("duration_ms").filter(|ms: &f64| *ms >= 0.0);
        let Open { slot, asked_ms } = opened.unwrap_or_else(|| {
            // An end without a start (such as a message) is a bar of the reported duration.
            let mut span = self.bar(kind, event, seq);
            span.start_ms = (end_ms - own_ms.unwrap_or(0.0)).max(0.0);
            Open { slot: self.keep(span), asked_ms: self.asked_ms }
        });
        let asked_ms = self.asked_ms - asked_ms;
        let mut omitted;
        let span = match slot {
            SpanSlot::Shown(at) => &mut self.spans[at],
            SpanSlot::Omitted(span) => {
                omitted = span;
                &mut *omitted
            }
        };
        // A supervisor may report its workers when all have ended; each bar is as long as its worker took.
        if let (Some(own_ms), "worker") = (own_ms, kind) {
            close(span, seq, failed, end_ms.min(span.start_ms + own_ms));
        } else {
            close(span, seq, failed, end_ms);
            span.account(own_ms, asked_ms);
        }
        let duration_ms = span.duration_ms.unwrap_or(0.0);
        match kind {
            "tool" => self.summary.tool_ms += duration_ms,
            "message" | "reasoning" => self.summary.model_ms += duration_ms,
            "step" => {
                add(&mut self.summary.node_durations_ms, &span.name, duration_ms);
                add(&mut self.summary.node_waiting_ms, &span.name, span.waiting_ms.unwrap_or(0.0));
            }
            _ => {}
        }
        let usage: BTreeMap<String, serde_json::Value> = event.payload.member("usage").unwrap_or_default();
        for (name, value) in usage {
            if let Some(number) = value.as_f64() {
                add(&mut self.summary.usage, cut(&name), number);
            }
        }
    }

    fn bar(&self, kind: &str, event: &Recorded, seq: Seq) -> Span {
        let named = text(event, "name").or_else(|| text(event, "title"));
        let span_id = event.span_id.as_ref().map_or_else(|| format!("seq-{seq}"), |id| id.as_str().to_owned());
        Span {
            run_id: self.run_id,
            name: named.unwrap_or_else(|| span_id.clone()),
            span_id,
            parent_span_id: event.parent_span_id.as_ref().map(|id| id.as_str().to_owned()),
            kind: kind.to_owned(),
            role: event.role,
            agent: event.agent.as_deref().map(str::to_owned),
            status: SpanStatus::Running,
            start_seq: seq,
            end_seq: None,
            start_ms: ms(self.zero, event.at),
            duration_ms: None,
            waiting_ms: None,
            child_run_id: None,
        }
    }

    /// The spans and sums of all events.
    pub fn finish(mut self) -> Folded {
        self.resume(self.last_at);
        self.summary.total_ms = ms(self.zero, self.last_at);
        let Self { spans, spans_omitted, summary, last_seq, .. } = self;
        Folded { spans, spans_omitted, summary, last_seq }
    }
}

impl Span {
    /// Splits the time of an ended span into its own duration and waiting.
    fn account(&mut self, own_ms: Option<f64>, asked_ms: f64) {
        let between_ms = self.duration_ms.unwrap_or(0.0);
        let duration_ms = own_ms.unwrap_or((between_ms - asked_ms).max(0.0));
        self.duration_ms = Some(duration_ms);
        self.waiting_ms = Some(between_ms - duration_ms).filter(|waiting_ms| *waiting_ms > 0.0);
    }
}

/// A text member, cut to the longest name.
fn text(event: &Recorded, member: &str) -> Option<String> {
    // A copy, so that the cut part does not stay in memory.
    event.payload.member::<String>(member).map(|text| cut(&text).to_owned())
}

/// Cuts a name to the longest length.
pub(super) fn cut(name: &str) -> &str {
    &name[..name.floor_char_boundary(SPAN_NAME_BYTES_MAX)]
}

/// Adds to the sum of a name, or of all others once there are too many.
fn add<T: AddAssign + Default>(sums: &mut BTreeMap<String, T>, name: &str, amount: T) {
    let name = if sums.len() < SUMS_MAX || sums.contains_key(name) { name } else { OTHERS };
    *sums.entry(name.to_owned()).or_default() += amount;
}

fn close(span: &mut Span, seq: Seq, failed: bool, end_ms: f64) {
    span.status = if failed { SpanStatus::Failed } else { SpanStatus::Completed };
    span.end_seq = Some(seq);
    span.duration_ms = Some((end_ms - span.start_ms).max(0.0));
}

/// Milliseconds from one time to another, never negative.
fn ms(from: DateTime<Utc>, to: DateTime<Utc>) -> f64 {
    ((to - from).num_microseconds().unwrap_or(0).max(0)) as f64 / 1_000.0
}

#[cfg(test)]
mod tests;
