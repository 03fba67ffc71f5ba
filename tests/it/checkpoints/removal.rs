//! What copies checkpoints and what takes them away, with every value they leave behind.

use serde_json::{Value, json};

use crate::support::{
    server::Server,
    threads::{blob, column, state, state_with, value, write},
};

/// A thread of two namespaces: five checkpoints, six values, five writes of which two are early.
async fn fill(server: &Server, thread: &str) {
    server
        .put(&format!("/api/threads/{thread}"), json!({ "metadata": { "of": thread }, "ttl_s": 99 }))
        .await
        .expect(201);
    let put = async |id: &str, more: Value| server.put_checkpoint(thread, id, state_with(id, more)).await;
    let (a, b) = ("run-a", "run-b");
    put(
        "1",
        json!({ "run_id": a, "versions": { "m": 1, "k": 1 }, "blobs": { "m": blob(1, b"m1"), "k": blob(1, b"k1") } }),
    )
    .await;
    put(
        "2",
        json!({ "run_id": b, "parent_id": "1", "versions": { "m": 2, "k": 1 }, "blobs": { "m": blob(2, b"m2") } }),
    )
    .await;
    put(
        "3",
        json!({ "run_id": a, "parent_id": "2", "versions": { "m": 3, "k": 1 }, "blobs": { "m": blob(3, b"m3") } }),
    )
    .await;
    put("1", json!({ "ns": "sub", "run_id": b, "versions": { "m": 1 }, "blobs": { "m": blob(1, b"s1") } })).await;
    put(
        "2",
        json!({ "ns": "sub", "versions": { "m": 2 }, "blobs": { "m": blob(2, b"s2") }, "metadata": { "run_id": a } }),
    )
    .await;
    for (id, ns, count) in [("1", "", 2), ("3", "", 1), ("9", "", 1), ("1", "sub", 1)] {
        let writes: Vec<Value> = (0..count).map(|idx| write(idx, "c", b"w")).collect();
        let stored = server.put_writes(thread, id, json!({ "ns": ns, "task_id": "a", "writes": writes })).await;
        assert_eq!(stored, count);
    }
}

/// Rows of the whole database: threads, checkpoints, values, writes.
async fn rows(server: &Server) -> [i64; 4] {
    [
        server.db.number("select count(*) from store.thread").await,
        server.db.number("select count(*) from store.checkpoint").await,
        server.db.number("select count(*) from store.blob").await,
        server.db.number("select count(*) from store.pending_write").await,
    ]
}

/// The checkpoints of a thread without what a copy may change.
async fn content(server: &Server, thread: &str) -> Vec<Value> {
    let mut rows = server.pages(&format!("/api/threads/{thread}/checkpoints"), "checkpoints").await;
    for row in &mut rows {
        row.as_object_mut().unwrap().retain(|member, _| member != "thread_id" && member != "created_at");
    }
    rows
}

fn gone(threads: i64, checkpoints: i64, writes: i64, blobs: i64) -> Value {
    json!({ "threads": threads, "checkpoints": checkpoints, "writes": writes, "blobs": blobs })
}

const PRUNE: &str = "/api/threads/prune";

#[tokio::test]
async fn keep_latest_leaves_the_newest_of_each_namespace_and_all_it_needs() {
    let server = Server::start().await;
    fill(&server, "t").await;
    fill(&server, "other").await;
    assert_eq!(rows(&server).await, [2, 10, 12, 10]);
    let before = content(&server, "t").await;
    let body = json!({ "thread_ids": ["t", "absent", "t"], "strategy": "keep_latest" });
    // Gone: 1 and 2 of the root with two writes and m1 and m2; 1 of the other with a write and s1. k1 is still in use.
    assert_eq!(server.post(PRUNE, body.clone()).await.expect(200), gone(0, 3, 3, 3));
    let mut kept: Vec<Value> = before
        .into_iter()
        .filter(|row| [("", "3"), ("sub", "2")].iter().any(|(ns, id)| row["ns"] == *ns && row["checkpoint_id"] == *id))
        .collect();
    for row in &mut kept {
        row["parent_id"] = json!(null);
    }
    assert_eq!(content(&server, "t").await, kept, "without the link to the one before it, else as it was put");
    assert_eq!(rows(&server).await, [2, 7, 9, 7]);
    assert_eq!(server.post(PRUNE, body).await.expect(200), gone(0, 0, 0, 0));
    // The early write still finds its checkpoint.
    server.put_checkpoint("t", "9", state("late")).await;
    assert_eq!(server.checkpoint("t", "9").await["writes"].as_array().unwrap().len(), 1);
    assert_eq!(content(&server, "other").await.len(), 5);
}

