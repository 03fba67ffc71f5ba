//! What a run's frames look like in a chat: the agent's words as they arrive, everything else as dim lines.
//!
//! Pure: frames in, pieces out. A text is shown once, however it arrives: as tokens, as a snapshot after a break, whole
//! with its durable event, or again as the run's output.

use std::collections::HashMap;

use anstyle::{AnsiColor, Style};
use serde::Deserialize;
use serde_json::Value;

use crate::{
    cli::{
        render::{clean_lines, clip},
        summary::summarize,
    },
    client::Frame,
    domain::{event::EventKind, session},
};

/// Something to print.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// The agent's words: data, for stdout.
    Answer(String),
    /// What else happens: messages, for stderr.
    Aside(String),
}

/// The members of an event that a chat uses. Everything is optional: a view must not fail on any event.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Event {
    #[serde(skip)]
    pub kind: String,
    pub agent: Option<String>,
    pub span_id: String,
    pub payload: Value,
    // A snapshot has this beside the span, without a payload.
    text: Option<String>,
    // The event type that a snapshot stands for.
    #[serde(rename = "type")]
    of: String,
}

impl Event {
    pub(super) fn of(frame: &Frame) -> Self {
        Self { kind: frame.event.clone(), ..serde_json::from_str(&frame.data).unwrap_or_default() }
    }

    fn is_reasoning(&self) -> bool {
        self.kind.starts_with("reasoning.") || self.of.starts_with("reasoning.")
    }
}

/// A text that is being streamed.
#[derive(Default)]
struct Text {
    shown: String,
    chars: usize,
    /// A part was lost: no more is shown until the whole text arrives.
    is_torn: bool,
}

pub(super) struct View {
    /// Columns of the terminal; `None` cuts nothing.
    width: Option<usize>,
    /// Shows only the answer, once the run has ended.
    last_only: bool,
    texts: HashMap<String, Text>,
    /// The span whose text is on the terminal's current line, and whether it is a thought.
    open: Option<(String, bool)>,
    /// The payload of the agent's last message, and its text if that was shown.
    last_message: Option<Value>,
    last_shown: String,
}

impl View {
    pub(super) fn new(width: Option<usize>, last_only: bool) -> Self {
        let (texts, open, last_message, last_shown) = (HashMap::new(), None, None, String::new());
        Self { width, last_only, texts, open, last_message, last_shown }
    }

    /// What to print for an event.
    pub(super) fn event(&mut self, event: &Event) -> Vec<Piece> {
        if event.kind.ends_with(".delta") || event.kind.ends_with(".snapshot") {
            return self.tokens(event);
        }
        let Some(kind) = EventKind::parse(&event.kind) else { return Vec::new() };
        match kind {
            EventKind::MessageCompleted if event.payload["role"].as_str().is_none_or(|role| role == "assistant") => {
                self.message(event)
            }
            EventKind::ReasoningCompleted => self.whole(event),
            EventKind::ToolStarted | EventKind::WorkerSpawned => self.line(event, "·", Style::new()),
            EventKind::ToolCompleted | EventKind::WorkerCompleted => self.line(event, "✓", Style::new()),
            EventKind::ToolFailed | EventKind::WorkerFailed => self.line(event, "✗", AnsiColor::Red.on_default()),
            EventKind::ArtifactCreated => self.line(event, "▪", Style::new()),
            EventKind::LogWarn | EventKind::LogError => self.line(event, "!", AnsiColor::Yellow.on_default()),
            EventKind::RunCompleted => self.answer(event),
            EventKind::RunFailed => self.end(event, "the run failed", AnsiColor::Red),
            EventKind::RunCancelled => self.end(event, "the run was cancelled", AnsiColor::Yellow),
            _ => Vec::new(),
        }
    }

    /// Ends the line that a text is on, if there is one: something else is about to be printed.
    pub(super) fn break_line(&mut self) -> Vec<Piece> {
        let line_end = |(_, is_thought)| if is_thought { aside("\n") } else { Piece::Answer("\n".to_owned()) };
        self.open.take().map(line_end).into_iter().collect()
    }

    fn tokens(&mut self, event: &Event) -> Vec<Piece> {
        let is_thought = event.is_reasoning();
        // Output chunks of tools and of others are not words of the agent.
        let is_message = event.kind.starts_with("message.delta") || event.of.starts_with("message.");
        if !is_thought && (!is_message || self.last_only) {
            return Vec::new();
        }
        let offset = event.payload["offset"].as_u64().and_then(|offset| usize::try_from(offset).ok());
        let written = event.text.as_deref().or(event.payload["text"].as_str()).unwrap_or_default();
        let text = self.texts.entry(event.span_id.clone()).or_default();
        // After a reconnect the text so far is sent again; the offsets show which part of it is new.
        let begins = if event.kind.ends_with(".snapshot") { 0 } else { offset.unwrap_or(text.chars) };
        text.is_torn |= begins > text.chars;
        let fresh: String = written.chars().skip(text.chars.saturating_sub(begins)).collect();
        if text.is_torn || fresh.is_empty() {
            return Vec::new();
        }
        text.shown.push_str(&fresh);
        text.chars += fresh.chars().count();
        self.words(&event.span_id, &fresh, is_thought)
    }

