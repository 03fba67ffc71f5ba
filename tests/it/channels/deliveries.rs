//! Deliveries: what is one message and what is another, whose it is while it is under way, how soon its answer is there.

use std::time::Duration;

use serde_json::{Value, json};

use super::{WEB, accepted, answer, id, log, say};
use crate::support::{
    patiently,
    server::{Server, setup},
    telegram::{Mood, Telegram, private},
    until,
};

fn message(chat: &str, message_id: &str) -> Value {
    json!({ "chat_id": chat, "user_id": "5", "text": "hello", "message_id": message_id })
}

/// The members of an object, in order.
fn members(body: &Value) -> Vec<&str> {
    let mut members: Vec<&str> = body.as_object().unwrap().keys().map(String::as_str).collect();
    members.sort_unstable();
    members
}

#[tokio::test]
async fn an_id_of_a_message_is_its_chats_own() {
    let server = setup().config("[channels.web]\nagent = \"echo\"\n[channels.mail]\nagent = \"echo\"\n").start().await;
    for (channel, chat, message_id) in [
        ("web", "5", "m"),
        ("web", "6", "m"),
        ("mail", "5", "m"),
        ("web", "ab", "c"),
        ("web", "a", "bc"),
        ("web", "a=", "bc"),
    ] {
        let (status, body) = say(&server, channel, message(chat, message_id)).await;
        assert_eq!(status, 202, "{channel} {chat} {message_id}: {body}");
        let (status, again) = say(&server, channel, message(chat, message_id)).await;
        assert_eq!((status, &again["reason"]), (200, &json!("duplicate")), "{channel} {chat} {message_id}");
    }
}

#[tokio::test]
async fn a_duplicate_leads_to_the_run_of_the_first_delivery() {
    let server = setup().config(WEB).start().await;
    let (_, first) = say(&server, "web", message("5", "m1")).await;
    let (status, again) = say(&server, "web", message("5", "m1")).await;
    assert_eq!((status, &again["outcome"], &again["reason"]), (200, &json!("filtered"), &json!("duplicate")));
    assert_eq!(
        members(&again),
        ["outcome", "reason", "router_run_id", "run_id", "session_id", "stream_url", "thread_id"]
    );
    for name in ["router_run_id", "run_id", "session_id", "stream_url", "thread_id"] {
        assert_eq!(again[name], first[name], "{name}");
    }
    let api = server.api.clone();
    let asked =
        tokio::spawn(
            async move { api.post("/api/channels/web/messages?wait=1", message("5", "m1")).await.expect(200) },
        );
    answer(&server, &id(&first, "run_id"), "hi").await;
    let waited = patiently("the answer", asked).await.unwrap();
    assert_eq!((&waited["response"], &waited["status"]), (&json!("hi"), &json!("completed")));
    assert_eq!((&waited["reason"], &waited["run_id"]), (&json!("duplicate"), &first["run_id"]));
}

#[tokio::test]
async fn a_duplicate_of_what_started_nothing_leads_nowhere() {
    let server = setup().config(WEB).start().await;
    let mut reset = message("5", "m1");
    reset["text"] = json!("/new");
    let (_, first) = say(&server, "web", reset.clone()).await;
    let (_, again) = say(&server, "web", reset.clone()).await;
    let expected = json!({ "outcome": "filtered", "reason": "duplicate", "router_run_id": first["router_run_id"] });
    assert_eq!((&first["reason"], &again), (&json!("session_reset"), &expected));
    let waited = server.post("/api/channels/web/messages?wait=true", reset).await.expect(200);
    assert_eq!((members(&waited).len(), &waited["response"]), (4, &Value::Null));
}

#[tokio::test]
async fn of_deliveries_at_once_each_is_told_of_the_same_run() {
    let server = setup().flags(&["--db-connections", "12"]).config(WEB).start().await;
    let all = futures::future::join_all((0..8).map(|_| say(&server, "web", message("5", "m1")))).await;
    assert_eq!(all.iter().filter(|(status, _)| *status == 202).count(), 1);
    let run = id(&all[0].1, "run_id");
    assert!(all.iter().all(|(_, body)| body["run_id"] == json!(run)), "{all:?}");
}