#[tokio::test]
async fn a_prune_that_deletes_counts_everything_and_spares_the_rest() {
    let server = Server::start().await;
    for thread in ["t", "u", "other"] {
        fill(&server, thread).await;
    }
    let run = server.create(json!({ "thread_id": "t" })).await;
    let body = json!({ "thread_ids": ["t", "u", "u", "absent"], "strategy": "delete" });
    assert_eq!(server.post(PRUNE, body.clone()).await.expect(200), gone(2, 10, 10, 12));
    assert_eq!(rows(&server).await, [1, 5, 6, 5]);
    assert_eq!(server.run(&run).await["status"], "running", "its runs stay");
    assert_eq!(server.post(PRUNE, body).await.expect(200), gone(0, 0, 0, 0));
    assert_eq!(
        server.post(PRUNE, json!({ "thread_ids": [], "strategy": "delete" })).await.expect(200),
        gone(0, 0, 0, 0)
    );
}

#[tokio::test]
async fn the_checkpoints_of_a_run_go_with_their_writes_and_with_values_nobody_else_uses() {
    let server = Server::start().await;
    fill(&server, "t").await;
    fill(&server, "u").await;
    let path = "/api/checkpoints/delete-for-runs";
    // Of each thread: 1 and 3 of the root, 2 of the other; three writes; m1, m3 and s2. k1 and m2 belong to 2 as well.
    let body = json!({ "run_ids": ["run-a", "nobody", "run-a"] });
    assert_eq!(server.post(path, body.clone()).await.expect(200), gone(0, 6, 6, 6));
    assert_eq!(rows(&server).await, [2, 4, 6, 4]);
    let left = content(&server, "t").await;
    assert_eq!(column(&left, "ns"), ["", "sub"]);
    assert_eq!((&left[0]["checkpoint_id"], &left[0]["parent_id"]), (&json!("2"), &json!("1")));
    assert_eq!(left[0]["blobs"], json!({ "m": blob(2, b"m2"), "k": blob(1, b"k1") }));
    assert_eq!((&left[1]["checkpoint_id"], left[1]["writes"].as_array().unwrap().len()), (&json!("1"), 1));
    assert_eq!(server.post(path, body).await.expect(200), gone(0, 0, 0, 0));
    assert_eq!(server.thread("t").await["latest_checkpoint_id"], "2");
    assert_eq!(server.post(path, json!({ "run_ids": ["run-b"] })).await.expect(200), gone(0, 4, 2, 6));
    assert_eq!(rows(&server).await, [2, 0, 0, 2], "the early writes wait for their checkpoint");
    assert!(server.thread("t").await["latest_checkpoint_id"].is_null());
}

#[tokio::test]
async fn a_value_that_only_a_replaced_checkpoint_used_goes_with_the_next_prune() {
    let server = Server::start().await;
    let put = async |more: Value| server.put_checkpoint("t", "1", state_with("x", more)).await;
    put(json!({ "versions": { "m": "a" }, "blobs": { "m": blob("a", b"a"), "unnamed": blob(1, b"nobody's") } })).await;
    put(json!({ "versions": { "m": "b" }, "blobs": { "m": blob("b", b"b") } })).await;
    let pruned = server.post(PRUNE, json!({ "thread_ids": ["t"], "strategy": "keep_latest" })).await.expect(200);
    assert_eq!(pruned["checkpoints"], 0);
    assert_eq!(rows(&server).await, [1, 1, 1, 0]);
    assert_eq!(server.checkpoint("t", "1").await["blobs"], json!({ "m": blob("b", b"b") }));
}