    /// Text of a span, on the current line if that is the span's, else on a new one.
    fn words(&mut self, span_id: &str, text: &str, is_thought: bool) -> Vec<Piece> {
        let goes_on = self.open.as_ref().is_some_and(|(open, _)| open == span_id);
        let mut pieces = if goes_on { Vec::new() } else { self.break_line() };
        let text = clean_lines(text);
        pieces.push(if is_thought { aside(&dimmed(&text)) } else { Piece::Answer(text) });
        self.open = Some((span_id.to_owned(), is_thought));
        pieces
    }

    /// A text is complete with its durable event: the part that was not shown is shown now.
    fn whole(&mut self, event: &Event) -> Vec<Piece> {
        let (is_thought, text) = (event.is_reasoning(), self.texts.remove(&event.span_id).unwrap_or_default());
        let Some(full) = session::answer(None, Some(&event.payload)).filter(|full| !full.is_empty()) else {
            let unknown = !event.payload["$artifact"].is_null() && text.shown.is_empty();
            return if unknown { self.line(event, "▪", Style::new()) } else { self.break_line() };
        };
        let mut pieces = match full.strip_prefix(&text.shown) {
            Some("") => Vec::new(),
            Some(rest) if self.open.as_ref().is_some_and(|(open, _)| *open == event.span_id) => {
                self.words(&event.span_id, rest, is_thought)
            }
            // Something else took the line in the middle of the text, or the text has changed.
            _ => {
                let mut pieces = self.break_line();
                pieces.extend(self.words(&event.span_id, &full, is_thought));
                pieces
            }
        };
        if self.open.as_ref().is_some_and(|(open, _)| *open == event.span_id) {
            pieces.extend(self.break_line());
        }
        if !is_thought {
            self.last_shown = full;
        }
        pieces
    }

    fn message(&mut self, event: &Event) -> Vec<Piece> {
        self.last_message = Some(event.payload.clone());
        if self.last_only { Vec::new() } else { self.whole(event) }
    }

    /// The run's answer, unless its last message was exactly that.
    fn answer(&mut self, event: &Event) -> Vec<Piece> {
        let mut pieces = self.break_line();
        let output = Some(&event.payload["output"]).filter(|output| !output.is_null());
        let answer = session::answer(output, self.last_message.as_ref()).unwrap_or_default();
        if !answer.trim().is_empty() && answer.trim() != self.last_shown.trim() {
            let answer = clean_lines(&answer);
            pieces.push(Piece::Answer(format!("{}\n", answer.trim_end_matches('\n'))));
        }
        pieces
    }

    fn end(&mut self, event: &Event, what: &str, color: AnsiColor) -> Vec<Piece> {
        let (mut pieces, paint) = (self.break_line(), color.on_default());
        let summary = summarize(&event.kind, &event.payload);
        let reason = summary.trim_start_matches("error: ");
        let between = if reason.is_empty() { "" } else { ": " };
        pieces.push(aside(&format!("{paint}{what}{between}{reason}{paint:#}\n")));
        pieces
    }

    /// A dim line about an event.
    fn line(&mut self, event: &Event, mark: &str, paint: Style) -> Vec<Piece> {
        let mut pieces = self.break_line();
        let summary = summarize(&event.kind, &event.payload);
        let summary = if event.kind.starts_with("worker.") { format!("worker {summary}") } else { summary };
        let room = self.width.map_or(usize::MAX, |width| width.saturating_sub(4).max(20));
        let summary = clip(&summary, room);
        pieces.push(aside(&format!("  {paint}{mark}{paint:#} {}\n", dimmed(&summary))));
        pieces
    }
}

fn aside(text: &str) -> Piece {
    Piece::Aside(text.to_owned())
}

fn dimmed(text: &str) -> String {
    let dim = Style::new().dimmed();
    format!("{dim}{text}{dim:#}")
}

/// A question to the person at the terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub id: String,
    /// Whether it is answered with yes or no.
    pub is_approval: bool,
    pub text: String,
}

impl Question {
    pub(super) fn prompt(&self) -> &'static str {
        if self.is_approval { "  y, n, or an answer in words: " } else { "  your answer: " }
    }
}

/// What the run waits for, oldest first.
#[derive(Debug, Default)]
pub(super) struct Questions(pub Vec<Question>);

impl Questions {
    /// Updates the questions from the log.
    pub(super) fn event(&mut self, event: &Event) {
        match EventKind::parse(&event.kind) {
            Some(EventKind::InterruptRequested) if self.0.iter().all(|question| question.id != event.span_id) => {
                self.0.push(question(event));
            }
            Some(EventKind::InterruptResolved) => self.0.retain(|question| question.id != event.span_id),
            Some(EventKind::RunCompleted | EventKind::RunFailed | EventKind::RunCancelled) => self.0.clear(),
            _ => {}
        }
    }
}

fn question(event: &Event) -> Question {
    let payload = &event.payload;
    let (paint, mut text) =
        (AnsiColor::Magenta.on_default().bold(), summarize(EventKind::InterruptRequested.as_str(), payload));
    if payload["tool"].is_string() {
        let call = serde_json::json!({ "name": payload["tool"], "args": payload["args"] });
        text = format!("{text}\n    {}", summarize(EventKind::ToolStarted.as_str(), &call));
    }
    Question {
        id: event.span_id.clone(),
        is_approval: payload["kind"] != "question",
        text: format!("{paint}?{paint:#} {}\n", clean_lines(&text)),
    }
}

#[cfg(test)]
mod tests;
