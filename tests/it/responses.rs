//! `OpenAI` Responses over raw HTTP: numbers, errors, owners. The official client is in `tests/sdk/test_responses.py`.

mod open_responses;

use std::time::Duration;

use chrono::{DateTime, TimeDelta};
use runreel::{clock::Clock, domain::principal::Scope};
use serde_json::{Value, json};

use crate::{
    agents::{log, said, with},
    ai_sdk::{calls_only, spoken},
    support::{
        api::{Api, Reply},
        server::setup,
        shared::shared,
        until,
    },
};

/// The events of a stream that was read to its end.
fn events(reply: &Reply) -> Vec<Value> {
    assert_eq!(
        (reply.status, &reply.headers["content-type"]),
        (200, &"text/event-stream".parse().unwrap()),
        "{}",
        reply.text
    );
    let data = reply.text.split("\n\n").filter_map(|frame| frame.lines().find_map(|line| line.strip_prefix("data: ")));
    data.map(|data| serde_json::from_str(data).unwrap()).collect()
}

fn number(event: &Value) -> u64 {
    event["sequence_number"].as_u64().unwrap_or_else(|| panic!("no number: {event}"))
}

fn run_of(response: &Value) -> String {
    response["id"].as_str().unwrap().strip_prefix("resp_").unwrap().to_owned()
}

/// An error in `OpenAI`'s form.
#[track_caller]
fn refused(reply: &Reply, status: u16, code: &str) -> Value {
    assert_eq!(
        (reply.status, &reply.headers["content-type"]),
        (status, &"application/json".parse().unwrap()),
        "{}",
        reply.text
    );
    let error = reply.json()["error"].clone();
    assert_eq!(error["code"], code, "{}", reply.text);
    for member in ["message", "type"] {
        assert!(error[member].as_str().is_some_and(|text| !text.is_empty()), "{}", reply.text);
    }
    error
}

/// A response in the background, and its run.
async fn background(api: &Api, more: Value) -> (String, String) {
    let mut body = json!({"model": "helper", "input": "hi", "background": true});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let response = api.post("/v1/responses", body).await.expect(200);
    assert_eq!((&response["status"], &response["object"]), (&json!("queued"), &json!("response")), "{response}");
    (response["id"].as_str().unwrap().to_owned(), run_of(&response))
}

async fn tell(api: &Api, run: &str) {
    api.emit(run, json!([{"type": "run.started"}])).await;
    api.emit(run, spoken("t", "reasoning", &["Hm", "."])).await;
    api.emit(run, spoken("m1", "message", &["I ", "loök ", "😀."])).await;
    let calls = json!([
        {"type": "tool.started", "span_id": "c", "payload": {"name": "weather", "args": {"city": "Rome"}}},
        {"type": "tool.completed", "span_id": "c", "payload": {"name": "weather", "result": "sun"}},
        {"type": "tool.started", "span_id": "d", "payload": {"name": "wind", "args": {}}},
        {"type": "tool.failed", "span_id": "d", "payload": {"name": "wind", "error": {"message": "no wind"}}},
        {"type": "tool.started", "span_id": "e", "payload": {"name": "locate", "args": {"me": true}, "client": true}},
    ]);
    api.emit(run, calls).await;
    api.emit(run, spoken("m2", "message", &["Sunny."])).await;
    api.emit(run, json!([{"type": "run.completed", "payload": {"output": "Sunny."}}])).await;
}

#[tokio::test]
async fn a_stream_that_begins_after_a_number_has_exactly_what_follows_it() {
    let server = shared().await;
    let (id, run) = background(&server, json!({})).await;
    tell(&server, &run).await;
    let path = format!("/v1/responses/{id}?stream=true");
    let all = events(&server.get(&path).await);
    assert!(all.windows(2).all(|pair| number(&pair[0]) < number(&pair[1])), "numbers increase");
    assert_eq!(number(&all[0]), 0);
    assert!(number(all.last().unwrap()) < 1 << 31);
    for (n, event) in all.iter().enumerate() {
        let rest = events(&server.get(&format!("{path}&starting_after={}", number(event))).await);
        assert_eq!(rest, all[n + 1..], "after event {n}: {event}");
    }
    let kinds: Vec<_> = all.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds[..3], ["response.created", "response.queued", "response.in_progress"]);
    assert_eq!(*kinds.last().unwrap(), "response.completed");
    let whole = server.get(&format!("/v1/responses/{id}")).await.expect(200);
    assert_eq!(all.last().unwrap()["response"], whole);
    let items: Vec<_> = whole["output"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(items, ["reasoning", "message", "mcp_call", "mcp_call", "function_call", "message"]);
    for (index, item) in whole["output"].as_array().unwrap().iter().enumerate() {
        let done =
            all.iter().find(|event| event["type"] == "response.output_item.done" && event["output_index"] == index);
        assert_eq!(done.unwrap()["item"], *item);
    }
}

