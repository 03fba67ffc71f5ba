//! Who may do what: every route of the API against every kind of caller.

use reqwest::Method;
use runreel::domain::principal::Scope;
use serde_json::{Value, json};

use crate::support::{
    api::{Api, Reply},
    jwt::signed,
    runs::new_run_id,
    server::setup,
    shared::shared,
};

/// What a route answers to each kind of caller.
struct Row {
    method: &'static str,
    path: &'static str,
    body: Option<Value>,
    owner: u16,
    /// Somebody else with a good credential.
    other: u16,
    /// A token of the owner for this run alone, with the scopes read, emit and approve.
    run_token: u16,
    /// A token of the owner with the scope read.
    read_token: u16,
    /// Whoever has no valid credential.
    nobody: u16,
}

fn row(method: &'static str, path: &'static str, [owner, other, run_token, read_token, nobody]: [u16; 5]) -> Row {
    Row { method, path, body: None, owner, other, run_token, read_token, nobody }
}

/// Sessions of channels, and saved ones.
fn session_rows() -> Vec<Row> {
    let body = |row: Row, body: Value| Row { body: Some(body), ..row };
    vec![
        row("get", "/api/sessions", [200, 200, 403, 200, 401]),
        row("post", "/api/sessions/{session_id}/end", [404, 404, 403, 403, 401]),
        row("get", "/api/sessions/{session_id}", [404, 404, 403, 404, 401]),
        row("get", "/api/sessions/{session_id}/log.jsonl", [404, 404, 403, 404, 401]),
        row("get", "/api/saved-sessions", [200, 200, 403, 200, 401]),
        body(
            row("post", "/api/saved-sessions", [404, 404, 403, 403, 401]),
            json!({ "name": "a", "thread_id": "none" }),
        ),
        row("get", "/api/saved-sessions/{name}", [200, 404, 403, 200, 401]),
        body(
            row("put", "/api/saved-sessions/{name}", [200, 201, 403, 403, 401]),
            json!({ "thread": { "messages": [] } }),
        ),
        row("delete", "/api/saved-sessions/{name}", [204, 404, 403, 403, 401]),
        row("post", "/api/saved-sessions/{name}/restore", [201, 404, 403, 403, 401]),
    ]
}

/// Protocols of chat clients.
fn protocol_rows() -> Vec<Row> {
    let body = |row: Row, body: Value| Row { body: Some(body), ..row };
    let hello = json!({ "role": "user", "parts": [{ "type": "text", "text": "hello" }] });
    vec![
        body(
            row("post", "/api/ai-sdk/agents/{agent}", [200, 200, 403, 403, 401]),
            json!({ "id": "chat", "messages": [hello] }),
        ),
        row("get", "/api/ai-sdk/agents/{agent}/{chat_id}/stream", [204, 204, 403, 204, 401]),
        body(
            row("post", "/v1/responses", [200, 200, 403, 403, 401]),
            json!({ "model": "helper", "input": "hello", "background": true }),
        ),
        body(
            row("post", "/api/agui/agents/{agent}", [200, 200, 403, 403, 401]),
            json!({ "threadId": "t", "runId": "r", "messages": [] }),
        ),
        row("get", "/api/agui/runs/{run_id}", [200, 404, 200, 200, 401]),
        row("get", "/v1/responses/{response_id}", [200, 404, 200, 200, 401]),
        row("delete", "/v1/responses/{response_id}", [409, 404, 403, 403, 401]),
        row("post", "/v1/responses/{response_id}/cancel", [200, 404, 200, 403, 401]),
        row("get", "/v1/responses/{response_id}/input_items", [200, 404, 200, 200, 401]),
    ]
}

