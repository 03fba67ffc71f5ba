//! Messages that name the thread they are said on.

use serde_json::{Value, json};

use super::{WEB, answer, id, say};
use crate::support::{
    api::Api,
    server::{Server, setup},
};

async fn said(api: &Api, members: &Value) -> Value {
    let mut message = json!({ "chat_id": "5", "user_id": "5", "text": "hello" });
    message.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    let (status, body) = say(api, "web", message).await;
    assert_eq!(status, 202, "{body}");
    body
}

async fn ended(server: &Server, session: &str) -> Value {
    server.get(&format!("/api/sessions/{session}")).await.expect(200)["end_reason"].clone()
}

#[tokio::test]
async fn a_message_is_said_on_the_thread_that_it_names_and_the_session_goes_on_there() {
    let server = setup().config(WEB).start().await;
    let own = said(&server, &json!({})).await;
    assert_eq!(own["thread_id"], "web_5");
    let named = said(&server, &json!({ "thread_id": "case:7" })).await;
    assert_eq!((&named["thread_id"], named["session_id"] == own["session_id"]), (&json!("case:7"), false));
    assert_eq!(ended(&server, &id(&own, "session_id")).await, "ended");
    let run = server.run(&id(&named, "run_id")).await;
    assert_eq!((&run["thread_id"], &run["session_id"]), (&json!("case:7"), &named["session_id"]));
    for again in [json!({}), json!({ "thread_id": "case:7" }), json!({ "thread_id": null })] {
        assert_eq!(said(&server, &again).await["session_id"], named["session_id"], "{again}");
    }
    let (status, body) = say(&server, "web", json!({ "chat_id": "5", "user_id": "5", "text": "/new" })).await;
    assert_eq!((status, &body["reason"]), (200, &json!("session_reset")));
    let next = said(&server, &json!({})).await;
    assert!(id(&next, "thread_id").starts_with("web_5_s"), "{next}");
}

#[tokio::test]
async fn runs_of_the_api_and_of_two_chats_meet_on_the_thread_they_name() {
    let server = setup().config(WEB).start().await;
    let run = server.create(json!({ "thread_id": "case:7" })).await;
    server.complete(&run).await;
    let one = said(&server, &json!({ "thread_id": "case:7" })).await;
    let other = said(&server, &json!({ "chat_id": "6", "thread_id": "case:7" })).await;
    assert!(one["thread_id"] == other["thread_id"] && one["session_id"] != other["session_id"]);
    answer(&server, &id(&one, "run_id"), "hi").await;
    let runs = server.get("/api/runs?thread_id=case:7").await.expect(200)["runs"].as_array().unwrap().len();
    assert_eq!(runs, 3);
    // A thread that is named after the chat counts as one of its own.
    said(&server, &json!({ "chat_id": "8", "thread_id": "web_8_s4" })).await;
    say(&server, "web", json!({ "chat_id": "8", "user_id": "5", "reset_session": true })).await;
    assert_eq!(said(&server, &json!({ "chat_id": "8" })).await["thread_id"], "web_8_s5");
}

#[tokio::test]
async fn a_thread_that_is_named_is_its_principals_own() {
    let server = setup().jwt().config(WEB).start().await;
    let (alice, bob) = (server.as_subject("alice"), server.as_subject("bob"));
    said(&alice, &json!({ "thread_id": "case:7" })).await;
    let his = said(&bob, &json!({ "thread_id": "case:7" })).await;
    assert_eq!(bob.get("/api/runs?thread_id=case:7").await.expect(200)["runs"].as_array().unwrap().len(), 1);
    alice.get(&format!("/api/sessions/{}", id(&his, "session_id"))).await.refused(404, "not_found");
    // Who may only read the thread says nothing on it.
    let token = alice.post("/api/threads/case:7/tokens", json!({})).await.expect(201);
    let message = json!({ "chat_id": "5", "user_id": "5", "text": "hello", "thread_id": "case:7" });
    let reader = server.with(id(&token, "token"));
    reader.post("/api/channels/web/messages", message).await.refused(403, "forbidden");
}

#[tokio::test]
async fn what_is_no_thread_id_is_named_and_starts_nothing() {
    let server = setup().config(WEB).start().await;
    for wrong in [json!(""), json!("a/b"), json!("x".repeat(256)), json!(7), json!(["case:7"])] {
        let message = json!({ "chat_id": "5", "user_id": "5", "text": "hello", "thread_id": wrong });
        let problem = server.post("/api/channels/web/messages", message).await.refused(400, "invalid_request");
        assert_eq!(problem["field"], "thread_id", "{problem}");
    }
    assert_eq!(server.db.number("select count(*) from store.inbound").await, 0);
}
