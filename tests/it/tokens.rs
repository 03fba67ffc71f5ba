//! Tokens: streamed live, never stored, and joined late without a loss.

mod processes;

use runreel::domain::limits::{OPEN_OWN_BYTES_MAX, OPEN_SPAN_BYTES, OPEN_SPANS_MAX};
use serde_json::json;

use crate::support::{
    api::{Api, stream_of},
    runs::token,
    server::{Server, setup},
    shared::shared,
    sse::{Frame, names},
    until,
};

const ROWS: &str = "select count(*) from store.run_event";

/// Puts a message together from a snapshot and the deltas after it, checking that they fit.
fn text_of(frames: &[Frame], span: &str) -> String {
    let (mut text, mut chars) = (String::new(), 0);
    for frame in frames {
        let data = frame.json();
        if data["span_id"] != span {
            continue;
        }
        match frame.event.as_str() {
            "message.snapshot" => {
                assert_eq!(frame.id, None);
                text = String::from(data["text"].as_str().unwrap());
                chars = text.chars().count();
                assert_eq!(data["offset"], chars);
            }
            "message.delta" => {
                assert_eq!(frame.id, None, "an ephemeral frame has no id");
                assert_eq!(data["payload"]["offset"], chars, "the delta follows what came before");
                assert!(data["seq"].is_null());
                let piece = data["payload"]["text"].as_str().unwrap();
                text.push_str(piece);
                chars += piece.chars().count();
            }
            "message.completed" => {
                let whole = data["payload"]["text"].as_str().unwrap();
                // Whoever joined after the end has not seen a piece of it.
                assert!(text.is_empty() || text == whole, "{text}");
                text = String::from(whole);
            }
            _ => {}
        }
    }
    text
}

#[tokio::test]
async fn a_late_joiner_gets_the_text_so_far_and_then_exactly_what_follows() {
    let server = Server::start().await;
    let run = server.start_run().await;
    server.emit(&run, json!([token("m", "Héllo "), token("m", "😀 ")])).await;
    let mut late = server.stream(&stream_of(&run)).await;
    let past = late.until("message.snapshot").await;
    assert_eq!(names(&past), ["run.created", "run.started", "stream.caught_up", "message.snapshot"]);
    let snapshot = past[3].json();
    assert_eq!(
        (&snapshot["span_id"], &snapshot["text"], &snapshot["offset"]),
        (&json!("m"), &json!("Héllo 😀 "), &json!(8))
    );
    server.emit(&run, token("m", "world")).await;
    let delta = late.next().await;
    assert_eq!(delta.json()["payload"], json!({ "text": "world", "offset": 8 }));
    server
        .emit(&run, json!({ "type": "message.completed", "span_id": "m", "payload": { "text": "Héllo 😀 world" } }))
        .await;
    assert_eq!(late.next().await.event, "message.completed");
    assert_eq!(server.db.number(ROWS).await, 3);
    let mut later = server.stream(&stream_of(&run)).await;
    later.caught_up().await;
    server.complete(&run).await;
    assert_eq!(names(&later.rest().await), ["run.completed", "stream.end"], "a closed message has no snapshot");
}

#[tokio::test]
async fn joiners_at_any_moment_of_a_message_put_the_same_text_together() {
    let server = Server::start().await;
    let run = server.start_run().await;
    let piece = |n: usize| format!("{n}é ");
    let whole: String = (0..300).map(piece).collect();
    let written = std::sync::atomic::AtomicUsize::new(0);
    let writer = async {
        for n in 0..300 {
            server.emit(&run, token("m", &piece(n))).await;
            if n % 50 == 0 {
                server.emit(&run, json!({ "type": "log.info", "payload": { "n": n } })).await;
            }
            written.store(n, std::sync::atomic::Ordering::SeqCst);
        }
        let end = json!({ "type": "message.completed", "span_id": "m", "payload": { "text": whole } });
        server.emit(&run, json!([end, { "type": "run.completed" }])).await;
    };
    let reader = async |from: usize| {
        until("the message to be this far", || async { written.load(std::sync::atomic::Ordering::SeqCst) >= from })
            .await;
        let frames = server.stream(&stream_of(&run)).await.rest().await;
        assert_eq!(text_of(&frames, "m"), whole, "joined at {from}");
        assert!(frames.iter().filter(|frame| frame.event == "message.snapshot").count() <= 1);
    };
    let readers = futures::future::join_all([0, 1, 20, 60, 99, 100, 150, 199, 250, 290].map(reader));
    tokio::join!(writer, readers);
    assert_eq!(server.db.number(ROWS).await, 2 + 6 + 2);
}

#[tokio::test]
async fn tokens_can_be_left_out() {
    let server = shared().await;
    let run = server.start_run().await;
    server.emit(&run, token("m", "so far")).await;
    let mut quiet = server.stream(&format!("{}?tokens=false", stream_of(&run))).await;
    let mut other = server.stream(&format!("{}?types=tool.*", stream_of(&run))).await;
    assert_eq!(quiet.caught_up().await, 2);
    assert_eq!(other.caught_up().await, 0);
    server.emit(&run, json!([token("m", " more"), { "type": "message.completed", "span_id": "m" }])).await;
    server.emit(&run, json!({ "type": "tool.delta", "span_id": "t", "payload": { "text": "out" } })).await;
    server.complete(&run).await;
    assert_eq!(names(&quiet.rest().await), ["message.completed", "run.completed", "stream.end"]);
    let other = other.rest().await;
    let expected = ["tool.delta", "stream.end"];
    assert_eq!(
        names(&other).iter().filter(|name| **name != "message.snapshot").collect::<Vec<_>>(),
        expected.iter().collect::<Vec<_>>()
    );
    assert_eq!(names(&other), expected, "a filter that leaves messages out leaves their texts out");
}