#[tokio::test]
async fn an_answer_is_in_the_log_as_soon_as_its_run_has_ended() {
    // Nobody looks without being told, not within the test.
    let server: Server = setup().config(WEB).flags(&["--poll-ms", "60000"]).start().await;
    for n in 1..=7 {
        let body = accepted(&server, "hello").await;
        answer(&server, &id(&body, "run_id"), "hi").await;
        let session = id(&body, "session_id");
        until("the answer in the log", || async { log(&server, &session).await.len() == 2 * n }).await;
    }
}

#[tokio::test]
async fn an_answer_that_takes_longer_than_its_lease_is_nobody_elses() {
    let telegram = Telegram::start().await;
    let config = "[channels.telegram]\nagent = \"echo\"\n";
    let setup = setup().config(config).telegram(&telegram.base).flags(&["--lease-ms", "2000"]);
    let server = setup.clone().start().await;
    let other = setup.on(&server.db).start().await;
    telegram.next(Mood::Slow);
    server.update(private(1, "hello")).await.expect(200);
    let list = || async { server.get("/api/runs?agent=echo").await.expect(200)["runs"].clone() };
    until("the run", || async { list().await[0].is_object() }).await;
    answer(&server, &id(&list().await[0], "run_id"), "hi").await;
    telegram.until_calls(1).await;
    let renewed = "select count(*) from store.reply where lease_until > created_at + interval '4 s' and attempts = 1";
    server.db.until_number("it is renewed", renewed, 1).await;
    telegram.go_on();
    let done = "select count(*) from store.reply where done_at is not null and parts_sent = 1";
    server.db.until_number("it is given", done, 1).await;
    assert_eq!((telegram.calls(), telegram.sent().len()), (1, 1));
    other.stop().await;
}

#[tokio::test]
async fn what_a_dead_process_had_waits_for_its_lease_and_no_longer() {
    let clock = crate::support::server::manual_clock();
    let setup = setup().config(WEB).clock(&clock).flags(&["--lease-ms", "5000"]);
    let server = setup.start().await;
    let (_, first) = say(&server, "web", message("5", "m1")).await;
    let mut connection = server.db.connect().await;
    // As it is left by a process that was killed right after it had taken the message in.
    let now = clock.now().to_rfc3339();
    crate::support::cluster::execute(
        &mut connection,
        format!(
            "insert into store.inbound (owner_id, channel, message_key, chat_id, content, router_run_id, run_id, received_at, lease_until)
             select owner_id, 'web', '#x', '6', '{{\"inbound\":{{\"message_id\":null,\"chat_id\":\"6\",\"user_id\":\"5\",\"username\":null,\
                 \"text\":\"second\",\"is_private\":true,\"reset_session\":false,\"addressed\":false,\"image\":null,\
                 \"at\":\"2026-11-22T00:00:00Z\"}},\"photo\":null,\"target\":null}}',
                 '{}', '{}', '{now}', '{now}'::timestamptz + interval '5 s'
             from store.inbound",
            uuid::Uuid::now_v7(),
            uuid::Uuid::now_v7()
        ),
    )
    .await;
    server.pass(Duration::from_millis(4_999));
    let (status, _) = say(&server, "web", message("5", "m2")).await;
    assert_eq!(status, 202);
    assert_eq!(server.db.number("select count(*) from store.inbound where state = 'open'").await, 1);
    server.pass(Duration::from_millis(1));
    server.db.until_number("it is taken up", "select count(*) from store.inbound where state = 'done'", 3).await;
    assert_eq!(server.get("/api/threads/web_6/runs").await.expect(200)["runs"].as_array().unwrap().len(), 1);
    assert_eq!(first["thread_id"], "web_5");
}
