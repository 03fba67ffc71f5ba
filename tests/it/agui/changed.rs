//! Texts that are not in the end what they were while they were written.

use serde_json::{Value, json};

use super::{Client, Said, Stream, kinds, request, texts, user};
use crate::support::{api::Api, runs::token, shared::shared, until};

async fn run_of(server: &Api, name: &str) -> String {
    let path = format!("/api/runs/by-external-id/{name}");
    until("the client's run", || async { server.get(&path).await.status == 200 }).await;
    server.get(&path).await.expect(200)["run_id"].as_str().unwrap().to_owned()
}

fn completed(span: &str, text: &str) -> Value {
    json!({"type": "message.completed", "span_id": span, "payload": {"role": "assistant", "content": text}})
}

/// What is said from the beginning of each text on.
async fn changes(server: &Api, run: &str, stream: &mut Stream) -> Vec<Said> {
    let mut said = vec![stream.expect("RUN_STARTED").await];
    server.emit(run, json!({"type": "run.started"})).await;
    server.emit(run, token("m", "Wrong")).await;
    server.emit(run, json!({"type": "reasoning.delta", "span_id": "th", "payload": {"text": "Hm"}})).await;
    for _ in 0..5 {
        said.push(stream.next().await.unwrap());
    }
    server.emit(run, completed("m", "Right.")).await;
    let thought = json!({"type": "reasoning.completed", "span_id": "th", "payload": {"text": "Ah."}});
    server.emit(run, json!([thought, {"type": "run.completed"}])).await;
    said
}

#[tokio::test]
async fn a_text_that_changes_ends_and_is_said_as_another_message_wherever_its_reader_is_cut_off() {
    let server = shared().await;
    let mut stream = Stream::post(&server, "elsewhere", &request("t", "r", &[user("u", "go")])).await;
    let run = run_of(&server, "r").await;
    let mut whole = changes(&server, &run, &mut stream).await;
    whole.extend(stream.rest().await);
    let told: Vec<(&str, &str, &str)> = whole
        .iter()
        .map(|said| {
            let text = |name: &str| said.event[name].as_str().unwrap_or_default();
            (text("type"), text("messageId"), text("delta"))
        })
        .collect();
    let expected = [
        ("RUN_STARTED", "", ""),
        ("TEXT_MESSAGE_START", "m", ""),
        ("TEXT_MESSAGE_CONTENT", "m", "Wrong"),
        ("REASONING_START", "th", ""),
        ("REASONING_MESSAGE_START", "th", ""),
        ("REASONING_MESSAGE_CONTENT", "th", "Hm"),
        ("TEXT_MESSAGE_END", "m", ""),
        ("TEXT_MESSAGE_START", "m~", ""),
        ("TEXT_MESSAGE_CONTENT", "m~", "Right."),
        ("TEXT_MESSAGE_END", "m~", ""),
        ("REASONING_MESSAGE_END", "th", ""),
        ("REASONING_END", "th", ""),
        ("REASONING_START", "th~", ""),
        ("REASONING_MESSAGE_START", "th~", ""),
        ("REASONING_MESSAGE_CONTENT", "th~", "Ah."),
        ("REASONING_MESSAGE_END", "th~", ""),
        ("REASONING_END", "th~", ""),
        ("RUN_FINISHED", "", ""),
    ];
    assert_eq!(told, expected);
    // From what was shown on; one that comes back before that has not seen what is wrong.
    for (at, said) in whole.iter().enumerate().skip(5).take(whole.len() - 6) {
        let rest = Stream::join(&server, "r", said.id.as_deref()).await.rest().await;
        assert_eq!(rest, whole[at + 1..], "after {said:?}");
    }
    let joined = Stream::join(&server, "r", None).await.rest().await;
    assert_eq!(kinds(&joined), ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]);
    let messages = json!([
        user("u", "go"),
        {"id": "m", "role": "assistant", "content": "Right."},
        {"id": "th", "role": "reasoning", "content": "Ah."},
    ]);
    assert_eq!(joined[1].event["messages"], messages);
}

#[tokio::test]
async fn a_client_keeps_its_conversation_when_a_text_changes() {
    let server = shared().await;
    let mut client = Client::start().await;
    let long = "x".repeat(70_000);
    let earlier = [user("u1", &long), json!({"id": "a1", "role": "assistant", "content": "Long."}), user("u2", "go")];
    let order = json!({"agent": "elsewhere", "threadId": "t", "runId": "r", "messages": earlier});
    client.order(&server, order).await;
    let run = run_of(&server, "r").await;
    server.emit(&run, json!({"type": "run.started"})).await;
    // Seen before it changes.
    let mut beside = Stream::join(&server, "r", None).await;
    server.emit(&run, token("m", "Wrong")).await;
    while beside.next().await.unwrap().event["delta"] != "Wrong" {}
    server.emit(&run, json!([completed("m", "Right."), {"type": "run.completed"}])).await;
    let had = texts(&client.result().await["messages"]);
    let of = |role: &str, text: &str| (role.to_owned(), text.to_owned());
    assert_eq!(had[..3], [of("user", &long), of("assistant", "Long."), of("user", "go")]);
    assert_eq!(had.last(), Some(&of("assistant", "Right.")));
}

#[tokio::test]
async fn texts_that_change_cost_a_reader_no_more_than_they_say() {
    let server = shared().await;
    let input = request("t", "r", &[user("u", &"x".repeat(50_000))]);
    let mut stream = Stream::post(&server, "elsewhere", &input).await;
    let run = run_of(&server, "r").await;
    server.emit(&run, json!({"type": "run.started"})).await;
    for n in 0..20 {
        server.emit(&run, token(&format!("m{n}"), "Wrong")).await;
        while stream.next().await.unwrap().event["type"] != "TEXT_MESSAGE_CONTENT" {}
        server.emit(&run, completed(&format!("m{n}"), "Right.")).await;
    }
    server.emit(&run, json!({"type": "run.completed"})).await;
    let bytes: usize = stream.rest().await.iter().map(|said| said.event.to_string().len()).sum();
    assert!(bytes < 20_000, "{bytes}");
}
