//! Many at once, two servers, and a server that dies: nothing torn, nothing lost, nobody waiting for ever.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering},
};

use serde_json::{Map, Value, json};

use crate::support::{
    api::Api,
    cluster::Db,
    process::{program, serve},
    runs::new_run_id,
    server::{Server, setup},
    threads::{blob, bytes_of, checkpoint_of, column, state, state_with, value, write, writes_of},
    until,
};

async fn two() -> [Server; 2] {
    let db = Db::new().await;
    [setup().on(&db).start().await, setup().on(&db).start().await]
}

#[tokio::test]
async fn of_many_who_put_one_checkpoint_one_makes_it_and_it_is_never_torn() {
    let servers = two().await;
    for round in ["1", "2", "3"] {
        let puts = (0..20).map(|n: usize| {
            let text = n.to_string();
            let more = json!({ "metadata": { "n": n }, "parent_id": &text, "run_id": &text });
            servers[n % 2].try_checkpoint("t", round, state_with(&text, more))
        });
        let mut statuses = Vec::new();
        for reply in futures::future::join_all(puts).await {
            statuses.push(reply.status);
        }
        statuses.sort_unstable();
        let expected = [vec![200; 19], vec![201]].concat();
        assert_eq!(statuses, expected);
        let read = servers[0].checkpoint("t", round).await;
        let winner = bytes_of(&read["checkpoint"]);
        let text = String::from_utf8(winner).unwrap();
        assert_eq!(
            (&read["parent_id"], &read["run_id"], read["metadata"]["n"].to_string()),
            (&json!(text), &json!(text), text.clone())
        );
    }
    assert_eq!(servers[0].db.number("select count(*) from store.thread").await, 1);
}

#[tokio::test]
async fn those_who_put_the_same_values_in_another_order_do_not_wait_for_each_other() {
    let servers = two().await;
    for round in 0..3 {
        let puts = (0..20).map(|n: usize| {
            let mut channels: Vec<usize> = (0..60).collect();
            channels.rotate_left(n * 3);
            if n % 2 == 1 {
                channels.reverse();
            }
            let names = || channels.iter().map(|channel| format!("c{channel}"));
            let versions: Map<String, Value> = names().map(|name| (name, json!(round))).collect();
            let blobs: Map<String, Value> = names().map(|name| (name, blob(round, n.to_string().as_bytes()))).collect();
            let body = state_with("x", json!({ "versions": versions, "blobs": blobs }));
            let (server, id) = (&servers[n % 2], format!("{round}-{n}"));
            async move { server.try_checkpoint("t", &id, body).await }
        });
        for reply in futures::future::join_all(puts).await {
            reply.expect(201);
        }
    }
    // Whoever came first with a value, everybody sees that one.
    let all = servers[1].pages("/api/threads/t/checkpoints?limit=20", "checkpoints").await;
    for rows in all.chunks(20) {
        assert!(
            rows.iter().all(|row| row["blobs"] == rows[0]["blobs"] && row["blobs"].as_object().unwrap().len() == 60)
        );
    }
    assert_eq!(servers[0].db.number("select count(*) from store.blob").await, 180);
}

