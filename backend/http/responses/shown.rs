//! The part of a response that the run's record has: everything but its output and its state.

use serde_json::{Map, Value, json};

use crate::{faces::responses::request::ID_PREFIX, http::Server, store::runs::RunRecord};

/// The members that the request determined.
pub(super) async fn head(server: &Server, record: &RunRecord) -> Map<String, Value> {
    let context = &record.context;
    let asked: Value = record.fields.metadata.member("openai").unwrap_or_default();
    let input = match &record.fields.input {
        // A response is shown even if the artifact of its input cannot be read now.
        Some(input) => server.timeline.whole_input(context, input.clone()).await.ok(),
        None => None,
    };
    let agent = server.agents.iter().find(|agent| context.agent.as_ref() == Some(&agent.name));
    // Open Responses has a number here; that of an external agent is unknown.
    let temperature = agent.and_then(|agent| agent.temperature).unwrap_or(1.0);
    let tools: Vec<Value> = input.and_then(|input| input.member("tools")).unwrap_or_default();
    let head = json!({
        "id": format!("{ID_PREFIX}{}", context.run_id), "object": "response",
        "created_at": record.head.created_at.timestamp(), "model": context.agent,
        "background": asked["background"].as_bool().unwrap_or(false),
        "store": asked["store"].as_bool().unwrap_or(true),
        "previous_response_id": asked["previous_response_id"],
        "conversation": context.thread_id.as_ref().map(|thread| json!({"id": thread})),
        "metadata": asked.get("metadata").cloned().unwrap_or_else(|| json!({})),
        "tools": tools.iter().map(tool).collect::<Vec<_>>(),
        "tool_choice": "auto", "parallel_tool_calls": true, "truncation": "disabled",
        "text": {"format": {"type": "text"}}, "reasoning": {"effort": null, "summary": null},
        "instructions": null, "incomplete_details": null, "max_output_tokens": null, "max_tool_calls": null,
        "temperature": temperature, "top_p": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0, "top_logprobs": 0,
        "service_tier": "default", "user": null, "safety_identifier": null, "prompt_cache_key": null,
    });
    match head {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

/// A tool of the client, as a request has it.
fn tool(tool: &Value) -> Value {
    json!({"type": "function", "name": tool["name"], "description": tool["description"],
        "parameters": tool["parameters"], "strict": false})
}

/// A message of a run's input, as the item that it came from.
pub(super) fn input_item(n: usize, message: &Value) -> Value {
    if message["role"] == "tool" {
        return json!({"id": format!("fco_{n}"), "type": "function_call_output", "status": "completed",
            "call_id": message["tool_call_id"], "output": message["content"]});
    }
    let part = |part: &Value| match part["type"].as_str() {
        Some("image") => json!({"type": "input_image", "detail": "auto", "image_url": part["url"]}),
        _ if message["role"] == "assistant" => json!({"type": "output_text", "text": part["text"], "annotations": []}),
        _ => json!({"type": "input_text", "text": part["text"]}),
    };
    let content: Vec<Value> =
        message["content"].as_array().map(|parts| parts.iter().map(part).collect()).unwrap_or_default();
    json!({"id": format!("msg_{n}"), "type": "message", "status": "completed", "role": message["role"], "content": content})
}
