//! Joining readers: what they get is bounded, at a cost linear in what there is to read.

use std::sync::Arc;

use chrono::DateTime;
use tokio::time::Instant;

use super::*;
use crate::{
    bus::Frame,
    domain::{
        context::{Role, RunContext},
        event::{EventKind, EventType, NewEvent, Recorded},
        history::Tag,
        id::Seq,
        limits::{AGUI_HISTORY_MESSAGES_MAX, AGUI_JOIN_STEPS, AGUI_KEPT_BYTES_MAX, LIVE_TEXTS_MAX},
        principal::OwnerId,
        splice::LogPosition,
    },
    faces::{
        Encoder as _,
        conversation::{Conversation, Shown},
        position::WHOLE,
    },
    quota::Quota,
    timeline::follow::StreamItem,
};

fn run() -> RunId {
    "0198c0de-0000-7000-8000-000000000001".parse().unwrap()
}

fn frames(events: impl IntoIterator<Item = NewEvent>) -> Vec<Arc<Frame>> {
    let context = Arc::new(RunContext {
        run_id: run(),
        root_run_id: run(),
        parent_run_id: None,
        owner_id: OwnerId::trusted("o"),
        thread_id: None,
        session_id: None,
        role: Role::Agent,
        agent: None,
        origin: None,
        trace_id: None,
    });
    let frame = |(seq, event)| {
        let seq = Seq::new(seq).unwrap();
        let recorded = Recorded::stamp(&context, event, Some(seq), DateTime::UNIX_EPOCH);
        let place = LogPosition { seq, lane: 0, position: seq.get() };
        Arc::new(Frame::new(Arc::clone(&context), &recorded, Some(place), Tag::FIRST))
    };
    (1..).zip(events).map(frame).collect()
}

fn event(kind: &str, span: &str, payload: &Value) -> NewEvent {
    NewEvent::new(EventType::trusted(kind), Json::of(payload)).span(SpanId::trusted(span))
}

/// A joining reader, and the quota of its memory.
fn joining(input: Option<&Value>) -> (Conversation<AgUi>, Quota) {
    let steps = usize::try_from(AGUI_JOIN_STEPS).unwrap();
    let room = Quota::new(steps, steps);
    let mut earlier = Earlier::new(run(), room.try_take(&OwnerId::trusted("o"), AGUI_JOIN_STEPS).unwrap());
    if let Some(input) = input {
        earlier.asked(Json::of(input).slice());
    }
    let names = Names { thread_id: "t".into(), run_id: "r".into(), run: run() };
    let shown = Shown { texts_max: LIVE_TEXTS_MAX, reasoning: true, announcements: true };
    let at = Position { sub: WHOLE, ..Position::default() };
    (Conversation::new(AgUi::joining(names, earlier), at, shown, 1).joining(), room)
}

/// The events that it gets on joining.
fn prelude(reader: &mut Conversation<AgUi>, frames: &[Arc<Frame>]) -> Vec<Value> {
    reader.take(frames.iter().cloned().map(StreamItem::Frame).collect());
    assert_eq!(reader.chunk(), None, "nothing before all of it was read");
    reader.take(vec![StreamItem::CaughtUp { last_seq: None, cursor: None }]);
    let chunk = reader.chunk().unwrap();
    let text = std::str::from_utf8(&chunk).unwrap();
    text.lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|event| serde_json::from_str(event).unwrap())
        .collect()
}

fn messages(events: &[Value]) -> &Vec<Value> {
    events.iter().find(|event| event["type"] == "MESSAGES_SNAPSHOT").unwrap()["messages"].as_array().unwrap()
}

