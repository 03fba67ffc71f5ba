//! What a frame looks like to a person: a line for an event, running text for tokens.
//!
//! One span at a time has the line: its deltas continue there while the tokens of others wait for their durable event,
//! which has the whole text. Otherwise two parallel workers would break the screen at every token.

use std::fmt::Write as _;

use anstyle::Style;
use chrono::{DateTime, FixedOffset};
use serde::Deserialize;
use serde_json::Value;

use crate::{
    cli::{
        render::{clean, clean_lines, clip},
        summary::{style, summarize},
    },
    client::Frame,
    domain::failure::Failure,
};

/// Columns of the event's type; almost every type fits.
const TYPE_WIDTH: usize = 19;
/// Columns of role and agent.
const WHO_WIDTH: usize = 18;
/// Below this many columns a summary is not cut further.
const GIST_WIDTH_MIN: usize = 20;

/// The members of an envelope that a line shows. Everything is optional: a view must not fail on any event.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Envelope {
    run_id: String,
    seq: Option<i64>,
    role: String,
    agent: Option<String>,
    span_id: Option<String>,
    at: String,
    payload: Value,
    // A snapshot has these beside the span, without a payload.
    text: Option<String>,
    offset: Option<usize>,
}

pub(in crate::cli) struct View {
    offset: FixedOffset,
    /// Columns of the terminal; `None` cuts nothing.
    width: Option<usize>,
    /// Lines of several runs state which run.
    many_runs: bool,
    /// Failures are followed by their stacks.
    stacks: bool,
    running: Option<Running>,
}

/// The span whose text is being printed.
struct Running {
    run_id: String,
    span_id: String,
    /// Characters of the span's text that were shown.
    shown: usize,
    /// The text is on the terminal's current line.
    on_line: bool,
}

impl View {
    pub(in crate::cli) fn new(offset: FixedOffset, width: Option<usize>, many_runs: bool) -> Self {
        Self { offset, width, many_runs, stacks: false, running: None }
    }

    pub(super) fn with_stacks(self, stacks: bool) -> Self {
        Self { stacks, ..self }
    }

    /// The text to print for a frame, with colours; empty if there is nothing to print.
    pub(in crate::cli) fn frame(&mut self, frame: &Frame) -> String {
        let envelope: Envelope = serde_json::from_str(&frame.data).unwrap_or_default();
        if matches!(action(&frame.event), "delta" | "snapshot") {
            return self.tokens(&frame.event, &envelope);
        }
        let broken = self.break_line();
        self.close(&frame.event, &envelope);
        let prefix = self.prefix(&frame.event, &envelope);
        let room =
            self.width.map_or(usize::MAX, |width| width.saturating_sub(plain_width(&prefix)).max(GIST_WIDTH_MIN));
        let summary = clip(&summarize(&frame.event, &envelope.payload), room);
        let block = if self.stacks { stacks(&frame.event, &envelope.payload) } else { String::new() };
        format!("{broken}{}\n{block}", format!("{prefix}{summary}").trim_end())
    }

    /// Ends the line of running text, if one is open: something else is about to be printed.
    pub(super) fn break_line(&mut self) -> String {
        match &mut self.running {
            Some(running) if running.on_line => {
                running.on_line = false;
                "\n".to_owned()
            }
            _ => String::new(),
        }
    }

    fn tokens(&mut self, event_type: &str, envelope: &Envelope) -> String {
        let text = envelope.text.as_deref().or(envelope.payload["text"].as_str()).unwrap_or_default();
        let offset = envelope
            .offset
            .or_else(|| envelope.payload["offset"].as_u64().and_then(|offset| usize::try_from(offset).ok()));
        let begins_at = if action(event_type) == "snapshot" { Some(0) } else { offset };
        let Some(running) = self.take_line(envelope, begins_at) else { return String::new() };
        // After a reconnect the text so far is sent again; the offsets show which part of it is new.
        let begins = begins_at.unwrap_or(running.shown);
        let missed = begins > running.shown;
        let fresh: String = text.chars().skip(running.shown.saturating_sub(begins)).collect();
        if fresh.is_empty() {
            return String::new();
        }
        running.shown = begins + text.chars().count();
        let starts_line = !std::mem::replace(&mut running.on_line, true);
        let mut out = if starts_line { self.prefix(event_type, envelope) } else { String::new() };
        _ = write!(out, "{}{}", if missed { "…" } else { "" }, clean(&fresh));
        out
    }

