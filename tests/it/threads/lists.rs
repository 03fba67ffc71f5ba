//! The lists of threads: pages, searches, the runs and messages of one thread.

use std::{collections::BTreeSet, time::Duration};

use serde_json::{Value, json};

use crate::support::{
    runs::{new_run_id, numbered, token},
    server::{Server, manual_clock, setup},
    shared::shared,
    threads::{column, encoded, state},
};

#[tokio::test]
async fn threads_are_listed_newest_first_and_each_once() {
    let clock = manual_clock();
    let server = setup().clock(&clock).start().await;
    let mut made = Vec::new();
    for round in 0..4 {
        // Three at one instant: the page has to tell them apart.
        for name in ["b", "A", "a"] {
            made.push(format!("{name}{round}"));
            server.put(&format!("/api/threads/{name}{round}"), json!({ "metadata": { "r": round } })).await.expect(201);
        }
        server.pass(Duration::from_secs(1));
    }
    let whole = server.get("/api/threads").await.expect(200);
    assert!(whole["next_cursor"].is_null());
    let whole = whole["threads"].as_array().unwrap().clone();
    let rounds: Vec<i64> = whole.iter().map(|thread| thread["metadata"]["r"].as_i64().unwrap()).collect();
    assert_eq!(rounds, [3, 3, 3, 2, 2, 2, 1, 1, 1, 0, 0, 0]);
    assert_eq!(whole[0], server.thread(whole[0]["thread_id"].as_str().unwrap()).await, "a row is the thread");
    for limit in [1, 2, 3, 5, 11, 12, 13] {
        assert_eq!(server.pages(&format!("/api/threads?limit={limit}"), "threads").await, whole, "{limit} at a time");
    }
    made.sort();
    let mut found: Vec<String> = column(&whole, "thread_id").into_iter().map(str::to_owned).collect();
    found.sort();
    assert_eq!(found, made);
}

#[tokio::test]
async fn a_thread_that_is_used_while_it_is_listed_is_shown_once() {
    let clock = manual_clock();
    let server = setup().clock(&clock).start().await;
    for name in ["1", "2", "3", "4", "5"] {
        server.put(&format!("/api/threads/{name}"), json!({})).await.expect(201);
        server.pass(Duration::from_secs(1));
    }
    let first = server.get("/api/threads?limit=2").await.expect(200);
    let mut seen: Vec<String> =
        column(first["threads"].as_array().unwrap(), "thread_id").into_iter().map(str::to_owned).collect();
    for used in ["1", "5"] {
        server.put_checkpoint(used, "x", state("x")).await;
        server.create(json!({ "thread_id": used })).await;
    }
    server.put("/api/threads/6", json!({})).await.expect(201);
    let rest = server.pages_after("/api/threads?limit=1", &first["next_cursor"], "threads").await;
    seen.extend(column(&rest, "thread_id").into_iter().map(str::to_owned));
    seen.retain(|id| id != "6");
    assert_eq!(seen, ["5", "4", "3", "2", "1"]);
}

#[tokio::test]
async fn a_search_takes_its_text_to_the_letter() {
    let server = shared().await;
    for id in ["a.b", "axb", "a_b", "a-b", "zzz@a.bz", "Q+q", "other"] {
        server.put(&format!("/api/threads/{id}"), json!({})).await.expect(201);
    }
    let check = async |q: &str, expected: &[&str]| {
        let list = server.get(&format!("/api/threads?q={}", encoded(q))).await.expect(200);
        let found: BTreeSet<&str> = column(list["threads"].as_array().unwrap(), "thread_id").into_iter().collect();
        assert_eq!(found, expected.iter().copied().collect(), "{q}");
    };
    check("a.b", &["a.b", "zzz@a.bz"]).await;
    check("a_b", &["a_b"]).await;
    check("a-b", &["a-b"]).await;
    check("%", &[]).await;
    check("_", &["a_b"]).await;
    check("\\", &[]).await;
    check("*", &[]).await;
    check("'", &[]).await;
    check("' or '1'='1", &[]).await;
    check("+q", &["Q+q"]).await;
    check("@", &["zzz@a.bz"]).await;
    check("é", &[]).await;
    for bad in ["a\nb", "\u{0}", &"x".repeat(513)] {
        server.get(&format!("/api/threads?q={}", encoded(bad))).await.refused(400, "invalid_request");
    }
}