#[tokio::test]
async fn a_message_that_only_announces_calls_is_no_item_without_text() {
    let server = shared().await;
    let (id, run) = background(&server, json!({})).await;
    server.emit(&run, calls_only()).await;
    server.emit(&run, json!([{"type": "run.completed", "payload": {"output": "Sunny."}}])).await;
    let whole = server.get(&format!("/v1/responses/{id}")).await.expect(200);
    let items: Vec<_> = whole["output"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(items, ["mcp_call", "message"], "{whole}");
    let all = events(&server.get(&format!("/v1/responses/{id}?stream=true")).await);
    assert_eq!(all.last().unwrap()["response"], whole);
    for (n, event) in all.iter().enumerate() {
        let path = format!("/v1/responses/{id}?stream=true&starting_after={}", number(event));
        assert_eq!(events(&server.get(&path).await), all[n + 1..], "after event {n}: {event}");
    }
}

#[tokio::test]
async fn a_number_of_something_that_was_never_said_is_refused() {
    let server = shared().await;
    let (id, run) = background(&server, json!({})).await;
    server.emit(&run, json!([{"type": "run.started"}])).await;
    let after = |n: u64| format!("/v1/responses/{id}?stream=true&starting_after={n}");
    refused(&server.get(&after(1 << 30)).await, 409, "cursor_ahead");
    for no_number in [1 << 31, u64::MAX] {
        refused(&server.get(&after(no_number)).await, 400, "invalid_cursor");
    }
    for bad in ["x", "-1", "1.5"] {
        let error = refused(
            &server.get(&format!("/v1/responses/{id}?stream=true&starting_after={bad}")).await,
            400,
            "invalid_request",
        );
        assert!(error["message"].as_str().unwrap().contains("a whole number"), "{error}");
    }
}

#[tokio::test]
async fn another_principals_response_is_as_if_it_were_not_there() {
    let server = shared().await;
    let (alice, bob) = (server.as_subject("alice"), server.as_subject("bob"));
    let (id, _) = background(&alice, json!({})).await;
    let absent = id.replace(&id[id.len() - 4..], "0000");
    for (method, path) in
        [("GET", ""), ("GET", "?stream=true"), ("POST", "/cancel"), ("GET", "/input_items"), ("DELETE", "")]
    {
        let ask = async |id: &str| {
            let request = bob.request(method.parse().unwrap(), &format!("/v1/responses/{id}{path}"));
            bob.send(request).await
        };
        let (foreign, none, odd) = (ask(&id).await, ask(&absent).await, ask("resp_x").await);
        refused(&foreign, 404, "not_found");
        assert_eq!((&foreign.text, &foreign.text), (&none.text, &odd.text), "{method} {path}");
    }
    let body = json!({"model": "helper", "input": "x", "background": true, "previous_response_id": id});
    refused(&bob.post("/v1/responses", body).await, 404, "not_found");
    let nobody = Api { token: None, ..alice.clone() };
    let none = nobody.get(&format!("/v1/responses/{id}")).await;
    assert_eq!(refused(&none, 401, "unauthorized")["type"], "authentication_error");
    assert_eq!(alice.get(&format!("/v1/responses/{id}")).await.status, 200);
}

#[tokio::test]
async fn what_an_agent_cannot_do_is_refused_by_its_name_and_starts_nothing() {
    let server = shared().await;
    for (member, value) in [
        ("instructions", json!("Be brief.")),
        ("temperature", json!(0.2)),
        ("max_output_tokens", json!(5)),
        ("tools", json!([{"type": "web_search"}])),
        ("typo", json!(1)),
        ("presence_penalty", json!(1)),
        ("input", json!([{"role": "critic", "content": "x"}])),
        ("previous_response_id", json!("resp_1")),
    ] {
        let mut body = json!({"model": "helper", "input": "hi"});
        body[member] = value;
        let error = refused(&server.post("/v1/responses", body).await, 400, "invalid_request");
        assert!(error["param"].as_str().unwrap().starts_with(member), "{error}");
        assert_eq!(error["type"], "invalid_request_error");
    }
    refused(&server.post_text("/v1/responses", "text/plain", "x").await, 415, "unsupported_media_type");
    refused(&server.get("/v1/models").await, 404, "not_found");
    refused(&server.delete("/v1/responses").await, 405, "method_not_allowed");
    assert_eq!(server.get("/api/runs").await.json()["runs"], json!([]));
}

#[tokio::test]
async fn a_response_is_cancelled_once_and_deleted_when_it_has_ended() {
    let server = shared().await;
    let (id, run) = background(&server, json!({"metadata": {"ticket": "7"}})).await;
    refused(&server.delete(&format!("/v1/responses/{id}")).await, 409, "run_not_ended");
    for _ in 0..2 {
        let response = server.post(&format!("/v1/responses/{id}/cancel"), json!({})).await.expect(200);
        assert_eq!((&response["status"], &response["metadata"]["ticket"]), (&json!("cancelled"), &json!("7")));
    }
    assert_eq!(server.run(&run).await["status"], "cancelled");
    let last = events(&server.get(&format!("/v1/responses/{id}?stream=true")).await).pop().unwrap();
    assert_eq!((&last["type"], &last["response"]["status"]), (&json!("response.incomplete"), &json!("cancelled")));
    let gone = server.delete(&format!("/v1/responses/{id}")).await.expect(200);
    assert_eq!(gone, json!({"id": id, "object": "response", "deleted": true}));
    refused(&server.get(&format!("/v1/responses/{id}")).await, 404, "not_found");
    let (id, run) = background(&server, json!({})).await;
    server.emit(&run, json!([{"type": "run.started"}])).await;
    server.complete(&run).await;
    refused(&server.post(&format!("/v1/responses/{id}/cancel"), json!({})).await, 409, "run_ended");
}

#[tokio::test]
async fn a_response_is_awaited_and_the_next_continues_its_conversation() {
    let server = setup().config("[agents.parrot]\nmodel = \"echo\"\n").start().await;
    let body = json!({"model": "parrot", "input": "Hello, wörld"});
    let first = server.post("/v1/responses", body).await.expect(200);
    assert_eq!((&first["status"], &first["model"]), (&json!("completed"), &json!("parrot")), "{first}");
    assert_eq!(first["output"][0]["content"][0]["text"], "echo: Hello, wörld");
    let body = json!({"model": "parrot", "input": "again", "previous_response_id": first["id"]});
    let second = server.post("/v1/responses", body).await.expect(200);
    assert_eq!(second["previous_response_id"], first["id"]);
    let (one, two) = (server.run(&run_of(&first)).await, server.run(&run_of(&second)).await);
    assert_eq!(one["thread_id"], two["thread_id"]);
    assert_eq!(one["thread_id"], first["id"]);
    let items = server.get(&format!("/v1/responses/{}/input_items", second["id"].as_str().unwrap())).await.expect(200);
    assert_eq!((&items["data"][0]["content"][0]["text"], &items["has_more"]), (&json!("again"), &json!(false)));
    let body = json!({"model": "parrot", "input": "forget", "store": false});
    let third = server.post("/v1/responses", body).await.expect(200);
    let body = json!({"model": "parrot", "input": "again", "previous_response_id": third["id"]});
    refused(&server.post("/v1/responses", body).await, 400, "invalid_request");
}

#[tokio::test]
async fn a_call_waits_for_the_approval_and_the_same_response_goes_on_with_it() {
    let config = "[tools.shell]\nroot = \"work\"\n[agents.admin]\nmodel = \"script:admin.toml\"\ntools = [\"shell\"]\n";
    let script = r#"
        [[turns]]
        tool_calls = [{ name = "shell", args = { command = "echo one" } }]
        [[turns]]
        text = "It said {tool}"
    "#;
    let server = with(config, &[("admin.toml", script)]).start().await;
    let asked = server.post("/v1/responses", json!({"model": "admin", "input": "do it"})).await.expect(200);
    assert_eq!(asked["status"], "in_progress", "{asked}");
    let request = asked["output"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&request["type"], &request["name"]), (&json!("mcp_approval_request"), &json!("shell")));
    let next = |input: Value| json!({"model": "admin", "previous_response_id": asked["id"], "input": input});
    refused(&server.post("/v1/responses", next(json!("hello?"))).await, 409, "run_not_ended");
    let approval = json!([{"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": true}]);
    let done = server.post("/v1/responses", next(approval.clone())).await.expect(200);
    assert_eq!((&done["id"], &done["status"]), (&asked["id"], &json!("completed")), "{done}");
    let call = done["output"].as_array().unwrap().iter().find(|item| item["type"] == "mcp_call").unwrap();
    assert_eq!((&call["status"], &call["approval_request_id"]), (&json!("completed"), &request["id"]));
    assert!(call["output"].as_str().unwrap().contains("one"));
    let answered =
        done["output"].as_array().unwrap().last().unwrap()["content"][0]["text"].as_str().unwrap().to_owned();
    assert_eq!(said(&log(&server, &run_of(&done)).await).last().unwrap().1, answered);
    assert_eq!(server.post("/v1/responses", next(approval)).await.expect(200)["id"], asked["id"]);
    let refusal = json!([{"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": false}]);
    refused(&server.post("/v1/responses", next(refusal)).await, 409, "interrupt_closed");
}

