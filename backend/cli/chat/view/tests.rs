use serde_json::json;

use super::*;

/// The contents of stdout and stderr after these events, without colours; stderr's part in brackets.
fn shown(view: &mut View, events: &[(&str, Value)]) -> String {
    let mut out = String::new();
    for (kind, data) in events {
        let frame = Frame { id: None, event: (*kind).to_owned(), data: data.to_string() };
        for piece in view.event(&Event::of(&frame)) {
            match piece {
                Piece::Answer(text) => out.push_str(&text),
                Piece::Aside(text) => out.extend(["[", &anstream::adapter::strip_str(&text).to_string(), "]"]),
            }
        }
    }
    out
}

fn view() -> View {
    View::new(Some(80), false)
}

fn delta(kind: &'static str, span: &str, offset: usize, text: &str) -> (&'static str, Value) {
    (kind, json!({ "type": kind, "span_id": span, "payload": { "text": text, "offset": offset } }))
}

fn message(span: &str, text: &str) -> (&'static str, Value) {
    let payload = json!({ "role": "assistant", "content": [{ "type": "text", "text": text }] });
    ("message.completed", json!({ "type": "message.completed", "span_id": span, "payload": payload }))
}

fn about(kind: &'static str, payload: &Value) -> (&'static str, Value) {
    (kind, json!({ "type": kind, "span_id": "s", "payload": payload }))
}

fn completed(text: &str) -> (&'static str, Value) {
    about("run.completed", &json!({ "output": { "text": text } }))
}

#[test]
fn an_answer_is_shown_as_it_comes_and_once() {
    let events = [
        delta("message.delta", "m", 0, "Hel"),
        delta("message.delta", "m", 3, "lo\nyou"),
        message("m", "Hello\nyou"),
        completed("Hello\nyou"),
    ];
    assert_eq!(shown(&mut view(), &events), "Hello\nyou\n");
    assert_eq!(shown(&mut view(), &events[2..]), "Hello\nyou\n", "no tokens came");
    assert_eq!(shown(&mut view(), &events[3..]), "Hello\nyou\n", "an agent that only has an output");
    assert_eq!(shown(&mut view(), &[message("m", "one"), completed("two")]), "one\ntwo\n");
}

#[test]
fn a_break_repeats_nothing_and_what_was_lost_comes_with_the_durable_event() {
    let snapshot = json!({ "type": "message.delta", "span_id": "m", "offset": 5, "text": "héé😀x" });
    let events = [
        delta("message.delta", "m", 0, "héé"),
        ("message.snapshot", snapshot),
        delta("message.delta", "m", 5, "y"),
        delta("message.delta", "m", 9, "z"),
        delta("message.delta", "m", 10, "!"),
        message("m", "héé😀xy…z!"),
    ];
    assert_eq!(shown(&mut view(), &events), "héé😀xy…z!\n");
    let other = [delta("message.delta", "m", 0, "first"), message("m", "second")];
    assert_eq!(shown(&mut view(), &other), "first\nsecond\n");
}

#[test]
fn tools_workers_and_thoughts_stand_beside_the_answer() {
    let events = [
        delta("reasoning.delta", "t", 0, "hm"),
        delta("message.delta", "m", 0, "Let me see."),
        about("reasoning.completed", &json!({ "text": "hm" })),
        message("m", "Let me see."),
        about("tool.started", &json!({ "name": "search", "args": { "q": "x" } })),
        about("tool.completed", &json!({ "name": "search", "result": "7 hits", "duration_ms": 1200 })),
        about("tool.failed", &json!({ "name": "fetch", "error": "refused", "duration_ms": 3 })),
        about("worker.spawned", &json!({ "run_id": "r1", "agent": "coder" })),
    ];
    let expected = "[hm][\n]Let me see.\n[hm][\n][  · search(q: \"x\")\n][  ✓ search (1.2 s) → 7 hits\n]\
                    [  ✗ fetch (3 ms) error: refused\n][  · worker coder run r1\n]";
    // The complete thought has another span here; with its own it is shown once.
    assert_eq!(shown(&mut view(), &events), expected);
    let thought = json!({ "type": "reasoning.completed", "span_id": "t", "payload": { "text": "hm" } });
    let events = [
        delta("reasoning.delta", "t", 0, "hm"),
        delta("message.delta", "m", 0, "Yes"),
        ("reasoning.completed", thought),
        message("m", "Yes"),
    ];
    assert_eq!(shown(&mut view(), &events), "[hm][\n]Yes\n");
}

