//! Checkpoints that mean harm, folders that cannot be used, and many who want the same at once.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures::future::join_all;
use serde_json::{Value, json};

use super::{Ground, SAVED, foreign, heard, json_blob, listener, save_of};
use crate::{
    agents::{ask, response},
    support::{server::Server, threads::column},
};

/// A run on the thread `t` with a message of a user, which makes the thread one that can be saved.
async fn talk(server: &Server, text: &str) {
    let run = server.create(json!({ "thread_id": "t" })).await;
    server.emit(&run, json!({ "type": "message.completed", "payload": { "role": "user", "content": text } })).await;
}

#[tokio::test]
async fn a_checkpoint_that_is_a_tower_of_models_is_saved_by_the_log_and_harms_nobody() {
    let ground = Ground::new();
    let server = ground.server().await;
    talk(&server, "hi").await;
    let tower = (0..50_000).fold(vec![0xc0], |inner: Vec<u8>, _| {
        let length = u32::try_from(inner.len()).unwrap().to_be_bytes();
        if inner.len() > 20_000 { inner } else { [&[0xc9][..], &length, &[5], &inner].concat() }
    });
    for (number, bytes) in [tower, vec![0x91; 100_000], [&[0xdd; 5][..], &[0xc0; 1_000]].concat()].iter().enumerate() {
        let blob = json!({ "version": number, "t": "msgpack", "b": STANDARD.encode(bytes) });
        let value = json!({ "t": "msgpack", "b": STANDARD.encode(bytes) });
        let checkpoint =
            json!({ "checkpoint": value, "versions": { "messages": number }, "blobs": { "messages": blob } });
        server.put_checkpoint("t", &number.to_string(), checkpoint).await;
        let name = format!("s{number}");
        let saved = server.post(SAVED, save_of(&name, "t")).await.expect(201);
        assert_eq!((&saved["fallback"], &saved["message_count"]), (&json!(true), &json!(1)));
    }
}

#[tokio::test]
async fn of_many_who_restore_to_one_thread_at_once_one_does() {
    let ground = Ground::new();
    let server = ground.server().await;
    talk(&server, "hi").await;
    server.post(SAVED, save_of("trip", "t")).await.expect(201);
    let path = format!("{SAVED}/trip/restore");
    for thread in ["t", "new"] {
        let replies = join_all((0..8).map(|_| server.post(&path, json!({ "thread_id": thread })))).await;
        let mut statuses: Vec<u16> = replies.iter().map(|reply| reply.status).collect();
        statuses.sort_unstable();
        assert_eq!(statuses, [201, 409, 409, 409, 409, 409, 409, 409], "{thread}");
        let kept = server.get(&format!("/api/threads/{thread}/checkpoints")).await.expect(200);
        assert_eq!(kept["checkpoints"].as_array().unwrap().len(), 1);
    }
}