/// What a page shows of many runs at once.
fn page_rows() -> Vec<Row> {
    let subscription = json!({ "name": "a", "stream": "runs" });
    let all = row("post", "/api/stream", [200, 200, 200, 200, 401]);
    vec![
        row("get", "/api/interrupts", [200, 200, 403, 200, 401]),
        row("get", "/api/agents", [200, 200, 403, 200, 401]),
        row("get", "/api/artifacts", [200, 200, 403, 200, 401]),
        row("get", "/api/server", [200, 200, 403, 200, 401]),
        row("get", "/api/sql/schema", [200, 200, 403, 200, 401]),
        row("get", "/api/runs/{run_id}/usage", [200, 404, 200, 200, 401]),
        row("get", "/api/runs/histogram", [200, 200, 403, 200, 401]),
        row("get", "/api/runs/{run_id}/search", [200, 404, 200, 200, 401]),
        row("get", "/api/runs/{run_id}/verify", [200, 404, 200, 200, 401]),
        // What the credential does not cover fails there, and opens nothing.
        Row { body: Some(json!({ "subscriptions": [subscription] })), ..all },
    ]
}

fn rows() -> Vec<Row> {
    let body = |row: Row, body: Value| Row { body: Some(body), ..row };
    let mut rows = vec![
        row("get", "/api/runs", [200, 200, 403, 200, 401]),
        body(row("post", "/api/runs", [201, 201, 403, 403, 401]), json!({})),
        row("get", "/api/runs/by-external-id/{external_id}", [200, 404, 200, 200, 401]),
        body(row("put", "/api/runs/by-external-id/{external_id}", [200, 201, 403, 403, 401]), json!({})),
        row("get", "/api/runs/{run_id}", [200, 404, 200, 200, 401]),
        row("delete", "/api/runs/{run_id}", [409, 404, 403, 403, 401]),
        row("post", "/api/runs/{run_id}/cancel", [202, 404, 202, 403, 401]),
        body(
            row("post", "/api/runs/{run_id}/resume", [202, 404, 202, 403, 401]),
            json!({ "interrupt_id": "i", "decision": "approve" }),
        ),
        row("post", "/api/runs/{run_id}/heartbeat", [204, 404, 204, 403, 401]),
        row("get", "/api/runs/{run_id}/events", [200, 404, 200, 200, 401]),
        body(row("post", "/api/runs/{run_id}/events", [200, 404, 200, 403, 401]), json!({ "type": "log.info" })),
        row("get", "/api/runs/{run_id}/export", [200, 404, 200, 200, 401]),
        // What comes after the end of a run that is not there comes after nothing.
        body(row("post", "/api/runs/{run_id}/import", [404, 404, 403, 403, 401]), json!({})),
        row("get", "/api/runs/{run_id}/timeline", [200, 404, 200, 200, 401]),
        row("get", "/api/runs/{run_id}/artifacts", [200, 404, 200, 200, 401]),
        row("post", "/api/runs/{run_id}/artifacts", [201, 404, 201, 403, 401]),
        row("put", "/api/runs/{run_id}/artifacts/{artifact_id}", [409, 404, 403, 403, 401]),
        row("get", "/api/artifacts/{artifact_id}", [200, 404, 200, 200, 401]),
        body(row("post", "/api/sql", [200, 200, 403, 200, 401]), json!({ "query": "select 1" })),
        row("get", "/api/threads", [200, 200, 403, 200, 401]),
        row("get", "/api/threads/{thread_id}", [200, 404, 403, 200, 401]),
        body(row("put", "/api/threads/{thread_id}", [200, 201, 403, 403, 401]), json!({})),
        row("delete", "/api/threads/{thread_id}", [204, 404, 403, 403, 401]),
        body(row("post", "/api/threads/{thread_id}/copy", [201, 404, 403, 403, 401]), json!({ "to": "copy" })),
        row("get", "/api/threads/{thread_id}/runs", [200, 404, 403, 200, 401]),
        row("get", "/api/threads/{thread_id}/messages", [200, 404, 403, 200, 401]),
        row("get", "/api/threads/{thread_id}/checkpoints", [200, 404, 403, 200, 401]),
        row("get", "/api/threads/{thread_id}/checkpoints/latest", [200, 404, 403, 200, 401]),
        row("get", "/api/threads/{thread_id}/checkpoints/{checkpoint_id}", [200, 404, 403, 200, 401]),
        body(
            row("put", "/api/threads/{thread_id}/checkpoints/{checkpoint_id}", [200, 201, 403, 403, 401]),
            json!({ "checkpoint": { "t": "x" } }),
        ),
        body(
            row("put", "/api/threads/{thread_id}/checkpoints/{checkpoint_id}/writes", [200, 200, 403, 403, 401]),
            json!({ "task_id": "a", "writes": [] }),
        ),
        body(
            row("post", "/api/threads/prune", [200, 200, 403, 403, 401]),
            json!({ "thread_ids": [], "strategy": "delete" }),
        ),
        row("get", "/api/checkpoints", [200, 200, 403, 200, 401]),
        body(row("post", "/api/checkpoints/delete-for-runs", [200, 200, 403, 403, 401]), json!({ "run_ids": [] })),
        // No channel is configured here; tests/it/channels tells what one does.
        body(row("post", "/api/channels/{channel}/messages", [404, 404, 403, 403, 401]), json!({})),
        body(row("post", "/api/channels/{channel}/codes", [404, 404, 403, 403, 401]), json!({})),
        row("get", "/api/channels/{channel}/users", [404, 404, 403, 403, 401]),
        row("delete", "/api/channels/{channel}/users/{user_id}", [404, 404, 403, 403, 401]),
        body(row("post", "/api/channels/telegram/webhook", [404, 404, 404, 404, 404]), json!({})),
        body(row("post", "/api/tokens", [201, 201, 403, 403, 401]), json!({ "name": "a", "scopes": ["read"] })),
        row("get", "/api/tokens", [200, 200, 403, 403, 401]),
        row("delete", "/api/tokens/{token_id}", [404, 404, 403, 403, 401]),
        row("post", "/api/runs/{run_id}/tokens", [201, 404, 403, 403, 401]),
        row("post", "/api/threads/{thread_id}/tokens", [201, 201, 403, 403, 401]),
        row("get", "/api/stream/runs/{run_id}", [200, 404, 200, 200, 401]),
        row("get", "/api/stream/runs", [200, 200, 403, 200, 401]),
        row("get", "/api/stream/threads/{thread_id}", [200, 200, 403, 200, 401]),
        // Without an upgrade whoever may connect is told so.
        row("get", "/api/runners/connect", [426, 426, 403, 403, 401]),
        row("get", "/livez", [200, 200, 200, 200, 200]),
        row("get", "/readyz", [200, 200, 200, 200, 200]),
        row("get", "/metrics", [200, 200, 200, 200, 200]),
    ];
    rows.extend(session_rows());
    rows.extend(page_rows());
    rows.extend(protocol_rows());
    rows
}

