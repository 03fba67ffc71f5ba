//! What the tasks of a checkpoint have written.

use serde_json::{Value, json};

use crate::support::{
    cluster::Db,
    server::setup,
    shared::shared,
    threads::{bytes_of, checkpoint_of, state, state_with, write, writes_of},
};

/// Where each write of a checkpoint stands and what it holds.
fn places(checkpoint: &Value) -> Vec<(String, String, i64, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let writes = checkpoint["writes"].as_array().unwrap().iter();
    writes
        .map(|write| {
            let held = String::from_utf8(bytes_of(write)).unwrap();
            (text(&write["task_path"]), text(&write["task_id"]), write["idx"].as_i64().unwrap(), held)
        })
        .collect()
}

#[tokio::test]
async fn writes_stand_in_the_order_of_path_task_and_index() {
    let server = shared().await;
    server.put_checkpoint("t", "1", state("x")).await;
    let mut expected = Vec::new();
    // Bytewise: capitals before small letters, whatever a language thinks of it.
    for (path, task) in
        [("~b", "1"), ("", "z"), ("a", "b"), ("a", "B"), ("B", "a"), ("é", "a"), ("a ", "a"), ("a", "10"), ("a", "9")]
    {
        let idxs = [2, -1, 0, -4, 10, 1, i64::from(i32::MAX), i64::from(i32::MIN)];
        let writes: Vec<Value> = idxs.iter().map(|idx| write(*idx, "c", idx.to_string().as_bytes())).collect();
        let body = json!({ "task_id": format!("{task}{path}"), "task_path": path, "writes": writes });
        assert_eq!(server.put_writes("t", "1", body).await, 8);
        expected.extend(idxs.map(|idx| (path.to_owned(), format!("{task}{path}"), idx, idx.to_string())));
    }
    expected.sort();
    let read = server.checkpoint("t", "1").await;
    assert_eq!(places(&read), expected);
    let whole = json!({ "task_id": "z", "task_path": "", "idx": -4, "channel": "c", "t": "bytes", "b": "LTQ=" });
    assert_eq!(read["writes"][1], whole);
    let listed = server.get("/api/threads/t/checkpoints").await.expect(200);
    assert_eq!(listed["checkpoints"][0], read);
    assert_eq!(server.get("/api/threads/t/checkpoints/latest").await.expect(200), read);
}

#[tokio::test]
async fn the_first_write_stays_unless_a_later_one_may_replace_it() {
    let server = shared().await;
    server.put_checkpoint("t", "1", state("x")).await;
    let put = async |upsert: Option<bool>, path: &str, writes: Value| {
        let mut body = json!({ "task_id": "a", "task_path": path, "writes": writes });
        if let Some(upsert) = upsert {
            body["upsert"] = json!(upsert);
        }
        server.put_writes("t", "1", body).await
    };
    let held = async || places(&server.checkpoint("t", "1").await);
    let row = |path: &str, idx: i64, held: &str| (path.to_owned(), "a".to_owned(), idx, held.to_owned());
    assert_eq!(put(None, "", json!([write(0, "c", b"first"), write(-1, "e", b"e")])).await, 2);
    assert_eq!(put(None, "", json!([write(0, "c", b"second"), write(1, "c", b"new")])).await, 1);
    assert_eq!(put(Some(false), "p", json!([write(0, "d", b"third")])).await, 0);
    assert_eq!(held().await, [row("", -1, "e"), row("", 0, "first"), row("", 1, "new")]);
    assert_eq!(put(Some(true), "p", json!([write(0, "d", b"fourth"), write(7, "c", b"seven")])).await, 2);
    assert_eq!(held().await, [row("", -1, "e"), row("", 1, "new"), row("p", 0, "fourth"), row("p", 7, "seven")]);
    let read = server.checkpoint("t", "1").await;
    assert_eq!(read["writes"][2]["channel"], "d");
    assert_eq!(put(Some(true), "", json!([])).await, 0);
    assert_eq!(held().await.len(), 4);
    // The same rule within one request: a node that is resumed twice writes twice to one place.
    assert_eq!(put(None, "q", json!([write(8, "c", b"one"), write(8, "c", b"two")])).await, 1);
    assert_eq!(put(Some(true), "q", json!([write(9, "c", b"one"), write(9, "c", b"two")])).await, 1);
    assert_eq!(held().await[4..], [row("q", 8, "one"), row("q", 9, "two")]);
}

