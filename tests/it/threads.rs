//! Threads: how they come into being, what they say, who finds them.

mod begun;
mod isolation;
mod lists;
mod plans;
mod upgrade;

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    runs::{assert_contiguous, numbered},
    server::{Server, manual_clock, setup},
    shared::shared,
    threads::{checkpoint_of, encoded_throughout, state, value, write, writes_of},
};

#[tokio::test]
async fn a_thread_comes_into_being_with_the_first_thing_that_names_it() {
    let server = shared().await;
    for thread in ["put", "run", "checkpoint", "never"] {
        server.get(&format!("/api/threads/{thread}")).await.refused(404, "not_found");
    }
    server.put("/api/threads/put", json!({})).await.expect(201);
    let run = server.create(json!({ "thread_id": "run", "start": false })).await;
    server.try_checkpoint("checkpoint", "1", state("a")).await.expect(201);
    let owner = server.run(&run).await["owner_id"].clone();
    for (thread, latest) in [("put", Value::Null), ("run", Value::Null), ("checkpoint", json!("1"))] {
        let found = server.thread(thread).await;
        assert_eq!((&found["thread_id"], &found["owner_id"]), (&json!(thread), &owner));
        assert_eq!(
            (&found["metadata"], &found["ttl_s"], &found["expires_at"]),
            (&json!({}), &json!(null), &json!(null))
        );
        assert_eq!(found["latest_checkpoint_id"], latest);
        assert_eq!(found["stream_url"], format!("/api/stream/threads/{thread}"));
        assert_eq!(found["created_at"], found["updated_at"]);
        assert_eq!(found.as_object().unwrap().len(), 9, "{found}");
    }
    server.put("/api/threads/run", json!({})).await.expect(200);
    server.get("/api/threads/never").await.refused(404, "not_found");
}

#[tokio::test]
async fn a_child_run_brings_its_parents_thread_back_and_one_without_a_thread_makes_none() {
    let server = shared().await;
    let parent = server.create(json!({ "thread_id": "t" })).await;
    server.start_run().await;
    assert_eq!(server.get("/api/threads").await.expect(200)["threads"].as_array().unwrap().len(), 1);
    assert_eq!(server.delete("/api/threads/t").await.status, 204);
    let child = server.child_of(&parent).await;
    assert_eq!(server.run(&child).await["thread_id"], "t");
    assert_eq!(server.thread("t").await["metadata"], json!({}));
    server.post("/api/runs", json!({ "thread_id": "refused", "title": "a\nb" })).await.refused(400, "invalid_request");
    server.get("/api/threads/refused").await.refused(404, "not_found");
}

#[tokio::test]
async fn a_put_changes_what_it_names_and_leaves_the_rest() {
    let server = shared().await;
    let path = "/api/threads/t";
    let put = async |body: Value, status: u16| {
        let thread = server.put(path, body).await.expect(status);
        assert_eq!(server.thread("t").await, thread, "the answer is the thread");
        (thread["metadata"].clone(), thread["ttl_s"].clone())
    };
    assert_eq!(
        put(json!({ "metadata": { "a": { "b": [1] } } }), 201).await,
        (json!({ "a": { "b": [1] } }), json!(null))
    );
    assert_eq!(put(json!({ "ttl_s": 60 }), 200).await, (json!({ "a": { "b": [1] } }), json!(60)));
    assert_eq!(put(json!({ "metadata": { "c": 1 } }), 200).await, (json!({ "c": 1 }), json!(60)));
    assert_eq!(put(json!({}), 200).await, (json!({ "c": 1 }), json!(60)));
    assert_eq!(put(json!({ "ttl_s": 0 }), 200).await, (json!({ "c": 1 }), json!(0)));
    assert_eq!(put(json!({ "ttl_s": 315_360_000 }), 200).await, (json!({ "c": 1 }), json!(315_360_000)));
    assert_eq!(put(json!({ "ttl_s": null }), 200).await, (json!({ "c": 1 }), json!(null)));
    assert_eq!(put(json!({ "metadata": {} }), 200).await, (json!({}), json!(null)));
    let bare = server.send(server.request(Method::PUT, path)).await.expect(200);
    assert_eq!(bare, server.thread("t").await, "an empty body reads as {{}}");
}