/// An artifact of no bytes, as an import brings one.
const NO_BYTES: &str = "name=a&event_id=e&sha256=e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// A part of a run that begins late in it.
fn late_event(run: &str) -> String {
    let subject = json!({ "run_id": run, "role": "agent", "agent": null, "origin": null, "trace_id": TRACE });
    let members = ["run_id", "role", "agent", "origin", "trace_id"].map(|name| format!("\"{name}\":{}", subject[name]));
    let event =
        r#""seq":99,"type":"log.info","role":"agent","agent":null,"at":"2026-11-22T00:00:00.000000Z","payload":{}"#;
    format!("{{\"run\":{{{}}}}}\n{{\"event\":{{{event}}}}}\n", members.join(","))
}

/// `run` is a run's id, and after a slash its artifact's if that matters.
async fn call(api: &Api, row: &Row, run: &str) -> Reply {
    // The thread of a run, and what is saved of it, are called as the run is.
    let (run, artifact) = run.split_once('/').unwrap_or((run, run));
    let path = row
        .path
        .replace("{run_id}", run)
        .replace("{thread_id}", run)
        .replace("{external_id}", run)
        .replace("{checkpoint_id}", "1")
        .replace("{session_id}", run)
        .replace("{token_id}", run)
        .replace("{artifact_id}", artifact)
        .replace("{name}", run)
        .replace("{agent}", "helper")
        .replace("{chat_id}", run)
        .replace("{response_id}", &format!("resp_{run}"))
        .replace("{channel}", "web");
    let method = Method::from_bytes(row.method.to_uppercase().as_bytes()).unwrap();
    let is_upload = row.method == "post" && path.ends_with("/artifacts");
    let path = if is_upload { format!("{path}?name=a") } else { path };
    let path = if row.path.ends_with("/search") { format!("{path}?q=x") } else { path };
    let path = if row.path.ends_with("/artifacts/{artifact_id}") { format!("{path}?{NO_BYTES}") } else { path };
    let request = api.request(method, &path);
    let request = match &row.body {
        Some(_) if row.path.ends_with("/import") => {
            request.header("content-type", "application/x-ndjson").body(late_event(run))
        }
        Some(body) => request.json(body),
        None => request,
    };
    if ["/api/stream", "/api/agui", "/api/ai-sdk"].iter().any(|streams| row.path.starts_with(streams)) {
        // A stream that opens does not end by itself: its head is the answer.
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = if status == 200 { String::new() } else { response.text().await.unwrap() };
        return Reply { status, headers, text };
    }
    api.send(request).await
}