#[tokio::test]
async fn a_list_refuses_a_page_it_cannot_give() {
    let server = shared().await;
    let run = server.create(json!({ "thread_id": "t" })).await;
    server.create(json!({ "thread_id": "t" })).await;
    server.put("/api/threads/u", json!({})).await.expect(201);
    for n in ["1", "2"] {
        server.put_checkpoint("t", n, state("x")).await;
        server.emit(&run, json!({ "type": "message.completed" })).await;
    }
    let lists = [
        "/api/threads",
        "/api/threads/t/runs",
        "/api/threads/t/messages",
        "/api/threads/t/checkpoints",
        "/api/checkpoints",
    ];
    let mut cursors = Vec::new();
    for list in lists {
        let page = server.get(&format!("{list}?limit=1")).await.expect(200);
        cursors.push(page["next_cursor"].as_str().unwrap_or_else(|| panic!("{list}: {page}")).to_owned());
        server.get(&format!("{list}?limit=1000&unknown=1")).await.expect(200);
        for limit in ["0", "-1", "1001", "x", "1.5", "1e2"] {
            let problem = server.get(&format!("{list}?limit={limit}")).await.refused(400, "invalid_request");
            assert_eq!(problem["field"], "limit", "{list} {limit}");
        }
        server.get(&format!("{list}?limit=1&limit=1")).await.refused(400, "invalid_request");
        for cursor in ["x", "1", "p1", "-1", "%00", "%F0%9F%98%80", "'", "AAAA", "r9999999999999999999.x", "r1.2"] {
            let problem = server.get(&format!("{list}?cursor={cursor}")).await.refused(400, "invalid_cursor");
            assert_eq!(problem["field"], "cursor", "{list} {cursor}");
        }
        for other in ["/checkpoints/1", "/checkpoints/latest"] {
            server.get(&format!("/api/threads/t{other}?cursor=ignored")).await.expect(200);
        }
    }
    // A cursor belongs to its kind of list; what another kind of list makes of it is a refusal or a page of its own.
    for list in lists {
        for cursor in &cursors {
            let reply = server.get(&format!("{list}?cursor={}", encoded(cursor))).await;
            assert!(matches!(reply.status, 200 | 400), "{list} {cursor}: {}", reply.text);
            if reply.status == 400 {
                reply.refused(400, "invalid_cursor");
            }
        }
    }
}

#[tokio::test]
async fn the_runs_of_a_thread_are_those_that_named_it() {
    let server = shared().await;
    let mut made = Vec::new();
    for n in 0..5 {
        made.push(server.create(json!({ "thread_id": "t", "title": n.to_string() })).await);
        server.create(json!({ "thread_id": "T" })).await;
    }
    let child = server.child_of(&made[0]).await;
    server.complete(&made[1]).await;
    made.push(child);
    made.reverse();
    let page = server.get("/api/threads/t/runs").await.expect(200);
    assert_eq!(column(page["runs"].as_array().unwrap(), "run_id"), made);
    assert!(page["stream_cursor"].as_str().unwrap().starts_with('p'));
    assert_eq!(page["runs"][0], server.run(&made[0]).await);
    for limit in [1, 2, 4, 6] {
        let runs = server.pages(&format!("/api/threads/t/runs?limit={limit}"), "runs").await;
        assert_eq!(column(&runs, "run_id"), made);
    }
    let completed = server.get("/api/threads/t/runs?status=completed").await.expect(200);
    assert_eq!(column(completed["runs"].as_array().unwrap(), "run_id"), [&made[4]]);
    let both = server.get("/api/threads/t/runs?status=completed,running").await.expect(200);
    assert_eq!(both["runs"].as_array().unwrap().len(), 6);
    server.get("/api/threads/t/runs?status=dead").await.refused(400, "invalid_request");
    server.put("/api/threads/empty", json!({})).await.expect(201);
    assert_eq!(server.get("/api/threads/empty/runs").await.expect(200)["runs"], json!([]));
}