#[tokio::test]
async fn a_put_that_breaks_a_rule_changes_nothing_and_makes_nothing() {
    let server = shared().await;
    server.put("/api/threads/t", json!({ "metadata": { "a": 1 }, "ttl_s": 5 })).await.expect(201);
    let before = server.thread("t").await;
    let deep = format!("{{\"metadata\":{{\"a\":{}1{}}}}}", "[".repeat(65), "]".repeat(65));
    for body in [
        r#"{"ttl_s":-1}"#,
        r#"{"ttl_s":315360001}"#,
        r#"{"ttl_s":9223372036854775808}"#,
        r#"{"ttl_s":1.5}"#,
        r#"{"ttl_s":"60"}"#,
        r#"{"ttl_s":true}"#,
        r#"{"ttl_s":1,"ttl_s":2}"#,
        r#"{"metadata":[]}"#,
        r#"{"metadata":"x"}"#,
        r#"{"metadata":7}"#,
        r#"{"metadata":{"a":"\u0000"}}"#,
        r#"{"metadata":{"a":"\ud800"}}"#,
        r#"{"metadata":{},"thread_id":"other"}"#,
        r#"{"owner_id":"x"}"#,
        r#"{"metadata":{}"#,
        "[]",
        "null",
        deep.as_str(),
    ] {
        for thread in ["t", "new"] {
            server.put_text(&format!("/api/threads/{thread}"), body.to_owned()).await.refused(400, "invalid_request");
        }
    }
    let sized = |bytes: usize| format!("{{\"metadata\":{{\"a\":\"{}\"}}}}", "x".repeat(bytes - 8));
    server.put_text("/api/threads/t", sized(64 * 1024 + 1)).await.refused(413, "too_large");
    assert_eq!(server.thread("t").await, before);
    server.get("/api/threads/new").await.refused(404, "not_found");
    server.put_text("/api/threads/t", sized(64 * 1024)).await.expect(200);
}

#[tokio::test]
async fn what_a_database_cannot_hold_as_a_number_is_no_failure_of_the_server() {
    let server = shared().await;
    for number in ["1e200000", "-1e-200000", &"9".repeat(60_000), "1.0e+400", "-0"] {
        let metadata = format!("{{\"metadata\":{{\"n\":{number}}},\"checkpoint\":{}}}", value(b"x"));
        let reply = server.put_text(&checkpoint_of("t", "1"), metadata).await;
        assert!(matches!(reply.status, 200 | 201 | 400), "{number:.20}: {} {:.300}", reply.status, reply.text);
        let reply = server.put_text("/api/threads/t", format!("{{\"metadata\":{{\"n\":{number}}}}}")).await;
        assert!(matches!(reply.status, 200 | 201 | 400), "{number:.20}: {} {:.300}", reply.status, reply.text);
        let reply =
            server.get(&format!("/api/checkpoints?filter=%7B%22n%22:{:.5000}%7D", number.replace('+', ""))).await;
        assert!(matches!(reply.status, 200 | 400), "{number:.20}: {} {:.300}", reply.status, reply.text);
        for path in ["/api/threads", "/api/checkpoints"] {
            assert_eq!(server.get(path).await.status, 200, "{number:.20}: {path}");
        }
    }
}

#[tokio::test]
async fn a_thread_moves_with_every_checkpoint_and_every_new_run() {
    let clock = manual_clock();
    let server = setup().clock(&clock).start().await;
    let now = || clock.now().to_rfc3339_opts(chrono::SecondsFormat::Micros, true);
    let born = now();
    server.put("/api/threads/t", json!({})).await.expect(201);
    let check = async |what: &str, latest: Option<&str>| {
        let thread = server.thread("t").await;
        let told = (thread["created_at"].as_str(), thread["updated_at"].as_str());
        assert_eq!(told, (Some(born.as_str()), Some(now().as_str())), "{what}");
        assert_eq!(thread["latest_checkpoint_id"].as_str(), latest, "{what}");
        server.pass(Duration::from_secs(1));
    };
    check("new", None).await;
    server.create(json!({ "thread_id": "t" })).await;
    check("a run", None).await;
    server.put_checkpoint("t", "b", state("x")).await;
    check("a checkpoint", Some("b")).await;
    server.put_checkpoint("t", "a", state("x")).await;
    check("an older one", Some("b")).await;
    server.put_checkpoint("t", "b", state("y")).await;
    check("the same once more", Some("b")).await;
    let elsewhere = json!({ "ns": "sub", "checkpoint": value(b"x") });
    server.put_checkpoint("t", "z", elsewhere).await;
    check("one of a subgraph", Some("b")).await;
    server.put_checkpoint("t", "b.", state("x")).await;
    check("a newer one", Some("b.")).await;
}

