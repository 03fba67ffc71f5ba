//! Ids that are used again: within a run by models that count from 0 in each answer, and in the runs of one chat.

use crate::support::{api::Api, shared::shared};

use serde_json::{Value, json};

use crate::{
    any_log::Clients,
    support::{
        chats::{Chat, Live},
        server::Server,
    },
};

fn called(id: &str, query: &str) -> Value {
    json!({"type": "tool.started", "span_id": id, "payload": {"tool_call_id": id, "name": "search", "args": {"q": query}}})
}

fn found(id: &str, result: &str) -> Value {
    json!({"type": "tool.completed", "span_id": id, "payload": {"tool_call_id": id, "result": result}})
}

/// The calls of AG-UI's messages: id, arguments, result.
fn calls(messages: &Value) -> Vec<(String, String, String)> {
    let messages = messages.as_array().unwrap();
    let calls = messages.iter().flat_map(|message| message["toolCalls"].as_array().into_iter().flatten());
    let call = |call: &Value| {
        let results: Vec<_> = messages.iter().filter(|message| message["toolCallId"] == call["id"]).collect();
        assert_eq!(results.len(), 1, "{messages:?}");
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (text(&call["id"]), text(&call["function"]["arguments"]), text(&results[0]["content"]))
    };
    calls.map(call).collect()
}

/// The same of the AI SDK's message.
fn parts(messages: &Value) -> Vec<(String, String, String)> {
    let parts = messages[0]["parts"].as_array().unwrap().iter().filter(|part| part["type"] == "dynamic-tool");
    let part = |part: &Value| {
        let text = |name: &str| part[name].as_str().unwrap().to_owned();
        (text("toolCallId"), part["input"].to_string(), text("output"))
    };
    parts.map(part).collect()
}

async fn told_everywhere(events: &Value, expected: &[(&str, &str, &str)]) {
    let (server, mut clients) = (Server::start().await, Clients::start().await);
    let run = Chat::of(&server, "c").await.run;
    let (mut live, mut page) = (Live::agui(&server, &run).await, Live::ai_sdk(&server, "c").await);
    live.until("MESSAGES_SNAPSHOT").await;
    page.until("\"start\"").await;
    for event in events.as_array().unwrap() {
        server.emit(&run, event.clone()).await;
    }
    server.emit(&run, json!({"type": "run.completed"})).await;
    let own = |(id, query, result): &(&str, &str, &str)| {
        (format!("{run}/{id}"), json!({"q": query}).to_string(), (*result).to_owned())
    };
    let expected: Vec<_> = expected.iter().map(own).collect();
    for (how, told) in [("live", live), ("later", Live::agui(&server, &run).await)] {
        assert_eq!(calls(&clients.read(how, "agui", &[told.rest().await]).await), expected, "AG-UI, {how}");
    }
    for (how, told) in [("live", page), ("later", Live::ai_sdk(&server, "c").await)] {
        assert_eq!(parts(&clients.read(how, "ai_sdk", &[told.rest().await]).await), expected, "AI SDK, {how}");
    }
}

#[tokio::test]
async fn two_calls_with_one_id_have_each_their_own_arguments_and_result() {
    let one_after_another =
        [called("search:0", "a"), found("search:0", "A"), called("search:0", "b"), found("search:0", "B")];
    told_everywhere(&json!(one_after_another), &[("search:0", "a", "A"), ("search:0~2", "b", "B")]).await;
}

#[tokio::test]
async fn of_two_open_calls_with_one_id_the_newer_ends_first_and_no_name_is_taken_twice() {
    let open = [called("x", "a"), called("x~2", "b"), called("x", "c")];
    let ends = [found("x", "C"), found("x", "A"), found("x~2", "B")];
    let expected = [("x", "a", "A"), ("x~2", "b", "B"), ("x~3", "c", "C")];
    let events = [&open[..], &ends[..]].concat();
    told_everywhere(&json!(events), &expected).await;
}

#[tokio::test]
async fn a_long_id_of_a_call_is_that_of_its_result() {
    // As gateways make them that put a model's thought signature into the id.
    let id = format!("call_1__thought__{}", "A".repeat(3_000));
    let started = json!({"type": "tool.started", "span_id": "a",
        "payload": {"tool_call_id": id, "name": "search", "args": {"q": "a"}}});
    let completed = json!({"type": "tool.completed", "span_id": "a", "payload": {"tool_call_id": id, "result": "A"}});
    told_everywhere(&json!([started, completed]), &[(&id, "a", "A")]).await;
}