#[tokio::test]
async fn no_prune_takes_a_value_from_under_a_checkpoint_that_is_on_its_way() {
    let [a, b] = two().await;
    let done = AtomicBool::new(false);
    let writer = async |server: &Server, writer: usize| {
        for n in 0..40 {
            // Few versions that come again and again: a value is dropped and needed anew all the time.
            let version = n % 3;
            let more = json!({ "run_id": format!("{writer}"), "versions": { "x": version, "y": writer },
                "blobs": { "x": blob(version, format!("x{version}").as_bytes()), "y": blob(writer, b"y") } });
            let id = format!("{n:03}-{writer}");
            let stored = server.try_checkpoint("t", &id, state_with("s", more)).await;
            assert!(matches!(stored.status, 200 | 201), "{}", stored.text);
        }
    };
    let pruner = async |server: &Server| {
        while !done.load(Ordering::SeqCst) {
            let body = json!({ "thread_ids": ["t"], "strategy": "keep_latest" });
            server.post("/api/threads/prune", body).await.expect(200);
            server.post("/api/checkpoints/delete-for-runs", json!({ "run_ids": ["1", "nobody"] })).await.expect(200);
        }
    };
    let reader = async |server: &Server| {
        while !done.load(Ordering::SeqCst) {
            let list = server.get("/api/threads/t/checkpoints").await;
            assert!(matches!(list.status, 200 | 404), "{}", list.text);
            for row in list.json()["checkpoints"].as_array().into_iter().flatten() {
                assert_eq!(row["blobs"].as_object().unwrap().len(), 2, "{row}");
            }
        }
    };
    let writing = async {
        tokio::join!(writer(&a, 0), writer(&b, 1), writer(&a, 2), writer(&b, 3));
        done.store(true, Ordering::SeqCst);
    };
    tokio::join!(writing, pruner(&a), pruner(&b), reader(&a), reader(&b));
    for row in a.pages("/api/threads/t/checkpoints", "checkpoints").await {
        let version = row["versions"]["x"].as_i64().unwrap();
        assert_eq!(bytes_of(&row["blobs"]["x"]), format!("x{version}").as_bytes(), "{row}");
        assert_eq!(bytes_of(&row["blobs"]["y"]), b"y", "{row}");
    }
    a.post("/api/threads/prune", json!({ "thread_ids": ["t"], "strategy": "keep_latest" })).await.expect(200);
    assert_eq!(a.db.number("select count(*) from store.blob").await, 2, "and nothing is left over");
}

#[tokio::test]
async fn a_thread_that_is_deleted_while_it_is_written_is_whole_or_not_there() {
    let [a, b] = two().await;
    for round in 0..10 {
        let put = |n: usize| {
            let more = json!({ "versions": { "c": n }, "blobs": { "c": blob(n, b"v") } });
            let server = if n.is_multiple_of(2) { &a } else { &b };
            async move { server.try_checkpoint("t", &n.to_string(), state_with("x", more)).await }
        };
        let writes = |n: usize| {
            let body = json!({ "task_id": n.to_string(), "writes": [write(0, "c", b"w")] });
            let b = &b;
            async move { b.put(&writes_of("t", "0"), body).await }
        };
        let (puts, writes, deleted, run) = tokio::join!(
            futures::future::join_all((0..6).map(put)),
            futures::future::join_all((0..6).map(writes)),
            futures::future::join_all((0..3).map(|_| a.delete("/api/threads/t"))),
            b.post("/api/runs", json!({ "thread_id": "t", "run_id": new_run_id() })),
        );
        for reply in puts.iter().chain(&writes).chain([&run]) {
            assert!(matches!(reply.status, 200 | 201), "{round}: {} {}", reply.status, reply.text);
        }
        assert!(deleted.iter().all(|reply| matches!(reply.status, 204 | 404)), "{deleted:?}");
        let list = a.get("/api/threads/t/checkpoints").await;
        if list.status == 200 {
            for row in list.json()["checkpoints"].as_array().unwrap() {
                assert_eq!(row["blobs"].as_object().unwrap().len(), 1, "{round}: {row}");
            }
        }
    }
}

#[tokio::test]
async fn copies_that_cross_do_not_wait_for_each_other() {
    let servers = two().await;
    for round in 0..6 {
        let (x, y) = (format!("x{round}"), format!("y{round}"));
        servers[0].put_checkpoint(&x, "1", state("same")).await;
        servers[0].put_checkpoint(&y, "1", state("same")).await;
        let copies = (0..10).map(|n: usize| {
            let (from, to) = if n.is_multiple_of(2) { (&x, &y) } else { (&y, &x) };
            let (api, path, body) =
                (servers[n / 2 % 2].api.clone(), format!("/api/threads/{from}/copy"), json!({ "to": to }));
            async move { api.post(&path, body).await }
        });
        for reply in futures::future::join_all(copies).await {
            assert_eq!(reply.status, 200, "{round}: {}", reply.text);
        }
    }
}