#[tokio::test]
async fn what_names_too_much_or_nothing_is_refused_whole() {
    let server = Server::start().await;
    fill(&server, "t").await;
    let before = rows(&server).await;
    let many = |count: usize| (0..count).map(|n| format!("t{n}")).collect::<Vec<_>>();
    let for_runs = "/api/checkpoints/delete-for-runs";
    server.post(PRUNE, json!({ "thread_ids": many(1_000), "strategy": "delete" })).await.expect(200);
    server.post(for_runs, json!({ "run_ids": many(1_000) })).await.expect(200);
    server.post(PRUNE, json!({ "thread_ids": many(1_001), "strategy": "delete" })).await.refused(413, "too_large");
    server.post(for_runs, json!({ "run_ids": many(1_001) })).await.refused(413, "too_large");
    for body in [
        json!({}),
        json!({ "thread_ids": ["t"] }),
        json!({ "strategy": "delete" }),
        json!({ "thread_ids": "t", "strategy": "delete" }),
        json!({ "thread_ids": ["t"], "strategy": "everything" }),
        json!({ "thread_ids": ["t"], "strategy": "Delete" }),
        json!({ "thread_ids": ["t"], "strategy": null }),
        json!({ "thread_ids": ["t", 1], "strategy": "delete" }),
        json!({ "thread_ids": ["t", null], "strategy": "delete" }),
        json!({ "thread_ids": ["t"], "strategy": "delete", "older_than": 1 }),
    ] {
        server.post(PRUNE, body).await.refused(400, "invalid_request");
    }
    for body in [
        json!({}),
        json!({ "run_ids": "run-a" }),
        json!({ "run_ids": ["run-a", 5] }),
        json!({ "run_ids": ["run-a"], "x": 1 }),
    ] {
        server.post(for_runs, body).await.refused(400, "invalid_request");
    }
    assert_eq!(rows(&server).await, before);
}

#[tokio::test]
async fn a_copy_holds_what_its_source_holds_and_lives_on_its_own() {
    let server = Server::start().await;
    fill(&server, "t").await;
    server.create(json!({ "thread_id": "t" })).await;
    let copy = server.post("/api/threads/t/copy", json!({ "to": "u" })).await.expect(201);
    assert_eq!(copy, server.thread("u").await);
    assert_eq!(
        (&copy["thread_id"], &copy["metadata"], &copy["ttl_s"]),
        (&json!("u"), &json!({ "of": "t" }), &json!(99))
    );
    assert_eq!(copy["latest_checkpoint_id"], "3");
    assert_eq!(content(&server, "u").await, content(&server, "t").await);
    assert_eq!(rows(&server).await, [2, 10, 12, 10], "the early write as well");
    assert_eq!(server.get("/api/threads/u/runs").await.expect(200)["runs"], json!([]), "runs are the log's");
    server.post("/api/threads/t/copy", json!({ "to": "u" })).await.expect(200);
    assert_eq!(rows(&server).await, [2, 10, 12, 10]);
    let before = content(&server, "t").await;
    server
        .put_checkpoint(
            "u",
            "3",
            state_with("changed", json!({ "versions": { "m": 3 }, "blobs": { "m": blob(3, b"kept") } })),
        )
        .await;
    server.delete("/api/threads/u").await;
    assert_eq!(content(&server, "t").await, before);
}

#[tokio::test]
async fn a_copy_goes_only_where_nothing_else_is() {
    let server = Server::start().await;
    fill(&server, "t").await;
    let path = "/api/threads/t/copy";
    server.put_checkpoint("taken", "0", state("mine")).await;
    server.put_checkpoint("same-id", "1", state("mine")).await;
    for to in ["taken", "same-id"] {
        let before = (content(&server, to).await, server.thread(to).await, rows(&server).await);
        server.post(path, json!({ "to": to })).await.refused(409, "thread_exists");
        assert_eq!((content(&server, to).await, server.thread(to).await, rows(&server).await), before);
    }
    // A thread without checkpoints may be copied to, and becomes the same.
    server.put("/api/threads/empty", json!({ "metadata": { "mine": 1 }, "ttl_s": 5 })).await.expect(201);
    let copy = server.post(path, json!({ "to": "empty" })).await.expect(200);
    assert_eq!(content(&server, "empty").await, content(&server, "t").await);
    assert_eq!(
        (&copy["metadata"], &copy["ttl_s"]),
        (&json!({ "of": "t" }), &json!(99)),
        "metadata and time to live too"
    );
}

