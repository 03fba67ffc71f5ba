//! Runs: created once, listed, cancelled, interrupted and resumed, deleted.

use std::time::Duration;

use runreel::domain::run::Status;
use serde_json::{Value, json};

use crate::support::{
    api::stream_of,
    cluster::{Db, execute},
    runs::{assert_contiguous, new_run_id, numbered, parsed},
    server::{Server, manual_clock, setup},
    shared::shared,
    sse::names,
};

#[tokio::test]
async fn a_run_is_created_once_however_often_it_is_asked_for() {
    let server = shared().await;
    let body =
        json!({ "run_id": new_run_id(), "title": "Survey", "tags": ["a", "b"], "metadata": { "k": 1 }, "input": [1] });
    let created = server.post("/api/runs", body.clone()).await;
    assert_eq!(created.headers["location"], format!("/api/runs/{}", body["run_id"].as_str().unwrap()));
    let run = created.expect(201);
    for (member, value) in body.as_object().unwrap() {
        assert_eq!(&run[member], value, "{member}");
    }
    assert_eq!((&run["status"], &run["role"], &run["last_seq"]), (&json!("running"), &json!("agent"), &json!(2)));
    assert_eq!((&run["root_run_id"], &run["stalled"]), (&run["run_id"], &json!(false)));
    assert_eq!(server.post("/api/runs", body.clone()).await.expect(200), run);
    let reordered = r#"{"input":[1],"metadata":{"k":1},"tags":["a","b"],"title":"Survey","run_id":"#;
    let reordered = format!("{reordered}{}}}", body["run_id"]);
    server.post_text("/api/runs", "application/json", reordered).await.expect(200);
    for (member, value) in
        [("title", json!("Other")), ("input", json!([2])), ("start", json!(false)), ("tags", json!(["b", "a"]))]
    {
        let mut other = body.clone();
        other[member] = value;
        server.post("/api/runs", other).await.refused(409, "run_exists");
    }
    assert_contiguous(&server.events(run["run_id"].as_str().unwrap()).await, 2);
}

#[tokio::test]
async fn a_bad_run_is_refused_and_leaves_nothing_behind() {
    let server = Server::start().await;
    let day_ms = 24 * 60 * 60 * 1_000;
    let of = |skew_ms: i64| {
        let ms = u64::try_from(server.clock.now().timestamp_millis() + skew_ms).unwrap();
        uuid::Builder::from_unix_timestamp_millis(ms, &[7; 10]).into_uuid().to_string()
    };
    for (member, value, status) in [
        ("run_id", json!(of(day_ms + 60_000)), 400),
        ("run_id", json!(of(-day_ms - 60_000)), 400),
        ("run_id", json!("0198c0de-0000-4000-8000-000000000001"), 400),
        ("run_id", json!("x"), 400),
        ("run_id", json!(1), 400),
        ("parent_run_id", json!(new_run_id()), 404),
        ("role", json!("admin"), 400),
        ("agent", json!("two\nlines"), 400),
        ("agent", json!("x".repeat(129)), 400),
        ("thread_id", json!("a/b"), 400),
        ("title", json!("x".repeat(513)), 400),
        ("title", json!("a\nb"), 400),
        ("metadata", json!([1]), 400),
        ("metadata", json!("x"), 400),
        ("metadata", json!({ "x": "y".repeat(65_536) }), 413),
        ("input", json!("x".repeat(65_536)), 413),
        ("tags", json!(["a", " b"]), 400),
        ("tags", json!(vec!["x"; 33]), 413),
        ("lease_ms", json!(-1), 400),
        ("lease_ms", json!(i64::MAX), 400),
        ("owner_id", json!("me"), 400),
        ("status", json!("completed"), 400),
    ] {
        let reply = server.post("/api/runs", json!({ member: value })).await;
        assert_eq!(reply.status, status, "{member} {value}: {}", reply.text);
        assert_eq!(reply.headers["content-type"], "application/problem+json");
    }
    for body in ["[]", "1", "{", "\"x\"", "{\"input\":\"\\u0000\"}", "{\"metadata\":{\"\\ud800\":1}}"] {
        server.post_text("/api/runs", "application/json", body).await.refused(400, "invalid_request");
    }
    assert_eq!(server.get("/api/runs").await.expect(200)["runs"], json!([]));
    assert_eq!(server.db.number("select count(*) from store.run_event").await, 0);
    server.create(json!({ "run_id": of(day_ms - 60_000) })).await;
    server.create(json!({ "run_id": of(60_000 - day_ms) })).await;
    assert_eq!(server.post_text("/api/runs", "application/json", "").await.status, 201);
}

