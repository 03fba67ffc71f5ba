//! The AI SDK's own chat, from npm, over a real socket. `./just peers` installs it.

mod agents;
mod client_tools;
pub mod peer;
mod resumed;

use serde_json::{Value, json};

use self::peer::Peer;
use crate::support::{api::Api, shared::shared};

/// Where a chat with this agent posts.
pub fn route(agent: &str) -> String {
    format!("/api/ai-sdk/agents/{agent}")
}

/// The newest run of a chat, once the server has it.
pub async fn run_of(api: &Api, chat: &str) -> String {
    let found = std::sync::Mutex::new(None);
    crate::support::until("the chat's run", || async {
        let runs = api.get(&format!("/api/threads/{chat}/runs")).await;
        let newest =
            if runs.status == 200 { runs.json()["runs"][0]["run_id"].as_str().map(str::to_owned) } else { None };
        *found.lock().unwrap() = newest;
        found.lock().unwrap().is_some()
    })
    .await;
    found.into_inner().unwrap().unwrap()
}

/// A text of a message, in pieces and then whole.
pub fn spoken(span: &str, kind: &str, pieces: &[&str]) -> Value {
    let delta = |piece: &&str| json!({"type": format!("{kind}.delta"), "span_id": span, "payload": {"text": piece}});
    let whole = json!([{"type": "text", "text": pieces.concat()}]);
    let end = json!({"type": format!("{kind}.completed"), "span_id": span, "payload": {"content": whole}});
    pieces.iter().map(delta).chain([end]).collect()
}

/// A message without a text that announces a call, the call, and an answer.
pub fn calls_only() -> Value {
    json!([
        {"type": "run.started"},
        {"type": "message.completed", "span_id": "m1", "payload": {"role": "assistant", "content": [],
         "tool_calls": [{"id": "c", "name": "weather", "args": {}}]}},
        {"type": "tool.started", "span_id": "c", "parent_span_id": "m1",
         "payload": {"tool_call_id": "c", "name": "weather", "args": {}}},
        {"type": "tool.completed", "span_id": "c",
         "payload": {"tool_call_id": "c", "name": "weather", "result": "sun"}},
        {"type": "message.completed", "span_id": "m2", "payload": {"role": "assistant", "content": "Sunny."}},
    ])
}

/// The parts of the last message, without what is undefined.
pub fn parts(state: &Value) -> Vec<Value> {
    state["messages"].as_array().unwrap().last().unwrap()["parts"].as_array().unwrap().clone()
}

#[tokio::test]
async fn what_a_run_does_is_read_as_one_message() {
    let server = shared().await;
    let mut peer = Peer::start();
    peer.open(&server, "helper", json!({"id": "c1"})).await;
    peer.order(json!({"do": "send", "text": "What is the weather?"})).await;
    let run = run_of(&server, "c1").await;
    let input = server.run(&run).await["input"].clone();
    assert_eq!(
        input,
        json!({"messages": [{"role": "user", "content": [{"type": "text", "text": "What is the weather?"}]}]})
    );
    server
        .emit(
            &run,
            json!([{"type": "run.started"}, {"type": "step.started", "span_id": "s1", "payload": {"name": "model"}}]),
        )
        .await;
    server.emit(&run, spoken("t", "reasoning", &["Where", "?"])).await;
    server.emit(&run, spoken("m1", "message", &["I ", "look."])).await;
    server
        .emit(
            &run,
            json!([
                {"type": "tool.started", "span_id": "c", "payload": {"name": "weather", "args": {"city": "Rome"}}},
                {"type": "tool.completed", "span_id": "c", "payload": {"name": "weather", "result": {"sun": true}}},
                {"type": "tool.started", "span_id": "d", "payload": {"name": "wind", "args": {}}},
                {"type": "tool.failed", "span_id": "d", "payload": {"name": "wind", "error": {"message": "no wind"}}},
                {"type": "weather.measured", "span_id": "x", "payload": {"degrees": 20}},
                {"type": "weather.measured", "span_id": "x", "payload": {"degrees": 21}},
                {"type": "log.info", "payload": {"message": "nobody's business"}},
                {"type": "step.completed", "span_id": "s1", "payload": {"name": "model"}},
            ]),
        )
        .await;
    server.emit(&run, spoken("m2", "message", &["Sunny."])).await;
    server.emit(&run, json!([{"type": "run.completed", "payload": {"output": "Sunny."}}])).await;
    let state = peer.order(json!({"do": "rest"})).await;
    assert_eq!((&state["status"], &state["error"]), (&json!("ready"), &Value::Null), "{state}");
    let message = &state["messages"][1];
    assert_eq!((&message["id"], &message["role"]), (&json!(run), &json!("assistant")));
    assert_eq!(message["metadata"]["runId"], json!(run));
    assert_eq!(message["metadata"]["status"], "completed");
    let parts = parts(&state);
    let kinds: Vec<_> = parts.iter().map(|part| part["type"].as_str().unwrap()).collect();
    assert_eq!(
        kinds,
        ["step-start", "reasoning", "text", "dynamic-tool", "dynamic-tool", "data-weather.measured", "text"]
    );
    assert_eq!(
        (&parts[1]["text"], &parts[2]["text"], &parts[6]["text"]),
        (&json!("Where?"), &json!("I look."), &json!("Sunny."))
    );
    assert_eq!((&parts[3]["state"], &parts[3]["output"]), (&json!("output-available"), &json!({"sun": true})));
    assert_eq!((&parts[3]["input"], &parts[3]["toolName"]), (&json!({"city": "Rome"}), &json!("weather")));
    assert_eq!((&parts[4]["state"], &parts[4]["errorText"]), (&json!("output-error"), &json!("no wind")));
    assert_eq!(parts[5]["data"], json!({"degrees": 21}));
    assert_eq!(state["responses"][0], json!({"method": "POST", "status": 200, "header": "v1"}));
    assert_eq!(state["ends"], json!(["done"]));
    // Over: there is nothing to resume, unless it is asked for.
    peer.order(json!({"do": "resume"})).await;
    let state = peer.order(json!({"do": "rest"})).await;
    assert_eq!(state["responses"][1]["status"], 204);
    assert_eq!(state["messages"].as_array().unwrap().len(), 2);
    let replay = server.get(&format!("{}/c1/stream?ended=true", route("helper"))).await;
    assert_eq!(replay.status, 200);
    assert!(replay.text.ends_with("data: [DONE]\n\n"), "{}", replay.text);
}