#[tokio::test]
async fn a_write_may_come_before_its_checkpoint_and_belongs_to_no_other() {
    let server = shared().await;
    let body = |ns: &str, text: &str| json!({ "ns": ns, "task_id": "a", "writes": [write(0, "c", text.as_bytes())] });
    assert_eq!(server.put_writes("t", "2", body("", "early")).await, 1);
    assert_eq!(server.put_writes("t", "2", body("n", "elsewhere")).await, 1);
    assert_eq!(server.put_writes("u", "2", body("", "other thread")).await, 1);
    server.get(&checkpoint_of("t", "2")).await.refused(404, "not_found");
    let list = server.get("/api/checkpoints").await.expect(200);
    assert_eq!(list["checkpoints"], json!([]), "writes alone are no checkpoint");
    server.put_checkpoint("t", "1", state("x")).await;
    server.put_checkpoint("t", "2", state("x")).await;
    server.put_checkpoint("t", "2", state_with("x", json!({ "ns": "n" }))).await;
    for (path, expected) in [("1", None), ("2", Some("early")), ("2?ns=n", Some("elsewhere")), ("2?ns=", Some("early"))]
    {
        let found: Vec<String> = places(&server.checkpoint("t", path).await).into_iter().map(|place| place.3).collect();
        assert_eq!(found, Vec::from_iter(expected), "{path}");
    }
}

#[tokio::test]
async fn of_many_who_write_one_place_the_first_is_kept_and_counted_once() {
    let db = Db::new().await;
    let servers = [setup().on(&db).start().await, setup().on(&db).start().await];
    for round in ["1", "2", "3"] {
        // The thread is not there yet in the first round: all of them make it.
        let puts = (0..20).map(|n: usize| {
            let writes = json!([write(0, "c", n.to_string().as_bytes()), write(n as i64 + 1, "c", b"own")]);
            servers[n % 2].put_writes("t", round, json!({ "task_id": "a", "writes": writes }))
        });
        let stored = futures::future::join_all(puts).await;
        assert_eq!(stored.iter().sum::<i64>(), 21, "{stored:?}");
        let winner = stored.iter().position(|stored| *stored == 2).unwrap();
        servers[0].put_checkpoint("t", round, state("x")).await;
        let read = servers[1].checkpoint("t", round).await;
        assert_eq!(read["writes"].as_array().unwrap().len(), 21);
        assert_eq!(bytes_of(&read["writes"][0]), winner.to_string().as_bytes());
    }
}

#[tokio::test]
async fn many_tasks_of_one_step_write_side_by_side() {
    let db = Db::new().await;
    let servers = [setup().on(&db).start().await, setup().on(&db).start().await];
    // Few enough that none waits long for a connection.
    let puts = (0..8).map(|n: usize| {
        // In opposite orders, upserting what the others upsert: nobody may wait for somebody who waits for him.
        let mut writes: Vec<Value> = (0..50).map(|idx| write(idx, "c", format!("{n}").as_bytes())).collect();
        if n % 2 == 1 {
            writes.reverse();
        }
        let shared = json!({ "task_id": "shared", "upsert": true, "writes": writes });
        let own = json!({ "task_id": format!("own{n}"), "writes": [write(0, "c", b"x")] });
        let server = &servers[n % 2];
        async move { (server.put(&writes_of("t", "1"), shared).await, server.put_writes("t", "1", own).await) }
    });
    for (reply, own) in futures::future::join_all(puts).await {
        assert_eq!(reply.expect(200)["stored"], 50);
        assert_eq!(own, 1);
    }
    servers[0].put_checkpoint("t", "1", state("x")).await;
    assert_eq!(servers[1].checkpoint("t", "1").await["writes"].as_array().unwrap().len(), 58);
}