/// Users' messages that are also in the input, in another order; messages with calls and results; activities.
fn busy(count: usize) -> (Value, Vec<Arc<Frame>>) {
    let asked = |n: usize| json!({"id": format!("u{n}"), "role": "user", "content": format!("question {n}")});
    let input = json!({"messages": (0..count).map(asked).collect::<Vec<_>>()});
    let events = (0..count).flat_map(|n| {
        let (message, call) = (format!("m{n}"), format!("c{n}"));
        [
            event(
                "message.completed",
                &format!("q{n}"),
                &json!({"role": "user", "content": format!("question {}", count - 1 - n)}),
            ),
            event("message.completed", &message, &json!({"content": "I look.", "tool_calls": [{"id": call}]})),
            event("tool.started", &call, &json!({"tool_call_id": call, "name": "look", "args": {}, "client": true})),
            event(
                "agui.activity_snapshot",
                "a",
                &json!({"message_id": format!("a{n}"), "activity_type": "x", "content": {}}),
            ),
        ]
    });
    let results = (0..count).map(|n| event("tool.completed", &format!("c{n}"), &json!({"result": n})));
    (input, frames(events.chain(results)))
}

/// Tests that compare times run alone (`unit-alone` in the justfile).
mod alone {
    use super::*;

    #[test]
    fn joining_costs_no_more_than_there_is_to_read() {
        let time = |count: usize| {
            let (input, frames) = busy(count);
            let once = || {
                let (mut reader, _) = joining(Some(&input));
                let began = Instant::now();
                let prelude = prelude(&mut reader, &frames);
                assert_eq!(messages(&prelude).len(), 3 * count);
                began.elapsed()
            };
            (0..3).map(|_| once()).min().unwrap()
        };
        let (few, many) = (time(200), time(3_200));
        // 16 times as many; a quadratic cost would take 256 times as long.
        assert!(many < few * 64, "{few:?}, {many:?}");
    }
}

#[test]
fn what_is_told_of_a_conversation_is_what_was_said() {
    let (input, frames) = busy(2);
    let (mut reader, _) = joining(Some(&input));
    let prelude = prelude(&mut reader, &frames);
    let id = |id: &str| format!("{}/{id}", run());
    let spoken = |n: usize| {
        let call =
            json!({"id": id(&format!("c{n}")), "type": "function", "function": {"name": "look", "arguments": "{}"}});
        json!({"id": id(&format!("m{n}")), "role": "assistant", "content": "I look.", "toolCalls": [call]})
    };
    let result = |n: usize| {
        let call = id(&format!("c{n}"));
        json!({"id": format!("{call}/result"), "role": "tool", "toolCallId": call, "content": n.to_string()})
    };
    let asked = input["messages"].as_array().unwrap();
    assert_eq!(*messages(&prelude), [asked[0].clone(), asked[1].clone(), spoken(0), spoken(1), result(0), result(1)]);
    let activity = |n: usize| json!({"type": "ACTIVITY_SNAPSHOT", "messageId": format!("a{n}"), "activityType": "x", "content": {}});
    assert_eq!(prelude[1..], [activity(0), activity(1)]);
}

#[test]
fn what_changes_of_a_message_that_was_brought_is_told_with_the_rest_of_it() {
    let mut brought = messages::Messages::default();
    let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "look", "arguments": "{}"}});
    let message = json!({"id": "a", "role": "assistant", "content": "I", "toolCalls": [call("c1")], "name": "x"});
    let silent = json!({"id": "b", "role": "assistant", "content": "", "name": "y"});
    brought.bring(run(), Json::of(&json!({"messages": [message, silent, "no message"]})).slice());
    brought.call("c2", "look", "{}", Some("a"));
    brought.text("a", "assistant", "I look.", None);
    brought.call("c3", "look", "{}", Some("b"));
    brought.result("r", "c3", "seen");
    brought.result("r", "c3", "not seen");
    let snapshot: Value = serde_json::from_str(&brought.snapshot()).unwrap();
    let expected = json!([
        {"id": "a", "role": "assistant", "content": "I look.", "toolCalls": [call("c1"), call("c2")], "name": "x"},
        {"id": "b", "role": "assistant", "content": "", "name": "y", "toolCalls": [call("c3")]},
        {"id": "r", "role": "tool", "toolCallId": "c3", "content": "not seen"},
    ]);
    assert_eq!(snapshot, json!({"type": "MESSAGES_SNAPSHOT", "messages": expected}));
}

