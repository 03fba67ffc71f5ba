//! API tokens over HTTP: those for oneself, and read tokens for one run, tree or thread, which may be in a stream's URL.

use chrono::{DateTime, TimeDelta, Utc};
use reqwest::Method;
use runreel::domain::principal::Scope;
use serde_json::{Value, json};

use crate::support::{
    api::{Api, stream_of},
    runs::numbered,
    server::{Server, setup},
    sse::Stream,
};

/// The token and its id.
async fn shared(api: &Api, path: &str, body: Value) -> (String, String) {
    let reply = api.post(path, body).await;
    assert_eq!(reply.headers["cache-control"], "no-store");
    let token = reply.expect(201);
    assert_eq!(token["scopes"], json!(["read"]));
    (token["token"].as_str().unwrap().to_owned(), token["token_id"].as_str().unwrap().to_owned())
}

fn with_token(path: &str, token: &str) -> String {
    format!("{path}{}access_token={token}", if path.contains('?') { '&' } else { '?' })
}

/// A server, which alone is nobody, and alice at it.
async fn nobody() -> (Server, Api) {
    let server = setup().jwt().start().await;
    let alice = server.as_subject("alice");
    (server, alice)
}

/// What a holder of this token gets at these paths.
async fn statuses(server: &Server, token: &str, paths: &[String]) -> Vec<u16> {
    let api = server.with(token.to_owned());
    let mut statuses = Vec::new();
    for path in paths {
        statuses.push(api.request(Method::GET, path).send().await.unwrap().status().as_u16());
    }
    statuses
}

#[tokio::test]
async fn a_page_without_headers_follows_a_run_by_a_token_in_the_url_and_comes_back() {
    let (server, alice) = nobody().await;
    let run = alice.start_run().await;
    let (token, _) = shared(&alice, &format!("/api/runs/{run}/tokens"), json!({})).await;
    let mut stream = server.stream(&with_token(&stream_of(&run), &token)).await;
    stream.caught_up().await;
    alice.emit(&run, numbered(1)).await;
    assert_eq!(stream.next().await.event, "custom.n");
    // The token takes the place of the header: it stays in the URL when EventSource comes back with a cursor.
    let request = server.request(Method::GET, &with_token(&stream_of(&run), &token)).header("last-event-id", "2");
    let mut back = Stream::of(request.send().await.unwrap());
    assert_eq!(back.next().await.event, "custom.n");
}

#[tokio::test]
async fn a_read_token_reads_its_part_and_nothing_else() {
    let (server, alice) = nobody().await;
    let top = alice.create(json!({ "thread_id": "t" })).await;
    let child = alice.create(json!({ "parent_run_id": top, "thread_id": "u" })).await;
    let below = alice.create(json!({ "parent_run_id": child, "thread_id": "u" })).await;
    let beside = alice.create(json!({ "thread_id": "t" })).await;
    alice.put_checkpoint("t", "1", json!({ "checkpoint": { "t": "x" } })).await;
    let tokens = [
        shared(&alice, &format!("/api/runs/{top}/tokens"), json!({})).await.0,
        shared(&alice, &format!("/api/runs/{child}/tokens"), json!({ "tree": true })).await.0,
        shared(&alice, "/api/threads/t/tokens", json!({})).await.0,
    ];
    let run = |run: &str| format!("/api/runs/{run}");
    let paths = [
        (run(&top), [200, 404, 200]),
        (run(&child), [404, 200, 404]),
        (run(&below), [404, 200, 404]),
        (run(&beside), [404, 404, 200]),
        (format!("{}/events", run(&below)), [404, 200, 404]),
        (format!("{}/timeline", run(&beside)), [404, 404, 200]),
        (stream_of(&top), [200, 404, 200]),
        (format!("{}?tree=true", stream_of(&top)), [403, 404, 403]),
        (format!("{}?tree=true", stream_of(&child)), [404, 200, 404]),
        (format!("{}?tree=true", stream_of(&below)), [404, 403, 404]),
        ("/api/stream/threads/t".to_owned(), [403, 403, 200]),
        ("/api/stream/threads/u".to_owned(), [403, 403, 404]),
        ("/api/stream/runs".to_owned(), [403, 403, 403]),
        ("/api/threads/t".to_owned(), [403, 403, 200]),
        ("/api/threads/t/runs".to_owned(), [403, 403, 200]),
        ("/api/threads/t/messages".to_owned(), [403, 403, 200]),
        ("/api/threads/t/checkpoints".to_owned(), [403, 403, 403]),
        ("/api/threads/u/messages".to_owned(), [403, 403, 404]),
        ("/api/threads".to_owned(), [403, 403, 403]),
        ("/api/runs".to_owned(), [403, 403, 403]),
        ("/api/tokens".to_owned(), [403, 403, 403]),
    ];
    let asked: Vec<String> = paths.iter().map(|(path, _)| path.clone()).collect();
    for (n, token) in tokens.iter().enumerate() {
        let got = statuses(&server, token, &asked).await;
        for ((path, expected), got) in paths.iter().zip(got) {
            assert_eq!(got, expected[n], "token {n}: {path}");
        }
        let api = server.with(token.clone());
        api.try_emit(&top, numbered(1))
            .await
            .refused(if n == 1 { 404 } else { 403 }, if n == 1 { "not_found" } else { "forbidden" });
        // Who may look for an hour must not make it two.
        api.post(&format!("/api/runs/{top}/tokens"), json!({})).await.refused(403, "forbidden");
        api.post("/api/threads/t/tokens", json!({})).await.refused(403, "forbidden");
    }
}

