//! Conversations that are long.

use serde_json::{Value, json};

use super::Stream;
use crate::support::{api::Api, shared::shared};

/// A run of the thread that said these texts and has ended.
async fn said(server: &Api, texts: impl Iterator<Item = String>) -> String {
    let run = server.create(json!({"thread_id": "t"})).await;
    let said = |text| json!({"type": "message.completed", "payload": {"role": "assistant", "content": text}});
    let texts: Vec<Value> = texts.map(said).collect();
    for some in texts.chunks(100) {
        server.emit(&run, json!(some)).await;
    }
    server.emit(&run, json!({"type": "run.completed"})).await;
    run
}

async fn contents(server: &Api, run: &str) -> Vec<String> {
    let joined = Stream::join(server, run, None).await.rest().await;
    let content = |message: &Value| message["content"].as_str().unwrap().to_owned();
    joined[1].event["messages"].as_array().unwrap().iter().map(content).collect()
}

#[tokio::test]
async fn the_messages_of_a_thread_before_a_run_are_told_in_order_however_many_pages_they_take() {
    let server = shared().await;
    said(&server, (0..600).map(|n| n.to_string())).await;
    said(&server, (600..1_250).map(|n| n.to_string())).await;
    let run = said(&server, (1_250..1_252).map(|n| n.to_string())).await;
    said(&server, ["later".to_owned()].into_iter()).await;
    let expected: Vec<String> = (0..1_252).map(|n| n.to_string()).collect();
    assert_eq!(contents(&server, &run).await, expected);
}

#[tokio::test]
async fn of_a_thread_that_is_too_long_the_newest_messages_are_told() {
    let server = shared().await;
    let text = |n: usize| format!("{n} {}", "x".repeat(50_000));
    said(&server, (0..60).map(text)).await;
    said(&server, (60..120).map(text)).await;
    let run = said(&server, (120..121).map(text)).await;
    let told = contents(&server, &run).await;
    let numbers: Vec<usize> = told.iter().map(|text| text.split(' ').next().unwrap().parse().unwrap()).collect();
    assert!((75..=84).contains(&numbers.len()), "{numbers:?}");
    assert_eq!(numbers, (121 - numbers.len()..121).collect::<Vec<_>>());
}