#[tokio::test]
async fn a_folder_that_somebody_keeps_locked_is_read_and_not_waited_for_without_an_end() {
    let ground = Ground::new();
    let server = ground.server().await;
    talk(&server, "hi").await;
    server.post(SAVED, save_of("trip", "t")).await.expect(201);
    let lock = std::fs::File::open(ground.file(".lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    std::fs::copy(ground.file("trip.json"), ground.file("copy.json")).unwrap();
    let save = server.post(SAVED, save_of("more", "t"));
    let list = async { server.get(SAVED).await.expect(200) };
    let (saved, listed) = tokio::join!(save, list);
    assert_eq!(column(listed["saved_sessions"].as_array().unwrap(), "name"), ["copy", "trip"]);
    assert!(saved.headers.contains_key("retry-after"));
    saved.refused(503, "storage_unavailable");
    drop(lock);
    server.post(SAVED, save_of("more", "t")).await.expect(201);
}

#[tokio::test]
async fn what_is_wrong_with_the_folder_is_told_as_such_and_an_index_that_cannot_be_written_is_no_failure() {
    let ground = Ground::new();
    let server = ground.server().await;
    talk(&server, "hi").await;
    server.post(SAVED, save_of("trip", "t")).await.expect(201);
    std::fs::remove_file(ground.file("index.json")).unwrap();
    for dir in ["index.json/in", "full.json/in"] {
        std::fs::create_dir_all(ground.file(dir)).unwrap();
    }
    server.post(SAVED, save_of("trip", "t")).await.expect(200);
    server.post(SAVED, save_of("more", "t")).await.expect(201);
    server.delete(&format!("{SAVED}/more")).await.expect(204);
    assert_eq!(column(server.get(SAVED).await.expect(200)["saved_sessions"].as_array().unwrap(), "name"), ["trip"]);
    let file = json!({ "thread": { "messages": [] } }).to_string();
    server.put_text(&format!("{SAVED}/full"), file.clone()).await.refused(503, "storage_unavailable");
    server.delete(&format!("{SAVED}/full")).await.refused(503, "storage_unavailable");
    std::fs::remove_file(ground.file(".lock")).unwrap();
    std::fs::create_dir(ground.file(".lock")).unwrap();
    server.put_text(&format!("{SAVED}/other"), file.clone()).await.refused(503, "storage_unavailable");
    server.get(SAVED).await.expect(200);
    std::fs::remove_dir_all(ground.folder()).unwrap();
    std::fs::write(ground.folder(), "a file").unwrap();
    let problem = server.put_text(&format!("{SAVED}/other"), file).await.refused(503, "storage_unavailable");
    assert!(problem["hint"].as_str().unwrap().contains("--sessions-dir"), "{problem}");
}

#[tokio::test]
async fn runs_are_told_in_the_order_in_which_they_were_made_whatever_they_are_called() {
    let ground = Ground::new();
    let server = ground.server().await;
    let soon = u128::try_from((chrono::Utc::now() + chrono::TimeDelta::hours(3)).timestamp_millis()).unwrap();
    let later = uuid::Uuid::from_u128(soon << 80 | 7 << 76 | 2 << 62 | 1);
    for (text, more) in
        [("first", json!({ "run_id": later, "thread_id": "t" })), ("second", json!({ "thread_id": "t" }))]
    {
        let run = server.create(more).await;
        // More than one look is needed for the first of them.
        let said = json!({ "type": "message.completed", "payload": { "role": "user", "content": text } });
        server.emit(&run, Value::from(vec![said; 150])).await;
    }
    assert_eq!(server.post(SAVED, save_of("trip", "t")).await.expect(201)["message_count"], 300);
    let file = server.get(&format!("{SAVED}/trip")).await.expect(200);
    let messages = file["thread"]["messages"].as_array().unwrap();
    assert!(messages[..150].iter().all(|message| message["content"] == "first"));
    assert!(messages[150..].iter().all(|message| message["content"] == "second"));
}

#[tokio::test]
async fn a_state_whose_messages_can_be_read_is_kept_whatever_else_is_in_it() {
    let (models, config) = listener(&["so be it"]).await;
    let ground = Ground::new();
    let server = ground.setup(&config).start().await;
    talk(&server, "from the log").await;
    let value = json!({ "t": "json", "b": STANDARD.encode("{\"v\":4}") });
    let messages = json!([{ "type": "human", "content": "one" }, { "type": "critic", "content": "two" }]);
    let blobs = |more: Value| {
        let mut blobs = json!({ "messages": json_blob("1", &messages) });
        blobs.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        blobs
    };
    // Messages, beside something that nobody reads.
    let odd = json!({ "version": "1", "t": foreign()["t"], "b": foreign()["b"] });
    let versions = json!({ "messages": "1", "odd": "1" });
    let checkpoint = json!({ "checkpoint": value, "versions": versions, "blobs": blobs(json!({ "odd": &odd })) });
    server.put_checkpoint("t", "1", checkpoint).await;
    let saved = server.post(SAVED, save_of("messages", "t")).await.expect(201);
    assert_eq!((&saved["fallback"], &saved["first_message"]), (&json!(false), &json!("one")));
    server.post(&format!("{SAVED}/messages/restore"), json!({ "thread_id": "odd" })).await.expect(201);
    let restored = server.get("/api/threads/odd/checkpoints/latest").await.expect(200);
    assert_eq!(restored["blobs"]["odd"], odd);
    // All of it, with somebody whom nobody here knows.
    let checkpoint = json!({ "checkpoint": value, "versions": { "messages": "1" }, "blobs": blobs(json!({})) });
    server.put_checkpoint("t", "2", checkpoint).await;
    assert_eq!(server.post(SAVED, save_of("critic", "t")).await.expect(201)["fallback"], false);
    assert_eq!(server.get(&format!("{SAVED}/critic")).await.expect(200)["thread"]["messages"][1]["role"], "critic");
    // A state without messages, with the log's.
    let notes = json!({ "notes": json_blob("1", &json!(["x"])) });
    let checkpoint = json!({ "checkpoint": value, "versions": { "notes": "1" }, "blobs": notes });
    server.put_checkpoint("t", "3", checkpoint).await;
    let saved = server.post(SAVED, save_of("notes", "t")).await.expect(201);
    assert_eq!((&saved["fallback"], &saved["first_message"]), (&json!(false), &json!("from the log")));
    for name in ["critic", "notes"] {
        server.post(&format!("{SAVED}/{name}/restore"), json!({ "thread_id": name })).await.expect(201);
    }
    let notes = server.get("/api/threads/notes/checkpoints/latest").await.expect(200);
    assert_eq!(notes["blobs"]["notes"]["b"], STANDARD.encode("[\"x\"]"));
    let run = ask(&server, "assistant", "go on", json!({ "thread_id": "critic" })).await;
    response(&server, &run).await;
    let said: Vec<String> = heard(&models, 0).into_iter().map(|(role, text)| format!("{role}: {text}")).collect();
    assert_eq!(said, ["user: one", "assistant: two", "user: go on"]);
}
