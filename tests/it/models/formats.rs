//! The other providers' formats: text, thoughts and a tool call, and the result of the call on its way back.

use runreel::agents::model::{Finish, Message, ModelErrorKind};
use serde_json::{Value, json};

use super::{agent, ask, question, text_of};
use crate::support::models::{Answer, ModelServer, events, named_events, stream_of};

/// Asks twice: a text, then a call of `files_list` and what follows its result. Gives what the provider was sent last.
async fn exchange(model: &str, path: &str, answers: Vec<Answer>) -> (Value, axum::http::HeaderMap, String) {
    let server = ModelServer::start(answers).await;
    let dir = tempfile::tempdir().unwrap();
    let agent = agent(dir.path(), model, &format!("{}{path}", server.base), "").await;
    let (answer, told) = ask(&agent, &question()).await;
    let answer = answer.unwrap();
    assert_eq!((answer.message.text(), text_of(&told)), ("Hello you".to_owned(), "Hello you".to_owned()));
    assert_eq!((answer.finish, answer.usage.input_tokens, answer.usage.output_tokens), (Finish::Stop, 7, 3));

    let mut conversation = question();
    let wanted = ask(&agent, &conversation).await.0.unwrap();
    assert_eq!(wanted.finish, Finish::ToolCalls);
    let [call] = wanted.message.tool_calls.as_slice() else { panic!("{wanted:?}") };
    assert_eq!((call.name.as_str(), &call.args), ("files_list", &json!({"path": "."})));
    let result = Message::tool(call.id.clone(), "a.txt");
    // As a checkpoint keeps it.
    conversation.push(serde_json::from_value(serde_json::to_value(&wanted.message).unwrap()).unwrap());
    conversation.push(result);
    assert_eq!(ask(&agent, &conversation).await.0.unwrap().message.text(), "Hello you");
    let asked = server.asked().pop().unwrap();
    (asked.body, asked.headers, asked.path)
}

fn anthropic(blocks: &[Value], reason: &str) -> Answer {
    let mut chunks =
        vec![json!({"type": "message_start", "message": {"usage": {"input_tokens": 7, "output_tokens": 1}}})];
    chunks.extend(blocks.iter().cloned());
    chunks.push(json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 3}}));
    chunks.push(json!({"type": "message_stop"}));
    named_events(&chunks)
}

fn anthropic_text() -> Answer {
    let delta =
        |text: &str| json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}});
    let start = json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}});
    let stop = json!({"type": "content_block_stop", "index": 0});
    anthropic(&[start, delta("Hello "), json!({"type": "ping"}), delta("you"), stop], "end_turn")
}

#[tokio::test]
async fn anthropic_is_understood_and_gets_its_signed_thoughts_back() {
    let thought = |delta: Value| json!({"type": "content_block_delta", "index": 0, "delta": delta});
    let args = |text: &str| json!({"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": text}});
    let tool = json!({"type": "tool_use", "id": "toolu_1", "name": "files_list", "input": {}});
    let blocks = [
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}}),
        thought(json!({"type": "thinking_delta", "thinking": "Look."})),
        thought(json!({"type": "signature_delta", "signature": "sig=="})),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "content_block_start", "index": 1, "content_block": tool}),
        args("{\"path\""),
        args(":\".\"}"),
        json!({"type": "content_block_stop", "index": 1}),
    ];
    let answers = vec![anthropic_text(), anthropic(&blocks, "tool_use"), anthropic_text()];
    let (sent, headers, path) = exchange("anthropic:claude-x", "/v1", answers).await;
    assert_eq!(path, "/v1/messages");
    assert_eq!(headers["x-api-key"], super::KEY);
    assert_eq!((&sent["max_tokens"], &sent["tools"][0]["name"]), (&json!(100), &json!("files_list")));
    assert!(sent["system"].to_string().contains("Be brief."), "{}", sent["system"]);
    let [_, assistant, result] = sent["messages"].as_array().unwrap().as_slice() else { panic!("{sent}") };
    assert_eq!(assistant["content"][0], json!({"type": "thinking", "thinking": "Look.", "signature": "sig=="}));
    assert_eq!(assistant["content"][1]["id"], "toolu_1");
    assert_eq!((&result["role"], &result["content"][0]["tool_use_id"]), (&json!("user"), &json!("toolu_1")));
}

