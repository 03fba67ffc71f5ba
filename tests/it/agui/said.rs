//! A run from its beginning to its end, as the client has it.

use serde_json::{Value, json};

use super::{Client, Stream, kinds, request, texts, user};
use crate::{
    agents::{log, of, with},
    support::server::Setup,
    support::shared::shared,
};

/// An agent that thinks, calls a tool of its own, and answers.
fn speaker() -> Setup {
    let config =
        "[tools.files]\nroot = \"work\"\n[agents.speaker]\nmodel = \"script:speaker.toml\"\ntools = [\"files\"]\n";
    let script = r#"
        repeat = true
        [[turns]]
        reasoning = "Let me look. 🐘"
        text = "I look what is there."
        tool_calls = [{ name = "files_list", args = { path = "." } }]
        [[turns]]
        text = "There is one file: héllo. 🐘"
    "#;
    let setup = with(config, &[("speaker.toml", script)]);
    let work = setup.folder().path().join("work");
    std::fs::create_dir(&work).unwrap();
    std::fs::write(work.join("one.txt"), "1").unwrap();
    setup
}

#[tokio::test]
async fn the_client_has_the_messages_of_the_log_without_a_warning() {
    let server = speaker().start().await;
    let mut client = Client::start().await;
    let order =
        json!({"agent": "speaker", "threadId": "t", "runId": "r-1", "messages": [user("u1", "what is there?")]});
    let result = client.run(&server, order).await;
    assert_eq!(result["error"], Value::Null, "{result}");
    let run = server.get("/api/runs/by-external-id/r-1").await.expect(200);
    assert_eq!((run["thread_id"].as_str(), run["status"].as_str()), (Some("t"), Some("completed")));
    let events = log(&server, run["run_id"].as_str().unwrap()).await;
    let said: Vec<(String, String)> = events
        .iter()
        .filter(|event| ["message.completed", "reasoning.completed"].contains(&event["type"].as_str().unwrap()))
        .map(|event| {
            let payload = &event["payload"];
            let role = payload["role"].as_str().unwrap_or("reasoning").to_owned();
            (role, payload["content"][0]["text"].as_str().or(payload["text"].as_str()).unwrap_or_default().to_owned())
        })
        .collect();
    let mut had = texts(&result["messages"]);
    let tool = had.iter().position(|(role, _)| role == "tool").unwrap();
    assert!(had.remove(tool).1.contains("one.txt"));
    assert_eq!(had, said);
    let call = of(&events, "tool.started")[0];
    let calls: Vec<&Value> =
        result["messages"].as_array().unwrap().iter().filter(|m| m["toolCalls"].is_array()).collect();
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0]["content"], "I look what is there.", "the call belongs to the message that announced it");
    let function = &calls[0]["toolCalls"][0]["function"];
    assert_eq!(function["name"], call["payload"]["name"]);
    assert_eq!(
        serde_json::from_str::<Value>(function["arguments"].as_str().unwrap()).unwrap(),
        call["payload"]["args"]
    );
    // The next request brings all of it again, and the agent needs only what is new.
    let mut messages = result["messages"].as_array().unwrap().clone();
    messages.push(user("u2", "again"));
    let order = json!({"agent": "speaker", "threadId": "t", "runId": "r-2", "messages": messages});
    let again = client.run(&server, order).await;
    assert_eq!(again["messages"].as_array().unwrap().len(), 2 * messages.len() - 2, "{again}");
    let run = server.get("/api/runs/by-external-id/r-2").await.expect(200);
    assert_eq!(run["input"]["messages"], json!([user("u2", "again")]));
}

/// A time of the log in milliseconds.
fn millis(at: &Value) -> Value {
    json!(chrono::DateTime::parse_from_rfc3339(at.as_str().unwrap()).unwrap().timestamp_millis())
}