#[tokio::test]
async fn a_thread_with_a_time_to_live_says_when_it_expires() {
    let clock = manual_clock();
    let server = setup().clock(&clock).flags(&["--thread-ttl", "2h"]).start().await;
    let after = |seconds: i64| {
        let at = clock.now() + chrono::TimeDelta::seconds(seconds);
        json!(at.to_rfc3339_opts(chrono::SecondsFormat::Micros, true))
    };
    let expires = async || server.thread("t").await["expires_at"].clone();
    server.put("/api/threads/t", json!({})).await.expect(201);
    assert_eq!(expires().await, after(7_200));
    server.put("/api/threads/t", json!({ "ttl_s": 10 })).await.expect(200);
    assert_eq!(expires().await, after(10));
    server.put("/api/threads/t", json!({ "ttl_s": 0 })).await.expect(200);
    assert_eq!(expires().await, json!(null));
    server.put("/api/threads/t", json!({ "ttl_s": 315_360_000 })).await.expect(200);
    assert_eq!(expires().await, after(315_360_000));
    server.put("/api/threads/t", json!({ "ttl_s": null })).await.expect(200);
    server.pass(Duration::from_mins(1));
    server.put_checkpoint("t", "1", state("x")).await;
    assert_eq!(expires().await, after(7_200), "a checkpoint prolongs it");
}

#[tokio::test]
async fn a_deleted_thread_leaves_its_runs_and_nothing_else() {
    let server = Server::start().await;
    let ended = server.create(json!({ "thread_id": "t" })).await;
    server.emit(&ended, json!({ "type": "message.completed", "payload": { "content": [] } })).await;
    server.complete(&ended).await;
    let live = server.create(json!({ "thread_id": "t" })).await;
    server.put("/api/threads/t", json!({ "metadata": { "a": 1 }, "ttl_s": 9 })).await.expect(200);
    let body =
        json!({ "checkpoint": value(b"x"), "versions": { "c": 1 }, "blobs": { "c": { "version": 1, "t": "n" } } });
    server.put_checkpoint("t", "1", body).await;
    server.put_checkpoint("t", "2", json!({ "ns": "sub", "checkpoint": value(b"x") })).await;
    let writes = json!({ "task_id": "a", "writes": [write(0, "c", b"x")] });
    server.put(&writes_of("t", "not-yet-there"), writes).await.expect(200);
    server.put_checkpoint("other", "1", state("x")).await;
    let gone = server.delete("/api/threads/t").await;
    assert_eq!((gone.status, gone.text.as_str()), (204, ""));
    for path in ["", "/runs", "/messages", "/checkpoints", "/checkpoints/1", "/checkpoints/latest"] {
        server.get(&format!("/api/threads/t{path}")).await.refused(404, "not_found");
    }
    server.delete("/api/threads/t").await.refused(404, "not_found");
    let left = "select (select count(*) from store.thread) * 1000 + (select count(*) from store.checkpoint) * 100
        + (select count(*) from store.blob) * 10 + (select count(*) from store.pending_write)";
    assert_eq!(server.db.number(left).await, 1_100, "one thread with one checkpoint is left");
    assert_eq!(server.get("/api/runs?thread_id=t").await.expect(200)["runs"].as_array().unwrap().len(), 2);
    assert_contiguous(&server.events(&ended).await, 4);
    server.emit(&live, numbered(1)).await;
    server.complete(&live).await;
    server.get("/api/threads/t").await.refused(404, "not_found");
    server.put_checkpoint("t", "3", state("new")).await;
    let again = server.thread("t").await;
    assert_eq!((&again["metadata"], &again["ttl_s"]), (&json!({}), &json!(null)), "it begins anew");
    assert_eq!(server.pages("/api/threads/t/checkpoints", "checkpoints").await.len(), 1);
}

#[tokio::test]
async fn writes_that_never_met_their_checkpoint_go_with_their_thread() {
    let server = Server::start().await;
    let writes = json!({ "task_id": "a", "writes": [write(0, "c", b"x")] });
    assert_eq!(server.put_writes("t", "1", writes).await, 1);
    assert_eq!(server.delete("/api/threads/t").await.status, 204);
    assert_eq!(server.db.number("select count(*) from store.pending_write").await, 0);
}

/// Every character a thread id may have.
const ALPHABET: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:@+-";