async fn interrupted_run(api: &Api) -> String {
    let id = new_run_id();
    let request =
        api.request(Method::POST, "/api/runs").json(&json!({ "run_id": id, "external_id": id, "thread_id": id }));
    let created = api.send(request.header("traceparent", format!("00-{TRACE}-00f067aa0ba902b7-01"))).await.expect(201);
    let run = created["run_id"].as_str().unwrap().to_owned();
    api.put_checkpoint(&run, "1", json!({ "checkpoint": { "t": "x" } })).await;
    api.post("/api/saved-sessions", json!({ "name": run, "thread_id": run })).await.expect(201);
    api.emit(&run, json!([{ "type": "interrupt.requested", "span_id": "i" }, { "type": "run.interrupted" }])).await;
    run
}

#[test]
fn every_route_of_the_api_has_its_row() {
    let document = serde_json::to_value(runreel::http::openapi()).unwrap();
    let mut routes: Vec<String> = document["paths"]
        .as_object()
        .unwrap()
        .iter()
        .flat_map(|(path, methods)| methods.as_object().unwrap().keys().map(move |method| format!("{method} {path}")))
        .collect();
    let mut known: Vec<String> = rows().iter().map(|row| format!("{} {}", row.method, row.path)).collect();
    routes.sort();
    known.sort();
    assert_eq!(routes, known, "say in `rows` who may call a new route");
}

#[tokio::test]
async fn every_route_answers_every_caller_as_it_should() {
    let server = setup().jwt().start().await;
    let (alice, bob) = (server.as_subject("alice"), server.as_subject("bob"));
    let now = server.clock.now();
    let expired = server.with(signed(&json!({ "sub": "alice", "exp": now.timestamp() - 31 })));
    let spent = server.api_token("alice", &[Scope::Admin], None, Some(now - chrono::TimeDelta::seconds(1))).await;
    let read_token = server.api_token("alice", &[Scope::Read], None, None).await;
    for row in rows() {
        let run = interrupted_run(&alice).await;
        let both = format!("{run}/{}", alice.upload(&run, "a", "bytes").await["artifact_id"].as_str().unwrap());
        let run_token = {
            let scopes = [Scope::Read, Scope::Emit, Scope::Approve];
            server.api_token("alice", &scopes, Some(&run), None).await
        };
        // Whoever may not comes first: had it worked, the others would see it.
        for (who, api, status) in [
            ("anonymous", &server.api, row.nobody),
            ("expired", &expired, row.nobody),
            ("an expired token", &spent.0, row.nobody),
            ("another", &bob, row.other),
            ("a reading token", &read_token.0, row.read_token),
        ] {
            let reply = call(api, &row, &both).await;
            assert_eq!(reply.status, status, "{who}: {} {}: {}", row.method, row.path, reply.text);
            if row.path.contains("_id}") && status >= 400 {
                assert!(!reply.text.contains(&run), "{}", reply.text);
            }
        }
        for (who, api, status) in
            [("a token of the run", &run_token.0, row.run_token), ("the owner", &alice, row.owner)]
        {
            let reply = call(api, &row, &both).await;
            assert_eq!(reply.status, status, "{who}: {} {}: {}", row.method, row.path, reply.text);
        }
    }
}