#[tokio::test]
async fn the_numbers_and_escapes_of_a_new_run_are_kept_to_the_letter() {
    let server = shared().await;
    for (input, metadata) in [
        ("1e400", "{}"),
        ("[-1E+999999]", "{}"),
        ("1", "{\"a\":1e400}"),
        ("12345678901234567890123", "{\"b\":1,\"a\":1.50}"),
        (r#""caf\u00e9\/ \ud83d\ude00""#, r#"{"a":"\u00e9\/","a":"twice"}"#),
        (r#"{"a":"\u00e9\/","a":null}"#, "{}"),
    ] {
        let body = format!("{{\"input\":{input},\"metadata\":{metadata}}}");
        let reply = server.post_text("/api/runs", "application/json", body).await;
        assert_eq!(reply.status, 201, "{input} {metadata}: {}", reply.text);
        assert!(reply.text.contains(&format!(r#""input":{input},"#)), "{}", reply.text);
        assert!(reply.text.contains(&format!(r#""metadata":{metadata},"#)), "{}", reply.text);
        // Python and JavaScript read 1e400 as infinity; serde_json refuses it, so the id is cut out.
        let run = &reply.headers["location"].to_str().unwrap()["/api/runs/".len()..];
        let events = server.events(run).await;
        assert_eq!(events.len(), 2);
        assert!(events[0].contains(&format!(r#""input":{input}"#)) && events[0].contains(metadata), "{}", events[0]);
    }
    let run_id = new_run_id();
    let body = |input: &str| format!("{{\"run_id\":\"{run_id}\",\"input\":{input}}}");
    for (input, status) in [("1e400", 201), ("1e400", 200)] {
        assert_eq!(server.post_text("/api/runs", "application/json", body(input)).await.status, status);
    }
    server.post_text("/api/runs", "application/json", body("2e400")).await.refused(409, "run_exists");
}

#[tokio::test]
async fn a_list_is_paged_newest_first_without_repeat_or_loss() {
    let server = shared().await;
    let mut made = Vec::new();
    for _ in 0..7 {
        made.push(server.start_run().await);
    }
    made.reverse();
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = server.get(&format!("/api/runs?limit=3{cursor}")).await.expect(200);
        seen.extend(page["runs"].as_array().unwrap().iter().map(|run| run["run_id"].as_str().unwrap().to_owned()));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, made);
    for bad in [
        "x",
        "r",
        "r1",
        "r1.",
        "r.1",
        "rx.0198c0de-0000-7000-8000-000000000001",
        "r9223372036854775807.0198c0de-0000-7000-8000-000000000001",
        "p1",
        "%00",
    ] {
        server.get(&format!("/api/runs?cursor={bad}")).await.refused(400, "invalid_cursor");
    }
    for bad in [
        "limit=0",
        "limit=1001",
        "limit=-1",
        "limit=x",
        "status=done",
        "thread_id=a/b",
        "parent_run_id=x",
        "since=now",
        "limit=1&limit=2",
    ] {
        server.get(&format!("/api/runs?{bad}")).await.refused(400, "invalid_request");
    }
}

#[tokio::test]
async fn a_list_is_narrowed_by_everything_it_offers() {
    let clock = manual_clock();
    let server = setup().clock(&clock).start().await;
    let parent = server.create(json!({ "title": "Night survey 100%", "agent": "Scout", "tags": ["x", "y"] })).await;
    let middle = clock.now().to_rfc3339_opts(chrono::SecondsFormat::Micros, true);
    server.pass(Duration::from_secs(1));
    let child = server.create(json!({ "parent_run_id": parent, "thread_id": "t1", "tags": ["y"] })).await;
    server.complete(&child).await;
    let after = clock.now().to_rfc3339_opts(chrono::SecondsFormat::Micros, true);
    let check = async |query: &str, expected: &[&String]| {
        let list = server.get(&format!("/api/runs?{query}")).await.expect(200);
        let found: Vec<&str> =
            list["runs"].as_array().unwrap().iter().map(|run| run["run_id"].as_str().unwrap()).collect();
        assert_eq!(found, expected.iter().map(|run| run.as_str()).collect::<Vec<_>>(), "{query}");
    };
    check("", &[&child, &parent]).await;
    check("status=running", &[&parent]).await;
    check("status=running,completed", &[&child, &parent]).await;
    check("status=failed", &[]).await;
    check("thread_id=t1", &[&child]).await;
    check("agent=Scout", &[&parent]).await;
    check("agent=scout", &[]).await;
    check("tag=y", &[&child, &parent]).await;
    check("tag=x", &[&parent]).await;
    check("q=NIGHT%20survey", &[&parent]).await;
    check("q=100%25", &[&parent]).await;
    check("q=scou", &[]).await;
    check("q=scou*", &[&parent]).await;
    check("q=survey%20rome", &[]).await;
    check(&format!("q={}", &child[24..]), &[&child]).await;
    check(&format!("parent_run_id={parent}"), &[&child]).await;
    check(&format!("until={after}"), &[&parent]).await;
    check(&format!("since={after}"), &[&child]).await;
    check(&format!("since={middle}"), &[&child, &parent]).await;
}

#[tokio::test]
async fn a_cancel_goes_down_the_tree_and_spares_what_has_ended() {
    let server = shared().await;
    let root = server.start_run().await;
    let (child, done) = (server.child_of(&root).await, server.child_of(&root).await);
    let grandchild = server.child_of(&child).await;
    server.complete(&done).await;
    let sibling = server.start_run().await;
    let mut tree = server.stream(&format!("{}?tree=true", stream_of(&root))).await;
    tree.caught_up().await;
    let path = format!("/api/runs/{root}/cancel");
    let run = server.post(&path, json!({ "reason": "enough" })).await.expect(202);
    assert_eq!(run["status"], "cancelled");
    for (run, status) in [
        (&root, "cancelled"),
        (&child, "cancelled"),
        (&grandchild, "cancelled"),
        (&done, "completed"),
        (&sibling, "running"),
    ] {
        assert_eq!(server.run(run).await["status"], status);
    }
    let frames = tree.rest().await;
    assert_eq!(names(&frames), ["run.cancelled", "run.cancelled", "run.cancelled", "stream.end"]);
    assert_eq!(frames[2].json()["run_id"], root.as_str(), "the root is the last");
    assert_eq!(frames[2].json()["payload"], json!({ "reason": "enough" }));
    server.post(&path, json!({})).await.expect(202);
    assert_contiguous(&server.events(&root).await, 3);
    server.post(&format!("/api/runs/{done}/cancel"), json!({})).await.refused(409, "run_ended");
    server
        .post(&format!("/api/runs/{sibling}/cancel"), json!({ "reason": "a\nb" }))
        .await
        .refused(400, "invalid_request");
    server.post(&format!("/api/runs/{sibling}/cancel"), json!({ "why": "x" })).await.refused(400, "invalid_request");
    assert_eq!(
        server.send(server.request(reqwest::Method::POST, &format!("/api/runs/{sibling}/cancel"))).await.status,
        202
    );
}

#[tokio::test]
async fn an_interrupt_is_answered_once() {
    let server = shared().await;
    let run = server.start_run().await;
    let path = format!("/api/runs/{run}/resume");
    let answer = |decision: &str, value: Value| json!({ "interrupt_id": "i1", "decision": decision, "value": value });
    server.post(&path, answer("approve", Value::Null)).await.refused(404, "not_found");
    let ask = json!([{ "type": "interrupt.requested", "span_id": "i1" }, { "type": "run.interrupted" }]);
    server.emit(&run, ask).await;
    assert_eq!(server.run(&run).await["status"], "interrupted");
    for bad in [json!({}), json!({ "interrupt_id": "i1", "decision": "maybe" }), json!({ "decision": "approve" })] {
        server.post(&path, bad).await.refused(400, "invalid_request");
    }
    server.post(&path, json!({ "interrupt_id": "i2", "decision": "approve" })).await.refused(404, "not_found");
    let tries = (0..8).map(|_| server.post(&path, answer("respond", json!({ "code": 7 }))));
    for reply in futures::future::join_all(tries).await {
        assert_eq!(reply.expect(202)["status"], "running");
    }
    server.post(&path, answer("reject", Value::Null)).await.refused(409, "interrupt_closed");
    server.post(&path, answer("respond", json!({ "code": 8 }))).await.refused(409, "interrupt_closed");
    let events = server.events(&run).await;
    let kinds: Vec<Value> = events.iter().map(|event| parsed(event)["type"].clone()).collect();
    assert_eq!(kinds[2..], ["interrupt.requested", "run.interrupted", "interrupt.resolved", "run.resumed"]);
    let mut resolved = parsed(&events[4])["payload"].clone();
    assert_eq!(
        resolved.as_object_mut().unwrap().remove("resolved_by"),
        Some(server.run(&run).await["owner_id"].clone())
    );
    assert_eq!(resolved, answer("respond", json!({ "code": 7 })));
    server.complete(&run).await;
    assert_eq!(server.post(&path, answer("respond", json!({ "code": 7 }))).await.status, 202);
    server.post(&path, answer("approve", Value::Null)).await.refused(409, "interrupt_closed");
}

#[tokio::test]
async fn two_different_answers_at_once_give_one_winner() {
    let db = Db::new().await;
    let (a, b) = (setup().on(&db).start().await, setup().on(&db).start().await);
    for round in 0..5 {
        let run = a.start_run().await;
        a.emit(&run, json!([{ "type": "interrupt.requested", "span_id": "i" }, { "type": "run.interrupted" }])).await;
        let path = format!("/api/runs/{run}/resume");
        let body = |decision: &str| json!({ "interrupt_id": "i", "decision": decision });
        let (yes, no) = tokio::join!(a.post(&path, body("approve")), b.post(&path, body("reject")));
        let mut statuses = [yes.status, no.status];
        statuses.sort_unstable();
        assert_eq!(statuses, [202, 409], "{round}: {} {}", yes.text, no.text);
        assert_contiguous(&b.events(&run).await, 6);
    }
}

#[tokio::test]
async fn an_answer_keeps_its_numbers_and_an_unrelated_event_cannot_take_its_place() {
    let server = shared().await;
    let run = server.start_run().await;
    let path = format!("/api/runs/{run}/resume");
    let ask = json!([{ "type": "interrupt.requested", "span_id": "i" }, { "type": "run.interrupted" }]);
    server.emit(&run, ask).await;
    server.emit(&run, json!({ "type": "log.info", "event_id": "interrupt:i" })).await;
    let body = r#"{"interrupt_id":"i","decision":"respond","value":{"b":1e400,"a":1.50}}"#;
    let reply = server.post_text(&path, "application/json", body).await;
    assert_eq!(reply.status, 202, "{}", reply.text);
    let events = server.events(&run).await;
    let resolved =
        events.iter().find(|event| event.contains("\"interrupt.resolved\"")).expect("the answer is in the log");
    assert!(resolved.contains(r#""value":{"b":1e400,"a":1.50}"#), "{resolved}");
}

#[tokio::test]
async fn a_run_whose_producer_falls_silent_reads_as_stalled() {
    let clock = manual_clock();
    let server = setup().clock(&clock).start().await;
    let leased = server.create(json!({ "lease_ms": 10_000 })).await;
    let default = server.create(json!({ "lease_ms": 0 })).await;
    let free = server.start_run().await;
    let stalled = async |run: &str| server.run(run).await["stalled"].as_bool().unwrap();
    server.pass(Duration::from_secs(10));
    assert!(!stalled(&leased).await);
    server.pass(Duration::from_millis(1));
    assert!(stalled(&leased).await && !stalled(&default).await && !stalled(&free).await);
    assert_eq!(server.post(&format!("/api/runs/{leased}/heartbeat"), json!({})).await.status, 204);
    assert!(!stalled(&leased).await);
    server.pass(Duration::from_mins(1));
    assert!(stalled(&leased).await && stalled(&default).await && !stalled(&free).await);
    server.emit(&leased, numbered(1)).await;
    assert!(!stalled(&leased).await);
    server.emit(&leased, json!({ "type": "run.waiting" })).await;
    server.pass(Duration::from_mins(1));
    assert!(!stalled(&leased).await, "a run that waits is not stalled");
    server.post(&format!("/api/runs/{}/heartbeat", new_run_id()), json!({})).await.refused(404, "not_found");
}

#[tokio::test]
async fn a_run_with_thousands_of_open_steps_is_shown_like_any_other() {
    let server = shared().await;
    let run = server.start_run().await;
    assert_eq!(server.run(&run).await["node_durations_ms"], Value::Null, "it has no steps");
    let step = |kind: &str, n: usize| json!({ "type": format!("step.{kind}"), "span_id": format!("s{n}"), "payload": { "name": "think" } });
    for hundred in 0..50 {
        let steps: Vec<Value> = (0..100).map(|n| step("started", hundred * 100 + n)).collect();
        server.emit(&run, json!(steps)).await;
    }
    assert_eq!(server.run(&run).await["node_durations_ms"], Value::Null, "none of them has ended");
    server.emit(&run, step("completed", 7)).await;
    let took = server.run(&run).await["node_durations_ms"].clone();
    assert!(took["think"].as_f64().is_some_and(|ms| ms >= 0.0), "{took}");
}

#[tokio::test]
async fn the_database_and_the_program_agree_on_what_ends_a_run() {
    let db = Db::new().await;
    let mut connection = db.connect().await;
    for role in ["runreel_app", "runreel_writer", "runreel_retention"] {
        execute(&mut connection, format!("set role {role}")).await;
        for status in Status::ALL {
            let ended: bool = sqlx::query_scalar("select store.has_ended($1)")
                .bind(status.as_str())
                .fetch_one(&mut connection)
                .await
                .unwrap();
            assert_eq!(ended, status.is_terminal(), "{} as {role}", status.as_str());
        }
    }
}
