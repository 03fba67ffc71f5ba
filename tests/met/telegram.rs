//! Updates of Telegram that are more, or less, than a text of a person in a chat that stays what it is.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};

use crate::{
    channels::{
        answer, id, log,
        telegram::{runs, text, with},
    },
    support::{
        server::{Server, manual_clock, setup},
        telegram::{Mood, Telegram, private},
        until,
    },
};

/// An update with these members in a group.
fn group(update_id: i64, chat: i64, members: Value) -> Value {
    let mut update = private(update_id, "");
    let message = update["message"].as_object_mut().unwrap();
    message.remove("text");
    message.insert("chat".to_owned(), json!({ "id": chat, "type": "supergroup", "title": "Friends" }));
    let Value::Object(members) = members else { panic!("the members of an object: {members}") };
    message.extend(members);
    update
}

fn command(text: &str, length: usize) -> Value {
    json!({ "text": text, "entities": [{ "type": "bot_command", "offset": 0, "length": length }] })
}

/// A piece of an album in the private chat.
fn piece(update_id: i64, album: &str, caption: Option<&str>) -> Value {
    let mut update = private(update_id, "");
    let message = update["message"].as_object_mut().unwrap();
    message.remove("text");
    message.insert("media_group_id".to_owned(), json!(album));
    message.insert("photo".to_owned(), json!([{ "file_id": format!("p{update_id}"), "width": 9, "height": 9 }]));
    message.extend(caption.map(|caption| ("caption".to_owned(), json!(caption))));
    update
}

/// The images that a run's agent is shown.
fn images(run: &Value) -> Vec<&Value> {
    run["input"]["messages"][0]["content"].as_array().unwrap()[1..].iter().collect()
}

async fn with_pictures() -> Telegram {
    let telegram = Telegram::start().await;
    for n in 1..=5_u8 {
        telegram.holds(&format!("p{n}"), &[&b"\x89PNG\r\n\x1a\n"[..], &[n]].concat());
    }
    telegram
}

#[tokio::test]
async fn a_command_that_names_the_bot_is_addressed_to_it_and_one_for_another_bot_is_not() {
    let telegram = Telegram::start().await;
    let server = with(&telegram).start().await;
    for (n, members) in [
        command("/ask@REEL_bot what", 13),
        command("/ask@other_bot what", 14),
        command("/ask what", 4),
        json!({ "caption": "/see@reel_bot 😀", "caption_entities": [{ "type": "bot_command", "offset": 0, "length": 13 }] }),
        command("/new@reel_bot", 13),
    ]
    .into_iter()
    .enumerate()
    {
        server.update(group(n as i64 + 1, -100, members)).await.expect(200);
    }
    let reset = "select count(*) from store.session where end_reason = 'reset'";
    server.db.until_number("the last command is carried out", reset, 1).await;
    let runs = runs(&server, 2).await;
    assert!(text(&runs[0]).ends_with("]: /ask what") && text(&runs[1]).ends_with("]: /see 😀"), "{runs:?}");
    assert_eq!(server.db.number("select count(*) from store.inbound").await, 4, "what is for another bot is not kept");
}

#[tokio::test]
async fn a_command_for_another_bot_is_not_ours_where_every_message_is() {
    let telegram = Telegram::start().await;
    let config = "[channels.telegram]\nagent = \"echo\"\nbot_username = \"reel_bot\"\n";
    let server = setup().config(config).telegram(&telegram.base).start().await;
    server.update(group(1, -100, command("/ask@other_bot what", 14))).await.expect(200);
    server.update(group(2, -100, json!({ "text": "hello" }))).await.expect(200);
    let runs = runs(&server, 1).await;
    assert!(text(&runs[0]).ends_with("]: hello"), "{runs:?}");
}

