//! What the specification of Open Responses (2026-04-24) requires of a response, its items and its events, with the requests
//! that its acceptance tests make.

use serde_json::{Value, json};

use super::events;
use crate::{agents::with, support::server::Server};

/// A member that a response must have, and the types that it may be of.
const REQUIRED: [(&str, &str); 31] = [
    ("id", "text"),
    ("object", "text"),
    ("created_at", "integer"),
    ("completed_at", "integer, null"),
    ("status", "text"),
    ("incomplete_details", "object, null"),
    ("model", "text"),
    ("previous_response_id", "text, null"),
    ("instructions", "text, null"),
    ("output", "list"),
    ("error", "object, null"),
    ("tools", "list"),
    ("tool_choice", "text"),
    ("truncation", "text"),
    ("parallel_tool_calls", "flag"),
    ("text", "object"),
    ("top_p", "number"),
    ("presence_penalty", "number"),
    ("frequency_penalty", "number"),
    ("top_logprobs", "integer"),
    ("temperature", "number"),
    ("reasoning", "object, null"),
    ("usage", "object, null"),
    ("max_output_tokens", "integer, null"),
    ("max_tool_calls", "integer, null"),
    ("store", "flag"),
    ("background", "flag"),
    ("service_tier", "text"),
    ("metadata", "object"),
    ("safety_identifier", "text, null"),
    ("prompt_cache_key", "text, null"),
];

#[track_caller]
fn has(object: &Value, required: &[(&str, &str)]) {
    for (name, types) in required {
        let value = object.get(name).unwrap_or_else(|| panic!("{name} is missing: {object}"));
        let is_one = types.split(", ").any(|kind| match kind {
            "text" => value.is_string(),
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            "flag" => value.is_boolean(),
            "list" => value.is_array(),
            "object" => value.is_object(),
            _ => value.is_null(),
        });
        assert!(is_one, "{name} must be {types}: {object}");
    }
}

/// Checks a response and its items.
#[track_caller]
fn valid(response: &Value) {
    has(response, &REQUIRED);
    assert_eq!(response["object"], "response");
    if response["usage"].is_object() {
        let counts = ["input_tokens", "output_tokens", "total_tokens"].map(|name| (name, "integer"));
        has(&response["usage"], &counts);
        has(&response["usage"]["input_tokens_details"], &[("cached_tokens", "integer")]);
        has(&response["usage"]["output_tokens_details"], &[("reasoning_tokens", "integer")]);
    }
    for tool in response["tools"].as_array().unwrap() {
        has(tool, &[("type", "text"), ("name", "text"), ("description", "text, null"), ("parameters", "object, null")]);
        has(tool, &[("strict", "flag, null")]);
    }
    response["output"].as_array().unwrap().iter().for_each(valid_item);
}

#[track_caller]
fn valid_item(item: &Value) {
    has(item, &[("id", "text"), ("type", "text"), ("status", "text")]);
    match item["type"].as_str().unwrap() {
        "message" => {
            has(item, &[("role", "text"), ("content", "list")]);
            for part in item["content"].as_array().unwrap() {
                has(part, &[("type", "text"), ("text", "text"), ("annotations", "list"), ("logprobs", "list")]);
            }
        }
        "function_call" => has(item, &[("call_id", "text"), ("name", "text"), ("arguments", "text")]),
        other => panic!("{other} is not in these answers"),
    }
}

/// Checks the events of a stream, and gives the response it ends with.
#[track_caller]
fn valid_stream(events: &[Value]) -> &Value {
    const OF_ITEM: [(&str, &str); 2] = [("item_id", "text"), ("output_index", "integer")];
    for event in events {
        has(event, &[("type", "text"), ("sequence_number", "integer")]);
        match event["type"].as_str().unwrap().strip_prefix("response.").unwrap() {
            "created" | "queued" | "in_progress" | "completed" => valid(&event["response"]),
            "output_item.added" | "output_item.done" => {
                has(event, &[("output_index", "integer")]);
                valid_item(&event["item"]);
            }
            "content_part.added" | "content_part.done" => {
                has(event, &OF_ITEM);
                has(event, &[("content_index", "integer"), ("part", "object")]);
            }
            "output_text.delta" => {
                has(event, &OF_ITEM);
                has(event, &[("content_index", "integer"), ("delta", "text"), ("logprobs", "list")]);
            }
            "output_text.done" => {
                has(event, &OF_ITEM);
                has(event, &[("content_index", "integer"), ("text", "text"), ("logprobs", "list")]);
            }
            "function_call_arguments.delta" => {
                has(event, &OF_ITEM);
                has(event, &[("delta", "text")]);
            }
            "function_call_arguments.done" => {
                has(event, &OF_ITEM);
                has(event, &[("arguments", "text")]);
            }
            other => panic!("{other} is not in these streams"),
        }
    }
    &events.last().unwrap()["response"]
}

async fn served() -> Server {
    let config = "[agents.echo]\nmodel = \"echo\"\n[agents.caller]\nmodel = \"script:calls.toml\"\ntemperature = 0.5\n";
    let script = "[[turns]]\ntool_calls = [{ name = \"get_weather\", args = { location = \"San Francisco, CA\" } }]\n";
    with(config, &[("calls.toml", script)]).start().await
}

#[tokio::test]
async fn every_answer_has_what_the_specification_requires() {
    let server = served().await;
    let user = |content: Value| json!({"type": "message", "role": "user", "content": content});
    let system = json!({"type": "message", "role": "system", "content": "You are a pirate."});
    let image = json!([{"type": "input_text", "text": "What is it?"},
        {"type": "input_image", "image_url": "data:image/png;base64,aGk="}]);
    for input in [json!([user(json!("Hello."))]), json!([system, user(json!("Hello."))]), json!([user(image)])] {
        let body = json!({"model": "echo", "input": input});
        let response = server.post("/v1/responses", body.clone()).await.expect(200);
        valid(&response);
        assert_eq!((&response["status"], response["output"].as_array().unwrap().len()), (&json!("completed"), 1));
        let mut body = body;
        body["stream"] = json!(true);
        let stream = events(&server.post("/v1/responses", body).await);
        assert_eq!(valid_stream(&stream)["status"], "completed");
    }
}

#[tokio::test]
async fn a_function_call_is_streamed_with_its_arguments() {
    let server = served().await;
    let tool = json!({"type": "function", "name": "get_weather", "parameters": {"type": "object"}});
    let body = json!({"model": "caller", "input": "What is the weather?", "tools": [tool], "stream": true});
    let stream = events(&server.post("/v1/responses", body).await);
    let response = valid_stream(&stream);
    assert_eq!((&response["output"][0]["type"], &response["temperature"]), (&json!("function_call"), &json!(0.5)));
    for kind in
        ["output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done"]
    {
        assert!(stream.iter().any(|event| event["type"] == format!("response.{kind}")), "{kind}");
    }
}

#[tokio::test]
async fn a_conversation_that_is_sent_whole_does_not_come_back() {
    let server = served().await;
    let said = |role: &str, text: &str| json!({"type": "message", "role": role, "content": text});
    let input = json!([said("user", "I am Alice."), said("assistant", "Hello Alice!"), said("user", "Who am I?")]);
    let response = server.post("/v1/responses", json!({"model": "echo", "input": input})).await.expect(200);
    valid(&response);
    let output = response["output"].as_array().unwrap();
    assert_eq!((output.len(), &output[0]["content"][0]["text"]), (1, &json!("echo: Who am I?")));
}
