//! Models of providers, asked through the configuration as a run asks them, over real sockets.

use std::path::Path;

use runreel::{
    agents::{
        assistant::Assistant,
        model::{Completion, Delta, Finish, Message, MessageRole, ModelError, ModelErrorKind, Part, Request, ToolCall},
        registry::Agents,
    },
    config::File,
    confine::Confinement,
};
use serde_json::{Value, json};

use crate::support::{
    models::{Answer, ModelServer, chat, delta, events, refusal, stream_of},
    patiently,
};

mod formats;
mod mutated;

const KEY: &str = "sk-sentinel-0123456789";

/// An agent whose model is at the server; `more` are further lines of its `[models.m]`.
async fn agent(dir: &Path, model: &str, base: &str, more: &str) -> Assistant {
    std::fs::write(dir.join("key"), format!("{KEY}\n")).unwrap();
    let text = format!(
        "[models.m]\nmodel = \"{model}\"\nbase_url = \"{base}\"\napi_key_file = \"key\"\n{more}\n\
         [agents.a]\nmodel = \"m\"\nsystem = \"Be brief.\"\ntools = [\"files\"]\nmax_tokens = 100\ntemperature = 0.5\n"
    );
    let file = File::parse(&text, dir).unwrap();
    let agents = Agents::new(file, dir.to_owned(), None, Confinement::default()).unwrap();
    agents.assistant("a").await.unwrap()
}

async fn ask(agent: &Assistant, conversation: &[Message]) -> (Result<Completion, ModelError>, Vec<Delta>) {
    let messages =
        std::iter::once(Message::system(agent.system.as_str())).chain(conversation.iter().cloned()).collect();
    let (tools, temperature, max_tokens) = (agent.toolbox.specs(), agent.temperature, agent.max_tokens);
    let (request, mut told) = (Request { messages, tools, temperature, max_tokens }, Vec::new());
    let mut tell = |delta| told.push(delta);
    let answer = patiently("an answer", agent.model.complete(&request, &mut tell)).await;
    (answer, told)
}

fn text_of(told: &[Delta]) -> String {
    told.iter().map(|delta| if let Delta::Text(text) = delta { text.as_str() } else { "" }).collect()
}

fn question() -> Vec<Message> {
    vec![Message::user("What is there?")]
}

#[tokio::test]
async fn text_thoughts_tool_calls_and_usage_come_as_they_are_streamed() {
    let thoughts = delta(&json!({"reasoning_content": "Let me look."}));
    let Answer::Body { body, .. } = chat(&["Hel", "lo"], &[]) else { unreachable!() };
    let server = ModelServer::start(vec![
        stream_of("text/event-stream", format!("{}{body}", events(&[thoughts]))),
        chat(&[], &[("c1", "files_list", &["{\"pa", "th\":\".\"}"]), ("c2", "files_read", &["not json"])]),
        chat(&["Done."], &[]),
    ])
    .await;
    let dir = tempfile::tempdir().unwrap();
    let agent = agent(dir.path(), "openai:some-model", &format!("{}/v1", server.base), "").await;
    assert_eq!(agent.model.name(), "openai:some-model");

    let (answer, told) = ask(&agent, &question()).await;
    let answer = answer.unwrap();
    assert_eq!(told[0], Delta::Reasoning("Let me look.".to_owned()));
    assert_eq!(told[1..], ["Hel", "lo"].map(|text| Delta::Text(text.to_owned())));
    assert_eq!(answer.message.text(), "Hello");
    assert_eq!(answer.message.visible(), [Part::text("Hello")]);
    assert_eq!(answer.finish, Finish::Stop);
    let usage = (answer.usage.input_tokens, answer.usage.output_tokens, answer.usage.cached_tokens);
    assert_eq!(usage, (11, 5, 3));

    let mut conversation = question();
    let (calls, _) = ask(&agent, &conversation).await;
    let calls = calls.unwrap();
    assert_eq!(calls.finish, Finish::ToolCalls);
    let made = |call: &ToolCall| (call.id.clone(), call.name.clone(), call.args.clone());
    let call = |id: &str, name: &str, args: Value| (id.to_owned(), name.to_owned(), args);
    let expected = [call("c1", "files_list", json!({"path": "."})), call("c2", "files_read", json!("not json"))];
    assert_eq!(calls.message.tool_calls.iter().map(made).collect::<Vec<_>>(), expected);
    // A conversation lies in a checkpoint between two questions.
    let kept = serde_json::to_string(&calls.message).unwrap();
    conversation.push(serde_json::from_str(&kept).unwrap());
    let mut picture = Message::tool("c1", "a.png");
    picture.content.push(Part::image_of_data_uri("data:image/png;base64,aGk=").unwrap());
    conversation.extend([picture, Message::tool("c2", "error: wrong arguments")]);
    assert_eq!(ask(&agent, &conversation).await.0.unwrap().message.text(), "Done.");

    let asked = server.asked();
    assert_eq!(asked.len(), 3);
    assert_eq!(asked[0].path, "/v1/chat/completions");
    assert_eq!(asked[0].headers["authorization"], format!("Bearer {KEY}"));
    let body = &asked[2].body;
    assert_eq!(
        (&body["model"], &body["stream"], &body["max_tokens"]),
        (&json!("some-model"), &json!(true), &json!(100))
    );
    assert_eq!((&body["temperature"], &body["stream_options"]["include_usage"]), (&json!(0.5), &json!(true)));
    let names: Vec<_> = body["tools"].as_array().unwrap().iter().map(|tool| &tool["function"]["name"]).collect();
    assert_eq!(names, ["files_list", "files_read", "files_search", "files_write"]);
    let messages = body["messages"].as_array().unwrap();
    let roles: Vec<_> = messages.iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "tool", "user"]);
    assert_eq!(messages[2]["tool_calls"][0]["function"]["arguments"], "{\"path\":\".\"}");
    assert_eq!((&messages[3]["tool_call_id"], &messages[3]["content"]), (&json!("c1"), &json!("a.png")));
    assert_eq!(messages[5]["content"][1]["image_url"]["url"], "data:image/png;base64,aGk=");
}

