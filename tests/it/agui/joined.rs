//! A run that is joined in the middle, left and found again.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Client, Said, Stream, kinds, request, user};
use crate::support::{api::Api, runs::token, shared::shared, until};

/// A run whose producer is this test, and its id.
async fn begun(server: &Api, name: &str) -> (Stream, String) {
    let stream = Stream::post(server, "elsewhere", &request("t", name, &[user("u1", "go")])).await;
    let run = server.get(&format!("/api/runs/by-external-id/{name}")).await.expect(200);
    let run = run["run_id"].as_str().unwrap().to_owned();
    server.emit(&run, json!({"type": "run.started"})).await;
    (stream, run)
}

fn completed(span: &str, text: &str) -> Value {
    json!({"type": "message.completed", "span_id": span,
           "payload": {"role": "assistant", "content": [{"type": "text", "text": text}]}})
}

#[tokio::test]
async fn one_that_joins_is_told_the_state_the_messages_and_the_open_message_so_far() {
    let server = shared().await;
    let (mut first, run) = begun(&server, "r").await;
    server.emit(&run, json!({"type": "agui.state_snapshot", "payload": {"snapshot": {"n": 1}}})).await;
    server
        .emit(
            &run,
            json!([{"type": "step.started", "span_id": "s", "payload": {"name": "plan"}}, completed("m1", "One.")]),
        )
        .await;
    server.emit(&run, token("m2", "Tw")).await;
    for kind in ["RUN_STARTED", "STATE_SNAPSHOT", "STEP_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT"] {
        first.expect(kind).await;
    }
    for id in ["r", run.as_str()] {
        let mut joined = Stream::join(&server, id, None).await;
        assert_eq!(joined.expect("RUN_STARTED").await.event["runId"], id);
        assert_eq!(joined.expect("STATE_SNAPSHOT").await.event["snapshot"], json!({"n": 1}));
        let messages = joined.expect("MESSAGES_SNAPSHOT").await.event["messages"].clone();
        assert_eq!(messages, json!([user("u1", "go"), {"id": "m1", "role": "assistant", "content": "One."}]));
        joined.expect("STEP_STARTED").await;
        assert_eq!(joined.expect("TEXT_MESSAGE_START").await.event["messageId"], "m2");
        assert_eq!(joined.expect("TEXT_MESSAGE_CONTENT").await.event["delta"], "Tw");
    }
    // The same request again joins as well, and begins nothing.
    let mut joined = Stream::post(&server, "elsewhere", &request("t", "r", &[user("u1", "go")])).await;
    for kind in ["RUN_STARTED", "STATE_SNAPSHOT", "MESSAGES_SNAPSHOT", "STEP_STARTED", "TEXT_MESSAGE_START"] {
        joined.expect(kind).await;
    }
    server.emit(&run, token("m2", "o.")).await;
    server
        .emit(
            &run,
            json!([completed("m2", "Two."), {"type": "step.completed", "span_id": "s", "payload": {"name": "plan"}}]),
        )
        .await;
    server.emit(&run, json!({"type": "run.completed"})).await;
    let mut text = String::new();
    while let Some(said) = joined.next().await {
        text.push_str(said.event["delta"].as_str().unwrap_or_default());
    }
    assert_eq!(text, "Two.");
    assert_eq!(server.get("/api/runs").await.expect(200)["runs"].as_array().unwrap().len(), 1);
    // And when it has ended, one learns that it has.
    let after = Stream::join(&server, "r", None).await.rest().await;
    assert_eq!(kinds(&after), ["RUN_STARTED", "STATE_SNAPSHOT", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]);
    let last = after.last().unwrap().id.clone().unwrap();
    let request = server.request(reqwest::Method::GET, "/api/agui/runs/r").header("last-event-id", last);
    assert_eq!(server.send(request).await.status, 204);
}

/// The run of the following test: some things that happen one after the other.
async fn happens(server: &Api, run: &str, n: usize) {
    let events = match n {
        0 => json!([{"type": "run.started"}, {"type": "step.started", "span_id": "s", "payload": {"name": "plan"}}]),
        1 => json!({"type": "reasoning.delta", "span_id": "th", "payload": {"text": "Hm, "}}),
        2 => token("m1", "Hé"),
        3 => json!({"type": "reasoning.delta", "span_id": "th", "payload": {"text": "so."}}),
        4 => token("m1", "llo"),
        5 => json!({"type": "log.info", "payload": {"message": "between"}}),
        6 => token("m1", " wör"),
        7 => json!([{"type": "reasoning.completed", "span_id": "th", "payload": {"text": "Hm, so."}},
                    completed("m1", "Héllo wörld 🐘"),
                    {"type": "tool.started", "span_id": "c", "parent_span_id": "m1",
                     "payload": {"tool_call_id": "c", "name": "look", "args": {"at": "it"}}}]),
        8 => {
            json!([{"type": "tool.completed", "span_id": "c", "payload": {"tool_call_id": "c", "name": "look", "result": "seen"}},
                    {"type": "agui.state_snapshot", "payload": {"snapshot": {"seen": true}}}])
        }
        9 => token("m2", "Done"),
        _ => json!([completed("m2", "Done."), {"type": "step.completed", "span_id": "s", "payload": {"name": "plan"}},
                    {"type": "run.completed", "payload": {"output": "ok"}}]),
    };
    server.emit(run, events).await;
}

const HAPPENINGS: usize = 11;

