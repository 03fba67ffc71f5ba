//! External ids: a client names its run by the id it has in its own system.

use std::collections::HashSet;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::{
    api::{Api, Reply},
    process::{Said, program, run},
    runs::new_run_id,
    server::{Server, setup},
    shared::shared,
};

fn path(external_id: &str) -> String {
    let encoded: Vec<String> = external_id.bytes().map(|byte| format!("%{byte:02X}")).collect();
    format!("/api/runs/by-external-id/{}", encoded.concat())
}

/// What a command says that talks to this server.
async fn said(server: &Api, words: &[&str]) -> Said {
    let mut command = program(words);
    command.env("RUNREEL_URL", &server.base);
    let said = run(command, "").await;
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    said
}

async fn put(api: &Api, external_id: &str, body: Value) -> Reply {
    api.send(api.request(Method::PUT, &path(external_id)).json(&body)).await
}

#[tokio::test]
async fn a_put_creates_the_run_once_and_then_finds_it_whatever_the_body() {
    let server = Server::start().await;
    for id in ["build-42", "a/b c?d#e%2F", "0198c0de-0000-4000-8000-000000000001", "日本語 😀", &"é".repeat(255)]
    {
        let created = put(&server, id, json!({ "title": "First", "tags": ["a"] })).await;
        let location = created.headers["location"].to_str().unwrap().to_owned();
        let run = created.expect(201);
        assert_eq!((&run["external_id"], &run["title"], &run["last_seq"]), (&json!(id), &json!("First"), &json!(2)));
        assert_eq!(location, format!("/api/runs/{}", run["run_id"].as_str().unwrap()));
        assert_eq!(put(&server, id, json!({ "title": "Second" })).await.expect(200), run);
        assert_eq!(server.get(&path(id)).await.expect(200)["run_id"], run["run_id"]);
        assert_eq!(server.get(&location).await.expect(200)["external_id"], json!(id));
        let filter = path(id).replace("/by-external-id/", "?external_id=");
        let list = server.get(&filter).await.expect(200);
        assert_eq!(list["runs"].as_array().unwrap().len(), 1, "{id}");
        assert_eq!(list["runs"][0]["run_id"], run["run_id"]);
    }
    assert_eq!(server.db.number("select count(*) from store.run").await, 5);
}

#[tokio::test]
async fn of_concurrent_puts_one_creates_the_run_and_all_get_it() {
    let server = Server::start().await;
    for round in 0..5 {
        let mut puts = JoinSet::new();
        for n in 0..16 {
            let api = Api::clone(&server);
            puts.spawn(
                async move { put(&api, &format!("shared {round}"), json!({ "title": format!("by {n}") })).await },
            );
        }
        let replies = puts.join_all().await;
        assert_eq!(replies.iter().filter(|reply| reply.status == 201).count(), 1);
        assert!(replies.iter().all(|reply| [200, 201].contains(&reply.status)));
        let runs: HashSet<String> = replies.iter().map(|reply| reply.json()["run_id"].to_string()).collect();
        assert_eq!(runs.len(), 1);
    }
    assert_eq!(server.db.number("select count(*) from store.run").await, 5);
}

#[tokio::test]
async fn two_servers_on_one_database_agree_who_has_an_external_id() {
    let first = Server::start().await;
    let second = setup().on(&first.db).clock(&first.clock).start().await;
    for round in 0..20 {
        let id = format!("shared {round}");
        let (one, other) = tokio::join!(put(&first, &id, json!({})), put(&second, &id, json!({})));
        let mut statuses = [one.status, other.status];
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 201], "{} {}", one.text, other.text);
        assert_eq!(one.json()["run_id"], other.json()["run_id"]);
    }
}

