//! Telegram, against a Bot API of ours: updates in, answers out, whatever its mood.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};

use super::{answer, id, log, story};
use crate::support::{
    api::Api,
    server::{Server, Setup, manual_clock, setup},
    telegram::{Mood, Telegram, private},
    until,
};

const CONFIG: &str = "[channels.telegram]\nagent = \"echo\"\ntrigger = \"@reel_bot\"\n";

pub fn with(telegram: &Telegram) -> Setup {
    setup().config(CONFIG).telegram(&telegram.base)
}

/// Answers that were tried and will be again soon; one that is being tried has a longer lease.
const PUT_OFF: &str =
    "select count(*) from store.reply where lease_until > created_at and lease_until < created_at + interval '29 s'
    and attempts = 1 and done_at is null";

/// The agent's runs, oldest first, once there are so many.
pub async fn runs(server: &Server, count: usize) -> Vec<Value> {
    let list = || async { server.get("/api/runs?agent=echo").await.expect(200)["runs"].as_array().unwrap().clone() };
    until("runs", || async { list().await.len() >= count }).await;
    let mut runs = list().await;
    assert_eq!(runs.len(), count);
    runs.reverse();
    runs
}

pub fn text(run: &Value) -> &str {
    run["input"]["messages"][0]["content"][0]["text"].as_str().unwrap()
}

/// What became of the messages that started nothing, newest first.
async fn reasons(api: &Api) -> Vec<String> {
    let runs = api.get("/api/runs?role=router").await.expect(200)["runs"].as_array().unwrap().clone();
    runs.iter().filter_map(|run| run["output"]["reason"].as_str().map(str::to_owned)).collect()
}

#[tokio::test]
async fn a_conversation_over_telegram() {
    let telegram = Telegram::start().await;
    let server = with(&telegram).start().await;
    server.update(private(1, "hello")).await.expect(200);
    let run = runs(&server, 1).await.remove(0);
    assert_eq!((&run["thread_id"], text(&run)), (&json!("telegram_5"), "[2026-05-28T20:26:40Z] [ann]: hello"));
    answer(&server, &id(&run, "run_id"), "hi Ann").await;
    assert_eq!(telegram.texts(1).await, ["hi Ann"]);
    assert_eq!(telegram.sent()[0], json!({ "chat_id": 5, "text": "hi Ann" }));
    server.update(private(2, "/new")).await.expect(200);
    assert!(telegram.texts(2).await[1].starts_with("A new session"));
    server.update(private(3, "again")).await.expect(200);
    let second = runs(&server, 2).await.remove(1);
    assert_eq!(second["thread_id"], "telegram_5_s1");
    let lines = log(&server, &id(&run, "session_id")).await;
    assert_eq!(lines, [("user".to_owned(), json!("hello")), ("assistant".to_owned(), json!("hi Ann"))]);
    let (steps, _) = story(&server, &run["metadata"]).await;
    assert_eq!(steps, ["resolve", "start"]);
}

#[tokio::test]
async fn only_with_the_secret_and_only_where_it_is_set_up() {
    let telegram = Telegram::start().await;
    let server = with(&telegram).start().await;
    for wrong in ["", "the-secret-of-the-webhoo", "THE-SECRET-OF-THE-WEBHOOK"] {
        server.update_as(private(1, "hello"), wrong).await.refused(401, "unauthorized");
    }
    server.post("/api/channels/telegram/webhook", private(1, "hello")).await.refused(401, "unauthorized");
    assert_eq!(server.db.number("select count(*) from store.inbound").await, 0);
    let plain = setup().config(CONFIG).start().await;
    plain.update(private(1, "hello")).await.refused(404, "not_found");
}

#[tokio::test]
async fn updates_that_say_nothing_to_the_bot_are_taken_and_forgotten() {
    let telegram = Telegram::start().await;
    let server = with(&telegram).start().await;
    let mut edited = private(1, "hello");
    edited["edited_message"] = edited["message"].take();
    for update in [
        edited,
        json!({ "update_id": 2, "poll": { "id": "x" } }),
        json!({}),
        json!({ "update_id": "x" }),
        json!({ "update_id": 3, "message": 1 }),
    ] {
        server.update(update).await.expect(200);
    }
    server.post_text("/api/channels/telegram/webhook", "text/plain", "x").await.refused(401, "unauthorized");
    let mut large = private(4, "hello");
    large["message"]["caption"] = json!("x".repeat(1024 * 1024));
    server.update(large).await.refused(413, "too_large");
    assert_eq!(server.db.number("select count(*) from store.inbound").await, 0);
}

#[tokio::test]
async fn a_message_with_a_token_of_this_server_is_taken_and_forgotten() {
    let telegram = Telegram::start().await;
    let config = format!("{CONFIG}owner_sub = \"bot\"\n");
    let server = setup().config(&config).telegram(&telegram.base).jwt().start().await;
    let token = server.as_subject("ann").token.clone().unwrap();
    server.update(private(1, &format!("is {token} good?"))).await.expect(200);
    assert_eq!(server.db.number("select count(*) from store.inbound").await, 0);
    server.update(private(2, "is it good?")).await.expect(200);
    assert_eq!(server.db.number("select count(*) from store.inbound").await, 1);
}

