//! What is refused is refused whole, with a reason, and changes nothing.

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::support::{
    api::{Api, Reply, stream_of},
    runs::{assert_contiguous, numbered, seqs, token},
    shared::shared,
    sse::envelopes,
};

/// Sends what must be refused and sees that nothing changed.
async fn check(server: &Api, run: &str, body: impl Into<reqwest::Body>, status: u16, code: &str) -> Value {
    let before = server.run(run).await;
    let reply = server.emit_text(run, body).await;
    let problem = reply.refused(status, code);
    assert_eq!(server.run(run).await, before);
    problem
}

#[tokio::test]
async fn one_bad_event_refuses_its_whole_batch() {
    let server = shared().await;
    let run = server.start_run().await;
    let bad = json!([numbered(1), { "type": "Nope" }, numbered(2)]);
    let problem = check(&server, &run, bad.to_string(), 400, "invalid_event").await;
    assert_eq!(problem["field"], "events[1].type");
    let bad = json!([numbered(1), { "type": "run.completed" }, numbered(2)]);
    check(&server, &run, bad.to_string(), 409, "run_ended").await;
    let bad = json!([token("m", "x"), numbered(1), { "type": "run.resumed" }]);
    check(&server, &run, bad.to_string(), 409, "invalid_transition").await;
    let path = format!("/api/runs/{run}/events");
    let reply =
        server.post_text(&path, "application/x-ndjson", "{\"type\":\"log.info\"}\n{\"type\":\"log.info\"").await;
    assert!(reply.refused(400, "invalid_event")["detail"].as_str().unwrap().contains("line 2"));
    assert_contiguous(&server.events(&run).await, 2);
}

#[tokio::test]
async fn an_event_says_which_of_its_members_is_wrong() {
    let server = shared().await;
    let run = server.start_run().await;
    let long = "x".repeat(129);
    for (field, value) in [
        ("type", json!("nodot")),
        ("type", json!("x".repeat(97) + ".y")),
        ("type", json!("a.b\n")),
        ("type", json!("")),
        ("type", json!("tool.exploded")),
        ("type", json!("stream.end")),
        ("type", json!("stream.delta")),
        ("type", json!("run.created")),
        ("type", json!("interrupt.resolved")),
        ("type", json!("artifact.created")),
        ("span_id", json!("")),
        ("span_id", json!(long)),
        ("span_id", json!("a\u{1b}[2J")),
        ("parent_span_id", json!("a\nb")),
        ("event_id", json!("a\u{85}b")),
        ("event_id", json!(long)),
        ("at", json!("0000-01-01T00:00:00Z")),
    ] {
        let mut event = json!({ "type": "log.info" });
        event[field] = value;
        let problem = check(&server, &run, event.to_string(), 400, "invalid_event").await;
        assert_eq!(problem["field"], format!("events[0].{field}"), "{event}");
    }
    for body in [
        "",
        "{",
        "[]",
        "null",
        "1",
        "\"x\"",
        "[[]]",
        "[null]",
        "{}",
        "{\"type\":1}",
        "{\"type\":\"a.b\",\"seq\":1}",
        "{\"type\":\"a.b\",\"type\":\"a.c\"}",
        "{\"type\":\"a.b\",\"payload\":{\"a\":01}}",
        "{\"type\":\"a.b\",}",
        "\u{feff}{\"type\":\"a.b\"}",
        "{\"type\":\"a.b\"}{\"type\":\"a.b\"}",
        "{\"type\":\"a.b\",\"payload\":NaN}",
        "{\"type\":\"a.b\",\"payload\":\"\u{1}\"}",
        "{\"type\":\"a.b\",\"payload\":\"\n\"}",
    ] {
        check(&server, &run, body, 400, "invalid_event").await;
    }
    check(&server, &run, b"{\"type\":\"a.b\",\"payload\":\"\xff\"}".to_vec(), 400, "invalid_event").await;
    assert_contiguous(&server.events(&run).await, 2);
}

