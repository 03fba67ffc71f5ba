//! A database that forgets what readers have seen: restored from a backup, or replaced by a replica that was behind.

use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::support::{
    api::stream_of,
    cluster::{Db, execute},
    runs::{numbered, seqs},
    server::{Server, setup},
    sse::{Frame, Stream, envelopes},
    until,
};

/// Makes the database what it was when its only run had this many events.
async fn set_back(db: &Db, to: i64) {
    let triggers = |how: &str| {
        format!(
            "do $$ declare part regclass; begin
                 for part in select inhrelid from pg_inherits where inhparent = 'store.run_event'::regclass loop
                     execute format('alter table %s {how} trigger run_event_is_append_only', part);
                 end loop;
             end $$;"
        )
    };
    let mut connection = db.connect().await;
    let text = format!(
        "begin; {} delete from store.run_event where position > {to}; {}
         update store.lane set position = {to};
         update store.run set last_seq = {to}, last_position = {to}; commit",
        triggers("disable"),
        triggers("enable always")
    );
    execute(&mut connection, text).await;
}

/// A run whose last seq is 14, and how far it was followed: the last id of its own stream, and of the owner's feed.
struct Followed {
    run: String,
    own: Stream,
    feed: Stream,
    feed_cursor: String,
}

async fn fourteen(server: &Server) -> Followed {
    let run = server.start_run().await;
    for n in 0..12 {
        server.emit(&run, numbered(n)).await;
    }
    let (mut own, mut feed) = (server.stream(&stream_of(&run)).await, server.stream("/api/stream/runs").await);
    let (seen, of_all) = (own.durable(14).await, feed.durable(14).await);
    assert_eq!(ids(&seen).last().map(String::as_str), Some("14"));
    let feed_cursor = ids(&of_all).pop().unwrap();
    Followed { run, own, feed, feed_cursor }
}

fn ids(frames: &[Frame]) -> Vec<String> {
    frames.iter().filter_map(|frame| frame.id.clone()).collect()
}

async fn refused(server: &Server, path: &str, cursor: &str) {
    let after = format!("{path}?after={cursor}");
    let reply = server.get(&after).await;
    assert_eq!((reply.status, reply.json()["code"].as_str()), (409, Some("cursor_ahead")), "{after}: {}", reply.text);
}

/// Nothing that was seen of the old history is taken for a place in the new one, which goes on from 9.
async fn check_new_history(server: &Server, run: &str, old_feed_cursor: &str) {
    let (own, page) = (stream_of(run), format!("/api/runs/{run}/events"));
    for ahead in ["10", "14"] {
        refused(server, &own, ahead).await;
        refused(server, &page, ahead).await;
    }
    refused(server, "/api/stream/runs", old_feed_cursor).await;
    for n in 0..10 {
        server.emit(run, numbered(n)).await;
    }
    // The new log has outgrown the old one, and still they are told.
    for ahead in ["10", "14", "14.0000beef"] {
        refused(server, &own, ahead).await;
        refused(server, &page, ahead).await;
    }
    refused(server, "/api/stream/runs", old_feed_cursor).await;
    let mut common = server.stream_after(&own, Some("9")).await;
    let frames = common.durable(10).await;
    assert_eq!(seqs(&envelopes(&frames))[..10], (10..20).collect::<Vec<_>>()[..]);
    let tagged = ids(&frames);
    let tag = tagged[0].strip_prefix("10.").unwrap();
    assert_eq!(tagged, (10..20).map(|seq| format!("{seq}.{tag}")).collect::<Vec<_>>());
    let mut resumed = server.stream_after(&own, Some(&tagged[4])).await;
    assert_eq!(ids(&resumed.durable(1).await)[0], tagged[5]);
    let first = server.get(&format!("{page}?limit=12")).await.json();
    assert_eq!((&first["next_after"], &first["last_id"]), (&json!(12), &json!(tagged[2])));
    let rest = server.get(&format!("{page}?after={}", tagged[2])).await.json();
    assert_eq!(rest["events"][0]["seq"], 13);
    let mut feed = server.stream("/api/stream/runs?after=p9").await;
    let of_all = ids(&feed.durable(1).await);
    assert!(of_all[0].ends_with(tag), "{of_all:?}");
    let mut feed = server.stream_after("/api/stream/runs", Some(&of_all[0])).await;
    assert_eq!(seqs(&envelopes(&feed.durable(1).await)), [11]);
    assert_eq!(server.get("/readyz").await.status, StatusCode::OK.as_u16());
}