#[tokio::test]
async fn an_update_that_comes_again_is_one_message() {
    let telegram = Telegram::start().await;
    let server = with(&telegram).start().await;
    let all = (0..8).map(|_| server.update(private(1, "hello")));
    assert!(futures::future::join_all(all).await.iter().all(|reply| reply.status == 200));
    let run = runs(&server, 1).await.remove(0);
    answer(&server, &id(&run, "run_id"), "hi").await;
    telegram.texts(1).await;
    server.update(private(1, "hello")).await.expect(200);
    server.update(private(2, "more")).await.expect(200);
    runs(&server, 2).await;
    assert_eq!(telegram.sent().len(), 1);
}

#[tokio::test]
async fn in_groups_it_hears_what_is_said_to_it() {
    let telegram = Telegram::start().await;
    let server = with(&telegram).start().await;
    let group = |update_id: i64, members: Value| {
        let mut update = private(update_id, "");
        let message = update["message"].as_object_mut().unwrap();
        message.insert("chat".to_owned(), json!({ "id": -100, "type": "supergroup" }));
        message.extend(members.as_object().unwrap().clone());
        update
    };
    server.update(group(1, json!({ "text": "hello all" }))).await.expect(200);
    server.update(group(2, json!({ "text": "@REEL_bot what?" }))).await.expect(200);
    let reply = json!({ "text": "and then?", "reply_to_message": { "from": { "id": 42, "is_bot": true } } });
    server.update(group(3, reply)).await.expect(200);
    server.update(group(4, json!({ "text": "/new@other_bot" }))).await.expect(200);
    server.update(group(5, json!({ "text": "/new@Reel_bot" }))).await.expect(200);
    let runs = runs(&server, 2).await;
    assert!(text(&runs[0]).ends_with("]: what?") && text(&runs[1]).ends_with("]: and then?"), "in their order");
    until("what was not heard", || async { reasons(&server).await == ["session_reset", "no_trigger", "no_trigger"] })
        .await;
    answer(&server, &id(&runs[0], "run_id"), "that").await;
    let sent = telegram.texts(2).await;
    assert!(sent.contains(&"that".to_owned()));
    let answered = telegram.sent().into_iter().find(|message| message["text"] == "that").unwrap();
    assert_eq!((&answered["chat_id"], &answered["reply_parameters"]["message_id"]), (&json!(-100), &json!(2)));
}

#[tokio::test]
async fn a_photo_is_fetched_and_one_that_cannot_be_is_told_of() {
    let telegram = Telegram::start().await;
    telegram.holds("photos/file_1.png", b"\x89PNG\r\n\x1a\nhere");
    telegram.holds("photos/file_2.svg", b"<svg>");
    let server = with(&telegram).start().await;
    let photo = |update_id: i64, file: &str| {
        let mut update = private(update_id, "");
        let message = update["message"].as_object_mut().unwrap();
        message.remove("text");
        message.insert("caption".to_owned(), json!("look"));
        message.insert("photo".to_owned(), json!([{ "file_id": file, "width": 9, "height": 9, "file_size": 12 }]));
        update
    };
    for (n, file) in ["photos/file_1.png", "photos/file_2.svg", "nothing", "photos/../x"].into_iter().enumerate() {
        server.update(photo(n as i64 + 1, file)).await.expect(200);
    }
    let runs = runs(&server, 4).await;
    assert!(
        runs[0]["input"]["messages"][0]["content"][1]["url"].as_str().unwrap().starts_with("data:image/png;base64,")
    );
    for run in &runs[1..] {
        assert!(text(run).ends_with("]: look (an image could not be fetched)"), "{run}");
    }
}

#[tokio::test]
async fn a_long_answer_comes_in_pieces_each_once() {
    let telegram = Telegram::start().await;
    let clock = manual_clock();
    let server = with(&telegram).clock(&clock).start().await;
    server.update(private(1, "hello")).await.expect(200);
    let run = runs(&server, 1).await.remove(0);
    // Before the first piece it is told to wait, if not long.
    let long = format!("{}\n{}\n{}", "a".repeat(4_000), "😀".repeat(2_000), "c".repeat(4_000));
    telegram.next(Mood::TooMany { retry_after: 0 });
    answer(&server, &id(&run, "run_id"), &long).await;
    let texts = telegram.texts(3).await;
    assert_eq!(texts.concat(), long.replace('\n', ""));
}

