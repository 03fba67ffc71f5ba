//! What a runner should not send, and who should not be one.

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::*;
use crate::support::{api::Api, patiently, shared::shared};

#[tokio::test]
async fn only_a_websocket_of_the_right_kind_and_origin_is_opened() {
    let server = shared().await;
    server.get("/api/runners/connect").await.refused(426, "upgrade_required");
    let mut request = server.runner_request();
    request.headers_mut().remove("sec-websocket-protocol");
    let (status, problem) = server.no_runner(request).await;
    assert_eq!((status, &problem["code"]), (400, &json!("invalid_request")));
    let mut request = server.runner_request();
    request.headers_mut().insert("sec-websocket-protocol", "runreel.runner.v2, chat".parse().unwrap());
    assert_eq!(server.no_runner(request).await.0, 400);
    let own = server.base.clone();
    let port = own.rsplit_once(':').unwrap().1;
    let (longer, alias) = (format!("{own}.evil.example"), format!("http://localhost:{port}"));
    for origin in ["https://evil.example", "null", "http://localhost", &longer, &alias] {
        let mut request = server.runner_request();
        request.headers_mut().insert("origin", origin.parse().unwrap());
        let (status, problem) = server.no_runner(request).await;
        assert_eq!((status, &problem["code"]), (403, &json!("host_not_allowed")), "{origin}");
    }
    let mut request = server.runner_request();
    request.headers_mut().insert("origin", own.parse().unwrap());
    tokio_tungstenite::connect_async(request).await.unwrap();
}

#[tokio::test]
async fn only_a_credential_that_may_emit_for_all_runs_opens_one() {
    let server = setup().jwt().start().await;
    let run = server.as_subject("alice").start_run().await;
    let refused = async |api: &crate::support::api::Api| api.no_runner(api.runner_request()).await.0;
    assert_eq!(refused(&server.api).await, 401);
    assert_eq!(refused(&server.api_token("alice", &[Scope::Read], None, None).await.0).await, 403);
    assert_eq!(refused(&server.api_token("alice", &[Scope::Emit], Some(&run), None).await.0).await, 403);
    server.api_token("alice", &[Scope::Emit], None, None).await.0.runner(&["a"], 1).await;
}