#[tokio::test]
async fn the_pieces_of_an_album_are_one_message() {
    let (telegram, clock) = (with_pictures().await, manual_clock());
    let server = with(&telegram).clock(&clock).start().await;
    // Out of order, and one of them twice.
    for n in [2, 1, 3, 2] {
        server.update(piece(n, "a", (n == 1).then_some("look"))).await.expect(200);
    }
    // Runs that began at one time are listed by their ids, which have the time of arrival.
    server.pass(Duration::from_millis(1));
    server.update(private(4, "and?")).await.expect(200);
    server.pass(Duration::from_secs(2));
    let both = runs(&server, 2).await;
    let urls: Vec<&str> = images(&both[0]).iter().map(|image| image["url"].as_str().unwrap()).collect();
    assert_eq!((text(&both[0]).ends_with("]: look"), urls.len()), (true, 3), "{both:?}");
    assert!(urls.iter().all(|url| url.starts_with("data:image/png;base64,")));
    assert!(urls[0] != urls[1] && urls[1] != urls[2]);
    assert!(text(&both[1]).ends_with("]: and?"), "what came after it waits for it");
    // Delivered once more, each is known; one that comes too late is not lost.
    server.update(piece(2, "a", None)).await.expect(200);
    server.update(piece(5, "a", Some("late"))).await.expect(200);
    server.update(piece(5, "a", Some("late"))).await.expect(200);
    let all = runs(&server, 3).await;
    assert!(text(&all[2]).ends_with("]: late") && images(&all[2]).len() == 1, "{all:?}");
    let lines = log(&server, &id(&all[0], "session_id")).await;
    assert_eq!((lines.len(), lines[0].1.as_array().unwrap().len()), (3, 4), "{lines:?}");
}

#[tokio::test]
async fn an_album_in_a_group_is_heard_by_the_mention_in_one_of_its_pieces() {
    let (telegram, clock) = (with_pictures().await, manual_clock());
    let server = with(&telegram).clock(&clock).start().await;
    for n in [1, 2] {
        let mut update = piece(n, "a", (n == 2).then_some("@reel_bot which?"));
        update["message"]["chat"] = json!({ "id": -100, "type": "group" });
        if n == 2 {
            update["message"]["caption_entities"] = json!([{ "type": "mention", "offset": 0, "length": 9 }]);
        }
        server.update(update).await.expect(200);
    }
    server.pass(Duration::from_secs(2));
    let run = runs(&server, 1).await.remove(0);
    assert_eq!((text(&run).ends_with("]: which?"), images(&run).len()), (true, 2), "{run}");
    answer(&server, &id(&run, "run_id"), "this").await;
    telegram.texts(1).await;
    assert_eq!(telegram.sent()[0]["reply_parameters"]["message_id"], 1, "the first piece is answered");
}

#[tokio::test]
async fn an_album_whose_pieces_reach_two_servers_before_and_after_a_restart_is_one_message() {
    let (telegram, clock) = (with_pictures().await, manual_clock());
    let setup = with(&telegram).clock(&clock);
    let server = setup.clone().start().await;
    server.update(piece(1, "a", Some("look"))).await.expect(200);
    let db = Arc::clone(&server.db);
    server.stop().await;
    let (one, other) = (setup.clone().on(&db).start().await, setup.on(&db).start().await);
    one.update(piece(2, "a", None)).await.expect(200);
    other.update(piece(3, "a", None)).await.expect(200);
    one.pass(Duration::from_secs(2));
    let run = runs(&one, 1).await.remove(0);
    assert_eq!(images(&run).len(), 3, "{run}");
    other.stop().await;
}

#[tokio::test]
async fn an_administrator_who_writes_as_the_group_is_a_person() {
    let telegram = Telegram::start().await;
    let server = with(&telegram).start().await;
    let anonymous = |update_id: i64, sender: i64| {
        group(
            update_id,
            -100,
            json!({
            "text": "@reel_bot hi", "author_signature": "the boss", "sender_chat": { "id": sender, "type": "supergroup" },
            "from": { "id": 1_087_968_824, "is_bot": true, "username": "GroupAnonymousBot" } }),
        )
    };
    server.update(anonymous(1, -200)).await.expect(200);
    server.update(anonymous(2, -100)).await.expect(200);
    let run = runs(&server, 1).await.remove(0);
    assert!(text(&run).ends_with("[the boss]: hi"), "{run}");
}

#[tokio::test]
async fn an_answer_to_a_topic_that_was_deleted_goes_to_the_chat() {
    let telegram = Telegram::start().await;
    let server = with(&telegram).start().await;
    let asked = json!({ "text": "@reel_bot hi", "message_thread_id": 9, "is_topic_message": true });
    server.update(group(1, -100, asked)).await.expect(200);
    let run = runs(&server, 1).await.remove(0);
    telegram.next(Mood::TopicGone);
    answer(&server, &id(&run, "run_id"), &format!("{}\n{}", "a".repeat(4_000), "b".repeat(4_000))).await;
    telegram.texts(2).await;
    assert!(telegram.sent().iter().all(|sent| sent.get("message_thread_id").is_none() && sent["chat_id"] == -100));
    assert_eq!(telegram.calls(), 3, "the rest is not sent there first");
    let done = "select count(*) from store.reply where done_at is not null and failure is null";
    server.db.until_number("it is given", done, 1).await;
}