#[tokio::test]
async fn somebody_elses_run_and_an_absent_one_answer_alike_byte_for_byte() {
    let server = setup().jwt().start().await;
    let (alice, bob) = (server.as_subject("alice"), server.as_subject("bob"));
    let theirs = interrupted_run(&alice).await;
    let artifact = alice.upload(&theirs, "a", "bytes").await;
    let both = format!("{theirs}/{}", artifact["artifact_id"].as_str().unwrap());
    let another = interrupted_run(&alice).await;
    let run_token = server.api_token("alice", &[Scope::Admin], Some(&another), None).await.0;
    let same = |foreign: &Reply, absent: &Reply, what: &str| {
        let head = |reply: &Reply| {
            let mut head: Vec<String> =
                reply.headers.iter().filter(|(name, _)| *name != "date").map(|pair| format!("{pair:?}")).collect();
            head.sort();
            head
        };
        assert_eq!(foreign.status, 404, "{what}");
        assert_eq!((foreign.status, &foreign.text), (absent.status, &absent.text), "{what}");
        assert_eq!(head(foreign), head(absent), "{what}");
    };
    // Putting into a thread that is not there makes it, be it there for somebody else or not.
    for row in rows().iter().filter(|row| row.path.contains("_id}") && row.method != "put") {
        for (who, api) in [("bob", &bob), ("a token of another run", &run_token)] {
            let spans_runs = ["{thread_id}", "{session_id}", "{user_id}", "{token_id}", "/tokens"]
                .iter()
                .any(|id| row.path.contains(id));
            if spans_runs && who != "bob"
                || row.path.contains("{chat_id}")
                || ["/api/stream/threads/{thread_id}", "/api/threads/{thread_id}/tokens"].contains(&row.path)
            {
                continue;
            }
            let (foreign, absent) = (call(api, row, &both).await, call(api, row, &new_run_id()).await);
            same(&foreign, &absent, &format!("{who}: {} {}", row.method, row.path));
        }
    }
    for (method, path, body) in [
        ("POST", "/api/runs", json!({ "parent_run_id": "RUN" })),
        ("POST", "/api/runs/RUN/events", json!({ "type": "not valid" })),
        ("POST", "/api/runs/RUN/events", json!([])),
        ("POST", "/api/runs/RUN/cancel", json!({ "reason": "x" })),
        ("GET", "/api/runs/RUN/events?after=99", Value::Null),
        ("GET", "/api/stream/runs/RUN?after=99", Value::Null),
        ("GET", "/api/stream/runs/RUN?after=x", Value::Null),
        ("GET", "/api/stream/runs/RUN?tree=true", Value::Null),
    ] {
        let ask = async |run: &str| {
            let request = bob.request(method.parse().unwrap(), &path.replace("RUN", run));
            let text = body.to_string().replace("RUN", run);
            let request =
                if body.is_null() { request } else { request.header("content-type", "application/json").body(text) };
            bob.send(request).await
        };
        same(&ask(&theirs).await, &ask(&new_run_id()).await, path);
    }
    assert_eq!(alice.run(&theirs).await["last_seq"], 5, "nothing of that changed the run");
}

#[tokio::test]
async fn a_run_id_that_somebody_else_has_taken_gives_nothing_of_theirs_away() {
    let server = shared().await;
    let (alice, bob) = (server.as_subject("alice"), server.as_subject("bob"));
    let body = json!({ "run_id": new_run_id(), "title": "alice's" });
    alice.post("/api/runs", body.clone()).await.expect(201);
    let reply = bob.post("/api/runs", body.clone()).await;
    assert!(matches!(reply.status, 404 | 409), "{}", reply.text);
    assert!(!reply.text.contains("alice"), "{}", reply.text);
    bob.get(&format!("/api/runs/{}", body["run_id"].as_str().unwrap())).await.refused(404, "not_found");
    assert_eq!(bob.get("/api/runs").await.expect(200)["runs"], json!([]));
}
