//! What a client was told has begun is told to have ended: texts whose end is of another role than their tokens, steps and
//! subagents without an end, and words in another shape than the protocol has.

use serde_json::{Value, json};

use crate::{
    any_log::Clients,
    support::{
        chats::{Chat, Live},
        runs::token,
        server::Server,
    },
};

fn spoken(role: &Value, content: &str) -> Value {
    json!({"type": "message.completed", "span_id": "u1", "payload": {"role": role, "content": content}})
}

/// Role and content of messages.
fn texts(messages: &Value) -> Vec<(&str, &str)> {
    let messages = messages.as_array().unwrap().iter();
    messages.filter_map(|message| Some((message["role"].as_str()?, message["content"].as_str()?))).collect()
}

#[tokio::test]
async fn a_persons_streamed_words_are_the_persons_in_every_way_to_come_to_them() {
    let (server, mut clients) = (Server::start().await, Clients::start().await);
    let chat = Chat::of(&server, "c").await;
    let (mut live, mut page) = (Live::agui(&server, &chat.run).await, Live::ai_sdk(&server, "c").await);
    live.until("MESSAGES_SNAPSHOT").await;
    page.until("\"start\"").await;
    let mut word = token("u1", "Good ");
    word["payload"]["role"] = json!("user");
    server.emit(&chat.run, json!([word, token("u1", "day")])).await;
    live.until("day").await;
    // It joins in the middle of the words.
    let mut late = Live::agui(&server, &chat.run).await;
    late.until("day").await;
    let answer =
        [token("m1", "Hello"), json!({"type": "message.completed", "span_id": "m1", "payload": {"content": "Hello"}})];
    server.emit(&chat.run, json!([spoken(&json!("user"), "Good day")])).await;
    server.emit(&chat.run, json!(answer)).await;
    server.emit(&chat.run, json!([{"type": "run.completed"}])).await;
    let joined = Live::agui(&server, &chat.run).await;
    for (how, told) in [("live", live), ("in the middle", late), ("later", joined)] {
        let messages = clients.read(how, "agui", &[told.rest().await]).await;
        assert_eq!(texts(&messages), [("user", "Good day"), ("assistant", "Hello")], "{how}");
    }
    // The message of the AI SDK is the agent's alone.
    for (how, told) in [("live", page), ("later", Live::ai_sdk(&server, "c").await)] {
        let message = clients.read(how, "ai_sdk", &[told.rest().await]).await;
        let parts = message[0]["parts"].as_array().unwrap();
        assert_eq!(parts.iter().map(|part| &part["text"]).collect::<Vec<_>>(), ["Hello"], "{how}");
    }
}

#[tokio::test]
async fn a_text_is_closed_whatever_its_end_says_of_its_role() {
    let (server, mut clients) = (Server::start().await, Clients::start().await);
    for role in ["user", "tool", "system", "assistant", "narrator"] {
        let chat = Chat::of(&server, role).await;
        let (mut live, mut page) = (Live::agui(&server, &chat.run).await, Live::ai_sdk(&server, role).await);
        live.until("MESSAGES_SNAPSHOT").await;
        page.until("\"start\"").await;
        server.emit(&chat.run, json!([token("u1", "Good "), token("u1", "day")])).await;
        live.until("day").await;
        page.until("day").await;
        server.emit(&chat.run, json!([spoken(&json!(role), "Good day"), {"type": "run.completed"}])).await;
        let messages = clients.read(role, "agui", &[live.rest().await]).await;
        assert_eq!(texts(&messages), [("assistant", "Good day")], "{role}");
        clients.read(role, "ai_sdk", &[page.rest().await]).await;
    }
}

#[tokio::test]
async fn an_end_that_names_only_its_span_ends_what_began_on_it() {
    let (server, mut clients) = (Server::start().await, Clients::start().await);
    let chat = Chat::of(&server, "c").await;
    let mut live = Live::agui(&server, &chat.run).await;
    live.until("MESSAGES_SNAPSHOT").await;
    let events = json!([
        {"type": "step.started", "span_id": "s1", "payload": {"name": "plan"}},
        {"type": "tool.started", "span_id": "t1", "payload": {"tool_call_id": "c1", "name": "look", "args": {"at": 1}}},
        {"type": "tool.completed", "span_id": "t1", "payload": {"result": "seen"}},
        {"type": "step.completed", "span_id": "s1", "payload": {}},
        {"type": "agui.subagent_started", "payload": {"subagent_run_id": "sub", "name": "helper"}},
        {"type": "agui.state_delta", "payload": {"delta": "not a patch"}},
        {"type": "agui.usage", "payload": {"usage": "much"}},
        {"type": "run.completed", "payload": {"output": null}},
    ]);
    server.emit(&chat.run, events).await;
    let told = live.rest().await;
    let at = |word: &str| told.find(word).unwrap_or_else(|| panic!("no {word}: {told}"));
    assert!(at("STEP_FINISHED") < at("SUBAGENT_STARTED"), "{told}");
    let messages = clients.read("live", "agui", &[told]).await;
    assert_eq!(messages[0]["toolCalls"][0]["id"], messages[1]["toolCallId"], "{messages}");
    assert_eq!(messages[1]["content"], "seen");
}