#[tokio::test]
async fn the_tools_of_a_large_input_are_those_of_the_response() {
    let server = shared().await;
    let tool = json!({"name": "paint", "description": "paints", "parameters": {"type": "object"}});
    let message = json!({"id": "u", "role": "user", "content": "x".repeat(70_000)});
    let input = json!({"threadId": "t", "runId": "r", "messages": [message], "tools": [tool]});
    let request = server.request(reqwest::Method::POST, "/api/agui/agents/helper").json(&input);
    assert_eq!(request.send().await.unwrap().status(), 200);
    let run = server.get("/api/runs/by-external-id/r").await.expect(200);
    assert!(run["input"]["$artifact"].is_object());
    let response = server.get(&format!("/v1/responses/resp_{}", run["run_id"].as_str().unwrap())).await.expect(200);
    assert_eq!((&response["tools"][0]["name"], &response["tools"][0]["type"]), (&json!("paint"), &json!("function")));
}

#[tokio::test]
async fn one_that_waits_for_a_response_is_sent_away_when_its_credential_expires_or_is_revoked() {
    let now = DateTime::from_timestamp(Clock::System.now().timestamp(), 0).unwrap();
    let clock = Clock::manual(now);
    let server = setup().jwt().clock(&clock).start().await;
    let alice = server.as_subject("alice");
    let scopes = [Scope::Read, Scope::Emit];
    let (short, _) = server.api_token("alice", &scopes, None, Some(now + TimeDelta::seconds(1))).await;
    let (revoked, id) = server.api_token("alice", &scopes, None, None).await;
    let wait = |api: Api, input: &'static str| {
        tokio::spawn(async move { api.post("/v1/responses", json!({"model": "helper", "input": input})).await })
    };
    let waiting = [wait(short, "short"), wait(revoked, "revoked"), wait(alice.clone(), "lasting")];
    until("three runs", || async { alice.get("/api/runs").await.json()["runs"].as_array().unwrap().len() == 3 }).await;
    server.pass(Duration::from_secs(1));
    let (store, authenticator) = (server.inner.timeline.store(), &server.inner.authenticator);
    let owner = authenticator.owner("", "alice");
    assert!(store.tokens().revoke(&owner, id, true, server.clock.now()).await.unwrap());
    let [short, revoked, lasting] = waiting;
    for ended in [short, revoked] {
        let reply = crate::support::patiently("a reply", ended).await.unwrap();
        refused(&reply, 401, "unauthorized");
    }
    // The runs go on.
    let runs = alice.get("/api/runs").await.json()["runs"].clone();
    for run in runs.as_array().unwrap() {
        assert_eq!(run["status"], "queued");
        alice.emit(run["run_id"].as_str().unwrap(), json!([{"type": "run.started"}, {"type": "run.completed"}])).await;
    }
    assert_eq!(lasting.await.unwrap().expect(200)["status"], "completed");
}