#[tokio::test]
async fn what_is_no_message_is_answered_with_an_error_and_a_close() {
    let server = shared().await;
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for (message, code, close) in [
        (Message::text("{"), "malformed", 1007),
        (Message::text(""), "malformed", 1007),
        (Message::text("null"), "malformed", 1007),
        (Message::text(deep), "malformed", 1007),
        (Message::text(r#"{"type":"event"}"#), "malformed", 1007),
        (Message::text(r#"{"type":"event","run_id":7,"n":1,"events":[]}"#), "malformed", 1007),
        (Message::text(r#"{"type":"run.done","run_id":"../etc"}"#), "malformed", 1007),
        (Message::text(r#"{"type":"hello","runner":"r","agents":["a"],"capacity":1}"#), "unexpected", 1002),
        (Message::text(r#"{"type":"run.assign"}"#), "unknown_message", 1002),
        (Message::binary(b"\x00\xff".to_vec()), "unsupported", 1003),
    ] {
        let mut runner = server.runner(&["a"], 1).await;
        let what = format!("{message:?}").chars().take(80).collect::<String>();
        runner.send(message).await;
        assert_eq!(runner.expect("error").await["code"], code, "{what}");
        assert_eq!(runner.closed().await, Some(close), "{what}");
    }
    let mut runner = server.runner(&["a"], 1).await;
    runner.send(Message::text("x".repeat(10 * 1024 * 1024))).await;
    // The server stops reading in the middle, so its words may be lost with the connection.
    while let Ok(message) = runner.next().await {
        assert_eq!(message["code"], "too_large");
    }
    server.runner(&["a"], 1).await.silent().await;
}

/// A frame of RFC 6455 §5.2: its first byte, a length, a mask of zeros, which changes nothing, and the content.
fn frame(first: u8, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).unwrap();
    let length = if length < 126 {
        vec![0x80 | u8::try_from(length).unwrap()]
    } else {
        [&[0x80 | 0x7e], &length.to_be_bytes()[..]].concat()
    };
    [&[first], &length[..], &[0; 4], content].concat()
}

/// An open socket without a library on this side of it.
async fn bare(server: &Api) -> TcpStream {
    let host = server.base.strip_prefix("http://").unwrap();
    let mut socket = TcpStream::connect(host).await.unwrap();
    let request = format!(
        "GET /api/runners/connect HTTP/1.1\r\nhost: {host}\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\
         sec-websocket-protocol: runreel.runner.v1\r\n\r\n"
    );
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut said = Vec::new();
    while !said.ends_with(b"\r\n\r\n") {
        said.push(patiently("the switch", socket.read_u8()).await.unwrap());
    }
    assert!(said.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&said));
    socket
}

#[tokio::test]
async fn frames_that_the_standard_forbids_end_the_connection_they_came_on() {
    let server = Server::start().await;
    let hello = json!({ "type": "hello", "runner": "r", "agents": ["a"], "capacity": 1 }).to_string();
    let (start, rest) = hello.as_bytes().split_at(20);
    let mut unmasked = frame(0x81, b"{}");
    unmasked.drain(2..6);
    unmasked[1] &= 0x7f;
    for (what, frames) in [
        ("not masked", unmasked),
        ("a reserved bit", frame(0xc1, b"{}")),
        ("a reserved kind", frame(0x83, b"{}")),
        ("a reserved kind of control frame", frame(0x8b, b"")),
        ("a ping in parts", frame(0x09, b"x")),
        ("a long ping", frame(0x89, &[b'x'; 126])),
        ("the rest of nothing", frame(0x80, b"{}")),
        ("a message within another", [frame(0x01, start), frame(0x81, b"{}")].concat()),
        ("a close frame of one byte", frame(0x88, b"x")),
        ("more bytes than there can be", [&[0x81, 0x80 | 0x7f][..], &[0xff; 8], &[0; 4]].concat()),
        ("no UTF-8", frame(0x81, b"\"\xff\"")),
        ("no UTF-8 across two parts", [frame(0x01, b"\"\xe2\x82"), frame(0x80, b"\x28\"")].concat()),
    ] {
        let mut socket = bare(&server).await;
        // It may end before all is sent.
        let _ = socket.write_all(&frames).await;
        let mut said = Vec::new();
        let _ = patiently(what, socket.read_to_end(&mut said)).await;
        let said = String::from_utf8_lossy(&said);
        // It did not go on and wait for a hello, whose absence is `unexpected`.
        for word in ["welcome", "internal", "unexpected"] {
            assert!(!said.contains(word), "{what}: {said}");
        }
        assert_eq!(what.starts_with("no UTF-8"), said.contains(r#""malformed""#), "{what}: {said}");
    }
    // Parts with a ping between them are a message.
    let mut socket = bare(&server).await;
    let parts = [frame(0x01, start), frame(0x89, b"x"), frame(0x00, b""), frame(0x80, rest)].concat();
    socket.write_all(&parts).await.unwrap();
    let mut said = Vec::new();
    while !String::from_utf8_lossy(&said).contains(r#""welcome""#) {
        said.push(patiently("a welcome", socket.read_u8()).await.unwrap());
    }
}

#[tokio::test]
async fn the_first_message_is_a_hello_within_its_bounds() {
    let server = shared().await;
    let many: Vec<String> = (0..257).map(|n| format!("a{n}")).collect();
    let hello = |rest: Value| {
        let mut hello = json!({ "type": "hello", "runner": "r", "agents": ["a"], "capacity": 1 });
        for (name, value) in rest.as_object().unwrap() {
            hello[name] = value.clone();
        }
        hello
    };
    for (first, code) in [
        (json!({ "type": "heartbeat" }), "unexpected"),
        (hello(json!({ "agents": [] })), "malformed"),
        (hello(json!({ "agents": many })), "malformed"),
        (hello(json!({ "capacity": 0 })), "malformed"),
        (hello(json!({ "capacity": 257 })), "malformed"),
        (hello(json!({ "capacity": 1.5 })), "malformed"),
        (hello(json!({ "runner": " blank before" })), "malformed"),
        (hello(json!({ "resume": { "lease_id": "x" } })), "malformed"),
    ] {
        let mut runner = server.runner_socket().await;
        runner.say(first.clone()).await;
        assert_eq!(runner.expect("error").await["code"], code, "{first}");
        assert!(runner.closed().await.is_some(), "{first}");
    }
}

#[tokio::test]
async fn events_that_no_producer_may_emit_are_refused_whole_and_the_connection_goes_on() {
    let server = shared().await;
    let mut runner = server.runner(&["a"], 1).await;
    let run = job(&server).await;
    runner.assigned().await;
    let deep: Value = (0..70).fold(json!(1), |inner, _| json!([inner]));
    let bad = [
        (json!([[]]), "invalid_event"),
        (json!([{ "type": "log.info" }, { "type": "run.created" }]), "invalid_event"),
        (json!([{ "type": "log.info", "event_id": "runreel:runner:1:1:0" }]), "invalid_event"),
        (json!([{ "type": "log.info", "nonsense": 1 }]), "invalid_event"),
        (json!([{ "type": "log.info", "role": "supervisor" }]), "role_mismatch"),
        (json!([{ "type": "log.info", "payload": deep }]), "invalid_event"),
        (json!([{ "type": "log.info", "payload": "\u{0}" }]), "invalid_event"),
        (json!(7), "invalid_event"),
        (json!([{ "type": "run.resumed" }]), "invalid_transition"),
    ];
    let mut n = 0;
    for (events, code) in bad {
        n += 1;
        runner.event(&run, n, events.clone()).await;
        let error = runner.refused(code).await;
        assert_eq!((&error["run_id"], &error["n"]), (&json!(run), &json!(n)), "{events}");
    }
    runner.event(&run, n + 1, json!([{ "type": "log.info" }])).await;
    assert_eq!(runner.expect("ack").await["last_seq"], 3);
}

#[tokio::test]
async fn the_credential_of_a_connection_does_not_come_in_with_its_messages() {
    let server = shared().await;
    let alice = server.as_subject("alice");
    let mut runner = alice.runner(&["a"], 1).await;
    let run = alice.create(json!({ "agent": "a", "start": false })).await;
    runner.assigned().await;
    // A token that somebody passes on costs the message that it stands in, and one's own the connection.
    let passed_on = format!("Bearer {}", server.as_subject("bob").token.clone().unwrap());
    runner.event(&run, 1, json!([{ "type": "log.info", "payload": passed_on }])).await;
    assert_eq!(runner.refused("credential_in_body").await["n"], 1);
    runner.event(&run, 2, json!([{ "type": "log.info", "payload": alice.token.clone() }])).await;
    runner.refused("credential_in_body").await;
    assert_eq!(runner.closed().await, Some(1008));
    assert_eq!(alice.run(&run).await["last_seq"], 1);
}

#[tokio::test]
async fn a_runner_that_reads_nothing_holds_up_nobody() {
    let server = shared().await;
    let mut stuck = server.runner(&["a"], 1).await;
    let run = job(&server).await;
    stuck.assigned().await;
    // It sends much and reads no answer.
    for n in 1..=3_000 {
        stuck.event(&run, n, json!([{ "type": "log.info" }])).await;
    }
    let mut other = server.runner(&["a"], 1).await;
    let run = job(&server).await;
    assert_eq!(other.assigned().await, run);
    other.event(&run, 1, json!([{ "type": "run.completed" }])).await;
    other.expect("ack").await;
    let connected = server.get("/api/agents").await.expect(200);
    assert_eq!(
        connected["runners"].as_array().unwrap().len(),
        2,
        "nor was it waited for until it was cut off: {connected}"
    );
}

#[tokio::test]
async fn an_acknowledgement_that_frees_no_slot_asks_the_database_for_no_work() {
    let server = setup().flags(&["--poll-ms", "60000"]).start().await;
    let mut runner = server.runner(&["a"], 2).await;
    let run = job(&server).await;
    assert_eq!(runner.assigned().await, run);
    runner.event(&run, 1, json!([{ "type": "log.info" }])).await;
    runner.expect("ack").await;
    // Whoever asks for work now waits for seconds.
    let mut lock = server.db.connect().await;
    execute(&mut lock, "begin; lock table store.job in access exclusive mode".to_owned()).await;
    let acknowledged = async {
        for n in 2..12 {
            runner.event(&run, n, json!([])).await;
            runner.expect("ack").await;
        }
    };
    // The look that follows the event above may wait once or twice.
    tokio::time::timeout(Duration::from_secs(20), acknowledged).await.expect("none of ten waits for the table");
    execute(&mut lock, "rollback".to_owned()).await;
}

#[tokio::test]
async fn a_runner_that_does_not_read_keeps_no_other_of_its_principal_waiting() {
    let server = shared().await;
    let _deaf = server.runner(&["a"], 100).await;
    for _ in 0..20 {
        let input = json!({ "text": "x".repeat(60_000) });
        server.create(json!({ "agent": "a", "start": false, "input": input })).await;
    }
    let mut other = server.runner(&["b"], 1).await;
    let run = server.create(json!({ "agent": "b", "start": false })).await;
    let assigned = tokio::time::timeout(Duration::from_secs(7), other.assigned()).await;
    assert_eq!(assigned.expect("no longer than the other's messages may take"), run);
}

#[tokio::test]
async fn whoever_goes_on_after_a_mistake_still_reads_what_it_was() {
    let server = Server::start().await;
    let mut socket = bare(&server).await;
    // More than is on the way at a time.
    let more = frame(0x82, &vec![b'x'; 60_000]).repeat(100);
    let goes_on = [frame(0x81, b"{"), more, frame(0x88, &1_000_u16.to_be_bytes())].concat();
    let (mut reads, mut writes) = socket.split();
    let mut said = Vec::new();
    let (sent, read) = tokio::join!(
        patiently("everything to be sent", writes.write_all(&goes_on)),
        patiently("the end", reads.read_to_end(&mut said))
    );
    sent.unwrap();
    read.unwrap();
    let close = [&1_007_u16.to_be_bytes()[..], b"malformed"].concat();
    assert!(said.ends_with(&close), "{}", String::from_utf8_lossy(&said));
}
