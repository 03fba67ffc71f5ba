//! Emitting: what is acknowledged is stored, once, in order, to the letter.

use serde_json::{Value, json};

use crate::support::{
    api::stream_of,
    runs::{assert_contiguous, numbered, parsed},
    server::Server,
    shared::shared,
    sse::envelopes,
};

#[tokio::test]
async fn one_event_an_array_and_ndjson_are_acknowledged_alike() {
    let server = shared().await;
    let run = server.start_run().await;
    let one = server.emit(&run, json!({ "type": "log.info", "event_id": "a" })).await;
    assert_eq!(
        one,
        json!({ "first_seq": 3, "last_seq": 3, "events": [{ "seq": 3, "event_id": "a", "duplicate": false }] })
    );
    let two = server.emit(&run, json!([numbered(1), { "type": "log.warn", "event_id": "b" }])).await;
    let entry = |seq: i64, id: Value| json!({ "seq": seq, "event_id": id, "duplicate": false });
    assert_eq!(two, json!({ "first_seq": 4, "last_seq": 5, "events": [entry(4, Value::Null), entry(5, json!("b"))] }));
    let lines = "\n{\"type\":\"log.info\"}\r\n\n{\"type\":\"log.debug\",\"payload\":{\"a\":\"\\n\"}}\n";
    let path = format!("/api/runs/{run}/events");
    for (media_type, first) in [("application/x-ndjson", 6), ("application/x-ndjson; charset=utf-8", 8)] {
        let ack = server.post_text(&path, media_type, lines).await.expect(200);
        assert_eq!((ack["first_seq"].as_i64(), ack["last_seq"].as_i64()), (Some(first), Some(first + 1)));
    }
    assert_contiguous(&server.events(&run).await, 9);
}

#[tokio::test]
async fn an_envelope_has_exactly_the_documented_members() {
    let server = shared().await;
    let run = server.create(json!({ "agent": "scout", "role": "supervisor" })).await;
    let at = "2026-01-02T03:04:05.123456789+01:00";
    let event = json!({ "type": "tool.started", "span_id": "s", "parent_span_id": "p", "event_id": "e", "at": at });
    server.emit(&run, event).await;
    let owner = server.run(&run).await["owner_id"].clone();
    let last = server.events(&run).await.pop().unwrap();
    let expected = format!(
        r#"{{"run_id":"{run}","seq":3,"type":"tool.started","role":"supervisor","agent":"scout","owner_id":{owner},"span_id":"s","parent_span_id":"p","event_id":"e","at":"2026-01-02T02:04:05.123456Z","payload":{{}}}}"#
    );
    assert_eq!(last, expected);
    server.emit(&run, numbered(1)).await;
    let bare = parsed(&server.events(&run).await.pop().unwrap());
    let mut members: Vec<&str> = bare.as_object().unwrap().keys().map(String::as_str).collect();
    members.sort_unstable();
    assert_eq!(members, ["agent", "at", "owner_id", "payload", "role", "run_id", "seq", "type"]);
}

#[tokio::test]
async fn a_hundred_sends_of_one_event_id_make_one_row_and_get_one_answer() {
    let server = Server::start().await;
    let run = server.start_run().await;
    let event = json!({ "type": "log.info", "event_id": "only", "payload": { "n": 1 } });
    let sends = (0..100).map(|_| server.emit(&run, event.clone()));
    let acks = futures::future::join_all(sends).await;
    let fresh = acks.iter().filter(|ack| ack["events"][0]["duplicate"] == false).count();
    assert_eq!(fresh, 1);
    assert!(acks.iter().all(|ack| ack["first_seq"] == 3 && ack["last_seq"] == 3 && ack["events"][0]["seq"] == 3));
    assert_eq!(server.db.number("select count(*) from store.run_event where event_id = 'only'").await, 1);
    assert_contiguous(&server.events(&run).await, 3);
}

#[tokio::test]
async fn a_key_used_twice_in_a_batch_is_one_event() {
    let server = shared().await;
    let (run, other) = (server.start_run().await, server.start_run().await);
    let keyed = |id: &str, n: usize| json!({ "type": "custom.n", "event_id": id, "payload": { "n": n } });
    let ack = server.emit(&run, json!([keyed("x", 1), keyed("y", 2), keyed("x", 3)])).await;
    let seqs: Vec<_> =
        ack["events"].as_array().unwrap().iter().map(|e| (e["seq"].clone(), e["duplicate"].clone())).collect();
    assert_eq!(seqs, [(json!(3), json!(false)), (json!(4), json!(false)), (json!(3), json!(true))]);
    let mixed = server.emit(&run, json!([keyed("y", 9), keyed("z", 5)])).await;
    assert_eq!((mixed["first_seq"].as_i64(), mixed["last_seq"].as_i64()), (Some(4), Some(5)));
    // A key belongs to its run.
    assert_eq!(server.emit(&other, keyed("x", 1)).await["events"][0]["duplicate"], false);
    assert_contiguous(&server.events(&run).await, 5);
}