#[tokio::test]
async fn an_image_goes_to_the_provider_as_a_data_uri() {
    let server = ModelServer::start(vec![chat(&["A cat."], &[])]).await;
    let dir = tempfile::tempdir().unwrap();
    let agent = agent(dir.path(), "openai:eyes", &server.base, "").await;
    let mut message = Message::user("Who is this?");
    message.content.push(Part::image_of_data_uri("data:image/jpeg;base64,/9j/").unwrap());
    ask(&agent, &[message]).await.0.unwrap();
    let sent = &server.asked()[0].body["messages"][1]["content"];
    assert_eq!(sent[0], json!({"type": "text", "text": "Who is this?"}));
    assert_eq!(sent[1]["image_url"]["url"], "data:image/jpeg;base64,/9j/");
}

#[tokio::test]
async fn a_failure_that_can_pass_is_tried_again_before_the_first_word_and_the_asked_wait_is_kept() {
    let overloaded = json!({"error": {"message": "overloaded", "type": "server_error"}});
    let server = ModelServer::start(vec![
        refusal(429, &[("retry-after", "1")], &overloaded),
        refusal(500, &[("retry-after-ms", "1")], &overloaded),
        chat(&["at last"], &[]),
    ])
    .await;
    let dir = tempfile::tempdir().unwrap();
    let agent = agent(dir.path(), "openai:m", &server.base, "retries = 2").await;
    let began = std::time::Instant::now();
    let (answer, told) = ask(&agent, &question()).await;
    assert_eq!((answer.unwrap().message.text(), text_of(&told)), ("at last".to_owned(), "at last".to_owned()));
    assert!(began.elapsed() >= std::time::Duration::from_secs(1));
    assert_eq!(server.asked().len(), 3);
}

#[tokio::test]
async fn an_answer_that_broke_off_after_a_word_is_not_asked_for_again() {
    let half = events(&[delta(&json!({"content": "half of "}))]);
    let nothing = events(&[delta(&json!({"role": "assistant"}))]);
    let ended = stream_of("text/event-stream", half.clone());
    let server =
        ModelServer::start(vec![Answer::Cut(half.clone()), ended, Answer::Cut(nothing), chat(&["whole"], &[])]).await;
    let dir = tempfile::tempdir().unwrap();
    let agent = agent(dir.path(), "openai:m", &server.base, "").await;
    for _ in 0..2 {
        let (answer, told) = ask(&agent, &question()).await;
        let error = answer.unwrap_err();
        assert_eq!((error.kind, text_of(&told)), (ModelErrorKind::Transient, "half of ".to_owned()), "{error}");
    }
    assert_eq!(server.asked().len(), 2, "the broken answers were not asked for again");
    assert_eq!(ask(&agent, &question()).await.0.unwrap().message.text(), "whole");
}

