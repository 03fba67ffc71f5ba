//! Tools of the client with a real agent of the server, in both protocols of chat clients.

use serde_json::{Value, json};

use crate::{
    agents::{response, with},
    ai_sdk::{parts, peer::Peer, run_of},
    support::server::Setup,
};

fn guide() -> Setup {
    let script = r#"
        [[turns]]
        text = "Let me see."
        tool_calls = [{ name = "locate", args = { exactly = true } }]
        [[turns]]
        text = "You are in {tool}"
    "#;
    with("[agents.guide]\nmodel = \"script:guide.toml\"\n", &[("guide.toml", script)])
}

#[tokio::test]
async fn the_ai_sdk_makes_the_call_of_an_agent_and_the_same_message_goes_on_with_its_result() {
    let server = guide().start().await;
    let mut peer = Peer::start();
    let tools = json!([{"name": "locate", "description": "where the user is", "parameters": {"type": "object"}}]);
    peer.open(&server, "guide", json!({"id": "c", "auto": true, "tools": tools})).await;
    peer.order(json!({"do": "send", "text": "where am I?"})).await;
    let state = peer.order(json!({"do": "rest"})).await;
    let call = parts(&state).into_iter().find(|part| part["type"] == "tool-locate").unwrap();
    assert_eq!((&call["state"], &call["input"]), (&json!("input-available"), &json!({"exactly": true})));
    let first = run_of(&server, "c").await;
    let output = json!({"do": "output", "tool": "locate", "toolCallId": call["toolCallId"], "output": "Rome"});
    peer.order(output).await;
    crate::support::until("the second run", || async { run_of(&server, "c").await != first }).await;
    let said = response(&server, &run_of(&server, "c").await).await;
    peer.order(json!({"do": "rest"})).await;
    let state = peer.order(json!({"do": "rest"})).await;
    let texts: Vec<_> = parts(&state).into_iter().filter_map(|part| part["text"].as_str().map(str::to_owned)).collect();
    assert_eq!(
        (texts, state["messages"].as_array().unwrap().len()),
        (vec!["Let me see.".to_owned(), said], 2),
        "{state}"
    );
    assert_eq!(texts_of_last(&state), "You are in Rome");
}

fn texts_of_last(state: &Value) -> String {
    parts(state).pop().unwrap()["text"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_function_call_of_a_response_is_answered_with_the_next() {
    let server = guide().start().await;
    let tools = json!([{"type": "function", "name": "locate", "parameters": {"type": "object"}, "strict": false}]);
    let first = json!({"model": "guide", "input": "where am I?", "tools": tools});
    let first = server.post("/v1/responses", first).await.expect(200);
    let call = first["output"].as_array().unwrap().iter().find(|item| item["type"] == "function_call").unwrap().clone();
    assert_eq!((&call["name"], &call["arguments"]), (&json!("locate"), &json!("{\"exactly\":true}")));
    let output = json!([{"type": "function_call_output", "call_id": call["call_id"], "output": "Rome"}]);
    let second = json!({"model": "guide", "input": output, "tools": tools, "previous_response_id": first["id"]});
    let second = server.post("/v1/responses", second).await.expect(200);
    assert_eq!(second["output"][0]["content"][0]["text"], "You are in Rome", "{second}");
}