    /// The line, if this span has it or may take it: a beginning text takes it from an interrupted one, which may never
    /// end.
    fn take_line(&mut self, envelope: &Envelope, begins_at: Option<usize>) -> Option<&mut Running> {
        let span_id = envelope.span_id.as_deref().unwrap_or_default();
        self.running.take_if(|running| {
            let other = running.span_id != span_id || running.run_id != envelope.run_id;
            other && !running.on_line && begins_at == Some(0)
        });
        let running = self.running.get_or_insert_with(|| Running {
            run_id: envelope.run_id.clone(),
            span_id: span_id.to_owned(),
            shown: 0,
            on_line: false,
        });
        (running.span_id == span_id && running.run_id == envelope.run_id).then_some(running)
    }

    /// The durable end of a span, or of its whole run, releases the line.
    fn close(&mut self, event_type: &str, envelope: &Envelope) {
        let ends = matches!(action(event_type), "completed" | "failed" | "cancelled");
        self.running.take_if(|running| {
            let same_span = envelope.span_id.as_deref() == Some(&running.span_id);
            ends && running.run_id == envelope.run_id && (same_span || event_type.starts_with("run."))
        });
    }

    fn prefix(&self, event_type: &str, envelope: &Envelope) -> String {
        let (dim, paint) = (Style::new().dimmed(), style(event_type));
        let at = DateTime::parse_from_rfc3339(&envelope.at)
            .map(|at| at.with_timezone(&self.offset).format("%H:%M:%S%.3f").to_string())
            .unwrap_or_default();
        let seq = envelope.seq.map(|seq| seq.to_string()).unwrap_or_default();
        let run = if self.many_runs { format!("{} ", short_run(&envelope.run_id)) } else { String::new() };
        let who = match &envelope.agent {
            Some(agent) => format!("{}/{agent}", envelope.role),
            None => envelope.role.clone(),
        };
        let (event_type, who) = (clean(event_type), clip(&clean(&who), WHO_WIDTH));
        // Spaces stay outside the colours, so that a line without a summary can be trimmed.
        let blanks = " ".repeat(WHO_WIDTH + 1 - who.chars().count());
        format!("{dim}{at:12} {seq:>6} {run}{dim:#}{paint}{event_type:TYPE_WIDTH$}{paint:#} {dim}{who}{dim:#}{blanks}")
    }
}

/// The last word of a type.
pub(super) fn action(event_type: &str) -> &str {
    event_type.rsplit_once('.').map_or("", |(_, action)| action)
}

/// The end of an id: its beginning is the time, which neighbours share.
fn short_run(run_id: &str) -> String {
    let run_id = clean(run_id);
    let skipped = run_id.chars().count().saturating_sub(6);
    run_id.chars().skip(skipped).collect()
}

/// The stacks of a failed event, below its line; empty if it has none.
fn stacks(event_type: &str, payload: &Value) -> String {
    let failure = (action(event_type) == "failed").then(|| Failure::of_event(payload)).flatten();
    let text = failure.map(|failure| failure.block()).unwrap_or_default();
    if text.lines().count() < 2 {
        return String::new();
    }
    clean_lines(&text).lines().fold(String::new(), |block, line| block + "    " + line + "\n")
}