#[tokio::test]
async fn what_an_agent_of_ag_ui_said_comes_out_as_it_went_in() {
    let server = shared().await;
    let input = request("t", "r", &[user("u1", "go")]);
    let mut stream = Stream::post(&server, "elsewhere", &input).await;
    let run = server.get("/api/runs/by-external-id/r").await.expect(200);
    assert_eq!(run["input"], input);
    let run = run["run_id"].as_str().unwrap();
    let message = json!([{"type": "text", "text": "Hello"}]);
    server
        .emit(
            run,
            json!([
                {"type": "run.started"},
                {"type": "step.started", "span_id": "step-1", "payload": {"name": "plan"}},
                {"type": "agui.state_snapshot", "payload": {"snapshot": {"n": 1.50}}},
                {"type": "agui.state_delta", "payload": {"delta": [{"op": "replace", "path": "/n", "value": 2}]}},
                {"type": "message.completed", "span_id": "m1", "payload": {"role": "assistant", "content": message}},
                {"type": "tool.started", "span_id": "c1", "parent_span_id": "m1",
                 "payload": {"tool_call_id": "c1", "name": "add", "args": {"a": 1}}},
                {"type": "tool.completed", "span_id": "c1",
                 "payload": {"tool_call_id": "c1", "name": "add", "result": "2", "message_id": "m2"}},
                {"type": "tool.started", "span_id": "c2", "payload": {"tool_call_id": "c2", "name": "show", "args": {}, "client": true}},
                {"type": "agui.custom", "payload": {"name": "mood", "value": [1]}},
                {"type": "agui.activity_snapshot", "payload": {"message_id": "a1", "activity_type": "PLAN", "content": {"x": 1}}},
                {"type": "agui.usage", "payload": {"usage": [{"model": "m", "inputTokens": 3}]}},
                {"type": "custom.mine", "payload": {"b": 1, "a": 2}},
                {"type": "step.completed", "span_id": "step-1", "payload": {"name": "plan"}},
                {"type": "run.completed", "payload": {"output": {"answer": 42}}},
            ]),
        )
        .await;
    let expected = [
        json!({"type": "RUN_STARTED", "threadId": "t", "runId": "r", "protocolVersion": "1.0"}),
        json!({"type": "STEP_STARTED", "stepName": "plan"}),
        json!({"type": "STATE_SNAPSHOT", "snapshot": {"n": 1.5}}),
        json!({"type": "STATE_DELTA", "delta": [{"op": "replace", "path": "/n", "value": 2}]}),
        json!({"type": "TEXT_MESSAGE_START", "messageId": "m1", "role": "assistant"}),
        json!({"type": "TEXT_MESSAGE_CONTENT", "messageId": "m1", "delta": "Hello"}),
        json!({"type": "TEXT_MESSAGE_END", "messageId": "m1"}),
        json!({"type": "TOOL_CALL_START", "toolCallId": "c1", "toolCallName": "add", "parentMessageId": "m1"}),
        json!({"type": "TOOL_CALL_ARGS", "toolCallId": "c1", "delta": "{\"a\":1}"}),
        json!({"type": "TOOL_CALL_END", "toolCallId": "c1"}),
        json!({"type": "TOOL_CALL_RESULT", "messageId": "m2", "toolCallId": "c1", "content": "2", "role": "tool"}),
        json!({"type": "TOOL_CALL_START", "toolCallId": "c2", "toolCallName": "show"}),
        json!({"type": "TOOL_CALL_ARGS", "toolCallId": "c2", "delta": "{}"}),
        json!({"type": "TOOL_CALL_END", "toolCallId": "c2"}),
        json!({"type": "CUSTOM", "name": "mood", "value": [1]}),
        json!({"type": "ACTIVITY_SNAPSHOT", "messageId": "a1", "activityType": "PLAN", "content": {"x": 1}}),
        json!({"type": "CUSTOM", "name": "custom.mine", "value": {"b": 1, "a": 2}}),
        json!({"type": "STEP_FINISHED", "stepName": "plan"}),
        json!({"type": "RUN_FINISHED", "threadId": "t", "runId": "r", "result": {"answer": 42},
               "outcome": {"type": "success", "pendingToolCallIds": ["c2"]}, "usage": [{"model": "m", "inputTokens": 3}]}),
    ];
    let times: Vec<Value> = log(&server, run).await.iter().map(|event| millis(&event["at"])).collect();
    for expected in expected {
        let mut event = stream.next().await.unwrap().event;
        if let Some(time) = event.as_object_mut().unwrap().remove("timestamp") {
            assert!(times.contains(&time), "the time of an event of the log: {expected} {time}");
        } else {
            // What is not durable comes to each reader at another time.
            let kind = expected["type"].as_str().unwrap();
            assert!(["RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT"].contains(&kind), "{expected}");
        }
        assert_eq!(event, expected);
    }
    assert!(stream.next().await.is_none());
    let joined = Stream::join(&server, "r", None).await.rest().await;
    assert_eq!(joined.last().unwrap().event["timestamp"], *times.last().unwrap(), "the end is when it was");
}

#[tokio::test]
async fn a_run_that_fails_or_is_cancelled_says_so() {
    let server = shared().await;
    for (run, end, kind) in [
        ("failed", json!({"type": "run.failed", "payload": {"error": {"code": "x", "message": "no"}}}), "RUN_ERROR"),
        ("cancelled", json!({"type": "run.cancelled"}), "RUN_FINISHED"),
    ] {
        let stream = Stream::post(&server, "elsewhere", &request("t", run, &[])).await;
        let id = server.get(&format!("/api/runs/by-external-id/{run}")).await.expect(200)["run_id"].clone();
        server.emit(id.as_str().unwrap(), json!([{"type": "run.started"}, end])).await;
        let said = stream.rest().await;
        assert_eq!(kinds(&said), ["RUN_STARTED", kind]);
        if kind == "RUN_ERROR" {
            assert_eq!((&said[1].event["message"], &said[1].event["code"]), (&json!("no"), &json!("x")));
        } else {
            assert_eq!(said[1].event["outcome"], json!({"type": "cancelled"}));
        }
    }
}

#[tokio::test]
async fn what_is_no_request_of_ag_ui_is_refused_and_creates_nothing() {
    let server = shared().await;
    let path = "/api/agui/agents/elsewhere";
    for (body, field) in [
        (json!({"runId": "r", "messages": []}), "threadId"),
        (json!({"threadId": "t", "runId": "", "messages": []}), "runId"),
        (json!({"threadId": "t", "runId": "r"}), "messages"),
        (json!({"threadId": "t", "runId": "r", "messages": [], "resume": [{"status": "resolved"}]}), "resume"),
    ] {
        assert_eq!(server.post(path, body).await.refused(400, "invalid_request")["field"], field);
    }
    let answered = json!({"threadId": "t", "runId": "r", "messages": [],
                          "resume": [{"interruptId": "i", "status": "resolved", "payload": {"approved": true}}]});
    server.post(path, answered).await.refused(404, "not_found");
    let large = request("t", "r", &[user("u", &"x".repeat(1024 * 1024))]);
    server.post(path, large).await.refused(413, "too_large");
    assert_eq!(server.get("/api/runs").await.expect(200)["runs"], json!([]));
}