#[tokio::test]
async fn it_waits_as_long_as_it_is_told_to() {
    let (telegram, clock) = (Telegram::start().await, manual_clock());
    let server = with(&telegram).clock(&clock).start().await;
    server.update(private(1, "hello")).await.expect(200);
    let run = runs(&server, 1).await.remove(0);
    telegram.next(Mood::TooMany { retry_after: 40 });
    answer(&server, &id(&run, "run_id"), "hi").await;
    telegram.until_calls(1).await;
    let open = "select count(*) from store.reply where done_at is null and lease_until = created_at + interval '40 s'";
    server.db.until_number("it is put off", open, 1).await;
    server.pass(Duration::from_secs(39));
    assert!(telegram.sent().is_empty());
    server.pass(Duration::from_secs(1));
    assert_eq!(telegram.texts(1).await, ["hi"]);
    server.db.until_number("it is done", "select count(*) from store.reply where done_at is not null", 1).await;
}

#[tokio::test]
async fn troubles_pass_and_a_user_who_has_gone_ends_it() {
    let (telegram, clock) = (Telegram::start().await, manual_clock());
    let server = with(&telegram).clock(&clock).start().await;
    for (n, text) in [(1, "one"), (2, "two")] {
        server.update(private(n, text)).await.expect(200);
    }
    let runs = runs(&server, 2).await;
    telegram.next(Mood::Broken);
    answer(&server, &id(&runs[0], "run_id"), "first").await;
    telegram.until_calls(1).await;
    let put_off = PUT_OFF;
    server.db.until_number("it is put off", put_off, 1).await;
    server.pass(Duration::from_secs(61));
    assert_eq!(telegram.texts(1).await, ["first"]);
    telegram.next(Mood::Blocked);
    answer(&server, &id(&runs[1], "run_id"), "second").await;
    let given_up =
        "select count(*) from store.reply where failure like '%blocked by the user%' and done_at is not null";
    server.db.until_number("it is given up", given_up, 1).await;
    assert_eq!(server.db.number("select count(*) from store.reply where failure like '%nobody-may-see%'").await, 0);
    assert_eq!(telegram.sent().len(), 1);
}

#[tokio::test]
async fn an_answer_survives_a_restart_between_the_question_and_the_run_and_after_it() {
    let telegram = Telegram::start().await;
    let setup = with(&telegram);
    let server = setup.clone().start().await;
    for (n, text) in [(1, "one"), (2, "two")] {
        server.update(private(n, text)).await.expect(200);
    }
    let runs = runs(&server, 2).await;
    let db = Arc::clone(&server.db);
    server.stop().await;
    // Another process, without Telegram, ends a run meanwhile, and leaves the answer to who can give it.
    let other = crate::support::server::setup().config(CONFIG).on(&db).start().await;
    answer(&other, &id(&runs[0], "run_id"), "first").await;
    other.stop().await;
    assert_eq!(db.number("select count(*) from store.reply where done_at is null and attempts = 0").await, 2);
    let server = setup.on(&db).start().await;
    assert_eq!(telegram.texts(1).await, ["first"]);
    answer(&server, &id(&runs[1], "run_id"), "second").await;
    assert_eq!(telegram.texts(2).await, ["first", "second"]);
    db.until_number("both done", "select count(*) from store.reply where done_at is not null and failure is null", 2)
        .await;
}

#[tokio::test]
async fn an_answer_whose_receipt_was_lost_is_sent_again_and_stands_once_in_the_log() {
    let (telegram, clock) = (Telegram::start().await, manual_clock());
    let server = with(&telegram).clock(&clock).start().await;
    server.update(private(1, "hello")).await.expect(200);
    let run = runs(&server, 1).await.remove(0);
    telegram.next(Mood::Silent);
    answer(&server, &id(&run, "run_id"), "hi").await;
    server.db.until_number("it is put off", PUT_OFF, 1).await;
    telegram.until_calls(1).await;
    server.pass(Duration::from_mins(2));
    assert_eq!(telegram.texts(2).await, ["hi", "hi"], "at least once");
    assert_eq!(log(&server, &id(&run, "session_id")).await.len(), 2);
}

#[tokio::test]
async fn a_run_that_failed_is_told_of() {
    let telegram = Telegram::start().await;
    let server = with(&telegram).start().await;
    server.update(private(1, "hello")).await.expect(200);
    let run = id(&runs(&server, 1).await[0], "run_id");
    server
        .emit(&run, json!([{ "type": "run.started" }, { "type": "run.failed", "payload": { "error": "secret" } }]))
        .await;
    assert_eq!(telegram.texts(1).await, ["Something went wrong and there is no answer."]);
}

#[tokio::test]
async fn with_authentication_the_messages_belong_to_the_subject_of_the_configuration() {
    let telegram = Telegram::start().await;
    let server =
        setup().jwt().config(&format!("{CONFIG}owner_sub = \"alice\"\n")).telegram(&telegram.base).start().await;
    server.update(private(1, "hello")).await.expect(200);
    let (alice, bob) = (server.as_subject("alice"), server.as_subject("bob"));
    until("the run", || async { alice.get("/api/sessions").await.expect(200)["sessions"][0].is_object() }).await;
    assert_eq!(bob.get("/api/sessions").await.expect(200)["sessions"], json!([]));
}
