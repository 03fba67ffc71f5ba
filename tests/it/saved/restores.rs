//! From a session back to a thread, and the next message goes on.

use serde_json::{Value, json};

use super::{Ground, SAVED, foreign, heard, json_blob, listener, save_of};
use crate::{
    agents::{ask, response},
    support::{api::Api, threads::bytes_of},
};

fn pair(role: &str, text: &str) -> (String, String) {
    (role.to_owned(), text.to_owned())
}

/// The messages of a thread's newest checkpoint.
async fn messages(api: &Api, thread: &str) -> Vec<Value> {
    let kept = api.get(&format!("/api/threads/{thread}/checkpoints/latest")).await.expect(200);
    let messages: Value = serde_json::from_slice(&bytes_of(&kept["blobs"]["messages"])).unwrap();
    messages.as_array().unwrap().clone()
}

#[tokio::test]
async fn a_session_in_full_goes_on_in_a_fresh_data_directory_as_if_nothing_had_been() {
    let (models, config) = listener(&["one", "two", "three"]).await;
    let (first, second) = (Ground::new(), Ground::new());
    let server = first.setup(&config).start().await;
    for text in ["a", "b"] {
        let run = ask(&server, "assistant", text, json!({ "thread_id": "t" })).await;
        response(&server, &run).await;
    }
    let saved = server.post(SAVED, save_of("trip", "t")).await.expect(201);
    assert_eq!((&saved["fallback"], &saved["message_count"]), (&json!(false), &json!(4)));
    assert_eq!(saved["first_message"], "a");
    server.stop().await;

    // Another server with another database, and a file that was carried over by hand.
    let server = second.setup(&config).start().await;
    std::fs::create_dir_all(second.folder()).unwrap();
    std::fs::copy(first.file("trip.json"), second.file("trip.json")).unwrap();
    let listed = server.get(SAVED).await.expect(200);
    assert_eq!((&listed["saved_sessions"][0]["name"], &listed["unreadable"]), (&json!("trip"), &json!([])));
    let made = server.post(&format!("{SAVED}/trip/restore"), json!({})).await.expect(201);
    let thread = made["thread_id"].as_str().unwrap();
    assert!(thread.starts_with("trip-"), "{made}");
    assert_eq!(made["stream_url"], format!("/api/stream/threads/{thread}"));
    let run = ask(&server, "assistant", "c", json!({ "thread_id": thread })).await;
    assert_eq!(response(&server, &run).await, "three");
    let conversation =
        [pair("user", "a"), pair("assistant", "one"), pair("user", "b"), pair("assistant", "two"), pair("user", "c")];
    assert_eq!(heard(&models, 2), conversation);
    // What was used before counts as well.
    let kept = server.get(&format!("/api/threads/{thread}/checkpoints/latest")).await.expect(200);
    let usage: Value = serde_json::from_slice(&bytes_of(&kept["blobs"]["usage"])).unwrap();
    assert_eq!(usage["input_tokens"], json!(33));
    // And what goes on from there can be saved again, under the same name.
    let again = server.post(SAVED, json!({ "name": "trip", "thread_id": thread, "description": "June" })).await;
    let again = again.expect(200);
    assert_eq!((&again["created_at"], &again["message_count"]), (&saved["created_at"], &json!(6)));
    assert!(again["updated_at"].as_str() > saved["updated_at"].as_str());
}

#[tokio::test]
async fn a_thread_that_has_a_state_is_not_overwritten() {
    let ground = Ground::new();
    let server = ground.server().await;
    server.create(json!({ "thread_id": "t" })).await;
    server.post(SAVED, save_of("trip", "t")).await.expect(201);
    let to = |thread: &str| (format!("{SAVED}/trip/restore"), json!({ "thread_id": thread }));
    let (path, body) = to("t");
    let made = server.post(&path, body.clone()).await.expect(201);
    assert_eq!((&made["thread_id"], &made["fallback"]), (&json!("t"), &json!(true)));
    assert_eq!(server.post(&path, body).await.refused(409, "thread_exists")["field"], "thread_id");
    server.post(&path, json!({ "thread_id": "a/b" })).await.refused(400, "invalid_request");
    server.post(&format!("{SAVED}/none/restore"), json!({})).await.refused(404, "not_found");
    server.post(SAVED, save_of("trip", "nothing-here")).await.refused(404, "not_found");
}