#[tokio::test]
async fn the_batch_that_ended_a_run_can_be_sent_again() {
    let server = shared().await;
    let run = server.start_run().await;
    let keyed = |id: &str, kind: &str| json!({ "type": kind, "event_id": id });
    let batch = json!([keyed("a", "log.info"), keyed("b", "run.completed")]);
    let first = server.emit(&run, batch.clone()).await;
    let again = server.emit(&run, batch).await;
    assert_eq!((&first["first_seq"], &first["last_seq"]), (&again["first_seq"], &again["last_seq"]));
    assert!(again["events"].as_array().unwrap().iter().all(|event| event["duplicate"] == true));
    let more = json!([keyed("a", "log.info"), keyed("c", "log.info")]);
    server.try_emit(&run, more).await.refused(409, "run_ended");
    assert_contiguous(&server.events(&run).await, 4);
}

#[tokio::test]
async fn many_writers_of_one_run_leave_no_hole_and_keep_their_own_order() {
    let server = shared().await;
    let run = server.start_run().await;
    let writer = async |writer: usize| {
        for round in 0..20 {
            let event = |i: usize| json!({ "type": "custom.n", "payload": { "w": writer, "n": round * 10 + i } });
            let batch: Vec<Value> = (0..if writer.is_multiple_of(2) { 1 } else { 10 }).map(event).collect();
            let ack = server.emit(&run, if batch.len() == 1 { batch[0].clone() } else { json!(batch) }).await;
            let seqs: Vec<i64> = ack["events"].as_array().unwrap().iter().map(|e| e["seq"].as_i64().unwrap()).collect();
            assert!(seqs.windows(2).all(|pair| pair[1] == pair[0] + 1), "a batch stays together: {seqs:?}");
        }
    };
    futures::future::join_all((0..20).map(writer)).await;
    let events = server.events(&run).await;
    assert_contiguous(&events, 2 + 10 * 20 + 10 * 200);
    for writer in 0..20 {
        let own = events.iter().map(parsed).filter(|event| event["payload"]["w"] == writer);
        let numbers: Vec<i64> = own.map(|event| event["payload"]["n"].as_i64().unwrap()).collect();
        assert!(
            numbers.is_sorted() && numbers.len() == if writer % 2 == 0 { 20 } else { 200 },
            "{writer}: {numbers:?}"
        );
    }
}