#[tokio::test]
async fn every_open_span_of_a_run_has_its_own_text() {
    let server = shared().await;
    let (run, other) = (server.start_run().await, server.start_run().await);
    for (kind, span, text) in [
        ("message.delta", "m", "message"),
        ("reasoning.delta", "r", "thoughts"),
        ("tool.delta", "t", "output"),
        ("custom.delta", "c", "mine"),
    ] {
        server.emit(&run, json!({ "type": kind, "span_id": span, "payload": { "text": text } })).await;
    }
    server.emit(&other, token("m", "another run's")).await;
    server.emit(&run, json!({ "type": "tool.failed", "span_id": "t" })).await;
    let mut stream = server.stream(&stream_of(&run)).await;
    stream.caught_up().await;
    let mut texts = Vec::new();
    for _ in 0..3 {
        let frame = stream.next().await;
        assert_eq!(frame.event, "message.snapshot");
        let data = frame.json();
        texts.push((data["span_id"].clone(), data["type"].clone(), data["text"].clone()));
    }
    texts.sort_by_key(|(span, ..)| span.to_string());
    let text = |span: &str, kind: &str, text: &str| (json!(span), json!(kind), json!(text));
    let expected = [
        text("c", "custom.delta", "mine"),
        text("m", "message.delta", "message"),
        text("r", "reasoning.delta", "thoughts"),
    ];
    assert_eq!(texts, expected);
    server.complete(&run).await;
    assert_eq!(names(&stream.rest().await), ["run.completed", "stream.end"]);
}

#[tokio::test]
async fn a_text_longer_than_a_chunk_arrives_whole_and_to_the_letter() {
    let server = shared().await;
    let run = server.start_run().await;
    let piece = "q\"\\ \u{1}\u{7f}\u{2028}é😀\n".repeat(1_000);
    for _ in 0..20 {
        server.emit(&run, json!([token("a \"text\":\"", &piece), token("b", &piece)])).await;
    }
    let mut stream = server.stream(&stream_of(&run)).await;
    stream.caught_up().await;
    let snapshots = [stream.next().await, stream.next().await];
    server.emit(&run, token("b", "x")).await;
    assert_eq!(stream.next().await.json()["payload"]["offset"], 20 * piece.chars().count());
    for (snapshot, span) in snapshots.iter().zip(["a \"text\":\"", "b"]) {
        let whole = json!({
            "agent": null, "offset": 20 * piece.chars().count(), "role": "agent", "run_id": run, "span_id": span,
            "text": piece.repeat(20), "type": "message.delta",
        });
        let whole = whole.to_string();
        assert!(snapshot.event == "message.snapshot" && snapshot.data == whole, "{span}");
    }
}

#[tokio::test]
async fn nobody_is_shown_the_open_text_of_another_owner() {
    let server = shared().await;
    let (alice, bob) = (server.as_subject("alice"), server.as_subject("bob"));
    let feeds = ["/api/stream/runs", "/api/stream/threads/t"];
    let mut owned = Vec::new();
    for api in [&alice, &bob] {
        let run = api.create(json!({ "thread_id": "t" })).await;
        api.emit(&run, token("m", "a secret")).await;
        owned.push((api, run));
    }
    for (api, own) in &owned {
        for feed in feeds {
            let mut stream = api.stream(feed).await;
            stream.caught_up().await;
            api.emit(own, json!({ "type": "log.info" })).await;
            let frames = stream.until("log.info").await;
            assert_eq!(names(&frames), ["message.snapshot", "log.info"], "{feed}");
            assert_eq!(frames[0].json()["run_id"], **own, "{feed}");
        }
    }
}

#[tokio::test]
async fn who_streams_more_than_its_bound_forgets_its_own_quietest_run_and_nobody_elses() {
    const RUNS: usize = OPEN_OWN_BYTES_MAX / (OPEN_SPANS_MAX * OPEN_SPAN_BYTES) + 1;
    let server = setup().jwt().start().await;
    let (alice, bob) = (server.as_subject("alice"), server.as_subject("bob"));
    let other = bob.start_run().await;
    bob.emit(&other, token("m", "before all of them")).await;
    let spans: Vec<_> = (0..OPEN_SPANS_MAX).map(|n| token(&n.to_string(), "x")).collect();
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        runs.push(alice.start_run().await);
        alice.emit(&runs[runs.len() - 1], json!(spans)).await;
    }
    let snapshots = async |api: &Api, run: &str| {
        let mut stream = api.stream(&stream_of(run)).await;
        stream.caught_up().await;
        api.complete(run).await;
        let rest = stream.rest().await;
        rest.iter().filter(|frame| frame.event == "message.snapshot").count()
    };
    assert_eq!(snapshots(&alice, &runs[0]).await, 0);
    assert_eq!(snapshots(&alice, &runs[RUNS - 1]).await, OPEN_SPANS_MAX);
    assert_eq!(snapshots(&bob, &other).await, 1);
}