#[tokio::test]
async fn what_is_a_thread_id_in_a_body_is_one_in_a_path() {
    let server = shared().await;
    let longest = "t".repeat(255);
    let singles = ALPHABET.chars().map(String::from);
    let more =
        [ALPHABET, &longest, "..", "...", "-", "a+b", "a@b:c", "prune", "latest", "null", "0"].map(str::to_owned);
    for id in singles.chain(more) {
        server.create(json!({ "thread_id": id })).await;
        let (status, body) = server.raw("PUT", &format!("/api/threads/{id}"), r#"{"metadata":{"put":1}}"#).await;
        assert_eq!(status, 200, "{id}: {body}");
        let (status, body) = server.raw("GET", &format!("/api/threads/{id}"), "").await;
        let thread: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(
            (status, &thread["thread_id"], &thread["metadata"]),
            (200, &json!(id), &json!({ "put": 1 })),
            "{id}"
        );
        let every = encoded_throughout(&id);
        assert_eq!(server.raw("GET", &format!("/api/threads/{every}/runs"), "").await.0, 200, "{id}");
        let (status, body) =
            server.raw("PUT", &format!("/api/threads/{id}/checkpoints/1"), &state("x").to_string()).await;
        assert_eq!(status, 201, "{id}: {body}");
        assert_eq!(server.raw("DELETE", &format!("/api/threads/{id}"), "").await.0, 204, "{id}");
    }
}

#[tokio::test]
async fn what_is_not_a_thread_id_cannot_exist() {
    let server = Server::start().await;
    let too_long = "t".repeat(256);
    for id in
        ["%20", "a%20b", "%C3%A9", "a%2Fb", "%2F", "%00", "%FF", "a%0Ab", "%25", "a%3Fb", "~", "a,b", "%27", &too_long]
    {
        for (method, rest) in [
            ("GET", ""),
            ("PUT", ""),
            ("DELETE", ""),
            ("POST", "/copy"),
            ("GET", "/runs"),
            ("GET", "/messages"),
            ("GET", "/checkpoints"),
            ("GET", "/checkpoints/latest"),
            ("GET", "/checkpoints/1"),
            ("PUT", "/checkpoints/1"),
            ("PUT", "/checkpoints/1/writes"),
        ] {
            let body = match rest {
                "/copy" => json!({ "to": "other" }),
                "/checkpoints/1" => state("x"),
                "/checkpoints/1/writes" => json!({ "task_id": "a", "writes": [] }),
                _ => json!({}),
            };
            let body = if method == "GET" { String::new() } else { body.to_string() };
            let (status, answer) = server.raw(method, &format!("/api/threads/{id}{rest}"), &body).await;
            let code = if status == 404 { "\"not_found\"" } else { "\"invalid_request\"" };
            assert!(matches!(status, 400 | 404) && answer.contains(code), "{method} {id}{rest}: {status} {answer}");
        }
    }
    assert_eq!(server.db.number("select count(*) from store.thread").await, 0);
}

#[tokio::test]
async fn a_path_of_threads_without_the_method_says_which_it_has() {
    let server = shared().await;
    server.put_checkpoint("t", "1", state("x")).await;
    for (path, allowed) in [
        ("/api/threads", &["GET", "HEAD"][..]),
        ("/api/threads/t", &["GET", "HEAD", "PUT", "DELETE"]),
        ("/api/threads/t/copy", &["POST"]),
        ("/api/threads/t/runs", &["GET", "HEAD"]),
        ("/api/threads/t/messages", &["GET", "HEAD"]),
        ("/api/threads/t/checkpoints", &["GET", "HEAD"]),
        ("/api/threads/t/checkpoints/1", &["GET", "HEAD", "PUT"]),
        ("/api/threads/t/checkpoints/1/writes", &["PUT"]),
        ("/api/checkpoints", &["GET", "HEAD"]),
        ("/api/checkpoints/delete-for-runs", &["POST"]),
    ] {
        for method in ["GET", "HEAD", "PUT", "POST", "DELETE", "PATCH"] {
            if allowed.contains(&method) {
                continue;
            }
            let reply = server.send(server.request(method.parse().unwrap(), path)).await;
            assert_eq!(reply.status, 405, "{method} {path}: {}", reply.text);
            let said = reply.headers["allow"].to_str().unwrap();
            assert!(allowed.iter().all(|method| said.contains(method)), "{method} {path}: {said}");
        }
        if allowed.contains(&"HEAD") {
            let head = server.send(server.request(Method::HEAD, path)).await;
            assert_eq!((head.status, head.text.as_str()), (200, ""), "{path}");
        }
    }
}