#[tokio::test]
async fn what_no_reader_could_carry_is_refused() {
    let server = shared().await;
    let run = server.start_run().await;
    for payload in [
        r#""\u0000""#,
        r#"{"\u0000":1}"#,
        r#"{"a":["\ud800"]}"#,
        r#""\udc00\ud800""#,
        r#""\ud83dx""#,
        &format!("{}{}", "[".repeat(65), "]".repeat(65)),
        &format!("{}1{}", "{\"a\":".repeat(65), "}".repeat(65)),
        &format!("{}{}", "[".repeat(60_000), "]".repeat(60_000)),
    ] {
        check(&server, &run, format!("{{\"type\":\"a.b\",\"payload\":{payload}}}"), 400, "invalid_event").await;
    }
    for (field, value) in [("span_id", r#""\u0000""#), ("event_id", r#""\ud800""#), ("type", r#""a.\u0000b""#)] {
        let body =
            format!("{{\"type\":\"a.b\",\"{field}\":{value}}}").replacen("\"type\":\"a.b\",\"type\"", "\"type\"", 1);
        check(&server, &run, body, 400, "invalid_event").await;
    }
    let deepest = format!("{{\"type\":\"a.b\",\"payload\":{}{}}}", "[".repeat(64), "]".repeat(64));
    server.emit_text(&run, deepest).await.expect(200);
}

#[tokio::test]
async fn whoever_goes_over_a_bound_is_told_so() {
    let server = shared().await;
    let run = server.start_run().await;
    let payload = |bytes: usize| format!("{{\"type\":\"a.b\",\"payload\":\"{}\"}}", "x".repeat(bytes - 2));
    server.emit_text(&run, payload(64 * 1024)).await.expect(200);
    let delta = json!({ "type": "message.delta", "span_id": "s", "payload": { "text": "x".repeat(64 * 1024) } });
    let problem = check(&server, &run, delta.to_string(), 413, "too_large").await;
    assert_eq!(problem["field"], "events[0].payload");
    let events = |count: usize| format!("[{}]", vec![r#"{"type":"a.b"}"#; count].join(","));
    check(&server, &run, events(5_001), 413, "too_large").await;
    assert_eq!(server.emit_text(&run, events(5_000)).await.expect(200)["last_seq"], 5_003);
    let spaces = |bytes: usize| format!("{}{}", " ".repeat(bytes - 14), r#"{"type":"a.b"}"#);
    server.emit_text(&run, spaces(8 * 1024 * 1024)).await.expect(200);
    check(&server, &run, spaces(8 * 1024 * 1024 + 1), 413, "too_large").await;
    let text = "x".repeat(60_000);
    for _ in 0..17 {
        server.emit(&run, token("long", &text)).await;
    }
    check(&server, &run, token("long", &text).to_string(), 413, "too_large").await;
    // Another span is not touched by that.
    server.emit(&run, token("short", "x")).await;
    let spans: Vec<Value> = (0..300).map(|n| token(&format!("s{n}"), "x")).collect();
    check(&server, &run, json!(spans).to_string(), 413, "too_large").await;
}

#[tokio::test]
async fn an_event_carries_its_runs_identity_and_no_other() {
    let server = shared().await;
    let run = server.create(json!({ "role": "worker", "agent": "w1" })).await;
    for event in [
        json!({ "type": "log.info", "role": "supervisor" }),
        json!({ "type": "log.info", "role": "Worker" }),
        json!({ "type": "log.info", "agent": "w2" }),
        json!([{ "type": "log.info" }, { "type": "log.info", "agent": "" }]),
    ] {
        check(&server, &run, event.to_string(), 400, "role_mismatch").await;
    }
    server
        .emit(&run, json!({ "type": "log.info", "role": "worker", "agent": "w1", "payload": { "role": "root" } }))
        .await;
    let event = crate::support::runs::parsed(&server.events(&run).await.pop().unwrap());
    assert_eq!((&event["role"], &event["agent"]), (&json!("worker"), &json!("w1")));
}

#[tokio::test]
async fn nothing_follows_the_end_of_a_run() {
    let server = shared().await;
    for end in ["run.completed", "run.failed", "run.cancelled"] {
        let run = server.start_run().await;
        server.emit(&run, json!({ "type": end })).await;
        for next in ["log.info", "run.completed", "run.cancelled", "run.started"] {
            check(&server, &run, json!({ "type": next }).to_string(), 409, "run_ended").await;
        }
        check(&server, &run, token("m", "late").to_string(), 409, "run_ended").await;
        assert_contiguous(&server.events(&run).await, 3);
    }
    let waiting = server.start_run().await;
    server.emit(&waiting, json!({ "type": "run.waiting" })).await;
    for wrong in ["run.completed", "run.waiting", "run.started", "run.interrupted"] {
        check(&server, &waiting, json!({ "type": wrong }).to_string(), 409, "invalid_transition").await;
    }
}

#[tokio::test]
async fn a_delta_needs_a_span_and_a_text() {
    let server = shared().await;
    let run = server.start_run().await;
    for event in [
        json!({ "type": "message.delta", "payload": { "text": "x" } }),
        json!({ "type": "message.delta", "span_id": "m" }),
        json!({ "type": "message.delta", "span_id": "m", "payload": { "text": 1 } }),
        json!({ "type": "tool.delta", "span_id": "m", "payload": "x" }),
        json!({ "type": "custom.delta", "span_id": "m", "payload": { "t": "x" } }),
    ] {
        check(&server, &run, event.to_string(), 400, "invalid_event").await;
    }
    let ack = server.emit(&run, token("m", "x")).await;
    assert_eq!(
        ack,
        json!({ "first_seq": null, "last_seq": null, "events": [{ "seq": null, "event_id": null, "duplicate": false }] })
    );
}

#[tokio::test]
async fn a_body_must_say_what_it_is() {
    let server = shared().await;
    let run = server.start_run().await;
    let path = format!("/api/runs/{run}/events");
    for media_type in ["text/plain", "application/xml", "multipart/form-data", "", "json"] {
        server.post_text(&path, media_type, numbered(1).to_string()).await.refused(415, "unsupported_media_type");
    }
    let bare = server.request(reqwest::Method::POST, &path).body(numbered(1).to_string());
    server.send(bare).await.refused(415, "unsupported_media_type");
    server.send(server.request(reqwest::Method::PUT, &path)).await.refused(405, "method_not_allowed");
    assert_contiguous(&server.events(&run).await, 2);
}

#[tokio::test]
async fn an_absent_run_takes_nothing() {
    let server = shared().await;
    let absent = crate::support::runs::new_run_id();
    for id in [absent.as_str(), "x", "..", "%00", "0198c0de-0000-4000-8000-000000000001", "%F0%9F%98%80", "' or 1=1 --"]
    {
        server.try_emit(id, numbered(1)).await.refused(404, "not_found");
        server.get(&format!("/api/runs/{id}")).await.refused(404, "not_found");
        server.no_stream(&format!("/api/stream/runs/{id}"), None).await.refused(404, "not_found");
    }
}

/// Strings that have broken other programs.
const NAUGHTY: &[&str] = &[
    "",
    " ",
    "undefined",
    "null",
    "NaN",
    "0",
    "-1",
    "1e1000",
    "../../etc/passwd",
    "' or 1=1 --",
    "\"; drop table x;--",
    "%s%n",
    "{{7*7}}",
    "${jndi:ldap://x}",
    "<script>alert(1)</script>",
    "\u{202e}txet",
    "\u{feff}",
    "\u{200b}",
    "Ω≈ç√∫˜µ≤≥÷",
    "社會科學院",
    "👩‍👩‍👧‍👦 🏳️‍🌈",
    "Z̮̞̠͙͔ͅA̷̙LGO",
    "a\u{300}",
    "\u{2028}",
    "\u{2029}",
    "\u{85}",
    "\u{0}",
    "\u{1}",
    "\u{7f}",
    "\t",
    "\n",
    "\r\n",
    "\u{b}",
    "\u{1b}[31m",
    "\\",
    "\"",
    "'",
    "`",
    "\u{fffd}",
    "\u{ffff}",
    "\u{10ffff}",
    "ﷺ",
    "İıŞş",
    "data: x\n\n",
    "id: 5",
    ":",
    "event: stream.end\ndata: {}",
    "$1",
    "E'\\x00'",
    "\\u0000",
    "\\x00",
    "%00",
    "CON",
    ".",
];

#[tokio::test]
async fn a_naughty_string_is_refused_or_comes_back_exactly_and_kills_no_reader() {
    let server = shared().await;
    let run = server.start_run().await;
    let mut live = server.stream(&stream_of(&run)).await;
    live.caught_up().await;
    let (mut stored, mut expected) = (0, Vec::new());
    for text in NAUGHTY {
        for field in ["type", "span_id", "parent_span_id", "event_id", "payload"] {
            let mut event = json!({ "type": "custom.x" });
            event[field] = if field == "payload" { json!({ *text: *text }) } else { json!(text) };
            let reply: Reply = server.try_emit(&run, event).await;
            assert!(matches!(reply.status, 200 | 400), "{field} {text:?}: {} {}", reply.status, reply.text);
            if reply.status == 200 && reply.json()["events"][0]["duplicate"] == false {
                stored += 1;
                expected.push((field, *text));
            }
        }
    }
    let live = envelopes(&live.durable(stored).await);
    let paged = server.events(&run).await;
    assert_eq!(live, paged[2..]);
    assert_eq!(seqs(&live).len(), expected.len());
    for (envelope, (field, text)) in live.iter().zip(expected) {
        let event: Value = serde_json::from_str(envelope).unwrap();
        let kept = if field == "payload" { &event["payload"][text] } else { &event[field] };
        assert_eq!(kept, text, "{field}");
    }
}

#[tokio::test]
async fn a_naughty_string_in_a_new_run_is_refused_or_comes_back_exactly() {
    let server = shared().await;
    for text in NAUGHTY {
        for field in ["thread_id", "session_id", "agent", "title", "input", "metadata", "tags"] {
            let value = match field {
                "tags" => json!([text]),
                "metadata" => json!({ *text: *text }),
                _ => json!(text),
            };
            let reply = server.post("/api/runs", json!({ field: value })).await;
            assert!(matches!(reply.status, 201 | 400), "{field} {text:?}: {} {}", reply.status, reply.text);
            if reply.status == 201 {
                let run = reply.json();
                assert_eq!(run[field], value, "{field} {text:?}");
                assert_eq!(server.run(run["run_id"].as_str().unwrap()).await, run);
            }
        }
        let query: String =
            reqwest::Url::parse_with_params("http://x", [("q", text)]).unwrap().query().unwrap().to_owned();
        let reply = server.get(&format!("/api/runs?{query}")).await;
        assert!(matches!(reply.status, 200 | 400), "q {text:?}: {} {}", reply.status, reply.text);
    }
}

/// A connection that has sent this much of a request and keeps silent.
async fn begun(server: &Api, head: &str) -> TcpStream {
    let address = server.base.trim_start_matches("http://").to_owned();
    let mut socket = TcpStream::connect(address).await.unwrap();
    socket.write_all(head.as_bytes()).await.unwrap();
    socket
}

#[tokio::test]
async fn bodies_that_are_slow_or_say_that_they_are_large_keep_nobody_out() {
    let server = shared().await;
    let lines = |path: &str, length: &str| format!("POST {path} HTTP/1.1\r\nhost: localhost\r\n{length}\r\n\r\n1");
    let mut slow = Vec::new();
    for _ in 0..300 {
        slow.push(begun(&server, &lines("/api/runs", "transfer-encoding: chunked")).await);
        slow.push(begun(&server, &lines("/api/channels/telegram/webhook", "content-length: 8000000")).await);
    }
    server.start_run().await;
    // The webhook is no one's here, so its body is not even waited for.
    let mut answer = [0; 12];
    slow[1].read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 404");
}

#[tokio::test]
async fn http_2_is_not_spoken() {
    let server = shared().await;
    let mut socket = begun(&server, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    let mut answer = String::new();
    crate::support::patiently("the end", socket.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 4") || answer.is_empty(), "{answer}");
}