#[test]
fn a_text_that_was_talked_over_is_shown_whole_at_its_end() {
    let events = [
        delta("message.delta", "m", 0, "Hello"),
        about("log.warn", &json!({ "message": "slow" })),
        message("m", "Hello you"),
    ];
    assert_eq!(shown(&mut view(), &events), "Hello\n[  ! slow\n]Hello you\n");
}

#[test]
fn for_a_script_there_is_the_answer_and_nothing_else() {
    let events = [
        delta("message.delta", "m", 0, "Let me see."),
        message("m", "Let me see."),
        message("n", "It is 7."),
        completed("It is 7."),
    ];
    assert_eq!(shown(&mut View::new(None, true), &events), "It is 7.\n");
}

#[test]
fn an_unhappy_end_says_why() {
    let failed = about("run.failed", &json!({ "error": { "message": "no money" } }));
    let events = [delta("message.delta", "m", 0, "Hel"), failed];
    assert_eq!(shown(&mut view(), &events), "Hel\n[the run failed: no money\n]");
    let silent = about("run.failed", &json!({ "error": { "type": "AssertionError", "message": "" } }));
    assert_eq!(shown(&mut view(), &[silent]), "[the run failed: AssertionError\n]");
    let cancelled = about("run.cancelled", &json!({ "reason": "enough" }));
    assert_eq!(shown(&mut view(), &[cancelled]), "[the run was cancelled: enough\n]");
}

#[test]
fn questions_are_kept_until_they_are_answered() {
    let mut questions = Questions::default();
    let mut see = |kind: &str, id: &str, payload: Value| {
        let data = json!({ "span_id": id, "payload": payload }).to_string();
        questions.event(&Event::of(&Frame { id: None, event: kind.to_owned(), data }));
        questions.0.iter().map(|question| question.id.clone()).collect::<Vec<_>>()
    };
    let approval = json!({ "kind": "approval", "prompt": "May x be called?", "tool": "x", "args": { "a": 1 } });
    assert_eq!(see("interrupt.requested", "a", approval), ["a"]);
    assert_eq!(see("interrupt.requested", "b", json!({ "kind": "question", "prompt": "Which?" })), ["a", "b"]);
    assert_eq!(see("interrupt.resolved", "a", json!({})), ["b"]);
    assert!(see("run.cancelled", "", json!({})).is_empty());
    let approval =
        json!({ "kind": "approval", "prompt": "May x\u{1b}[2J be called?", "tool": "x", "args": { "a": 1 } });
    let asked = question(&Event { span_id: "a".to_owned(), payload: approval, ..Event::default() });
    let text = anstream::adapter::strip_str(&asked.text).to_string();
    assert_eq!((text.as_str(), asked.is_approval), ("? May x be called?\n    x(a: 1)\n", true));
}

#[test]
fn nothing_a_frame_holds_reaches_the_terminal_raw() {
    let hostile = "\u{1b}]0;x\u{7}\u{1b}[2J\r\u{9b}1m\u{202e}";
    for kind in
        ["message.delta", "message.snapshot", "message.completed", "reasoning.delta", "tool.failed", "run.completed"]
    {
        let payload = json!({ "text": hostile, "name": hostile, "error": hostile, "output": hostile });
        let event = json!({ "type": "message.delta", "span_id": hostile, "text": hostile, "payload": payload });
        let text = shown(&mut view(), &[(kind, event)]);
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{kind}: {text:?}");
    }
    assert!(Event::of(&Frame { id: None, event: "x".to_owned(), data: "no json".to_owned() }).span_id.is_empty());
}
