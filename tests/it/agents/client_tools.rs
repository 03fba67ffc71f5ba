//! Tools of the client: the model calls them, the client makes the calls between two runs.

use serde_json::{Value, json};

use super::{ask, assert_once, kinds, log, of, response, said, stands, with};

const CONFIG: &str = r#"
[tools.files]
root = "work"
[agents.painter]
model = "script:paint.toml"
tools = ["files"]
"#;

/// One answer calls a tool of the agent and two of the client.
const PAINT: &str = r#"
[[turns]]
text = "both at once"
tool_calls = [
    { name = "files_write", as = "write", args = { path = "plan", text = "red" } },
    { name = "paint", as = "paint", args = { color = "red" } },
    { name = "ring", as = "ring", args = {} },
]
[[turns]]
text = "the client said {paint} and {ring}, the file {write}"
"#;

fn paint() -> Value {
    json!([
        {"name": "paint", "description": "paints", "parameters": {"type": "object", "properties": {"color": {}}}},
        {"name": "ring", "description": "rings"},
    ])
}

#[tokio::test]
async fn a_run_that_calls_tools_of_its_client_ends_and_the_next_one_brings_the_results() {
    let server = with(CONFIG, &[("paint.toml", PAINT)]).start().await;
    let input = json!({"text": "paint it", "tools": paint()});
    let first = server.create(json!({"agent": "painter", "start": false, "thread_id": "t", "input": input})).await;
    assert_eq!(response(&server, &first).await, "both at once");
    let output = server.run(&first).await["output"].clone();
    let calls = output["tool_calls"].as_array().unwrap();
    assert_eq!(calls.len(), 2, "{output}");
    assert_eq!((&calls[0]["name"], &calls[0]["args"]), (&json!("paint"), &json!({"color": "red"})));
    let events = log(&server, &first).await;
    let started = of(&events, "tool.started");
    let clients: Vec<_> = started.iter().filter(|event| event["payload"]["client"] == true).collect();
    assert_eq!((started.len(), clients.len(), of(&events, "tool.completed").len()), (3, 2, 1), "{:?}", kinds(&events));
    assert_eq!(clients[0]["span_id"], clients[0]["payload"]["tool_call_id"]);
    let known = format!("{first}/{}", clients[0]["span_id"].as_str().unwrap());
    assert_eq!(calls[0]["id"], known, "unique in the conversation");
    // Only one result comes: the model is told about the other.
    let results = json!([{"role": "tool", "tool_call_id": calls[0]["id"], "content": "painted red"}]);
    let input = json!({"messages": results, "tools": paint()});
    let second = server.create(json!({"agent": "painter", "start": false, "thread_id": "t", "input": input})).await;
    let answered = response(&server, &second).await;
    assert!(
        answered.starts_with("the client said painted red and the client gave no result for this call"),
        "{answered}"
    );
    let events = log(&server, &second).await;
    assert_once(&events);
    assert_eq!(said(&events)[0], ("tool".to_owned(), "painted red".to_owned()));
    // The call without a result does not wait any more.
    let late = json!([{"role": "tool", "tool_call_id": calls[1]["id"], "content": "rang"}]);
    let body = json!({"agent": "painter", "start": false, "thread_id": "t", "input": {"messages": late}});
    server.post("/api/runs", body).await.expect(400);
}

#[tokio::test]
async fn a_client_that_says_something_else_instead_breaks_no_conversation() {
    let server = with(CONFIG, &[("paint.toml", PAINT)]).start().await;
    let input = json!({"text": "paint it", "tools": paint()});
    let first = server.create(json!({"agent": "painter", "start": false, "thread_id": "t", "input": input})).await;
    response(&server, &first).await;
    let second = ask(&server, "painter", "never mind", json!({"thread_id": "t"})).await;
    let none = "the client gave no result for this call";
    let answered = response(&server, &second).await;
    assert!(answered.starts_with(&format!("the client said {none} and {none}")), "{answered}");
}

#[tokio::test]
async fn tools_that_cannot_be_offered_fail_the_run_by_name() {
    let server = with(CONFIG, &[("paint.toml", PAINT)]).start().await;
    let many: Vec<Value> = (0..65).map(|n| json!({"name": format!("t{n}")})).collect();
    for (tools, words) in [
        (json!([{"name": "files_write"}]), "files_write: the agent has a tool of this name"),
        (json!([{"name": "read_artifact"}]), "read_artifact: the agent has a tool of this name"),
        (json!([{"name": "a"}, {"name": "a"}]), "tools[1] of the input: a: it is there twice"),
        (json!([{"name": "not a name"}]), "tools[0] of the input: a tool's name is 1 to 64"),
        (json!([{"description": "x"}]), "tools[0] of the input has no name"),
        (json!([{"name": "a", "parameters": {"type": 7}}]), "parameters of a are not a schema"),
        (json!("paint"), "tools of the input must be a list"),
        (json!(many), "at most 64 tools"),
    ] {
        let input = json!({"text": "go", "tools": tools});
        let run = server.create(json!({"agent": "painter", "start": false, "input": input})).await;
        stands(&server, &run, "failed").await;
        let error = server.run(&run).await["error"].clone();
        assert_eq!(error["code"], "client_tools", "{error}");
        assert!(error["message"].as_str().unwrap().contains(words), "{error}");
    }
}