#[tokio::test]
async fn a_message_says_who_spoke_and_holds_its_parts_to_the_letter() {
    let server = shared().await;
    let run = server.create(json!({ "thread_id": "t", "role": "worker", "agent": "w1" })).await;
    let parts = r#"[{"type":"text","text":"Hé","n":1.50},{"type":"image","url":"x"},{"text":"llo","type":"text"}]"#;
    let said =
        format!(r#"{{"type":"message.completed","span_id":"m1","payload":{{"role":"user","content":{parts}}}}}"#);
    server.emit_text(&run, said).await.expect(200);
    for payload in [
        json!({}),
        json!({ "content": [] }),
        json!({ "content": [{ "text": "a" }, "bare", 1, null, { "text": 5 }, { "type": "text", "text": "b" }] }),
        json!({ "role": null, "content": [{ "type": "text", "text": "x" }] }),
    ] {
        server.emit(&run, json!({ "type": "message.completed", "payload": payload })).await;
    }
    // What only looks like a message, and one that is not finished.
    server.emit(&run, json!([token("m9", "never said"), { "type": "reasoning.completed" }, numbered(1)])).await;
    let reply = server.get("/api/threads/t/messages").await;
    assert!(reply.text.contains(&format!("\"content\":{parts}")), "{}", reply.text);
    let page = reply.expect(200);
    assert!(page["next_cursor"].is_null());
    let messages = page["messages"].as_array().unwrap();
    let at = |n: usize| messages[n]["at"].clone();
    let expected = json!({ "run_id": run, "seq": 3, "message_id": "m1", "role": "user", "agent": "w1",
        "content": serde_json::from_str::<Value>(parts).unwrap(), "text": "Héllo", "at": at(0) });
    assert_eq!(messages[0], expected);
    let rest: Vec<_> = messages[1..].iter().map(|m| (m["seq"].clone(), m["role"].clone(), m["text"].clone())).collect();
    let row = |seq: i64, text: &str| (json!(seq), json!("assistant"), json!(text));
    assert_eq!(rest, [(json!(4), json!("assistant"), json!(null)), row(5, ""), row(6, "ab"), row(7, "x")]);
    assert!(messages[1]["message_id"].is_null() && messages[1]["content"].is_null());
}

#[tokio::test]
async fn no_payload_of_a_message_breaks_the_list() {
    let server = shared().await;
    let run = server.create(json!({ "thread_id": "t" })).await;
    let payloads = [
        "null",
        "1",
        "\"x\"",
        "[]",
        "[[]]",
        "true",
        r#"{"content":"plain"}"#,
        r#"{"content":{"text":"x"}}"#,
        r#"{"content":null}"#,
        r#"{"role":5,"content":[[]]}"#,
        r#"{"role":["user"]}"#,
        r#"{"role":{}}"#,
        r#"{"content":[{"type":"text","text":null}]}"#,
        r#"{"content":[{"type":"text"}]}"#,
        r#"{"text":"old style"}"#,
        r#"{"content":[{"type":"text","text":"\ud83d\ude00\u2028\"\\"}],"content":[{"text":"twice"}]}"#,
        r#"{"content":[1e30,-0,1.0]}"#,
    ];
    for payload in payloads {
        server.emit_text(&run, format!(r#"{{"type":"message.completed","payload":{payload}}}"#)).await.expect(200);
    }
    let messages = server.pages("/api/threads/t/messages?limit=3", "messages").await;
    assert_eq!(messages.len(), payloads.len());
    server.emit_text(&run, r#"{"type":"message.completed","payload":{"content":[1e400]}}"#).await.expect(200);
    let reply = server.get("/api/threads/t/messages").await;
    assert!(reply.status == 200 && reply.text.contains(r#""content":[1e400]"#), "{}", reply.text);
    for message in &messages {
        assert!(message["role"].is_string() && (message["text"].is_string() || message["text"].is_null()), "{message}");
    }
}

#[tokio::test]
async fn messages_come_oldest_first_and_each_once() {
    let clock = manual_clock();
    let server = setup().clock(&clock).start().await;
    let (mut said, mut runs) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let run = server.create(json!({ "thread_id": "t" })).await;
        for n in 0..7 {
            let text = format!("{}-{n}", runs.len());
            let message =
                json!({ "type": "message.completed", "payload": { "content": [{ "type": "text", "text": text }] } });
            server.emit(&run, json!([message, numbered(n)])).await;
            server.pass(Duration::from_secs(1));
            said.push(text);
        }
        server.complete(&run).await;
        runs.push(run);
    }
    let elsewhere = server.create(json!({ "thread_id": "u" })).await;
    server.emit(&elsewhere, json!({ "type": "message.completed" })).await;
    for limit in [1, 2, 6, 7, 8, 20, 21, 22] {
        let messages = server.pages(&format!("/api/threads/t/messages?limit={limit}"), "messages").await;
        assert_eq!(column(&messages, "text"), said, "{limit} at a time");
    }
    assert_eq!(server.delete(&format!("/api/runs/{}", runs[1])).await.status, 204);
    let left = server.pages("/api/threads/t/messages?limit=2", "messages").await;
    assert_eq!(column(&left, "text"), [&said[..7], &said[14..]].concat(), "a deleted run has said nothing");
}

#[tokio::test]
async fn messages_of_runs_that_overlap_come_run_after_run() {
    let server = shared().await;
    let supervisor = server.create(json!({ "thread_id": "t", "role": "supervisor" })).await;
    let worker = server.child_of(&supervisor).await;
    for (n, run) in [&supervisor, &worker, &supervisor, &worker, &worker, &supervisor].into_iter().enumerate() {
        let content = json!([{ "type": "text", "text": n.to_string() }]);
        server.emit(run, json!({ "type": "message.completed", "payload": { "content": content } })).await;
    }
    for limit in [1, 2, 3, 4, 100] {
        let messages = server.pages(&format!("/api/threads/t/messages?limit={limit}"), "messages").await;
        assert_eq!(column(&messages, "text"), ["0", "2", "5", "1", "3", "4"], "{limit} at a time");
    }
}

#[tokio::test]
async fn a_run_with_an_id_of_its_clients_and_times_of_its_own_loses_no_message() {
    let server = Server::start().await;
    let yesterday = uuid::Uuid::new_v7(uuid::Timestamp::from_unix(
        uuid::NoContext,
        u64::try_from(server.clock.now().timestamp()).unwrap() - 80_000,
        0,
    ));
    let mut expected = BTreeSet::new();
    for id in [yesterday.to_string(), new_run_id()] {
        let run = server.create(json!({ "thread_id": "t", "run_id": id })).await;
        for (n, at) in ["2030-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "2030-01-01T00:00:00Z"].iter().enumerate() {
            server.emit(&run, json!({ "type": "message.completed", "at": at })).await;
            expected.insert((run.clone(), n as i64 + 3));
        }
    }
    for limit in [1, 2, 3, 4, 5, 6] {
        let messages = server.pages(&format!("/api/threads/t/messages?limit={limit}"), "messages").await;
        let found: Vec<_> = messages
            .iter()
            .map(|message| (message["run_id"].as_str().unwrap().to_owned(), message["seq"].as_i64().unwrap()))
            .collect();
        assert_eq!(found.len(), expected.len(), "{limit} at a time: {found:?}");
        assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected);
    }
}