#[tokio::test]
async fn writers_go_on_and_old_cursors_are_refused_also_when_the_new_log_has_outgrown_them() {
    let server = Server::start().await;
    let mut followed = fourteen(&server).await;
    set_back(&server.db, 9).await;
    let ack = server.emit(&followed.run, json!({ "type": "log.info" })).await;
    assert_eq!(ack["first_seq"], 10);
    for stream in [&mut followed.own, &mut followed.feed] {
        let rest = stream.rest().await;
        assert_eq!(rest.last().unwrap().event, "stream.reset");
        assert!(envelopes(&rest).is_empty(), "nothing of the new history goes to a reader of the old one: {rest:?}");
    }
    check_new_history(&server, &followed.run, &followed.feed_cursor).await;
}

#[tokio::test]
async fn it_is_noticed_although_nobody_writes() {
    let server = Server::start().await;
    let mut followed = fourteen(&server).await;
    set_back(&server.db, 9).await;
    assert_eq!(followed.own.rest().await.last().unwrap().event, "stream.reset");
    assert_eq!(server.emit(&followed.run, json!({ "type": "log.info" })).await["first_seq"], 10);
    check_new_history(&server, &followed.run, &followed.feed_cursor).await;
}

#[tokio::test]
async fn it_is_noticed_at_the_start_of_a_server_that_was_down_meanwhile() {
    let db = Db::new().await;
    let server = setup().on(&db).start().await;
    let followed = fourteen(&server).await;
    let (run, feed_cursor) = (followed.run.clone(), followed.feed_cursor.clone());
    drop(followed);
    server.stop().await;
    set_back(&db, 9).await;
    let server = setup().on(&db).start().await;
    assert_eq!(server.emit(&run, json!({ "type": "log.info" })).await["first_seq"], 10);
    check_new_history(&server, &run, &feed_cursor).await;
    server.stop().await;
    // A start that finds all as it was left begins nothing.
    let server = setup().on(&db).start().await;
    assert_eq!(db.number("select count(*) from store.history").await, 1);
    drop(server);
}

#[tokio::test]
async fn of_two_servers_one_begins_the_new_history_and_both_write_it() {
    let db = Db::new().await;
    let (a, b) = (setup().on(&db).start().await, setup().on(&db).start().await);
    let mut followed = fourteen(&a).await;
    let mut at_b = b.stream(&stream_of(&followed.run)).await;
    at_b.durable(14).await;
    set_back(&db, 9).await;
    let event = || json!({ "type": "log.info" });
    let (at_one, at_other) = tokio::join!(a.emit(&followed.run, event()), b.emit(&followed.run, event()));
    let mut given = [at_one["first_seq"].as_i64(), at_other["first_seq"].as_i64()];
    given.sort_unstable();
    assert_eq!(given, [Some(10), Some(11)]);
    assert_eq!(followed.own.rest().await.last().unwrap().event, "stream.reset");
    assert_eq!(at_b.rest().await.last().unwrap().event, "stream.reset");
    assert_eq!(db.number("select count(*) from store.history").await, 1);
    until("both to be ready", || async {
        a.get("/readyz").await.status == 200 && b.get("/readyz").await.status == 200
    })
    .await;
    for server in [&a, &b] {
        refused(server, &stream_of(&followed.run), "14").await;
        let page: Value = server.get(&format!("/api/runs/{}/events?after=9", followed.run)).await.json();
        assert_eq!(page["events"].as_array().unwrap().len(), 2);
    }
}

#[tokio::test]
async fn an_operator_may_say_so_where_nothing_else_can_tell() {
    let db = Db::new().await;
    let server = setup().on(&db).start().await;
    let run = fourteen(&server).await.run;
    server.stop().await;
    let server = setup().on(&db).flags(&["--new-history", "true"]).start().await;
    server.emit(&run, json!({ "type": "log.info" })).await;
    let mut reader = server.stream_after(&stream_of(&run), Some("14")).await;
    let id = ids(&reader.durable(1).await).pop().unwrap();
    assert!(id.starts_with("15.") && id.len() == 11, "{id}");
}
