//! The server's own agents in a chat: approvals, and what the log says at the end.

use serde_json::{Value, json};

use super::{parts, peer::Peer, route, run_of};
use crate::{
    agents::{kinds, log, of, said, with},
    support::{api::Api, server::setup, shared::shared},
};

const CONFIG: &str =
    "[tools.shell]\nroot = \"work\"\n[agents.admin]\nmodel = \"script:admin.toml\"\ntools = [\"shell\"]\n";
const SCRIPT: &str = r#"
    repeat = true
    [[turns]]
    text = "May I?"
    tool_calls = [
        { name = "shell", args = { command = "echo one" } },
        { name = "shell", args = { command = "echo two" } },
    ]
    [[turns]]
    text = "It said {tool}"
"#;

#[tokio::test]
async fn the_sdks_final_message_is_what_the_log_says() {
    let server = setup().config("[agents.parrot]\nmodel = \"echo\"\n").start().await;
    let mut peer = Peer::start();
    peer.open(&server, "parrot", json!({"id": "c"})).await;
    let state = peer.order(json!({"do": "read", "text": "Polly wants — a crâcker 🦜"})).await;
    let run = run_of(&server, "c").await;
    let events = log(&server, &run).await;
    let spoken: Vec<_> =
        said(&events).into_iter().filter(|(role, _)| role == "assistant").map(|(_, text)| text).collect();
    let texts: Vec<_> =
        parts(&state).iter().filter(|part| part["type"] == "text").map(|part| part["text"].clone()).collect();
    assert_eq!(texts, spoken);
    assert_eq!(texts, ["echo: Polly wants — a crâcker 🦜"]);
    assert_eq!(state["messages"][1]["id"], json!(run));
}

