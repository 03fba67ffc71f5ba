//! A session that is restored to a chat's thread: the chat's next message goes on with it.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Ground, SAVED, heard, listener, save_of};
use crate::{
    agents::{ask, response},
    support::{
        api::Api,
        cluster::Db,
        models::ModelServer,
        process::{program, run},
    },
};

/// A file of a conversation that was saved on another server, and what the models of this one say.
async fn carried_over(answers: &[&str]) -> (Ground, String, ModelServer) {
    let (models, config) = listener(&[&["one"][..], answers].concat()).await;
    let config = format!("{config}[channels.web]\n");
    let (first, second) = (Ground::new(), Ground::new());
    let server = first.setup(&config).start().await;
    let run = ask(&server, "assistant", "my name is Ann", json!({ "thread_id": "t" })).await;
    response(&server, &run).await;
    server.post(SAVED, save_of("trip", "t")).await.expect(201);
    server.stop().await;
    std::fs::create_dir_all(second.folder()).unwrap();
    std::fs::copy(first.file("trip.json"), second.file("trip.json")).unwrap();
    (second, config, models)
}

async fn restored(api: &Api, thread: &str) -> Value {
    api.post(&format!("{SAVED}/trip/restore"), json!({ "thread_id": thread })).await.expect(201)["session_id"].clone()
}

async fn said(api: &Api, chat: &str, text: &str) -> Value {
    let message = json!({ "chat_id": chat, "user_id": "ann", "text": text });
    let reply = api.post("/api/channels/web/messages", message).await;
    assert!([200, 202].contains(&reply.status), "{}", reply.text);
    reply.json()
}

fn texts(models: &ModelServer, request: usize) -> Vec<String> {
    heard(models, request).into_iter().map(|(_, text)| text).collect()
}

#[tokio::test]
async fn the_next_message_of_the_chat_goes_on_with_what_was_restored_also_after_a_restart() {
    let (ground, config, models) = carried_over(&["two", "three"]).await;
    let db = Arc::new(Db::new().await);
    let server = ground.setup(&config).on(&db).start().await;
    let session = restored(&server, "web_fresh").await;
    assert!(session.is_string(), "{session}");
    server.stop().await;

    let server = ground.setup(&config).on(&db).start().await;
    let accepted = said(&server, "fresh", "who am I?").await;
    assert_eq!((&accepted["thread_id"], &accepted["session_id"]), (&json!("web_fresh"), &session));
    response(&server, accepted["run_id"].as_str().unwrap()).await;
    let texts = texts(&models, 1);
    assert_eq!(texts[..2], ["my name is Ann", "one"]);
    assert!(texts.len() == 3 && texts[2].ends_with("who am I?"), "{texts:?}");

    // The same from a terminal.
    assert!(restored(&server, "web_desk").await.is_string());
    let mut chat = program(&["chat", "--chat", "desk", "--user", "ann", "--once", "and I?"]);
    chat.env("RUNREEL_URL", &server.base);
    let told = run(chat, "").await;
    assert_eq!((told.code, told.stdout.as_str()), (Some(0), "three\n"), "{}", told.stderr);
    assert_eq!(self::texts(&models, 2)[..2], ["my name is Ann", "one"]);
}

#[tokio::test]
async fn a_later_thread_of_a_chat_is_gone_on_with_and_the_next_session_comes_after_it() {
    let (ground, config, _models) = carried_over(&["two", "three"]).await;
    let server = ground.setup(&config).start().await;
    let session = restored(&server, "web_5_s3").await;
    let accepted = said(&server, "5", "hello").await;
    assert_eq!((&accepted["thread_id"], &accepted["session_id"]), (&json!("web_5_s3"), &session));
    response(&server, accepted["run_id"].as_str().unwrap()).await;
    // The chat has a session now, which stays.
    assert_eq!(restored(&server, "web_5_s7").await, Value::Null);
    assert_eq!(said(&server, "5", "/new").await["reason"], "session_reset");
    assert_eq!(said(&server, "5", "hello").await["thread_id"], "web_5_s8", "no thread is used again");
}

#[tokio::test]
async fn a_thread_that_is_called_like_no_chat_of_the_caller_begins_no_session() {
    let (ground, config, _models) = carried_over(&[]).await;
    let config = format!("{config}[channels.telegram]\nowner_sub = \"alice\"\n");
    let server = ground.setup(&config).jwt().start().await;
    let (alice, bob) = (server.as_subject("alice"), server.as_subject("bob"));
    let text = std::fs::read_to_string(ground.file("trip.json")).unwrap();
    for api in [&alice, &bob] {
        api.put_text(&format!("{SAVED}/trip"), text.clone()).await.expect(201);
        for thread in ["other_5", "web", "web_", "web-5", "trip"] {
            assert_eq!(restored(api, thread).await, Value::Null, "{thread}");
        }
        assert!(restored(api, "web_5").await.is_string(), "each has chats of their own");
    }
    assert!(restored(&alice, "telegram_5").await.is_string());
    assert_eq!(restored(&bob, "telegram_5").await, Value::Null, "the chats of a webhook are of one owner");
    let sessions = |api: Api| async move { api.get("/api/sessions").await.expect(200)["sessions"].clone() };
    assert_eq!(sessions(bob).await.as_array().unwrap().len(), 1);
    assert_eq!(sessions(alice).await.as_array().unwrap().len(), 2);
}