#[test]
fn an_input_or_a_run_of_any_length_is_told_within_the_bounds() {
    let asked = json!({"messages": vec![json!({"role": "assistant", "content": "x"}); AGUI_HISTORY_MESSAGES_MAX + 5]});
    let text = "x".repeat(1_000);
    let delta = |n: usize| {
        event("agui.state_delta", "s", &json!({"delta": [{"op": "add", "path": format!("/{n}"), "value": text}]}))
    };
    let activity = |n: usize| {
        let payload = json!({"message_id": n.to_string(), "activity_type": "x", "content": {"text": text}});
        event("agui.activity_snapshot", "a", &payload)
    };
    let count = 2 * AGUI_KEPT_BYTES_MAX / text.len();
    let many = frames((0..count).map(delta).chain((0..count).map(activity)));
    let (mut reader, _) = joining(Some(&asked));
    let bounded = prelude(&mut reader, &many);
    assert_eq!(bounded[0]["type"], "MESSAGES_SNAPSHOT", "a state that is too large is not told");
    let listed = messages(&bounded);
    assert_eq!(listed.len(), AGUI_HISTORY_MESSAGES_MAX);
    assert_eq!(listed[0]["id"], format!("{}/input.5", run()));
    let activities = &bounded[1..];
    assert!((count / 3..count).contains(&activities.len()), "{}", activities.len());
    assert_eq!(activities.last().unwrap()["messageId"], (count - 1).to_string());
    // Another snapshot resets the state.
    let snapshot = event("agui.state_snapshot", "s", &json!({"snapshot": {"n": 1}}));
    let again = frames((0..count).map(delta).chain([snapshot, delta(1)]));
    let reset = prelude(&mut joining(None).0, &again);
    let kinds: Vec<_> = reset.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["STATE_SNAPSHOT", "STATE_DELTA", "MESSAGES_SNAPSHOT"]);
}

#[test]
fn the_room_of_one_that_joins_is_free_when_it_was_told() {
    let (input, frames) = busy(500);
    let (mut reader, room) = joining(Some(&input));
    let take = |steps| room.try_take(&OwnerId::trusted("o"), steps).map(drop);
    assert!(take(1).is_err());
    prelude(&mut reader, &frames);
    assert!(take(AGUI_JOIN_STEPS / 2).is_ok(), "what it was told takes less");
    assert!(take(AGUI_JOIN_STEPS).is_err());
    assert_eq!(reader.chunk(), None);
    assert!(take(AGUI_JOIN_STEPS).is_ok());
}

#[test]
fn open_calls_and_questions_are_bounded() {
    let calls = (0..2_000).map(|n| {
        let call = format!("c{n}-{}", "x".repeat(1_000));
        event("tool.started", "c", &json!({"tool_call_id": call, "name": "look", "client": true}))
    });
    let asked =
        (0..100).map(|n| event("interrupt.requested", &format!("i{n}"), &json!({"prompt": "x".repeat(60_000)})));
    let end = NewEvent::new(EventKind::RunInterrupted, Json::empty());
    let (mut reader, _) = joining(None);
    let prelude = prelude(&mut reader, &frames(calls.chain(asked).chain([end])));
    let finished = prelude.last().unwrap();
    let interrupts = finished["outcome"]["interrupts"].as_array().unwrap();
    assert_eq!((interrupts.len(), &interrupts[63]["id"]), (64, &json!("i63")));
    assert!(finished.to_string().len() < 1_100_000);
}

#[test]
fn a_payload_does_not_say_what_the_event_is_or_when_it_happened() {
    let payload =
        json!({"type": "RUN_FINISHED", "type_": 1, "timestamp": 1, "snapshot": {"type": "x"}, "raw_event": 2});
    let renamed = history::renamed("state_snapshot", Json::of(&payload).slice());
    assert_eq!(renamed, Some(json!({"type": "STATE_SNAPSHOT", "snapshot": {"type": "x"}, "rawEvent": 2})));
}