#[tokio::test]
async fn a_read_token_of_one_run_joins_it_by_ag_ui_without_the_messages_of_earlier_runs() {
    let (server, alice) = nobody().await;
    let mut runs = Vec::new();
    for n in 1..=2 {
        let input = json!({ "messages": [{ "role": "user", "content": format!("asked {n}") }] });
        let run = alice.create(json!({ "thread_id": "t", "input": input })).await;
        let said = json!({ "role": "assistant", "content": format!("said {n}") });
        alice.emit(&run, json!([{ "type": "message.completed", "payload": said }, { "type": "run.completed" }])).await;
        runs.push(run);
    }
    let of_run = shared(&alice, &format!("/api/runs/{}/tokens", runs[1]), json!({})).await.0;
    let of_tree = shared(&alice, &format!("/api/runs/{}/tokens", runs[1]), json!({ "tree": true })).await.0;
    let of_thread = shared(&alice, "/api/threads/t/tokens", json!({})).await.0;
    let own = json!(["asked 2", "said 2"]);
    let all = json!(["said 1", "asked 2", "said 2"]);
    for (token, expected) in [(of_run, &own), (of_tree, &own), (of_thread, &all), (alice.token.clone().unwrap(), &all)]
    {
        let stream =
            server.with(token).request(Method::GET, &format!("/api/agui/runs/{}", runs[1])).send().await.unwrap();
        let text = stream.text().await.unwrap();
        let events = text.lines().filter_map(|line| line.strip_prefix("data: "));
        let events: Vec<Value> = events.map(|event| serde_json::from_str(event).unwrap()).collect();
        let snapshot = events.iter().find(|event| event["type"] == "MESSAGES_SNAPSHOT").unwrap();
        let contents: Vec<&Value> =
            snapshot["messages"].as_array().unwrap().iter().map(|message| &message["content"]).collect();
        assert_eq!(&json!(contents), expected);
    }
}

#[tokio::test]
async fn a_tree_that_grows_stays_covered() {
    let (server, alice) = nobody().await;
    let top = alice.start_run().await;
    let (token, _) = shared(&alice, &format!("/api/runs/{top}/tokens"), json!({ "tree": true })).await;
    let mut stream = server.stream(&with_token(&format!("{}?tree=true", stream_of(&top)), &token)).await;
    stream.caught_up().await;
    let child = alice.create(json!({ "parent_run_id": top })).await;
    assert_eq!(stream.next().await.json()["run_id"], child);
    server.with(token).get(&format!("/api/runs/{child}")).await.expect(200);
}

#[tokio::test]
async fn only_a_short_lived_read_token_of_a_part_may_be_in_a_url_and_only_of_a_stream() {
    let (server, alice) = nobody().await;
    let run = alice.start_run().await;
    let soon = Some(server.clock.now() + TimeDelta::hours(1));
    let secret = |api: Api| api.token.unwrap();
    let long: Option<DateTime<Utc>> = Some(server.clock.now() + TimeDelta::days(2));
    let good = shared(&alice, &format!("/api/runs/{run}/tokens"), json!({})).await.0;
    for token in [
        secret(alice.clone()),
        secret(server.api_token("alice", &[Scope::Read], None, soon).await.0),
        secret(server.api_token("alice", &[Scope::Read, Scope::Emit], Some(&run), soon).await.0),
        secret(server.api_token("alice", &[Scope::Read], Some(&run), long).await.0),
        secret(server.api_token("alice", &[Scope::Read], Some(&run), None).await.0),
    ] {
        let reply = server.no_stream(&with_token(&stream_of(&run), &token), None).await;
        reply.refused(400, "token_in_url");
        assert!(!reply.text.contains(&token));
    }
    let stream = with_token(&stream_of(&run), &good);
    for path in [
        with_token(&format!("/api/runs/{run}"), &good),
        with_token(&format!("/api/runs/{run}/events"), &good),
        format!("{}?token={good}", stream_of(&run)),
        format!("{}?ACCESS_TOKEN={good}", stream_of(&run)),
        format!("{stream}&x={good}"),
    ] {
        server.get(&path).await.refused(400, "token_in_url");
    }
    // Two credentials could be those of two people, and a parameter given twice could be read in two ways.
    alice.no_stream(&stream, None).await.refused(400, "token_in_url");
    server.no_stream(&with_token(&stream, &good), None).await.refused(400, "invalid_request");
    let unknown = with_token(&stream_of(&run), &format!("rr_{}", "0".repeat(64)));
    server.no_stream(&unknown, None).await.refused(401, "unauthorized");
}

