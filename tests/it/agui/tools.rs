//! Tools of the front end, called by an agent of the server.

use serde_json::{Value, json};

use super::{Client, texts, user};
use crate::agents::{log, of, with};

const SCRIPT: &str = r#"
    [[turns]]
    text = "I look at the page."
    tool_calls = [{ name = "measure", as = "measured", args = { selector = "main", unit = "px" } }]
    [[turns]]
    text = "It is {measured} wide."
"#;

/// What the front end does when the tool is called.
fn measure(args: &Value) -> String {
    assert_eq!(args["selector"], "main");
    format!("640 {}", args["unit"].as_str().unwrap())
}

#[tokio::test]
async fn the_client_makes_the_call_and_the_agent_uses_what_its_next_request_brings() {
    let server =
        with("[agents.designer]\nmodel = \"script:designer.toml\"\n", &[("designer.toml", SCRIPT)]).start().await;
    let mut client = Client::start().await;
    let tools = json!([{"name": "measure", "description": "measures an element", "parameters":
        {"type": "object", "properties": {"selector": {"type": "string"}, "unit": {"type": "string"}}}}]);
    let order = json!({"agent": "designer", "threadId": "t", "runId": "r-1", "tools": tools,
                       "messages": [user("u", "how wide is it?")]});
    let asked = client.run(&server, order).await;
    assert_eq!(asked["error"], Value::Null, "{asked}");
    let mut messages = asked["messages"].as_array().unwrap().clone();
    let call = messages.last().unwrap()["toolCalls"][0].clone();
    let finished = asked["events"].as_array().unwrap().last().unwrap();
    assert_eq!(finished["outcome"], json!({"type": "success", "pendingToolCallIds": [call["id"]]}));
    assert_eq!(call["function"]["name"], "measure");
    let args: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
    messages.push(json!({"id": "result", "role": "tool", "toolCallId": call["id"], "content": measure(&args)}));
    let order = json!({"agent": "designer", "threadId": "t", "runId": "r-2", "tools": tools, "messages": messages});
    let answered = client.run(&server, order).await;
    assert_eq!(answered["error"], Value::Null, "{answered}");
    let said = texts(&answered["messages"]);
    let kinds: Vec<&str> = said.iter().map(|(role, _)| role.as_str()).collect();
    assert_eq!(kinds, ["user", "assistant", "tool", "assistant"]);
    assert_eq!(said[3].1, "It is 640 px wide.");
    let finished = answered["events"].as_array().unwrap().last().unwrap();
    assert_eq!(finished["outcome"], json!({"type": "success"}), "nothing is pending");
    // The log has the call of the first run as the client's, and its result with the second.
    let run = async |name: &str| server.get(&format!("/api/runs/by-external-id/{name}")).await.expect(200);
    let (first, second) = (run("r-1").await, run("r-2").await);
    let events = log(&server, first["run_id"].as_str().unwrap()).await;
    assert_eq!(of(&events, "tool.started")[0]["payload"]["client"], true);
    assert!(of(&events, "tool.completed").is_empty());
    assert_eq!(second["output"]["response"], "It is 640 px wide.");
}
