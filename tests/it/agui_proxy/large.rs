//! Conversations that are too large for the log: their input is an artifact, and everybody who needs it gets it whole.

use serde_json::{Value, json};

use super::{before, text, whole};
use crate::{
    agents::{kinds, log, of, with},
    support::{artifacts::files, server::setup, until},
};

/// A request with a long conversation before its last message.
fn long(thread: &str, run: &str) -> Value {
    let message = |id: &str, role: &str, content: String| json!({"id": id, "role": role, "content": content});
    let messages = [
        message("u1", "user", "é".repeat(150_000)),
        message("a1", "assistant", "b".repeat(300_000)),
        message("u2", "user", "and now?".to_owned()),
    ];
    json!({"threadId": thread, "runId": run, "messages": messages, "tools": [], "context": [], "state": {},
           "forwardedProps": {}})
}

/// The events of AG-UI in a stream that has ended.
fn told(stream: &str) -> Vec<Value> {
    stream
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect()
}

#[tokio::test]
async fn a_large_conversation_reaches_the_endpoint_whole_and_one_that_joins_has_it_too() {
    let (server, endpoint) = before(vec![whole(&text("m1", &["short"]))], "").await;
    let input = long("t", "r");
    let reply = server.post("/api/agui/agents/far", input.clone()).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    assert!(reply.text.contains(r#""messageId":"m1""#), "the agent's ids are the client's: {}", reply.text);
    assert_eq!(endpoint.asked()[0].body, input);
    let run = server.get("/api/runs/by-external-id/r").await.expect(200);
    assert_eq!(run["input"]["$artifact"]["size"], input.to_string().len());
    assert_eq!((&run["input"]["threadId"], &run["input"]["runId"]), (&json!("t"), &json!("r")));
    assert!(run["input"].to_string().len() < 4_096, "the log has the beginning");
    let events = log(&server, run["run_id"].as_str().unwrap()).await;
    assert_eq!(kinds(&events)[..3], ["run.created", "artifact.created", "run.started"]);
    assert_eq!(of(&events, "artifact.created").len(), 1);
    let artifacts = server.artifacts(run["run_id"].as_str().unwrap()).await;
    assert_eq!(artifacts[0]["name"], "input.json");
    assert_eq!(serde_json::from_slice::<Value>(&server.bytes_of(&artifacts[0]).await).unwrap(), input);
    let joined = told(&server.get("/api/agui/runs/r").await.text);
    let messages = joined.iter().find(|event| event["type"] == "MESSAGES_SNAPSHOT").unwrap()["messages"].clone();
    let mut expected = input["messages"].as_array().unwrap().clone();
    expected.push(json!({"id": "m1", "role": "assistant", "content": "short"}));
    assert_eq!(messages, json!(expected));
}

#[tokio::test]
async fn an_agent_of_the_server_gets_a_large_message_whole() {
    let server = with("[agents.parrot]\nmodel = \"echo\"\n", &[]).start().await;
    let words = "w".repeat(100_000);
    let input = json!({"threadId": "t", "runId": "r", "messages": [{"id": "u", "role": "user", "content": words}]});
    assert_eq!(server.post("/api/agui/agents/parrot", input).await.status, 200);
    let run = server.get("/api/runs/by-external-id/r").await.expect(200);
    assert_eq!((&run["status"], &run["input"]["runId"]), (&json!("completed"), &Value::Null), "{run}");
    // The answer repeats the message, so it is an artifact as well. Its tokens may not reach a reader that is slow.
    let artifact = run["output"]["$artifact"]["artifact_id"].as_str().unwrap();
    let output = server.get(&format!("/api/artifacts/{artifact}")).await;
    assert!(output.text.contains(&words), "{} bytes", output.text.len());
    let joined = told(&server.get("/api/agui/runs/r").await.text);
    let messages = &joined.iter().find(|event| event["type"] == "MESSAGES_SNAPSHOT").unwrap()["messages"];
    assert_eq!(messages[0]["content"], words);
}

#[tokio::test]
async fn a_runner_gets_a_large_input_whole_once_it_can_be_read() {
    let server = setup().flags(&["--poll-ms", "50"]).start().await;
    let input = long("t", "r");
    let (api, body) = ((*server).clone(), input.clone());
    let stream = tokio::spawn(async move { api.post("/api/agui/agents/a", body).await });
    until("the run", || async { server.get("/api/runs/by-external-id/r").await.status == 200 }).await;
    let run = server.get("/api/runs/by-external-id/r").await.expect(200);
    let [file] = &files(server.db.artifacts.path())[..] else { panic!("one content") };
    let folder = file.parent().unwrap();
    let aside = folder.with_extension("aside");
    std::fs::rename(folder, &aside).unwrap();
    std::fs::write(folder, "not a folder").unwrap();
    let mut runner = server.runner(&["a"], 1).await;
    runner.silent().await;
    std::fs::remove_file(folder).unwrap();
    std::fs::rename(&aside, folder).unwrap();
    let assign = runner.expect("run.assign").await;
    assert_eq!((&assign["run_id"], &assign["input"]), (&run["run_id"], &input));
    runner.event(run["run_id"].as_str().unwrap(), 1, json!([{"type": "run.started"}, {"type": "run.completed"}])).await;
    assert!(stream.await.unwrap().text.contains("RUN_FINISHED"));
}

#[tokio::test]
async fn a_run_whose_input_is_damaged_fails_and_the_others_of_the_runner_go_on() {
    let server = setup().config("[agents.parrot]\nmodel = \"echo\"\n").start().await;
    for (name, agent) in [("r-1", "a"), ("r-2", "b")] {
        let path = format!("/api/agui/agents/{agent}");
        let request = server.request(reqwest::Method::POST, &path).json(&long("t", name));
        assert_eq!(request.send().await.unwrap().status(), 200);
    }
    for file in files(server.db.artifacts.path()) {
        std::fs::write(file, "damaged").unwrap();
    }
    let plain = server.create(json!({"agent": "a", "start": false, "input": "hello"})).await;
    let mut runner = server.runner(&["a"], 4).await;
    assert_eq!(runner.assigned().await, plain);
    let run = async |name: &str| server.get(&format!("/api/runs/by-external-id/{name}")).await.expect(200);
    until("the run to fail", || async { run("r-1").await["status"] == "failed" }).await;
    assert_eq!(run("r-1").await["error"]["code"], "input_unreadable");
    assert_eq!(run("r-2").await["status"], "queued", "nobody has tried to read it");
    assert_eq!(server.db.number("select count(*) from store.job where agent = 'a'").await, 1);
}

#[tokio::test]
async fn an_agent_of_the_server_does_not_wait_for_a_damaged_input() {
    let server = setup().config("[agents.parrot]\nmodel = \"echo\"\n[agents.late]\nmodel = \"echo\"\n").start().await;
    let keeper = server.start_run().await;
    let artifact = server.upload(&keeper, "input.json", "\"hello\"").await;
    let pointer = json!({"$artifact": {"artifact_id": artifact["artifact_id"]}});
    let run = server.create(json!({"agent": "parrot", "start": false, "input": pointer})).await;
    crate::agents::stands(&server, &run, "completed").await;
    for file in files(server.db.artifacts.path()) {
        std::fs::write(file, "damaged").unwrap();
    }
    let run = server.create(json!({"agent": "late", "start": false, "input": pointer})).await;
    crate::agents::stands(&server, &run, "failed").await;
    assert_eq!(server.run(&run).await["error"]["code"], "input_unreadable");
}

#[tokio::test]
async fn a_request_that_contains_a_pointer_is_no_pointer() {
    let (server, endpoint) = before(vec![whole(&text("m1", &["seen"]))], "").await;
    let other = server.start_run().await;
    let artifact = server.upload(&other, "secret.json", "{\"messages\":[]}").await;
    let mut input = json!({"threadId": "t", "runId": "r", "messages": [{"id": "u", "role": "user", "content": "hi"}]});
    input["$artifact"] = json!({"artifact_id": artifact["artifact_id"]});
    assert_eq!(server.post("/api/agui/agents/far", input.clone()).await.status, 200);
    let asked = &endpoint.asked()[0].body;
    assert_eq!(asked["messages"][0]["content"], "hi", "{asked}");
}