#[tokio::test]
async fn a_checkpoint_of_the_same_name_and_other_content_is_another_one() {
    let server = Server::start().await;
    let full = |metadata: &str, text: &str| {
        let blobs = json!({ "c": blob(1, text.as_bytes()) });
        json!({ "parent_id": "0", "metadata": { "m": metadata }, "versions": { "c": 1 }, "blobs": blobs })
    };
    server.put_checkpoint("t", "1", state_with("same", full("m", "value"))).await;
    for (n, (metadata, text)) in [("other", "value"), ("m", "other")].into_iter().enumerate() {
        let to = format!("to{n}");
        server.put_checkpoint(&to, "1", state_with("same", full(metadata, text))).await;
        let reply = server.post("/api/threads/t/copy", json!({ "to": to })).await;
        if reply.status == 200 {
            assert_eq!(content(&server, &to).await, content(&server, "t").await, "a copy that was made is one");
        } else {
            reply.refused(409, "thread_exists");
        }
    }
    // The source's own was replaced since it was copied.
    server.post("/api/threads/t/copy", json!({ "to": "copy" })).await.expect(201);
    server.put_checkpoint("t", "1", state_with("same", json!({ "metadata": { "m": "new" } }))).await;
    let reply = server.post("/api/threads/t/copy", json!({ "to": "copy" })).await;
    if reply.status == 200 {
        assert_eq!(content(&server, "copy").await, content(&server, "t").await);
    } else {
        reply.refused(409, "thread_exists");
    }
}

#[tokio::test]
async fn a_copy_can_be_completed_after_its_source_went_on() {
    let server = Server::start().await;
    fill(&server, "t").await;
    server.post("/api/threads/t/copy", json!({ "to": "u" })).await.expect(201);
    server
        .put_checkpoint(
            "t",
            "4",
            state_with("x", json!({ "parent_id": "3", "versions": { "m": 4 }, "blobs": { "m": blob(4, b"m4") } })),
        )
        .await;
    server.post("/api/threads/t/copy", json!({ "to": "u" })).await.expect(200);
    assert_eq!(content(&server, "u").await, content(&server, "t").await);
    // Now the copy is ahead: it holds what the source does not.
    server.put_checkpoint("u", "5", state("x")).await;
    server.post("/api/threads/t/copy", json!({ "to": "u" })).await.refused(409, "thread_exists");
}

#[tokio::test]
async fn a_copy_that_cannot_be_made_changes_nothing() {
    let server = Server::start().await;
    fill(&server, "t").await;
    let before = (rows(&server).await, content(&server, "t").await, server.thread("t").await);
    let too_long = json!("x".repeat(256));
    for to in [json!(""), json!("a b"), json!("a/b"), json!("é"), too_long, json!(1), json!(null), json!(["u"])] {
        server.post("/api/threads/t/copy", json!({ "to": to })).await.refused(400, "invalid_request");
    }
    for body in [json!({}), json!({ "to": "u", "from": "t" }), json!([])] {
        server.post("/api/threads/t/copy", body).await.refused(400, "invalid_request");
    }
    server.post("/api/threads/absent/copy", json!({ "to": "u" })).await.refused(404, "not_found");
    let itself = server.post("/api/threads/t/copy", json!({ "to": "t" })).await;
    assert!(matches!(itself.status, 200 | 400 | 409), "{}", itself.text);
    assert_eq!((rows(&server).await, content(&server, "t").await), (before.0, before.1));
    server.get("/api/threads/u").await.refused(404, "not_found");
    server.put("/api/threads/bare", json!({})).await.expect(201);
    server.post("/api/threads/bare/copy", json!({ "to": "u" })).await.expect(201);
    assert_eq!(server.checkpoint("t", "1").await["checkpoint"], value(b"1"));
}