/// What a reader has put together: each text, and everything else it was told, in no order.
fn fold<'a>(said: impl IntoIterator<Item = &'a Said>) -> (BTreeMap<String, String>, Vec<String>) {
    let (mut texts, mut rest): (BTreeMap<String, String>, Vec<String>) = Default::default();
    for Said { event, .. } in said {
        if let Some(delta) = event["delta"].as_str().filter(|_| event["messageId"].is_string()) {
            texts.entry(event["messageId"].as_str().unwrap().to_owned()).or_default().push_str(delta);
        } else {
            let mut event = event.clone();
            // Other runs have other ids and times.
            for member in ["runId", "timestamp"] {
                event.as_object_mut().unwrap().remove(member);
            }
            rest.push(event.to_string());
        }
    }
    rest.sort();
    (texts, rest)
}

#[tokio::test]
async fn a_reader_that_is_cut_off_at_any_event_and_comes_back_at_any_time_is_told_the_rest() {
    let server = shared().await;
    // What one that was never cut off has, each with what had happened by then.
    let mut whole: Vec<(Said, usize)> = Vec::new();
    let mut stream = Stream::post(&server, "elsewhere", &request("t", "whole", &[])).await;
    let run = server.get("/api/runs/by-external-id/whole").await.expect(200)["run_id"].as_str().unwrap().to_owned();
    for (n, count) in [2, 3, 2, 1, 1, 1, 1, 7, 2, 2, 4].into_iter().enumerate() {
        happens(&server, &run, n).await;
        for _ in 0..count {
            whole.push((stream.next().await.unwrap_or_else(|| panic!("it ended at {n}")), n));
        }
    }
    assert!(stream.next().await.is_none(), "{whole:?}");
    let expected = fold(whole.iter().map(|(said, _)| said));
    assert_eq!(expected.0["m1"], "Héllo wörld 🐘");
    // Another run for each place, at which the reader leaves; it comes back when more has happened.
    let mut places = 0;
    for (at, (said, n)) in whole.iter().enumerate().filter(|(_, (said, _))| said.id.is_some()) {
        for (time, later) in [*n, (*n + 2).min(HAPPENINGS - 1), HAPPENINGS - 1].into_iter().enumerate() {
            let name = format!("cut-{at}-{time}");
            drop(Stream::post(&server, "elsewhere", &request("t", &name, &[])).await);
            let run = server.get(&format!("/api/runs/by-external-id/{name}")).await.expect(200)["run_id"].clone();
            let run = run.as_str().unwrap();
            for n in 0..=later {
                happens(&server, run, n).await;
            }
            let mut had: Vec<Said> = whole[..=at].iter().map(|(said, _)| said.clone()).collect();
            if at + 1 < whole.len() {
                let back = Stream::join(&server, &name, said.id.as_deref()).await;
                for n in later + 1..HAPPENINGS {
                    happens(&server, run, n).await;
                }
                had.extend(back.rest().await);
            }
            assert_eq!(fold(&had), expected, "{name} after {:?}", said.id);
            places += 1;
        }
    }
    assert!(places >= 20 * 3, "{places}");
}

#[tokio::test]
async fn the_client_cut_off_twenty_times_has_the_same_messages() {
    let server = shared().await;
    let mut client = Client::start().await;
    let mut whole = None;
    for cut in 0..=20 {
        let name = format!("run-{cut}");
        // Every connection but the last is cut after so many bytes.
        let cuts: Vec<usize> = if cut == 0 { Vec::new() } else { vec![cut * 61, cut * 97, cut * 131] };
        let order =
            json!({"agent": "elsewhere", "threadId": "t", "runId": name, "messages": [user("u1", "go")], "cut": cuts});
        client.order(&server, order).await;
        let path = format!("/api/runs/by-external-id/{name}");
        until("the client's run", || async { server.get(&path).await.status == 200 }).await;
        let run = server.get(&path).await.expect(200)["run_id"].as_str().unwrap().to_owned();
        for n in 0..HAPPENINGS {
            happens(&server, &run, n).await;
        }
        let result = client.result().await;
        assert_eq!(result["error"], Value::Null, "{name}: {result}");
        let had = json!([by_id(&result["messages"]), result["state"]]);
        assert_eq!(&had, whole.get_or_insert_with(|| had.clone()), "{name}: {result}");
    }
}

/// A text that was caught up with may come before one that was not: messages by their ids.
fn by_id(messages: &Value) -> BTreeMap<String, Value> {
    let id = |message: &Value| (message["id"].as_str().unwrap().to_owned(), message.clone());
    messages.as_array().unwrap().iter().map(id).collect()
}

#[tokio::test]
async fn a_run_is_nobody_elses() {
    let server = shared().await;
    let (alice, bob) = (server.as_subject("alice"), server.as_subject("bob"));
    let (_, run) = begun(&alice, "r").await;
    for id in ["r", run.as_str(), "none", "../x"] {
        bob.get(&format!("/api/agui/runs/{}", id.replace('/', "%2F"))).await.refused(404, "not_found");
    }
    // The same names are another run's.
    let (_, other) = begun(&bob, "r").await;
    assert_ne!(run, other);
}

#[tokio::test]
async fn a_position_that_is_none_of_this_run_is_refused() {
    let server = shared().await;
    let (_, _) = begun(&server, "r").await;
    for (last, status, code) in [
        ("x", 400, "invalid_cursor"),
        ("7~0", 400, "invalid_cursor"),
        ("99", 409, "cursor_ahead"),
        ("99~3", 409, "cursor_ahead"),
    ] {
        let request = server.request(reqwest::Method::GET, "/api/agui/runs/r").header("last-event-id", last);
        server.send(request).await.refused(status, code);
    }
}