#[tokio::test]
async fn a_state_of_another_framework_comes_back_to_the_byte_and_our_agent_goes_on_too() {
    let (models, config) = listener(&["so be it"]).await;
    let ground = Ground::new();
    let server = ground.setup(&config).start().await;
    let said = json!([
        { "type": "human", "content": "plan a trip", "id": "h1", "additional_kwargs": {} },
        { "type": "ai", "content": [{ "type": "text", "text": "to " }, { "type": "mood", "mood": "glad" }],
          "tool_calls": [{ "id": "c1", "name": "search", "args": { "q": "Rome" }, "type": "tool_call" }] },
        { "type": "tool", "content": "Rome is warm", "tool_call_id": "c1" },
        { "type": "ai", "content": "Rome" },
    ]);
    let id = "1f0a0000-0000-6000-8000-000000000001";
    let value = json!({ "v": 4, "ts": "2026-06-01T00:00:00Z", "channel_values": { "step_count": 3 },
        "versions_seen": { "node": { "messages": "0001.a" } } });
    let checkpoint = json!({
        "checkpoint": { "t": "json", "b": json_blob("", &value)["b"] },
        "metadata": { "source": "loop", "step": 3 },
        "versions": { "messages": "0001.a", "notes": 2, "step_count": "0002.b" },
        "blobs": { "messages": json_blob("0001.a", &said), "notes": { "version": 2, "t": "json", "b": "WzEsMl0=" } },
    });
    server.put_checkpoint("t", id, checkpoint.clone()).await;
    assert_eq!(server.post(SAVED, save_of("rome", "t")).await.expect(201)["fallback"], false);
    let file = server.get(&format!("{SAVED}/rome")).await.expect(200);
    assert_eq!(file["thread"]["messages"][0], json!({ "role": "user", "content": "plan a trip", "id": "h1" }));
    assert_eq!(file["thread"]["metadata"]["version"], "1.0");
    assert_eq!(file["thread"]["metadata"]["state"]["thread_id"], "t");

    let made = server.post(&format!("{SAVED}/rome/restore"), json!({ "thread_id": "u" })).await.expect(201);
    assert_eq!(made["checkpoint_id"], id);
    let kept = server.checkpoint("u", id).await;
    for member in ["checkpoint", "versions", "blobs"] {
        assert_eq!(kept[member], checkpoint[member], "{member}");
    }
    assert_eq!((&kept["metadata"]["step"], &kept["metadata"]["saved_session"]), (&json!(3), &json!("rome")));

    let run = ask(&server, "assistant", "when?", json!({ "thread_id": "u" })).await;
    assert_eq!(response(&server, &run).await, "so be it");
    let heard = heard(&models, 0);
    assert_eq!((heard.len(), &heard[0], &heard[4]), (5, &pair("user", "plan a trip"), &pair("user", "when?")));
    assert!(heard[1].1.contains("glad"), "{heard:?}");
    assert_eq!(heard[2], pair("tool", "Rome is warm"));
}

#[tokio::test]
async fn what_workers_said_on_the_thread_is_not_the_conversation() {
    let ground = Ground::new();
    let server = ground.server().await;
    let chief = server.create(json!({ "thread_id": "t", "role": "supervisor" })).await;
    let hand = server.create(json!({ "parent_run_id": chief, "role": "worker" })).await;
    assert_eq!(server.run(&hand).await["thread_id"], "t", "it inherits the thread");
    let elsewhere = server.create(json!({ "thread_id": "other" })).await;
    let guest = server.create(json!({ "parent_run_id": elsewhere, "role": "worker", "thread_id": "t" })).await;
    for (run, text) in [(&chief, "chief"), (&hand, "hand"), (&guest, "guest")] {
        let said = json!([
            { "type": "tool.started", "span_id": "call", "payload": { "name": format!("{text}_tool"), "args": {} } },
            { "type": "message.completed", "span_id": "m", "payload": { "role": "assistant", "content": text } },
        ]);
        server.emit(run, said).await;
    }
    server.put_checkpoint("t", "1", json!({ "checkpoint": foreign() })).await;
    assert_eq!(server.post(SAVED, save_of("trip", "t")).await.expect(201)["fallback"], true);
    let file = server.get(&format!("{SAVED}/trip")).await.expect(200);
    let message = |text: &str| {
        json!({ "role": "assistant", "content": text,
                "tool_calls": [{ "id": "call", "name": format!("{text}_tool"), "args": {} }] })
    };
    assert_eq!(file["thread"]["messages"], json!([message("chief"), message("guest")]));
    assert_eq!(file["thread"]["metadata"], json!({ "fallback": true, "version": "1.0" }));
}

#[tokio::test]
async fn a_message_that_was_too_large_for_its_event_is_kept_whole() {
    let ground = Ground::new();
    let server = ground.server().await;
    let run = server.create(json!({ "thread_id": "t" })).await;
    let long = "a long story ".repeat(10_000);
    let said = json!({ "type": "message.completed", "payload": { "role": "user", "content": long } });
    server.emit(&run, said).await;
    assert!(server.events(&run).await.iter().any(|event| event.contains("$artifact")));
    assert_eq!(server.post(SAVED, save_of("trip", "t")).await.expect(201)["message_count"], 1);
    let file = server.get(&format!("{SAVED}/trip")).await.expect(200);
    assert_eq!(file["thread"]["messages"], json!([{ "role": "user", "content": long }]));
    assert_eq!(file["first_message"].as_str().unwrap().chars().count(), 201);
}

#[tokio::test]
async fn a_session_that_was_edited_goes_on_as_edited() {
    let (models, config) = listener(&["one", "yes"]).await;
    let ground = Ground::new();
    let server = ground.setup(&config).start().await;
    let run = ask(&server, "assistant", "my name is Ann", json!({ "thread_id": "t" })).await;
    response(&server, &run).await;
    server.post(SAVED, save_of("trip", "t")).await.expect(201);
    let text = std::fs::read_to_string(ground.file("trip.json")).unwrap();
    std::fs::write(ground.file("trip.json"), text.replace("my name is Ann", "my name is Bob")).unwrap();
    assert_eq!(server.get(SAVED).await.expect(200)["saved_sessions"][0]["first_message"], "my name is Bob");
    let made = server.post(&format!("{SAVED}/trip/restore"), json!({ "thread_id": "u" })).await.expect(201);
    assert_eq!(made["fallback"], false);
    let run = ask(&server, "assistant", "who am I?", json!({ "thread_id": "u" })).await;
    response(&server, &run).await;
    assert_eq!(heard(&models, 1)[0], pair("user", "my name is Bob"));
    assert_eq!(messages(&server, "u").await.len(), 4);
}