#[tokio::test]
async fn of_copies_of_two_threads_to_one_place_one_arrives_whole() {
    let servers = two().await;
    for round in 0..6 {
        let to = format!("to{round}");
        for from in ["a", "b"] {
            for id in ["1", "2", "3"] {
                servers[0].put_checkpoint(&format!("{from}{round}"), id, state(from)).await;
            }
        }
        let copy = |server: &Server, from: &str| {
            let (api, path, body) =
                (server.api.clone(), format!("/api/threads/{from}{round}/copy"), json!({ "to": to }));
            async move { api.post(&path, body).await }
        };
        let (first, second) = tokio::join!(copy(&servers[0], "a"), copy(&servers[1], "b"));
        let mut statuses = [first.status, second.status];
        statuses.sort_unstable();
        assert_eq!(statuses, [201, 409], "{} {}", first.text, second.text);
        let rows = servers[0].pages(&format!("/api/threads/{to}/checkpoints"), "checkpoints").await;
        let held: BTreeSet<Vec<u8>> = rows.iter().map(|row| bytes_of(&row["checkpoint"])).collect();
        assert_eq!((rows.len(), held.len()), (3, 1));
    }
}

#[tokio::test]
async fn what_one_server_keeps_the_other_reads_at_once() {
    let [a, b] = two().await;
    for n in 0..20 {
        let id = n.to_string();
        let more = json!({ "versions": { "c": n }, "blobs": { "c": blob(n, id.as_bytes()) } });
        a.put_checkpoint("t", &id, state_with(&id, more)).await;
        assert_eq!(b.checkpoint("t", &id).await, a.checkpoint("t", &id).await);
        b.put_checkpoint("t", &id, state_with("again", json!({ "versions": { "c": n } }))).await;
        assert_eq!(a.checkpoint("t", &id).await["checkpoint"], value(b"again"));
    }
    assert_eq!(a.thread("t").await, b.thread("t").await);
    assert_eq!(b.delete("/api/threads/t").await.status, 204);
    a.get("/api/threads/t").await.refused(404, "not_found");
}

#[tokio::test]
async fn what_was_kept_survives_the_death_of_the_server() {
    let db = Db::new().await;
    let start = async || serve(program(&["serve", "--listen", "127.0.0.1:0", "--database-url", &db.url()])).await;
    let mut served = start().await;
    let api = Api::new(served.base.clone());
    api.put("/api/threads/t", json!({ "metadata": { "kept": true }, "ttl_s": 1_000 })).await.expect(201);
    let more =
        json!({ "ns": "n", "parent_id": "0", "versions": { "c": "v" }, "blobs": { "c": blob("v", b"\x00\xff") } });
    api.put_checkpoint("t", "1", state_with("x", more)).await;
    api.put_writes("t", "1", json!({ "ns": "n", "task_id": "a", "writes": [write(-3, "c", b"w")] })).await;
    let path = format!("{}?ns=n", checkpoint_of("t", "1"));
    let (thread, checkpoint) = (api.thread("t").await, api.get(&path).await.expect(200));
    // Whatever it was doing, an answer it gave is kept.
    let acknowledged = std::sync::Mutex::new(Vec::new());
    let writer = async {
        for n in 0.. {
            let id = format!("{n:05}");
            let request = api.request(reqwest::Method::PUT, &checkpoint_of("busy", &id)).json(&state(&id));
            let Ok(response) = request.send().await else { return };
            assert_eq!(response.status(), 201);
            acknowledged.lock().unwrap().push(id);
        }
    };
    let killer = async {
        until("some checkpoints", || async { acknowledged.lock().unwrap().len() > 30 }).await;
        served.child.kill().await.unwrap();
    };
    tokio::join!(writer, killer);
    let served = start().await;
    let api = Api::new(served.base.clone());
    assert_eq!(api.thread("t").await, thread);
    assert_eq!(api.get(&path).await.expect(200), checkpoint);
    let found = api.pages("/api/threads/busy/checkpoints?limit=1000", "checkpoints").await;
    let found: BTreeSet<&str> = column(&found, "checkpoint_id").into_iter().collect();
    let lost: Vec<String> =
        acknowledged.into_inner().unwrap().into_iter().filter(|id| !found.contains(id.as_str())).collect();
    assert!(lost.is_empty(), "{lost:?}");
}