#[tokio::test]
async fn what_cannot_pass_is_told_at_once_and_without_the_key() {
    let dir = tempfile::tempdir().unwrap();
    for (status, body, kind) in [
        (401, json!({"error": {"message": format!("Incorrect API key provided: {KEY}")}}), ModelErrorKind::Auth),
        (
            400,
            json!({"error": {"code": "context_length_exceeded", "message": "too long"}}),
            ModelErrorKind::ContextTooLong,
        ),
        (429, json!({"error": {"code": "insufficient_quota", "message": "pay"}}), ModelErrorKind::Refused),
        (404, json!({"error": {"message": "no such model"}}), ModelErrorKind::Other),
        (302, json!({}), ModelErrorKind::Other),
    ] {
        let elsewhere = ModelServer::start(Vec::new()).await;
        let headers = [("location", elsewhere.base.as_str())];
        let server = ModelServer::start(vec![refusal(status, &headers, &body)]).await;
        let agent = agent(dir.path(), "openai:m", &server.base, "").await;
        let error = ask(&agent, &question()).await.0.unwrap_err();
        assert_eq!(error.kind, kind, "{error}");
        let shown = format!("{error} {error:?} {}", serde_json::to_string(&error).unwrap());
        assert!(!shown.contains("sentinel"), "{shown}");
        assert_eq!((server.asked().len(), elsewhere.asked().len()), (1, 0), "{status}");
    }
    // A wait longer than anybody has is the caller's to decide.
    let server = ModelServer::start(vec![refusal(429, &[("retry-after", "3600")], &json!({}))]).await;
    let error = ask(&agent(dir.path(), "openai:m", &server.base, "").await, &question()).await.0.unwrap_err();
    assert_eq!(error.retry_after, Some(std::time::Duration::from_hours(1)));
}

#[tokio::test]
async fn a_provider_that_falls_silent_or_cannot_be_reached_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let half = events(&[delta(&json!({"content": "half"}))]);
    let server = ModelServer::start(vec![Answer::Silent(half), Answer::Silent(String::new())]).await;
    let quick = "silence_s = 5\nretries = 0";
    let silent = agent(dir.path(), "openai:m", &server.base, quick).await;
    for expected in ["half", ""] {
        let (answer, told) = ask(&silent, &question()).await;
        assert_eq!((answer.unwrap_err().kind, text_of(&told).as_str()), (ModelErrorKind::Transient, expected));
    }
    let gone = agent(dir.path(), "openai:m", "http://127.0.0.1:1", quick).await;
    assert_eq!(ask(&gone, &question()).await.0.unwrap_err().kind, ModelErrorKind::Transient);
}

#[tokio::test]
async fn an_answer_without_an_end_is_bounded() {
    let piece = events(&[delta(&json!({"content": "x".repeat(1024 * 1024)}))]);
    let server = ModelServer::start(vec![Answer::Silent(piece.repeat(6))]).await;
    let dir = tempfile::tempdir().unwrap();
    let agent = agent(dir.path(), "openai:m", &server.base, "retries = 0").await;
    let error = ask(&agent, &question()).await.0.unwrap_err();
    assert!(error.kind == ModelErrorKind::Other && error.message.contains("longer than"), "{error}");
}

#[tokio::test]
async fn without_a_key_no_key_is_sent() {
    let server = ModelServer::start(vec![chat(&["free"], &[])]).await;
    let text =
        format!("[models.m]\nmodel = \"openai:own\"\nbase_url = \"{}/v1\"\n[agents.a]\nmodel = \"m\"\n", server.base);
    let dir = tempfile::tempdir().unwrap();
    let agents =
        Agents::new(File::parse(&text, dir.path()).unwrap(), dir.path().to_owned(), None, Confinement::default())
            .unwrap();
    let agent = agents.assistant("a").await.unwrap();
    assert_eq!(ask(&agent, &question()).await.0.unwrap().message.text(), "free");
    let asked = server.asked();
    assert_eq!(asked[0].path, "/v1/chat/completions");
    assert!(!asked[0].headers.contains_key("authorization"));
}

#[tokio::test]
async fn ids_that_a_provider_gives_twice_are_told_apart() {
    let call = || chat(&[], &[("call_0", "files_list", &["{}"]), ("call_0", "files_list", &["{}"])]);
    let server = ModelServer::start(vec![call(), call()]).await;
    let dir = tempfile::tempdir().unwrap();
    let agent = agent(dir.path(), "openai:m", &server.base, "").await;
    let mut conversation = question();
    let mut ids = Vec::new();
    for _ in 0..2 {
        let message = ask(&agent, &conversation).await.0.unwrap().message;
        assert_eq!(message.role, MessageRole::Assistant);
        let results = message.tool_calls.iter().map(|call| Message::tool(call.id.clone(), "empty")).collect::<Vec<_>>();
        ids.extend(message.tool_calls.iter().map(|call| call.id.clone()));
        conversation.push(message);
        conversation.extend(results);
    }
    assert_eq!(ids, ["call_0", "call_0_1", "call_0_2", "call_0_3"]);
}