#[tokio::test]
async fn two_texts_on_one_span_are_two_messages() {
    let (server, mut clients) = (Server::start().await, Clients::start().await);
    let run = Chat::of(&server, "c").await.run;
    let mut live = Live::agui(&server, &run).await;
    live.until("MESSAGES_SNAPSHOT").await;
    let mut expected = Vec::new();
    for (kind, text) in [("reasoning", "hm"), ("message", "one"), ("message", "two")] {
        let payload = json!({"text": text});
        server.emit(&run, json!([{"type": format!("{kind}.delta"), "span_id": "s", "payload": payload}])).await;
        live.until(text).await;
        server.emit(&run, json!([{"type": format!("{kind}.completed"), "span_id": "s", "payload": payload}])).await;
        expected.push(json!(text));
    }
    server.emit(&run, json!({"type": "run.completed"})).await;
    for (how, told) in [("live", live), ("later", Live::agui(&server, &run).await)] {
        let messages = clients.read(how, "agui", &[told.rest().await]).await;
        let of =
            |name: &str| messages.as_array().unwrap().iter().map(|message| message[name].clone()).collect::<Vec<_>>();
        assert_eq!(of("content"), expected, "{how}");
        assert_eq!(of("id"), ["s", "s~2", "s~3"].map(|id| json!(format!("{run}/{id}"))), "{how}");
    }
}

#[tokio::test]
async fn a_chat_knows_each_call_of_its_client_by_one_id_and_its_result_finds_the_call() {
    let server = shared().await;
    let post = |messages: Value| server.post("/api/ai-sdk/agents/helper", json!({"id": "c", "messages": messages}));
    let mut run = Chat::of(&server, "c").await.run;
    let (message, mut answered) = (run.clone(), Vec::new());
    for turn in 0..2 {
        let call = |place: &str| {
            json!({"type": "tool.started", "payload":
                {"tool_call_id": "locate:0", "name": "locate", "args": {"place": place}, "client": true}})
        };
        let output =
            json!({"tool_calls": [{"id": "locate:0", "name": "locate"}, {"id": "locate:0", "name": "locate"}]});
        let end = json!({"type": "run.completed", "payload": {"output": output}});
        server.emit(&run, json!([call("here"), call("there"), end])).await;
        let told = Live::ai_sdk(&server, "c").await.rest().await;
        for (id, place) in [("locate:0", "here"), ("locate:0~2", "there")] {
            let id = format!("{run}/{id}");
            assert!(told.contains(&format!("\"toolCallId\":\"{id}\"")), "{id}: {told}");
            answered.push(json!({"type": "tool-locate", "toolCallId": id, "state": "output-available",
                "input": {"place": place}, "output": format!("{place} {turn}")}));
        }
        // The page sends the calls back in another order than they were made.
        let parts: Vec<_> = answered.iter().rev().collect();
        let answer = json!([{"id": message, "role": "assistant", "parts": parts}]);
        let next = crate::support::patiently("the next run", next_run(&server, &run, &answer)).await;
        let input = server.run(&next).await["input"]["messages"].clone();
        let result =
            |place: &str| json!({"role": "tool", "tool_call_id": "locate:0", "content": format!("{place} {turn}")});
        assert_eq!(input, json!([result("here"), result("there")]));
        server.emit(&next, json!([{"type": "run.started"}])).await;
        run = next;
    }
    let unanswered = json!([{"id": message, "role": "assistant", "parts": []}]);
    post(unanswered).await.refused(400, "invalid_request");
}

/// The run that goes on with a message.
async fn next_run(server: &Api, before: &str, messages: &Value) -> String {
    let body = json!({"id": "c", "messages": messages});
    let request = server.request(reqwest::Method::POST, "/api/ai-sdk/agents/helper").json(&body);
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), 200, "{}", response.text().await.unwrap());
    let newest = server.get("/api/runs?thread_id=c&limit=1").await.expect(200)["runs"][0]["run_id"].clone();
    assert_ne!(newest, *before);
    newest.as_str().unwrap().to_owned()
}