/// The ids of the approvals that the last message asks for.
fn asked(state: &Value) -> Vec<String> {
    let asked = parts(state).into_iter().filter(|part| part["state"] == "approval-requested");
    asked.map(|part| part["approval"]["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn calls_are_made_or_not_as_the_person_in_the_chat_decides_and_the_message_goes_on() {
    let server = with(CONFIG, &[("admin.toml", SCRIPT)]).start().await;
    let mut peer = Peer::start();
    peer.open(&server, "admin", json!({"id": "c", "auto": true})).await;
    peer.order(json!({"do": "send", "text": "do it"})).await;
    let state = peer.order(json!({"do": "rest"})).await;
    let ids = asked(&state);
    assert_eq!((ids.len(), &state["status"]), (2, &json!("ready")), "{state}");
    // A page that is loaded now gets the same questions.
    let again = server.get(&format!("{}/c/stream", route("admin"))).await;
    assert_eq!((again.status, again.text.matches("tool-approval-request").count()), (200, 2), "{}", again.text);
    peer.order(json!({"do": "approve", "id": ids[0], "approved": true})).await;
    let state = peer.order(json!({"do": "rest"})).await;
    assert_eq!(state["responses"].as_array().unwrap().len(), 1, "it is sent when all are answered");
    peer.order(json!({"do": "approve", "id": ids[1], "approved": false, "reason": "not two"})).await;
    peer.order(json!({"do": "rest"})).await;
    let state = peer.order(json!({"do": "rest"})).await;
    assert_eq!((&state["status"], &state["error"]), (&json!("ready"), &Value::Null), "{state}");
    let run = run_of(&server, "c").await;
    let (message, parts) = (&state["messages"][1], parts(&state));
    assert_eq!((state["messages"].as_array().unwrap().len(), &message["id"]), (2, &json!(run)));
    let calls: Vec<_> = parts.iter().filter(|part| part["type"] == "dynamic-tool").collect();
    assert_eq!(calls.len(), 2, "{parts:?}");
    assert_eq!((&calls[0]["state"], &calls[0]["approval"]["approved"]), (&json!("output-available"), &json!(true)));
    assert!(calls[0]["output"].to_string().contains("one"), "{}", calls[0]);
    assert_eq!((&calls[1]["state"], &calls[1]["approval"]["reason"]), (&json!("output-denied"), &json!("not two")));
    let texts: Vec<_> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
    assert_eq!((texts.len(), texts[0]), (2, "May I?"));
    let events = log(&server, &run).await;
    assert_eq!(said(&events).last().unwrap().1, texts[1]);
    assert_eq!(of(&events, "interrupt.resolved").len(), 2);
    assert_eq!(kinds(&events).last(), Some(&"run.completed"));
    // Nothing is sent by itself after the end.
    assert_eq!(state["responses"].as_array().unwrap().len(), 2);
    let replay = server.get(&format!("{}/c/stream?ended=true", route("admin"))).await.text;
    assert_eq!(replay.matches("tool-approval-response").count(), 2);
    assert_eq!(replay.matches("\"type\":\"tool-input-available\"").count(), 2);
}

#[tokio::test]
async fn whoever_writes_instead_of_answering_gets_an_answer_to_that() {
    let server = with(CONFIG, &[("admin.toml", SCRIPT)]).start().await;
    let mut peer = Peer::start();
    peer.open(&server, "admin", json!({"id": "c"})).await;
    peer.order(json!({"do": "send", "text": "do it"})).await;
    let state = peer.order(json!({"do": "rest"})).await;
    assert_eq!(asked(&state).len(), 2);
    let first = run_of(&server, "c").await;
    peer.order(json!({"do": "send", "text": "never mind"})).await;
    let state = peer.order(json!({"do": "rest"})).await;
    assert_eq!(server.run(&first).await["status"], "cancelled");
    let second = run_of(&server, "c").await;
    assert_ne!(first, second);
    assert_eq!((state["messages"].as_array().unwrap().len(), &state["messages"][3]["id"]), (4, &json!(second)));
    let input = &server.run(&second).await["input"]["messages"];
    assert_eq!(*input, json!([{"role": "user", "content": [{"type": "text", "text": "never mind"}]}]));
}

/// A run of `helper` in the chat `c` that waits for two answers.
async fn waiting(server: &Api) -> String {
    let run = server.create(json!({"agent": "helper", "thread_id": "c", "input": {"messages": []}})).await;
    let asked = |id: &str| json!({"type": "interrupt.requested", "span_id": id, "payload": {"kind": "approval"}});
    server.emit(&run, json!([asked("a"), asked("b"), {"type": "run.interrupted"}])).await;
    run
}

#[tokio::test]
async fn a_message_that_is_refused_leaves_the_run_that_waits_as_it_is() {
    let server = shared().await;
    let run = waiting(&server).await;
    let long = json!({"role": "user", "parts": [{"type": "text", "text": "x".repeat(70_000)}]});
    server.post(&route("helper"), json!({"id": "c", "messages": [long]})).await.refused(413, "too_large");
    assert_eq!(server.run(&run).await["status"], "interrupted");
    let runs = server.get("/api/threads/c/runs").await.expect(200)["runs"].as_array().unwrap().len();
    assert_eq!(runs, 1);
}

#[tokio::test]
async fn an_answer_to_what_nobody_asked_is_refused_with_the_others() {
    let server = shared().await;
    let run = waiting(&server).await;
    let part = |id: &str| {
        json!({"type": "dynamic-tool", "toolName": "x", "toolCallId": id, "state": "approval-responded",
               "approval": {"id": id, "approved": true}})
    };
    let message = json!({"id": run, "role": "assistant", "parts": [part("a"), part("none")]});
    server.post(&route("helper"), json!({"id": "c", "messages": [message]})).await.refused(404, "not_found");
    let approve = |id: &str| {
        let id = format!("{run}/{id}");
        json!({"type": "mcp_approval_response", "approval_request_id": id, "approve": true})
    };
    let body = |model: &str, ids: &[&str]| {
        let input: Vec<Value> = ids.iter().map(|id| approve(id)).collect();
        json!({"model": model, "previous_response_id": format!("resp_{run}"), "input": input})
    };
    let refused = server.post("/v1/responses", body("helper", &["a", "none"])).await.expect(404);
    assert_eq!(refused["error"]["code"], "not_found");
    let refused = server.post("/v1/responses", body("other", &["a", "b"])).await.expect(400);
    assert_eq!(refused["error"]["param"], "model");
    assert_eq!(of(&log(&server, &run).await, "interrupt.resolved"), Vec::<&Value>::new());
}