/// Number of visible characters.
fn plain_width(styled: &str) -> usize {
    anstream::adapter::strip_str(styled).to_string().chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn view() -> View {
        View::new(FixedOffset::east_opt(3_600).unwrap(), Some(100), false)
    }

    fn show(view: &mut View, event: &str, envelope: &Value) -> String {
        let frame = Frame { id: None, event: event.to_owned(), data: envelope.to_string() };
        anstream::adapter::strip_str(&view.frame(&frame)).to_string()
    }

    fn envelope(seq: i64, span_id: &str, payload: &Value) -> Value {
        json!({"run_id": "0198c0de-0000-7000-8000-0000000abcde", "seq": seq, "role": "worker", "agent": "coder",
            "span_id": span_id, "at": "2025-11-13T02:13:20.000001Z", "payload": payload})
    }

    fn delta(span_id: &str, offset: usize, text: &str) -> Value {
        envelope(0, span_id, &json!({"text": text, "offset": offset}))
    }

    #[test]
    fn an_event_is_one_line() {
        let payload = json!({"name": "search", "args": {"q": "x"}});
        let line = show(&mut view(), "tool.started", &envelope(42, "c1", &payload));
        assert_eq!(line, "03:13:20.000     42 tool.started        worker/coder       search(q: \"x\")\n");
        let mut many = View { many_runs: true, ..view() };
        let line = show(&mut many, "run.started", &envelope(2, "", &json!({})));
        assert_eq!(line, "03:13:20.000      2 0abcde run.started         worker/coder\n");
    }

    #[test]
    fn a_failure_is_one_line_and_on_demand_its_stack_below() {
        let error = json!({"type": "KeyError", "message": "'id'", "stack": "  at a\u{1b}[2J\n  at b", "cause": "x"});
        let failed = envelope(7, "c1", &json!({"name": "search", "error": error}));
        let line = show(&mut view(), "tool.failed", &failed);
        assert!(line.ends_with(" search error: KeyError: 'id'\n"), "{line}");
        let mut stacks = view().with_stacks(true);
        let block = show(&mut stacks, "tool.failed", &failed);
        assert_eq!(block, format!("{line}    KeyError: 'id'\n        at a\n        at b\n    caused by x\n"));
        let bare = envelope(7, "c1", &json!({"name": "search", "error": "timeout"}));
        assert_eq!(show(&mut stacks, "tool.failed", &bare), show(&mut view(), "tool.failed", &bare));
    }

    #[test]
    fn a_line_fits_the_terminal() {
        let line = show(&mut view(), "log.info", &envelope(1, "", &json!({"message": "x".repeat(500)})));
        assert_eq!(line.trim_end().chars().count(), 100);
        assert!(line.ends_with("…\n"));
    }

    #[test]
    fn tokens_run_on_one_line_until_something_else_is_said() {
        let mut view = view();
        let head = "03:13:20.000      0 message.delta       worker/coder       ";
        assert_eq!(show(&mut view, "message.delta", &delta("m1", 0, "Hel")), format!("{head}Hel"));
        assert_eq!(show(&mut view, "message.delta", &delta("m1", 3, "lo\nyou")), "lo you");
        let line = show(&mut view, "log.info", &envelope(5, "", &json!({"message": "hm"})));
        assert!(line.starts_with("\n03:13:20.000      5 log.info"), "{line}");
        assert_eq!(show(&mut view, "message.delta", &delta("m1", 9, "!")), format!("{head}!"));
        let end = show(&mut view, "message.completed", &envelope(6, "m1", &json!({"content": "Hello you!"})));
        assert!(end.starts_with("\n03:13:20.000      6 message.completed"), "{end}");
        assert!(show(&mut view, "message.delta", &delta("m2", 0, "next")).ends_with("next"));
    }

    #[test]
    fn a_snapshot_after_a_reconnect_repeats_nothing_and_a_hole_is_shown() {
        let mut view = view();
        show(&mut view, "message.delta", &delta("m1", 0, "héé"));
        let mut snapshot = json!({"run_id": "0198c0de-0000-7000-8000-0000000abcde", "span_id": "m1", "offset": 5});
        snapshot["text"] = json!("héé😀x");
        assert_eq!(show(&mut view, "message.snapshot", &snapshot), "😀x");
        assert_eq!(show(&mut view, "message.delta", &delta("m1", 5, "y")), "y");
        assert_eq!(show(&mut view, "message.delta", &delta("m1", 9, "z")), "…z");
        assert_eq!(show(&mut view, "message.delta", &delta("m1", 0, "héé")), "");
    }

    #[test]
    fn parallel_texts_do_not_mix() {
        let mut view = view();
        show(&mut view, "message.delta", &delta("m1", 0, "one"));
        assert_eq!(show(&mut view, "message.delta", &delta("m2", 0, "two")), "");
        show(&mut view, "run.failed", &envelope(9, "", &json!({})));
        assert!(show(&mut view, "message.delta", &delta("m2", 3, "more")).ends_with("…more"));
    }

    #[test]
    fn a_text_that_was_interrupted_gives_way_to_one_that_begins() {
        let mut view = view();
        show(&mut view, "message.delta", &delta("m1", 0, "one"));
        show(&mut view, "log.info", &envelope(5, "", &json!({})));
        assert_eq!(show(&mut view, "message.delta", &delta("m2", 3, "middle")), "");
        assert!(show(&mut view, "message.delta", &delta("m3", 0, "two")).ends_with("two"));
        assert_eq!(show(&mut view, "message.delta", &delta("m1", 3, "!")), "");
    }

    #[test]
    fn nothing_a_frame_holds_reaches_the_terminal_raw() {
        let hostile = "\u{1b}]0;x\u{7}\u{1b}[2J\r\u{9b}1m\u{202e}";
        for event in [hostile, "custom.x", "message.delta", "message.snapshot", "run.completed"] {
            let mut envelope = envelope(1, hostile, &json!({"text": hostile, hostile: hostile, "output": hostile}));
            for name in ["run_id", "role", "agent", "at"] {
                envelope[name] = json!(hostile);
            }
            for many_runs in [false, true] {
                let text = show(&mut View { many_runs, ..view() }, event, &envelope);
                assert!(!text.trim_end_matches('\n').chars().any(char::is_control), "{text:?}");
            }
        }
        let frame = Frame { id: None, event: "custom.x".to_owned(), data: "no json".to_owned() };
        assert!(view().frame(&frame).ends_with('\n'));
    }
}