#[tokio::test]
async fn a_read_token_ends_by_itself_or_when_its_owner_says_so() {
    let clock = runreel::clock::Clock::manual(runreel::clock::Clock::System.now());
    let server = setup().jwt().clock(&clock).start().await;
    let (alice, bob) = (server.as_subject("alice"), server.as_subject("bob"));
    let (member, _) = server.api_token("alice", &[Scope::Read, Scope::Emit], None, None).await;
    let run = alice.start_run().await;
    let path = format!("/api/runs/{run}/tokens");
    let (short, _) = shared(&member, &path, json!({ "ttl_s": 1 })).await;
    let (kept, id) = shared(&member, &path, json!({ "ttl_s": 86_400 })).await;
    let mut stream = server.stream(&with_token(&stream_of(&run), &kept)).await;
    stream.caught_up().await;
    server.pass(std::time::Duration::from_secs(1));
    server.no_stream(&with_token(&stream_of(&run), &short), None).await.refused(401, "unauthorized");
    bob.delete(&format!("/api/tokens/{id}")).await.refused(404, "not_found");
    member.delete(&format!("/api/tokens/{id}")).await.expect(204);
    assert_eq!(stream.rest().await, []);
    server.no_stream(&with_token(&stream_of(&run), &kept), None).await.refused(401, "unauthorized");
    // What does more than read a part is for the scope admin to revoke.
    let (_, other) = server.api_token("alice", &[Scope::Emit], None, None).await;
    member.delete(&format!("/api/tokens/{other}")).await.refused(404, "not_found");
    alice.delete(&format!("/api/tokens/{other}")).await.expect(204);
}

#[tokio::test]
async fn a_token_made_over_http_does_what_it_says_and_is_listed_without_its_secret() {
    let (server, alice) = nobody().await;
    let run = alice.start_run().await;
    let body = json!({ "name": "ci", "scopes": ["emit", "read", "emit"], "run_id": run, "ttl_s": 60 });
    let made = alice.post("/api/tokens", body).await.expect(201);
    let (secret, id) = (made["token"].as_str().unwrap(), &made["token_id"]);
    let api = server.with(secret);
    api.emit(&run, numbered(1)).await;
    api.post("/api/runs", json!({})).await.refused(403, "forbidden");
    let listed = alice.get("/api/tokens").await;
    assert!(!listed.text.contains(secret) && !listed.text.contains(&secret[3..]));
    let listed = listed.expect(200)["tokens"][0].clone();
    assert_eq!((&listed["token_id"], &listed["name"], &listed["run_id"]), (id, &json!("ci"), &json!(run)));
    assert_eq!((&listed["scopes"], &listed["revoked_at"]), (&json!(["read", "emit"]), &Value::Null));
    assert!(listed["expires_at"].is_string());
    alice.delete(&format!("/api/tokens/{}", id.as_str().unwrap())).await.expect(204);
    api.try_emit(&run, numbered(2)).await.refused(401, "unauthorized");
    assert!(alice.get("/api/tokens").await.json()["tokens"][0]["revoked_at"].is_string());
    let bob = server.as_subject("bob");
    assert_eq!(bob.get("/api/tokens").await.expect(200), json!({ "tokens": [] }));
    for wrong in [
        json!({ "name": "a", "scopes": [] }),
        json!({ "name": "a", "scopes": ["root"] }),
        json!({ "name": "a" }),
        json!({ "name": "", "scopes": ["read"] }),
        json!({ "name": "a", "scopes": ["read"], "ttl_s": 0 }),
        json!({ "name": "a", "scopes": ["read"], "ttl_s": 316_224_001 }),
        json!({ "name": "a", "scopes": ["read"], "tree": true }),
    ] {
        alice.post("/api/tokens", wrong).await.refused(400, "invalid_request");
    }
    for ttl_s in [0, -1, 86_401] {
        alice.post(&format!("/api/runs/{run}/tokens"), json!({ "ttl_s": ttl_s })).await.refused(400, "invalid_request");
    }
    bob.post("/api/tokens", json!({ "name": "a", "scopes": ["read"], "run_id": run })).await.refused(404, "not_found");
}

#[tokio::test]
async fn who_has_as_many_tokens_as_allowed_is_told_and_ended_ones_make_room() {
    let clock = runreel::clock::Clock::manual(runreel::clock::Clock::System.now());
    let server = setup().jwt().clock(&clock).start().await;
    let (alice, bob) = (server.as_subject("alice"), server.as_subject("bob"));
    let run = alice.start_run().await;
    let path = format!("/api/runs/{run}/tokens");
    for _ in 0..runreel::domain::limits::TOKENS_OWN_MAX {
        alice.post(&path, json!({ "ttl_s": 60 })).await.expect(201);
    }
    alice.post(&path, json!({})).await.refused(429, "busy");
    bob.post("/api/threads/t/tokens", json!({})).await.expect(201);
    server.pass(std::time::Duration::from_secs(24 * 60 * 60 + 61));
    let alice = server.as_subject("alice");
    alice.post(&path, json!({})).await.expect(201);
    assert_eq!(alice.get("/api/tokens").await.json()["tokens"].as_array().unwrap().len(), 1);
}
