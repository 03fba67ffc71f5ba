//! Endpoints that send what nobody should: too much, too long, or nonsense.

use serde_json::{Value, json};

use super::{before, begun, error, text, whole};
use crate::{
    agents::{ask, kinds, log, of, response},
    support::models::{events, stream_of},
};

async fn failing(body: String) -> (Value, Vec<Value>) {
    let (server, endpoint) = before(vec![stream_of("text/event-stream", body)], "").await;
    let run = ask(&server, "far", "go", json!({})).await;
    let error = error(&server, &run).await;
    assert_eq!(endpoint.asked().len(), 1, "what is too much is not asked for again");
    (error, log(&server, &run).await)
}

#[tokio::test]
async fn sizes_over_a_bound_fail_the_run_and_keep_what_came_before() {
    let huge = "x".repeat(3 * 1024 * 1024);
    let before = begun(&text("m1", &["kept"]));
    let (error, events) = failing(format!("{before}data: {{\"type\":\"CUSTOM\",\"value\":\"{huge}\"}}\n\n")).await;
    assert_eq!(error["code"], "agui_too_large", "{error}");
    assert_eq!(of(&events, "message.completed").len(), 2, "{:?}", kinds(&events));
    let pieces: Vec<String> = (0..5).map(|_| "y".repeat(300 * 1024)).collect();
    let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
    let (error, _) = failing(begun(&text("m1", &pieces))).await;
    assert_eq!(error["code"], "agui_too_large", "{error}");
    assert!(error["message"].as_str().unwrap().contains("a message of the endpoint is longer than"), "{error}");
    let open: Vec<Value> =
        (0..70).map(|n| json!({"type": "TEXT_MESSAGE_START", "messageId": format!("m{n}")})).collect();
    assert_eq!(failing(begun(&open)).await.0["code"], "agui_too_large");
}

#[tokio::test]
async fn ids_that_cannot_be_spans_get_ones_that_can_and_the_same_ones_every_time() {
    let (long, odd) = ("l".repeat(101), "a\nb");
    let said = [text(&long, &["long"]), text(odd, &["odd"]), text("", &["none"]), text("m", &["a"]), text("m", &["b"])];
    let (server, _endpoint) = before(vec![whole(&said.concat()), whole(&said.concat())], "").await;
    let mut all = Vec::new();
    for _ in 0..2 {
        let run = ask(&server, "far", "go", json!({})).await;
        assert_eq!(response(&server, &run).await, "b");
        let events = log(&server, &run).await;
        let spans = of(&events, "message.completed").into_iter().skip(1).map(|event| event["span_id"].clone());
        let spans: Vec<Value> = spans.collect();
        assert_eq!((spans.len(), &spans[3], &spans[4]), (5, &json!("m"), &json!("m~2")), "{spans:?}");
        assert!(spans[..3].iter().all(|span| span.as_str().unwrap().starts_with("id-")), "{spans:?}");
        assert_eq!(of(&events, "message.completed")[1]["payload"]["message_id"], long);
        all.push(spans);
    }
    assert_eq!(all[0], all[1]);
}

#[tokio::test]
async fn what_is_no_event_of_ag_ui_is_kept_as_it_came_and_harms_nothing() {
    let deep = format!("{{\"type\":\"CUSTOM\",\"name\":\"n\",\"value\":{}1{}}}", "[".repeat(100), "]".repeat(100));
    let odd = [
        "data: [DONE]\n\n",
        "data: {broken\n\n",
        "event: ping\n\n",
        ": a comment\n\n",
        "data: {\"type\":\"CUSTOM\",\"name\":\"nul\",\"value\":\"a\\u0000b\"}\n\n",
        "data: {\"type\":\"CUSTOM\",\"name\":\"half\",\"value\":\"\\ud800\"}\n\n",
        "data: {\"type\":\"TEXT_MESSAGE_CONTENT\",\"messageId\":\"nobody\",\"delta\":\"x\"}\n\n",
        "data: {\"type\":\"TOOL_CALL_RESULT\",\"messageId\":\"r\",\"toolCallId\":\"unknown\",\"content\":\"y\"}\n\n",
        "data: {\"type\":\"STEP_FINISHED\",\"stepName\":\"never begun\"}\n\n",
        "data: {\"type\":\"STATE_DELTA\",\"delta\":[{\"op\":\"remove\",\"path\":\"/none\"}]}\n\n",
        "data: 7\n\n",
    ]
    .concat();
    let body = begun(&[]) + &odd + &format!("data: {deep}\n\n") + &events(&text("m", &["fine"]));
    let body = body + &events(&[super::finished(&json!({"type": "success"}))]) + &events(&text("late", &["ignored"]));
    let (server, _endpoint) = before(vec![stream_of("text/event-stream", body)], "").await;
    let run = ask(&server, "far", "go", json!({})).await;
    assert_eq!(response(&server, &run).await, "fine");
    let events = log(&server, &run).await;
    let raw: Vec<&Value> = of(&events, "agui.raw").iter().map(|event| &event["payload"]["event"]).collect();
    assert_eq!((raw[0], raw[1]), (&json!("[DONE]"), &json!("{broken")), "{raw:?}");
    assert_eq!(raw.len(), 6, "{raw:?}");
    assert_eq!(of(&events, "agui.custom").len(), 2, "half a character makes no event unknown");
    assert_eq!(of(&events, "tool.completed").len(), 1);
    assert_eq!(of(&events, "log.warn").len(), 1, "the change of the state that does not fit");
}

#[tokio::test]
async fn a_large_message_becomes_an_artifact_and_is_whole_in_the_next_request() {
    let large = "z".repeat(200 * 1024);
    let (server, endpoint) = before(vec![whole(&text("m1", &[&large])), whole(&text("m2", &["ok"]))], "").await;
    for expected in [large.as_str(), "ok"] {
        let run = ask(&server, "far", "go", json!({"thread_id": "t"})).await;
        crate::agents::stands(&server, &run, "completed").await;
        let events = log(&server, &run).await;
        let last = of(&events, "message.completed").last().unwrap()["payload"].clone();
        let is_pointer = last["$artifact"].is_object();
        assert_eq!(is_pointer, expected.len() > 64 * 1024, "{:?}", kinds(&events));
    }
    assert_eq!(endpoint.asked()[1].body["messages"][1]["content"], large);
}

#[tokio::test]
async fn a_message_under_the_id_of_a_users_has_a_span_of_its_own() {
    let (server, _endpoint) = before(vec![whole(&text("m1", &["answer"]))], "").await;
    let user = json!({"id": "m1", "role": "user", "content": "question"});
    let input = json!({"threadId": "t", "runId": "r", "messages": [user]});
    let stream = server.post("/api/agui/agents/far", input).await.text;
    assert!(stream.contains(r#""messageId":"m1~2""#), "{stream}");
    let run = server.get("/api/runs/by-external-id/r").await.expect(200)["run_id"].as_str().unwrap().to_owned();
    let events = log(&server, &run).await;
    let spans: Vec<&Value> = of(&events, "message.completed").iter().map(|event| &event["span_id"]).collect();
    assert_eq!(spans, [&json!("m1"), &json!("m1~2")]);
    assert_eq!(response(&server, &run).await, "answer");
}
