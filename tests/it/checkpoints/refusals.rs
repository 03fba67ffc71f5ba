//! What is refused of checkpoints and writes: whole, with a reason, and leaving nothing behind.

use serde_json::{Value, json};

use crate::support::{
    server::Server,
    shared::shared,
    threads::{checkpoint_of, encoded, state, state_with, value, write, writes_of},
};

const ROWS: &str = "select (select count(*) from store.thread) + (select count(*) from store.checkpoint)
    + (select count(*) from store.blob) + (select count(*) from store.pending_write)";

#[tokio::test]
async fn a_checkpoint_that_breaks_a_rule_leaves_nothing() {
    let server = Server::start().await;
    let c = value(b"x");
    let deep = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
    for body in [
        String::new(),
        "{}".to_owned(),
        "null".to_owned(),
        "[]".to_owned(),
        "\u{feff}{}".to_owned(),
        format!("{{\"checkpoint\":{c}"),
        format!("{{\"checkpoint\":{c}}}{{}}"),
        format!("{{\"checkpoint\":{c},\"checkpoint\":{c}}}"),
        format!("{{\"checkpoint\":{c},\"thread_id\":\"t\"}}"),
        format!("{{\"checkpoint\":{c},\"writes\":[]}}"),
        format!("{{\"checkpoint\":{c},\"created_at\":\"2026-01-01T00:00:00Z\"}}"),
        format!("{{\"checkpoint\":{c},\"metadata\":[]}}"),
        format!("{{\"checkpoint\":{c},\"metadata\":\"x\"}}"),
        format!("{{\"checkpoint\":{c},\"metadata\":{{\"a\":\"\\u0000\"}}}}"),
        format!("{{\"checkpoint\":{c},\"metadata\":{{\"\\u0000\":1}}}}"),
        format!("{{\"checkpoint\":{c},\"metadata\":{{\"a\":\"\\ud800\"}}}}"),
        format!("{{\"checkpoint\":{c},\"metadata\":{{\"a\":{}}}}}", deep(64)),
        format!("{{\"checkpoint\":{c},\"metadata\":{{\"a\":{}}}}}", deep(100_000)),
        format!("{{\"checkpoint\":{}}}", deep(100_000)),
        format!("{{\"checkpoint\":{c},\"versions\":[]}}"),
        format!("{{\"checkpoint\":{c},\"versions\":{{\"a\":1,\"a\":2}}}}"),
        format!("{{\"checkpoint\":{c},\"versions\":{{\"a\":1,\"\\u0061\":2}}}}"),
        format!("{{\"checkpoint\":{c},\"versions\":{{\"\":1}}}}"),
        format!("{{\"checkpoint\":{c},\"versions\":{{\"a\\nb\":1}}}}"),
        format!("{{\"checkpoint\":{c},\"versions\":{{\"\\u0000\":1}}}}"),
        format!("{{\"checkpoint\":{c},\"versions\":{{\"{}\":1}}}}", "c".repeat(513)),
        format!("{{\"checkpoint\":{c},\"blobs\":{{\"a\":{{\"t\":\"x\"}}}}}}"),
        format!("{{\"checkpoint\":{c},\"blobs\":{{\"a\":{{\"t\":\"x\",\"version\":null}}}}}}"),
        format!("{{\"checkpoint\":{c},\"blobs\":{{\"a\":{{\"t\":\"x\",\"version\":1,\"x\":1}}}}}}"),
        format!("{{\"checkpoint\":{c},\"run_id\":5}}"),
        format!("{{\"checkpoint\":{c},\"run_id\":\"\"}}"),
    ] {
        server.put_text(&checkpoint_of("t", "1"), body).await.refused(400, "invalid_request");
    }
    let not_utf8 = [b"{\"checkpoint\":{\"t\":\"".as_slice(), b"\xff\"}}"].concat();
    server.put_text(&checkpoint_of("t", "1"), not_utf8).await.refused(400, "invalid_request");
    for media_type in ["text/plain", "application/octet-stream", ""] {
        let request = server.request(reqwest::Method::PUT, &checkpoint_of("t", "1")).header("content-type", media_type);
        server.send(request.body(state("x").to_string())).await.refused(415, "unsupported_media_type");
    }
    assert_eq!(server.db.number(ROWS).await, 0);
    let deepest = format!("{{\"checkpoint\":{c},\"metadata\":{{\"a\":{}}}}}", deep(63));
    server.put_text(&checkpoint_of("t", "1"), deepest).await.expect(201);
}

#[tokio::test]
async fn a_filter_of_any_depth_is_answered() {
    let server = shared().await;
    server.put_checkpoint("t", "1", state("x")).await;
    for levels in [63, 64, 1_000] {
        let filter = format!("{{\"a\":{}1{}}}", "[".repeat(levels), "]".repeat(levels));
        let reply = server.get(&format!("/api/checkpoints?filter={}", encoded(&filter))).await;
        assert_eq!(reply.status, if levels < 64 { 200 } else { 400 }, "{levels}: {}", reply.text);
    }
}