#[tokio::test]
async fn an_external_id_that_another_run_has_is_refused_and_free_again_after_that_run() {
    let server = Server::start().await;
    let run = put(&server, "ticket 7", json!({ "start": true })).await.expect(201);
    let id = run["run_id"].as_str().unwrap();
    let refused =
        server.post("/api/runs", json!({ "external_id": "ticket 7" })).await.refused(409, "external_id_taken");
    assert_eq!(refused["field"], "external_id");
    assert!(refused["hint"].as_str().unwrap().contains("PUT /api/runs/by-external-id/"), "{refused}");
    // The same request again is the same run, also by its external id.
    let body = json!({ "run_id": new_run_id(), "external_id": "ticket 8" });
    let made = server.post("/api/runs", body.clone()).await.expect(201);
    assert_eq!(server.post("/api/runs", body).await.expect(200), made);
    assert_eq!(server.db.number("select count(*) from store.run").await, 2);
    server.emit(id, json!([{ "type": "run.completed" }])).await;
    assert_eq!(server.delete(&format!("/api/runs/{id}")).await.status, 204);
    server.get(&path("ticket 7")).await.refused(404, "not_found");
    let next = server.post("/api/runs", json!({ "external_id": "ticket 7" })).await.expect(201);
    assert_ne!(next["run_id"], run["run_id"]);
}

#[tokio::test]
async fn an_external_id_is_its_owners_and_nobody_elses() {
    let server = shared().await;
    let (alice, bob) = (server.as_subject("alice"), server.as_subject("bob"));
    let hers = put(&alice, "build-42", json!({})).await.expect(201);
    let absent = bob.get(&path("never")).await;
    let foreign = bob.get(&path("build-42")).await;
    assert_eq!(foreign.refused(404, "not_found"), absent.refused(404, "not_found"));
    assert_eq!(bob.get("/api/runs?external_id=build-42").await.expect(200)["runs"], json!([]));
    let his = put(&bob, "build-42", json!({})).await.expect(201);
    assert_ne!(his["run_id"], hers["run_id"]);
    assert_eq!(alice.get(&path("build-42")).await.expect(200)["run_id"], hers["run_id"]);
}

#[tokio::test]
async fn a_bad_external_id_is_refused_and_leaves_nothing_behind() {
    let server = Server::start().await;
    for bad in ["", ".", "..", "a\0b", "line\nbreak", &"x".repeat(256)] {
        let problem = server.post("/api/runs", json!({ "external_id": bad })).await.refused(400, "invalid_request");
        assert_eq!(problem["field"], "external_id", "{bad:?} {problem}");
    }
    for bad in ["line\nbreak", "a\0b", &"x".repeat(256)] {
        put(&server, bad, json!({})).await.refused(400, "invalid_request");
    }
    let other = put(&server, "a", json!({ "external_id": "b" })).await.refused(400, "invalid_request");
    assert_eq!(other["field"], "external_id");
    let version_4 = json!({ "run_id": "0198c0de-0000-4000-8000-000000000001" });
    let problem = server.post("/api/runs", version_4).await.refused(400, "invalid_request");
    assert!(problem["detail"].as_str().unwrap().contains("external_id"), "{problem}");
    assert_eq!(server.db.number("select count(*) from store.run").await, 0);
}

#[tokio::test]
async fn threads_and_spans_take_the_clients_ids_as_they_are() {
    let server = shared().await;
    let (thread, span) = ("user:42@example.org+de", "toolu_01 A/é😀 \"x\"");
    let run = server.post("/api/runs", json!({ "thread_id": thread })).await.expect(201);
    let id = run["run_id"].as_str().unwrap();
    server.emit(id, json!([{ "type": "tool.started", "span_id": span, "payload": { "name": "t" } }])).await;
    assert_eq!(run["thread_id"], json!(thread));
    assert_eq!(server.get(&format!("/api/threads/{thread}")).await.expect(200)["thread_id"], json!(thread));
    let timeline = server.get(&format!("/api/runs/{id}/timeline")).await.expect(200);
    assert_eq!(timeline["spans"][1]["span_id"], json!(span), "{timeline}");
}

#[tokio::test]
async fn emit_continues_the_run_that_has_the_external_id() {
    let server = Server::start().await;
    for step in ["custom.first", "custom.second"] {
        said(&server, &["emit", "--external-id", "nightly/42", "--type", step]).await;
    }
    let found = server.get(&path("nightly/42")).await.expect(200);
    assert_eq!(found["last_seq"], 4);
    let list = said(&server, &["runs", "list", "--external-id", "nightly/42", "--json"]).await;
    assert_eq!(list.stdout.lines().count(), 1);
    assert!(list.stdout.contains(found["run_id"].as_str().unwrap()), "{}", list.stdout);
}