#[tokio::test]
async fn a_provider_that_breaks_off_in_the_middle_is_not_taken_for_one_that_ended() {
    let started = json!({"type": "message_start", "message": {"usage": {"input_tokens": 7, "output_tokens": 1}}});
    let overloaded = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    let half = |text: &str| json!({"candidates": [{"content": {"role": "model", "parts": [{"text": text}]}}]});
    let line = json!({"model": "m", "message": {"role": "assistant", "content": "half"}, "done": false});
    for (model, path, answer) in [
        ("anthropic:m", "/v1", named_events(&[started.clone(), overloaded])),
        ("anthropic:m", "/v1", named_events(&[started])),
        ("gemini:m", "/v1beta", stream_of("text/event-stream", events(&[half("half")]))),
        ("ollama:m", "/", stream_of("application/x-ndjson", format!("{line}\n"))),
    ] {
        let server = ModelServer::start(vec![answer]).await;
        let dir = tempfile::tempdir().unwrap();
        let agent = agent(dir.path(), model, &format!("{}{path}", server.base), "retries = 0").await;
        let error = ask(&agent, &question()).await.0.unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::Transient, "{model}: {error}");
    }
}

fn gemini(parts: &[Value]) -> Answer {
    let chunk = |part: &Value| json!({"candidates": [{"content": {"role": "model", "parts": [part]}}]});
    let mut chunks: Vec<Value> = parts.iter().map(chunk).collect();
    let last = chunks.last_mut().unwrap();
    last["candidates"][0]["finishReason"] = json!("STOP");
    last["usageMetadata"] = json!({"promptTokenCount": 7, "candidatesTokenCount": 3, "totalTokenCount": 10});
    stream_of("text/event-stream", events(&chunks))
}

#[tokio::test]
async fn gemini_is_understood_and_gets_its_signature_back() {
    let text = || gemini(&[json!({"text": "Hello "}), json!({"text": "you"})]);
    let call = json!({
        "functionCall": {"name": "files_list", "args": {"path": "."}}, "thoughtSignature": "sig==",
    });
    let (sent, headers, path) = exchange("gemini:gemini-x", "/v1beta", vec![text(), gemini(&[call]), text()]).await;
    assert_eq!(path, "/v1beta/models/gemini-x:streamGenerateContent?alt=sse");
    assert_eq!(headers["x-goog-api-key"], super::KEY);
    let [_, model, result] = sent["contents"].as_array().unwrap().as_slice() else { panic!("{sent}") };
    assert_eq!(model["parts"][0]["functionCall"]["name"], "files_list");
    assert_eq!(model["parts"][0]["thoughtSignature"], "sig==");
    assert_eq!(result["parts"][0]["functionResponse"]["name"], "files_list");
}

fn ollama(messages: &[Value]) -> Answer {
    let line = |message: &Value| json!({"model": "m", "message": message, "done": false}).to_string();
    let mut lines: Vec<String> = messages.iter().map(line).collect();
    let end = json!({
        "model": "m", "message": {"role": "assistant", "content": ""}, "done": true, "done_reason": "stop",
        "prompt_eval_count": 7, "eval_count": 3,
    });
    lines.push(end.to_string());
    stream_of("application/x-ndjson", format!("{}\n", lines.join("\n")))
}

#[tokio::test]
async fn ollama_is_understood() {
    let says = |text: &str| json!({"role": "assistant", "content": text});
    let text = || ollama(&[says("Hello "), says("you")]);
    let function = json!({"name": "files_list", "arguments": {"path": "."}});
    let call = json!({"role": "assistant", "content": "", "tool_calls": [{"function": function}]});
    let (sent, _, path) = exchange("ollama:gemma:4b", "/", vec![text(), ollama(&[call]), text()]).await;
    assert_eq!(path, "/api/chat");
    assert_eq!((&sent["model"], &sent["options"]["num_predict"]), (&json!("gemma:4b"), &json!(100)));
    let messages = sent["messages"].as_array().unwrap();
    assert_eq!(messages[2]["tool_calls"][0]["function"]["arguments"], json!({"path": "."}));
    assert_eq!((&messages[3]["role"], &messages[3]["content"]), (&json!("tool"), &json!("a.txt")));
}
