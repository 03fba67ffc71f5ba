//! A database that forgets what readers have seen: restored from a backup, or replaced by a replica that was behind.

use std::sync::Arc;

use reqwest::StatusCode;
use runreel::{
    domain::{cursor::FeedCursor, id::Seq, principal::OwnerId},
    store::feed::Scope,
    timeline::follow::{StreamItem, StreamOptions},
};
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

/// Makes the database one that is written elsewhere: a copy in another cluster, or a replica that was promoted.
async fn moved(db: &Db) {
    execute(&mut db.connect().await, "update store.origin set origin = 'elsewhere'".to_owned()).await;
}

#[tokio::test]
async fn a_database_that_is_written_elsewhere_is_noticed_although_it_is_not_behind() {
    let server = Server::start().await;
    let mut followed = fourteen(&server).await;
    moved(&server.db).await;
    assert_eq!(followed.own.rest().await.last().unwrap().event, "stream.reset");
    assert_eq!(server.db.number("select cut[1] from store.history").await, 14);
    server.emit(&followed.run, numbered(0)).await;
    let mut reader = server.stream_after(&stream_of(&followed.run), Some("14")).await;
    let id = ids(&reader.durable(1).await).pop().unwrap();
    assert!(id.starts_with("15."), "{id}");
    assert_eq!(server.db.number("select count(*) from store.history").await, 1, "one for each time");
}

#[tokio::test]
async fn a_server_whose_note_is_older_than_what_was_lost_notices_it_at_its_start() {
    let db = Db::new().await;
    let server = setup().on(&db).start().await;
    let run = fourteen(&server).await.run;
    server.stop().await;
    let folder = db.data.path().join("history");
    let note = std::fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    let old = std::fs::read(&note).unwrap();
    let other = setup().on(&db).start().await;
    other.emit_many(&run, 0, 6).await;
    other.stop().await;
    std::fs::write(&note, old).unwrap();
    // What the note knows is still there, and some of what the other server has written since.
    set_back(&db, 17).await;
    moved(&db).await;
    let server = setup().on(&db).start().await;
    server.emit_many(&run, 0, 6).await;
    for lost in ["18", "20"] {
        refused(&server, &stream_of(&run), lost).await;
        refused(&server, "/api/stream/runs", &format!("p{lost}")).await;
    }
    let mut reader = server.stream_after(&stream_of(&run), Some("17")).await;
    assert_eq!(seqs(&envelopes(&reader.durable(6).await)), (18..24).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_reader_is_followed_under_the_history_its_place_was_admitted_in() {
    let server = Server::start().await;
    let mut followed = fourteen(&server).await;
    let timeline = &server.inner.timeline;
    let owner = OwnerId::trusted(server.run(&followed.run).await["owner_id"].as_str().unwrap());
    let context = timeline.context(&owner, followed.run.parse().unwrap()).await.unwrap().unwrap();
    // Both were admitted a moment ago; before they begin to read, the log is set back and outgrows them.
    let (histories, place) = (timeline.histories(), followed.feed_cursor.parse::<FeedCursor>().unwrap());
    set_back(&server.db, 9).await;
    assert_eq!(followed.own.rest().await.last().unwrap().event, "stream.reset");
    server.emit_many(&followed.run, 0, 10).await;
    let (wishes, scope, start) = (StreamOptions::default, Scope::Everything, FeedCursor::start());
    let readers = [
        timeline.follow_run(context, Seq::new(14).unwrap(), Arc::clone(&histories), wishes()),
        timeline.follow_feed(owner, scope, place, &start, histories, wishes()),
    ];
    for mut reader in readers {
        let signals = reader.next().await.unwrap();
        assert!(matches!(signals[..], [StreamItem::Reset]), "{signals:?}");
    }
}

#[tokio::test]
async fn a_server_that_has_not_noticed_yet_judges_no_place() {
    let server = setup().flags(&["--poll-ms", "60000"]).start().await;
    let Followed { run, own, feed, .. } = fourteen(&server).await;
    server.complete(&run).await;
    drop((own, feed));
    // Another server has begun a history and outgrown the old one in it.
    let mut connection = server.db.connect().await;
    let text = "update store.lane set history = 77, epoch = epoch + 1, position = 20;
                insert into store.history (ordinal, tag, cut) values (1, 77, '{9}')";
    execute(&mut connection, text.to_owned()).await;
    for (path, after) in [
        (stream_of(&run), "15"),
        (stream_of(&run), "20.0000004d"),
        (format!("{}?tree=true", stream_of(&run)), "p15"),
        ("/api/stream/runs".to_owned(), "p15"),
        ("/api/stream/runs".to_owned(), "p20.0000004d"),
        (format!("/api/runs/{run}/events"), "15"),
    ] {
        let path = format!("{path}{}after={after}", if path.contains('?') { '&' } else { '?' });
        let reply = server.get(&path).await;
        assert_eq!((reply.status, reply.json()["code"].as_str()), (503, Some("unavailable")), "{path}: {}", reply.text);
    }
}

#[tokio::test]
async fn what_is_read_in_pieces_is_cut_where_the_log_is_set_back() {
    let server = Server::start().await;
    let run = server.start_run().await;
    let large = json!(vec![json!({ "type": "custom.large", "payload": "x".repeat(65_000) }); 100]);
    for _ in 0..5 {
        server.emit(&run, large.clone()).await;
    }
    let ask = async |path: &str| {
        let request = reqwest::Client::new().get(format!("{}{path}", server.base));
        request.header("accept", "application/x-ndjson").send().await.unwrap()
    };
    // Much more than sockets hold, and nobody reads it yet.
    let replies = [ask(&format!("/api/runs/{run}/events")).await, ask(&format!("/api/runs/{run}/export")).await];
    moved(&server.db).await;
    server.db.until_number("a new history", "select count(*) from store.history", 1).await;
    for reply in replies {
        assert!(reply.bytes().await.is_err(), "an answer of two histories is not whole");
    }
}

#[tokio::test]
async fn feeds_find_what_is_written_where_another_history_had_not_come_to() {
    let db = Db::new().await;
    // The log begins in its second piece.
    let server = setup().on(&db).start().await;
    server.stop().await;
    execute(&mut db.connect().await, "update store.lane set position = 600".to_owned()).await;
    let server = setup().on(&db).start().await;
    let run = server.start_run().await;
    let mut feed = server.stream("/api/stream/runs").await;
    feed.durable(2).await;
    set_back(&db, 100).await;
    assert_eq!(feed.rest().await.last().unwrap().event, "stream.reset");
    let forgotten = "delete from store.run; delete from store.owner_piece";
    execute(&mut db.connect().await, forgotten.to_owned()).await;
    let other = server.start_run().await;
    assert_ne!(run, other);
    assert_eq!(envelopes(&server.stream("/api/stream/runs").await.durable(2).await).len(), 2);
}

#[tokio::test]
async fn a_server_that_cannot_begin_a_history_is_not_ready_until_it_can() {
    let server = Server::start().await;
    let mut connection = server.db.connect().await;
    execute(&mut connection, "revoke insert on store.history from runreel_writer".to_owned()).await;
    moved(&server.db).await;
    let is = async |status: u16| until("readiness", || async { server.get("/readyz").await.status == status }).await;
    is(503).await;
    execute(&mut connection, "grant insert on store.history to runreel_writer".to_owned()).await;
    is(200).await;
    server.start_run().await;
}