#[tokio::test]
async fn an_event_is_the_same_bytes_live_replayed_paged_and_as_ndjson() {
    let server = shared().await;
    let run = server.start_run().await;
    let mut live = server.stream(&stream_of(&run)).await;
    live.caught_up().await;
    let payloads = [
        r#"{"z":1,"a":{"b":[],"A":null},"z":2}"#,
        r"[1.0,1e3,1E+3,-0,0.10,123456789012345678901234567890,1e400,-1.5e-7]",
        r#"{"text":"é 😀 \ud83d\ude00 \u00e9 \/ \b\f\n\r\t \\ \" "}"#,
        "\"a\u{2028}b\u{2029}c\u{85}d\u{feff}e\u{7f}\"",
        r#""data: x\n\nid: 99\nevent: stream.end""#,
        "true",
        "null",
        r#"{"":{"$artifact":1,"seq":1,"run_id":"x"}}"#,
    ];
    for payload in payloads {
        let body = format!("{{\"type\":\"custom.x\",\r\n \"payload\" : {payload} }}");
        let reply = server.emit_text(&run, body).await;
        assert_eq!(reply.status, 200, "{payload}: {}", reply.text);
    }
    let live = envelopes(&live.durable(payloads.len()).await);
    let (paged, ndjson) = (server.events(&run).await, server.ndjson(&run).await);
    let mut stream = server.stream(&stream_of(&run)).await;
    let replayed = envelopes(&stream.durable(payloads.len() + 2).await);
    assert_eq!(live, paged[2..]);
    assert_eq!(ndjson, paged);
    assert_eq!(replayed, paged);
    for (envelope, payload) in live.iter().zip(payloads) {
        // `null` is the absence of a payload, which reads as an empty object.
        let kept = if payload == "null" { "{}" } else { payload };
        assert!(envelope.ends_with(&format!(r#","payload":{kept}}}"#)), "{envelope} should end with {kept}");
    }
}

#[tokio::test]
async fn the_time_of_an_event_is_kept_to_the_microsecond_everywhere() {
    let server = shared().await;
    let run = server.start_run().await;
    let mut live = server.stream(&stream_of(&run)).await;
    live.caught_up().await;
    let times = [
        ("2026-03-01T00:00:00Z", "2026-03-01T00:00:00.000000Z"),
        ("2026-03-01T00:00:00.999999999Z", "2026-03-01T00:00:00.999999Z"),
        ("1970-01-01T00:00:00.000001Z", "1970-01-01T00:00:00.000001Z"),
        ("2016-12-31T23:59:60.5Z", "2016-12-31T23:59:59.500000Z"),
        ("2026-03-01T00:00:00.1234567-23:59", "2026-03-01T23:59:00.123456Z"),
    ];
    for (sent, _) in times {
        server.emit(&run, json!({ "type": "custom.x", "at": sent })).await;
    }
    let live = envelopes(&live.durable(times.len()).await);
    assert_eq!(live, server.events(&run).await[2..]);
    for (envelope, (_, kept)) in live.iter().zip(times) {
        assert_eq!(parsed(envelope)["at"], kept);
    }
    for bad in
        ["yesterday", "1969-12-31T23:59:59Z", "9999-12-31T23:59:59.9-10:00", "2026-02-30T00:00:00Z", "1760000000"]
    {
        let reply = server.try_emit(&run, json!({ "type": "custom.x", "at": bad })).await;
        assert_eq!(reply.status, 400, "{bad}: {}", reply.text);
    }
    assert_contiguous(&server.events(&run).await, 2 + times.len() as i64);
}

#[tokio::test]
async fn the_head_of_a_run_is_the_fold_of_its_events() {
    let server = shared().await;
    let body = r#"{"start":false,"input":{"b":1,"a":1.50}}"#;
    let run = server.post_text("/api/runs", "application/json", body).await.expect(201);
    assert_eq!(run["status"], "queued");
    let run = run["run_id"].as_str().unwrap().to_owned();
    for (event, status) in [
        ("run.started", "running"),
        ("run.waiting", "waiting"),
        ("run.resumed", "running"),
        ("run.interrupted", "interrupted"),
        ("run.resumed", "running"),
    ] {
        server.emit(&run, json!({ "type": event })).await;
        assert_eq!(server.run(&run).await["status"], status, "{event}");
    }
    server.emit_text(&run, r#"{"type":"run.completed","payload":{"output":{"z":1.50,"a":2}}}"#).await.expect(200);
    let reply = server.get(&format!("/api/runs/{run}")).await;
    assert!(reply.text.contains(r#""output":{"z":1.50,"a":2}"#), "{}", reply.text);
    assert!(reply.text.contains(r#""input":{"b":1,"a":1.50}"#), "{}", reply.text);
    let head = reply.json();
    assert_eq!((&head["status"], &head["last_seq"]), (&json!("completed"), &json!(7)));
    assert!(head["started_at"].is_string() && head["ended_at"].is_string() && head["error"].is_null());
    let failed = server.start_run().await;
    server.emit(&failed, json!({ "type": "run.failed", "payload": { "error": "boom" } })).await;
    assert_eq!(server.run(&failed).await["error"], "boom");
}

#[tokio::test]
async fn a_client_that_leaves_in_the_middle_cancels_nothing_half_way() {
    let server = shared().await;
    let run = server.start_run().await;
    let batches = (0..20).map(|round| {
        let batch: Vec<Value> = (0..100).map(|n| numbered(round * 100 + n)).collect();
        let request = server.request(reqwest::Method::POST, &format!("/api/runs/{run}/events")).json(&batch);
        tokio::time::timeout(std::time::Duration::from_micros(300 * round as u64), request.send())
    });
    futures::future::join_all(batches).await;
    server.emit(&run, numbered(9_999)).await;
    let events = server.events(&run).await;
    assert_contiguous(&events, events.len() as i64);
    assert_eq!((events.len() - 3) % 100, 0, "whole batches only: {}", events.len());
}