#[tokio::test]
async fn writes_that_break_a_rule_leave_nothing() {
    let server = Server::start().await;
    let w = write(0, "c", b"x");
    for body in [
        json!({}),
        json!({ "writes": [w] }),
        json!({ "task_id": "a" }),
        json!({ "task_id": "", "writes": [w] }),
        json!({ "task_id": "x".repeat(129), "writes": [w] }),
        json!({ "task_id": "a\n", "writes": [w] }),
        json!({ "task_id": 1, "writes": [w] }),
        json!({ "task_id": "a", "task_path": "x".repeat(1_025), "writes": [w] }),
        json!({ "task_id": "a", "task_path": "\u{0}", "writes": [w] }),
        json!({ "task_id": "a", "ns": "x".repeat(1_025), "writes": [w] }),
        json!({ "task_id": "a", "upsert": "yes", "writes": [w] }),
        json!({ "task_id": "a", "upsert": 1, "writes": [w] }),
        json!({ "task_id": "a", "writes": w }),
        json!({ "task_id": "a", "writes": null }),
        json!({ "task_id": "a", "writes": [w, null] }),
        json!({ "task_id": "a", "writes": [write(2_147_483_648, "c", b"x")] }),
        json!({ "task_id": "a", "writes": [write(i64::MIN, "c", b"x")] }),
        json!({ "task_id": "a", "writes": [{ "idx": 1.5, "channel": "c", "t": "x" }] }),
        json!({ "task_id": "a", "writes": [{ "idx": "0", "channel": "c", "t": "x" }] }),
        json!({ "task_id": "a", "writes": [{ "channel": "c", "t": "x" }] }),
        json!({ "task_id": "a", "writes": [{ "idx": 0, "t": "x" }] }),
        json!({ "task_id": "a", "writes": [write(0, "", b"x")] }),
        json!({ "task_id": "a", "writes": [write(0, &"c".repeat(513), b"x")] }),
        json!({ "task_id": "a", "writes": [write(0, "a\u{0}", b"x")] }),
        json!({ "task_id": "a", "writes": [w], "checkpoint_id": "1" }),
        json!([w]),
    ] {
        server.put(&writes_of("t", "1"), body).await.refused(400, "invalid_request");
    }
    assert_eq!(server.db.number(ROWS).await, 0);
}

#[tokio::test]
async fn whoever_goes_over_a_bound_of_checkpoints_is_told_so() {
    let server = shared().await;
    let metadata = |bytes: usize| state_with("x", json!({ "metadata": { "a": "x".repeat(bytes - 8) } }));
    server.try_checkpoint("t", "1", metadata(64 * 1024)).await.expect(201);
    server.try_checkpoint("t", "2", metadata(64 * 1024 + 1)).await.refused(413, "too_large");
    let channels = |count: usize| {
        let versions: serde_json::Map<String, Value> = (0..count).map(|n| (format!("c{n}"), json!(n))).collect();
        state_with("x", json!({ "versions": versions }))
    };
    server.try_checkpoint("t", "2", channels(10_000)).await.expect(201);
    assert_eq!(server.checkpoint("t", "2").await["versions"].as_object().unwrap().len(), 10_000);
    server.try_checkpoint("t", "3", channels(10_001)).await.refused(413, "too_large");
    let writes = |count: i64| {
        let writes: Vec<Value> = (0..count).map(|n| json!({ "idx": n, "channel": "c", "t": "x" })).collect();
        json!({ "task_id": "a", "writes": writes })
    };
    assert_eq!(server.put_writes("t", "1", writes(10_000)).await, 10_000);
    server.put(&writes_of("t", "3"), writes(10_001)).await.refused(413, "too_large");
    server.get(&checkpoint_of("t", "3")).await.refused(404, "not_found");
}

#[tokio::test]
async fn a_small_checkpoint_does_not_come_back_as_a_large_one() {
    let server = shared().await;
    let numbers = vec!["1e100000"; 100].join(",");
    let body = format!("{{\"checkpoint\":{},\"metadata\":{{\"n\":[{numbers}]}}}}", value(b"x"));
    let sent = body.len();
    let reply = server.put_text(&checkpoint_of("t", "1"), body).await;
    if reply.status == 400 {
        reply.refused(400, "invalid_request");
        return;
    }
    reply.expect(201);
    for path in [checkpoint_of("t", "1"), "/api/checkpoints".to_owned()] {
        let read = server.get(&path).await;
        assert!(read.status == 200 && read.text.len() < sent * 4, "{sent} bytes became {}", read.text.len());
    }
}