async fn session_of(server: &Server, run: &Value) -> Value {
    server.get(&format!("/api/sessions/{}", id(run, "session_id"))).await.expect(200)
}

#[tokio::test]
async fn a_conversation_goes_on_when_its_group_becomes_a_supergroup() {
    let telegram = Telegram::start().await;
    let server = with(&telegram).start().await;
    server.update(group(1, -7, json!({ "text": "@reel_bot hi" }))).await.expect(200);
    runs(&server, 1).await;
    for _ in 0..2 {
        server.update(group(2, -7, json!({ "migrate_to_chat_id": -1007 }))).await.expect(200);
        server.update(group(3, -1007, json!({ "migrate_from_chat_id": -7 }))).await.expect(200);
    }
    server.update(group(4, -1007, json!({ "text": "@reel_bot again" }))).await.expect(200);
    let both = runs(&server, 2).await;
    assert_eq!((&both[1]["thread_id"], &both[1]["session_id"]), (&both[0]["thread_id"], &both[0]["session_id"]));
    assert_eq!(session_of(&server, &both[1]).await["chat_id"], "-1007");
    // Late, under the old id.
    server.update(group(5, -7, json!({ "text": "@reel_bot late" }))).await.expect(200);
    let all = runs(&server, 3).await;
    assert_eq!(all[2]["session_id"], all[0]["session_id"]);
    // Later sessions keep their place in the row of its threads.
    server.update(group(6, -1007, command("/new@reel_bot", 13))).await.expect(200);
    server.update(group(7, -1007, json!({ "text": "@reel_bot new" }))).await.expect(200);
    assert_eq!(runs(&server, 4).await[3]["thread_id"], "telegram_-7_s1");
}

#[tokio::test]
async fn an_answer_that_finds_its_group_moved_follows_it_and_so_does_the_conversation() {
    let telegram = Telegram::start().await;
    let server = with(&telegram).start().await;
    server.update(group(1, -7, json!({ "text": "@reel_bot hi" }))).await.expect(200);
    let first = runs(&server, 1).await.remove(0);
    telegram.next(Mood::Moved(-1007));
    answer(&server, &id(&first, "run_id"), &format!("{}\n{}", "a".repeat(4_000), "b".repeat(4_000))).await;
    telegram.texts(2).await;
    assert!(telegram.sent().iter().all(|sent| sent["chat_id"] == -1007), "{:?}", telegram.sent());
    assert_eq!(telegram.calls(), 3, "the rest is not sent there first");
    until("the session to have moved", || async { session_of(&server, &first).await["chat_id"] == "-1007" }).await;
    server.update(group(2, -1007, json!({ "text": "@reel_bot again" }))).await.expect(200);
    assert_eq!(runs(&server, 2).await[1]["session_id"], first["session_id"]);
}

#[tokio::test]
async fn a_message_that_arrives_while_its_group_moves_is_of_the_conversation_that_goes_on() {
    let telegram = Telegram::start().await;
    let server = with(&telegram).start().await;
    server.update(group(1, -7, json!({ "text": "@reel_bot hi" }))).await.expect(200);
    runs(&server, 1).await;
    let mut holder = server.db.connect().await;
    sqlx::raw_sql("begin; select from store.chat where chat_id = '-7' for update").execute(&mut holder).await.unwrap();
    let waiting =
        "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()";
    let migration = server.update(group(2, -7, json!({ "migrate_to_chat_id": -1007 })));
    let late = async {
        server.db.until_number("the move to wait", waiting, 1).await;
        server.update(group(3, -7, json!({ "text": "@reel_bot late" }))).await.expect(200);
        server.db.until_number("the message to wait", waiting, 2).await;
        sqlx::raw_sql("rollback").execute(&mut holder).await.unwrap();
    };
    let (migrated, ()) = tokio::join!(migration, late);
    migrated.expect(200);
    let both = runs(&server, 2).await;
    assert_eq!(both[1]["session_id"], both[0]["session_id"]);
    assert_eq!(session_of(&server, &both[1]).await["chat_id"], "-1007");
    // Once and for all: another id is not taken.
    server.update(group(4, -7, json!({ "migrate_to_chat_id": -1008 }))).await.expect(200);
    server.update(group(5, -7, json!({ "text": "@reel_bot later" }))).await.expect(200);
    assert_eq!(runs(&server, 3).await[2]["session_id"], both[0]["session_id"]);
}
