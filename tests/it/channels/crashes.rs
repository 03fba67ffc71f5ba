//! Deliveries that come twice, at once or after a crash; servers that stop in between; databases that were set back.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{WEB, accepted, answer, id, log, say};
use crate::support::{cluster::execute, server::setup, until};

fn message(message_id: &str) -> Value {
    json!({ "chat_id": "5", "user_id": "5", "text": "hello", "message_id": message_id })
}

#[tokio::test]
async fn a_delivery_that_comes_twice_starts_one_run() {
    let server = setup().config(WEB).start().await;
    let (_, first) = say(&server, "web", message("m1")).await;
    let (status, second) = say(&server, "web", message("m1")).await;
    assert_eq!(
        (status, &second["reason"], &second["router_run_id"]),
        (200, &json!("duplicate"), &first["router_run_id"])
    );
    let (status, _) = say(&server, "web", message("m2")).await;
    assert_eq!(status, 202, "another id is another message");
    for _ in 0..2 {
        accepted(&server, "hello").await;
    }
    assert_eq!(server.db.number("select count(*) from store.run where agent = 'echo'").await, 4);
    assert_eq!(server.db.number("select messages from store.session").await, 4);
}

#[tokio::test]
async fn of_many_deliveries_at_once_one_starts_a_run() {
    let server = setup().flags(&["--db-connections", "12"]).config(WEB).start().await;
    for round in 0..5 {
        let id = format!("m{round}");
        let all = (0..12).map(|_| say(&server, "web", message(&id)));
        let statuses: Vec<u16> = futures::future::join_all(all).await.into_iter().map(|(status, _)| status).collect();
        assert_eq!(statuses.iter().filter(|status| **status == 202).count(), 1, "{statuses:?}");
        assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 11, "{statuses:?}");
    }
    assert_eq!(server.db.number("select count(*) from store.run where agent = 'echo'").await, 5);
    assert_eq!(server.db.number("select count(*) from store.run where agent = 'router'").await, 5);
}

#[tokio::test]
async fn messages_at_once_in_a_new_chat_share_one_session() {
    let server = setup().flags(&["--db-connections", "12"]).config(WEB).start().await;
    let all = (0..12).map(|n| say(&server, "web", message(&format!("m{n}"))).map_body());
    let bodies = futures::future::join_all(all).await;
    assert!(bodies.iter().all(|body| body["session_id"] == bodies[0]["session_id"]));
    assert_eq!(server.db.number("select messages from store.session").await, 12);
}

trait Bodies: Future<Output = (u16, Value)> + Sized {
    async fn map_body(self) -> Value {
        self.await.1
    }
}

impl<T: Future<Output = (u16, Value)>> Bodies for T {}

#[tokio::test]
async fn a_delivery_whose_process_died_is_taken_up_again_and_not_lost() {
    let setup = setup().config(WEB);
    let server = setup.clone().start().await;
    let mut first = message("m1");
    first["ts"] = json!("2026-11-22T00:00:00Z");
    let (_, done) = say(&server, "web", first).await;
    let (db, owner) = (Arc::clone(&server.db), id(&server.run(&id(&done, "run_id")).await, "owner_id"));
    server.stop().await;
    // As a process leaves it that dies at each place: before anything, after the session, after the run.
    let mut connection = db.connect().await;
    execute(
        &mut connection,
        format!(
            "update store.inbound set state = 'open', lease_until = now() - interval '1 s', content =
               '{{\"inbound\":{{\"message_id\":\"m1\",\"chat_id\":\"5\",\"user_id\":\"5\",\"username\":null,\"text\":\"hello\",\
                 \"is_private\":true,\"reset_session\":false,\"addressed\":false,\"image\":null,\"at\":\"2026-11-22T00:00:00Z\"}},\
                 \"photo\":null,\"target\":null}}';
             insert into store.inbound (owner_id, channel, message_key, chat_id, content, router_run_id, run_id, received_at, lease_until)
             select '{owner}', 'web', '=m2', '5', replace(content::text, 'hello', 'second')::json, gen_random_uuid(), gen_random_uuid(), now(), now() from store.inbound"
        ),
    )
    .await;
    // Ids as the program makes them, so that the runs lie in a partition.
    for column in ["router_run_id", "run_id"] {
        let fresh = uuid::Uuid::now_v7();
        execute(&mut connection, format!("update store.inbound set {column} = '{fresh}' where message_key = '=m2'"))
            .await;
    }
    let server = setup.on(&db).start().await;
    db.until_number("both carried out", "select count(*) from store.inbound where state = 'done'", 2).await;
    assert_eq!(
        db.number("select count(*) from store.run where agent = 'echo'").await,
        2,
        "no second run for the first"
    );
    assert_eq!(db.number("select messages from store.session").await, 2);
    assert_eq!(log(&server, &id(&done, "session_id")).await.len(), 2, "nor a second line");
    assert_eq!(db.number("select count(*) from store.inbound where content is not null").await, 0);
}