#[tokio::test]
async fn a_message_that_only_announces_calls_is_no_empty_text() {
    let server = shared().await;
    let mut peer = Peer::start();
    peer.open(&server, "helper", json!({"id": "c1"})).await;
    peer.order(json!({"do": "send", "text": "What is the weather?"})).await;
    let run = run_of(&server, "c1").await;
    server.emit(&run, calls_only()).await;
    server.emit(&run, json!([{"type": "run.completed", "payload": {"output": "Sunny."}}])).await;
    let state = peer.order(json!({"do": "rest"})).await;
    let kinds: Vec<_> = parts(&state).iter().map(|part| part["type"].as_str().unwrap().to_owned()).collect();
    assert_eq!(kinds, ["dynamic-tool", "text"], "{state}");
}

#[tokio::test]
async fn a_run_that_fails_or_is_cancelled_ends_the_message_as_the_sdk_says_it() {
    let server = shared().await;
    let mut peer = Peer::start();
    peer.open(&server, "helper", json!({"id": "fails"})).await;
    peer.order(json!({"do": "send", "text": "go"})).await;
    let run = run_of(&server, "fails").await;
    server.emit(&run, json!([{"type": "run.started"}, {"type": "run.failed", "payload": {"error": {"message": "out of credit"}}}])).await;
    let state = peer.order(json!({"do": "rest"})).await;
    assert_eq!((&state["status"], &state["error"]), (&json!("error"), &json!("out of credit")), "{state}");
    peer.open(&server, "helper", json!({"id": "cancelled"})).await;
    peer.order(json!({"do": "send", "text": "go"})).await;
    let run = run_of(&server, "cancelled").await;
    server.post(&format!("/api/runs/{run}/cancel"), json!({"reason": "enough"})).await.expect(202);
    let state = peer.order(json!({"do": "rest"})).await;
    assert_eq!(state["status"], "ready", "{state}");
    let last_two: Vec<_> =
        state["chunks"].as_array().unwrap().iter().rev().take(2).map(|chunk| chunk["type"].clone()).collect();
    assert_eq!(last_two, ["finish", "abort"]);
}

#[tokio::test]
async fn another_principals_chat_is_as_if_it_were_not_there() {
    let server = shared().await;
    let (alice, bob) = (server.as_subject("alice"), server.as_subject("bob"));
    let mut peer = Peer::start();
    peer.open(&alice, "helper", json!({"id": "c1"})).await;
    peer.order(json!({"do": "send", "text": "mine"})).await;
    let run = run_of(&alice, "c1").await;
    alice.emit(&run, json!([{"type": "run.started"}])).await;
    let path = format!("{}/c1/stream", route("helper"));
    let (foreign, absent) = (bob.get(&path).await, bob.get(&path.replace("c1", "c2")).await);
    assert_eq!((foreign.status, foreign.text), (absent.status, absent.text));
    assert_eq!(bob.get(&path).await.status, 204);
    // Its approvals are not there either.
    let part = json!({"type": "dynamic-tool", "toolName": "x", "toolCallId": "c", "state": "approval-responded",
        "approval": {"id": "i", "approved": true}});
    let body = json!({"id": "c1", "messages": [{"id": run, "role": "assistant", "parts": [part]}]});
    bob.post(&route("helper"), body).await.refused(400, "invalid_request");
}

#[tokio::test]
async fn a_post_that_says_nothing_new_is_refused_and_starts_nothing() {
    let server = shared().await;
    for (body, field) in [
        (json!({"messages": []}), "id"),
        (json!({"id": "c 1", "messages": []}), "id"),
        (json!({"id": "c1", "messages": []}), "messages"),
        (json!({"id": "c1", "messages": [{"id": "m", "role": "assistant", "parts": []}]}), "messages"),
        (
            json!({"id": "c1", "messages": [{"role": "user", "parts": [{"type": "text", "text": "x"}]}], "tools": [1]}),
            "tools[0]",
        ),
    ] {
        let problem = server.post(&route("helper"), body).await.refused(400, "invalid_request");
        assert_eq!(problem["field"], field, "{problem}");
    }
    assert_eq!(server.get("/api/runs").await.json()["runs"], json!([]));
}
