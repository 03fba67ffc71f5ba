//! AG-UI endpoints whose events are legal and odd.

use serde_json::{Value, json};

use crate::{
    agents::{ask, log, of, response},
    agui_proxy::{before, begun, finished},
    any_log::Clients,
    support::{
        chats::Live,
        models::{Answer, events, stream_of},
    },
};

/// An answer with these events as they are written.
fn raw(said: &[&str]) -> Answer {
    let said = said.iter().flat_map(|event| ["data: ", event, "\n\n"]).collect::<String>();
    stream_of("text/event-stream", begun(&[]) + &said + &events(&[finished(&Value::Null)]))
}

#[tokio::test]
async fn halves_of_a_character_in_neighbouring_events_are_one_character() {
    let said = [
        r#"{"type":"TEXT_MESSAGE_START","messageId":"m","role":"assistant"}"#,
        r#"{"type":"TEXT_MESSAGE_START","messageId":"n","role":"assistant"}"#,
        r#"{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"a\ud83d"}"#,
        r#"{"type":"TEXT_MESSAGE_CONTENT","messageId":"n","delta":"x\ud83d"}"#,
        r#"{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"\ude00z"}"#,
        r#"{"type":"TEXT_MESSAGE_END","messageId":"n"}"#,
        r#"{"type":"TEXT_MESSAGE_END","messageId":"m"}"#,
        r#"{"type":"TOOL_CALL_START","toolCallId":"c","toolCallName":"say"}"#,
        r#"{"type":"TOOL_CALL_ARGS","toolCallId":"c","delta":"{\"text\":\"\ud83d"}"#,
        r#"{"type":"TOOL_CALL_ARGS","toolCallId":"c","delta":"\ude00 \\ud83d\"}"}"#,
        r#"{"type":"TOOL_CALL_END","toolCallId":"c"}"#,
        r#"{"type":"TOOL_CALL_RESULT","messageId":"r","toolCallId":"c","content":"cut \ud83d"}"#,
        r#"{"type":"REASONING_MESSAGE_CHUNK","messageId":"t","delta":"\ud83d"}"#,
        r#"{"type":"REASONING_MESSAGE_CHUNK","delta":"\ude00"}"#,
    ];
    let (server, _endpoint) = before(vec![raw(&said)], "").await;
    let run = ask(&server, "far", "hello", json!({})).await;
    response(&server, &run).await;
    let events = log(&server, &run).await;
    let texts: Vec<_> =
        of(&events, "message.completed")[1..].iter().map(|event| &event["payload"]["content"][0]["text"]).collect();
    assert_eq!(texts, ["x\u{fffd}", "a😀z"]);
    assert_eq!(of(&events, "tool.started")[0]["payload"]["args"], json!({"text": "😀 \u{fffd}"}));
    assert_eq!(of(&events, "tool.completed")[0]["payload"]["result"], "cut \u{fffd}");
    assert_eq!(of(&events, "reasoning.completed")[0]["payload"]["text"], "😀");
    assert!(of(&events, "agui.raw").is_empty());
}

#[tokio::test]
async fn a_member_that_nobody_needs_spoils_no_text() {
    let deep = format!("{}1{}", "[".repeat(300), "]".repeat(300));
    let said = [
        format!(r#"{{"type":"TEXT_MESSAGE_START","messageId":"m","role":"assistant","rawEvent":{deep}}}"#),
        r#"{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"wo","rawEvent":{"n":1e999}}"#.to_owned(),
        r#"{"type":"x","type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"rds"}"#.to_owned(),
        r#"{"type":"TEXT_MESSAGE_END","messageId":"m","timestamp":1764334800.25}"#.to_owned(),
    ];
    let said: Vec<&str> = said.iter().map(String::as_str).collect();
    let (server, _endpoint) = before(vec![raw(&said)], "").await;
    let run = ask(&server, "far", "hello", json!({})).await;
    assert_eq!(response(&server, &run).await, "words");
    assert!(of(&log(&server, &run).await, "agui.raw").is_empty());
}

#[tokio::test]
async fn words_of_a_person_that_an_endpoint_tells_stay_the_persons() {
    let said = [
        r#"{"type":"TEXT_MESSAGE_START","messageId":"m","role":"user"}"#,
        r#"{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"what I said"}"#,
        r#"{"type":"TEXT_MESSAGE_END","messageId":"m"}"#,
        r#"{"type":"TEXT_MESSAGE_CHUNK","messageId":"n","role":"assistant","delta":"an answer"}"#,
    ];
    let (server, _endpoint) = before(vec![raw(&said)], "").await;
    let run = ask(&server, "far", "hello", json!({})).await;
    response(&server, &run).await;
    let told = Live::agui(&server, &run).await.rest().await;
    let messages = Clients::start().await.read("later", "agui", &[told]).await;
    let said = |n: usize| (messages[n]["role"].clone(), messages[n]["content"].clone());
    let expected = [("user", "hello"), ("user", "what I said"), ("assistant", "an answer")];
    assert_eq!(
        [said(0), said(1), said(2)],
        expected.map(|(role, content)| (json!(role), json!(content))),
        "{messages}"
    );
}