#[tokio::test]
async fn a_conversation_goes_on_after_a_restart() {
    let setup = setup().config(WEB);
    let server = setup.clone().start().await;
    let first = accepted(&server, "hello").await;
    let db = Arc::clone(&server.db);
    server.stop().await;
    let server = setup.on(&db).start().await;
    answer(&server, &id(&first, "run_id"), "hi").await;
    let session = id(&first, "session_id");
    until("the answer in the log", || async { log(&server, &session).await.len() == 2 }).await;
    let second = accepted(&server, "again").await;
    assert_eq!((&second["session_id"], &second["thread_id"]), (&first["session_id"], &first["thread_id"]));
    assert_eq!(log(&server, &session).await.len(), 3);
}

#[tokio::test]
async fn no_thread_that_is_in_use_is_used_again() {
    let setup = setup().config(WEB);
    let server = setup.clone().start().await;
    // Threads that somebody made without the channel: with a run, with a checkpoint, and some that only look alike.
    server.create(json!({ "thread_id": "web_5" })).await;
    server.put_checkpoint("web_5_s3", "1", json!({ "checkpoint": { "t": "x" } })).await;
    for other in ["web_50", "web_5_s9x", "web_5_s07", "other_5_s8"] {
        server.create(json!({ "thread_id": other })).await;
    }
    let first = accepted(&server, "hello").await;
    assert_eq!(first["thread_id"], "web_5_s4");
    let db = Arc::clone(&server.db);
    server.stop().await;
    // A database that was set back: the counter is, what it counted is not.
    let mut connection = db.connect().await;
    execute(&mut connection, "update store.chat set counter = 1; delete from store.session".to_owned()).await;
    let server = setup.on(&db).start().await;
    assert_eq!(db.number("select counter from store.chat").await, 5, "raised at the start");
    assert_eq!(accepted(&server, "hello").await["thread_id"], "web_5_s5");
    execute(&mut connection, "update store.chat set counter = 0; delete from store.session".to_owned()).await;
    assert_eq!(accepted(&server, "hello").await["thread_id"], "web_5_s6", "and whenever a session is made");
}

#[tokio::test]
async fn a_restart_does_not_end_a_session_by_raising_its_counter() {
    let setup = setup().config("[channels.web]\n[channels.one]\nthread_per_session = false\n");
    let server = setup.clone().start().await;
    let of = |channel: &'static str| (channel, json!({ "chat_id": "5", "user_id": "5", "text": "hello" }));
    let mut before = Vec::new();
    for (channel, message) in [of("web"), of("one")] {
        before.push(say(&server, channel, message).await.1);
    }
    let path = format!("/api/sessions/{}/end", id(&before[1], "session_id"));
    server.post(&path, json!({})).await.expect(200);
    let db = Arc::clone(&server.db);
    server.stop().await;
    let server = setup.on(&db).start().await;
    let (channel, message) = of("web");
    assert_eq!(say(&server, channel, message).await.1["session_id"], before[0]["session_id"]);
    let (channel, message) = of("one");
    let after = say(&server, channel, message).await.1;
    assert_eq!(after["thread_id"], "one_5", "the channel keeps its thread");
    assert_ne!(after["session_id"], before[1]["session_id"]);
}
