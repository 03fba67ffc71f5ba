//! Tokens between processes: readers of all of them see what one receives.

use runreel::store::open_texts::SweepPlace;
use serde_json::{Value, json};
use sqlx::PgConnection;

use super::{text_of, token};
use crate::support::{
    api::{Api, stream_of},
    cluster::{Db, execute},
    process::{program, serve},
    runs::numbered,
    server::{Server, setup},
    sse::{Stream, names},
    until,
};

const SAVED: &str = "select count(*) from store.open_text";
/// Puts the rows of [`with_kept_text`] back.
const PUT_BACK: &str = "insert into store.open_text select * from store.kept";

async fn two() -> (Server, Server) {
    let db = Db::new().await;
    (setup().on(&db).start().await, setup().on(&db).start().await)
}

fn end(span: &str, text: &str) -> Value {
    json!({ "type": "message.completed", "span_id": span, "payload": { "text": text } })
}

/// Reads until the frames add up to a text.
async fn reads(stream: &mut Stream, text: &str) {
    let mut frames = Vec::new();
    while text_of(&frames, "m") != text {
        frames.push(stream.next().await);
    }
}

#[tokio::test]
async fn readers_at_another_server_see_tokens_and_each_character_once() {
    let (a, b) = two().await;
    let run = a.start_run().await;
    let mut streams = [b.stream(&stream_of(&run)).await, b.stream("/api/stream/runs").await];
    for stream in &mut streams {
        stream.caught_up().await;
    }
    let (mut heard, mut whole) = ([Vec::new(), Vec::new()], String::new());
    for n in 0..40 {
        let piece = format!("{n}é😀 ").repeat(n);
        whole.push_str(&piece);
        a.emit(&run, token("m", &piece)).await;
        if n % 10 == 9 {
            for (stream, heard) in streams.iter_mut().zip(&mut heard) {
                while text_of(heard, "m") != whole {
                    heard.push(stream.next().await);
                }
            }
        }
    }
    assert!(heard.iter().flatten().all(|frame| frame.event == "message.delta"));
    a.emit(&run, json!([end("m", &whole), { "type": "run.completed" }])).await;
    for (stream, heard) in streams.iter_mut().zip(&mut heard) {
        heard.extend(stream.until("run.completed").await);
        assert_eq!(text_of(heard, "m"), whole);
    }
}

#[tokio::test]
async fn who_joins_at_another_server_gets_the_text_so_far_and_then_exactly_what_follows() {
    let (a, b) = two().await;
    let run = a.start_run().await;
    let long = "q\"\\ \u{1}\u{2028}é😀\n".repeat(2_000);
    let child =
        json!({ "type": "reasoning.delta", "span_id": "r", "parent_span_id": "s", "payload": { "text": "hm" } });
    a.emit(&run, json!([token("m", &long), child])).await;
    until("the text to be saved", || async { a.db.number(SAVED).await > 5 }).await;
    for path in [stream_of(&run), "/api/stream/runs".to_owned(), format!("{}?tree=true", stream_of(&run))] {
        let mut late = b.stream(&path).await;
        let past = late.until("stream.caught_up").await;
        assert_eq!(names(&past), ["run.created", "run.started", "stream.caught_up"], "{path}");
        let snapshots = [late.next().await, late.next().await];
        assert_eq!(text_of(&snapshots, "m"), long);
        let thought = snapshots[1].json();
        assert_eq!(
            (&thought["span_id"], &thought["type"], &thought["text"]),
            (&json!("r"), &json!("reasoning.delta"), &json!("hm"))
        );
    }
    let mut late = b.stream(&stream_of(&run)).await;
    late.caught_up().await;
    let mut frames = vec![late.next().await, late.next().await];
    a.emit(&run, token("m", "more")).await;
    frames.push(late.next().await);
    assert_eq!(frames[2].json()["payload"], json!({ "text": "more", "offset": long.chars().count() }));
    let whole = format!("{long}more");
    a.emit(&run, json!([end("m", &whole), { "type": "run.completed" }])).await;
    frames.extend(late.rest().await);
    assert_eq!(text_of(&frames, "m"), whole);
}

#[tokio::test]
async fn a_completed_message_leaves_no_row_and_shows_no_text() {
    let (a, b) = two().await;
    let run = a.start_run().await;
    a.emit(&run, json!([token("m", "one"), token("n", "two")])).await;
    until("the texts to be saved", || async { a.db.number(SAVED).await == 2 }).await;
    // At another server than the one that has the text.
    b.emit(&run, end("m", "one")).await;
    let mut stream = b.stream(&stream_of(&run)).await;
    stream.caught_up().await;
    let snapshot = stream.next().await.json();
    assert_eq!((&snapshot["span_id"], &snapshot["text"]), (&json!("n"), &json!("two")));
    until("the row to be removed", || async { a.db.number(SAVED).await == 1 }).await;
    a.complete(&run).await;
    until("the rows to be removed", || async { a.db.number(SAVED).await == 0 }).await;
    assert_eq!(names(&stream.rest().await), ["run.completed", "stream.end"]);
}

#[tokio::test]
async fn what_a_killed_server_was_being_told_stays_and_says_where_it_ends() {
    let db = Db::new().await;
    let b = setup().on(&db).start().await;
    let (folder, data) = (db.artifacts.path().display().to_string(), tempfile::tempdir().unwrap());
    let words = ["serve", "--listen", "127.0.0.1:0", "--database-url", &db.url(), "--artifacts-dir", &folder];
    let more = ["--data-dir", data.path().to_str().unwrap()];
    let mut served = serve(program(&[&words[..], &more[..]].concat())).await;
    let a = Api::new(served.base.clone());
    let run = a.start_run().await;
    let mut early = b.stream(&stream_of(&run)).await;
    early.caught_up().await;
    a.emit(&run, token("m", "as far as thís")).await;
    reads(&mut early, "as far as thís").await;
    served.child.kill().await.unwrap();

    let mut late = b.stream(&stream_of(&run)).await;
    late.caught_up().await;
    let snapshot = late.next().await.json();
    assert_eq!((&snapshot["text"], &snapshot["offset"]), (&json!("as far as thís"), &json!(14)));
    // The producer goes on at the other server, which does not know how much was lost.
    b.emit(&run, token("m", " and on")).await;
    for stream in [&mut early, &mut late] {
        assert_eq!(stream.next().await.json()["payload"], json!({ "text": " and on", "offset": 0 }));
    }
    b.emit(&run, end("m", "as far as thís and on")).await;
    assert_eq!(late.next().await.event, "message.completed");
    until("the rows to be removed", || async { b.db.number(SAVED).await == 0 }).await;
}

/// Begins a message and keeps its saved text, as the table of a killed server does: nobody removes it there.
async fn with_kept_text(server: &Server, run: &str) -> PgConnection {
    server.emit(run, token("m", "so far")).await;
    until("the text to be saved", || async { server.db.number(SAVED).await == 1 }).await;
    let mut connection = server.db.connect().await;
    execute(&mut connection, "create table store.kept as select * from store.open_text".to_owned()).await;
    connection
}

#[tokio::test]
async fn a_message_that_was_completed_after_its_server_was_killed_is_not_shown_as_open() {
    let (a, b) = two().await;
    let run = a.start_run().await;
    let mut connection = with_kept_text(&a, &run).await;
    b.emit(&run, end("m", "so far")).await;
    until("the row to be removed", || async { a.db.number(SAVED).await == 0 }).await;
    execute(&mut connection, PUT_BACK.to_owned()).await;
    let shows = async |server: &Server| {
        let mut stream = server.stream(&stream_of(&run)).await;
        stream.caught_up().await;
        a.emit(&run, numbered(0)).await;
        stream.next().await.event == "message.snapshot"
    };
    assert!(!shows(&a).await && !shows(&b).await);
    // Another text of the span begins, and takes its place.
    a.emit(&run, token("m", "again")).await;
    until("it to be saved", || async {
        a.db.number("select count(*) from store.open_text where text = 'again'::bytea").await == 1
    })
    .await;
    assert!(shows(&b).await);
}

#[tokio::test]
async fn a_stranger_at_another_server_sees_nothing() {
    let db = Db::new().await;
    let (a, b) = (setup().on(&db).jwt().start().await, setup().on(&db).jwt().start().await);
    let (alice, bob) = (a.as_subject("alice"), b.as_subject("bob"));
    let run = alice.create(json!({ "thread_id": "t" })).await;
    let own = bob.create(json!({ "thread_id": "t" })).await;
    let mut feeds = [bob.stream("/api/stream/runs").await, bob.stream("/api/stream/threads/t").await];
    for feed in &mut feeds {
        feed.caught_up().await;
    }
    alice.emit(&run, token("m", "a secret")).await;
    until("the text to be saved", || async { db.number(SAVED).await == 1 }).await;
    let mut hers = b.as_subject("alice").stream("/api/stream/threads/t").await;
    hers.caught_up().await;
    assert_eq!(hers.next().await.json()["text"], "a secret");
    let mut late = bob.stream("/api/stream/runs").await;
    late.caught_up().await;
    bob.emit(&own, numbered(0)).await;
    for feed in feeds.iter_mut().chain([&mut late]) {
        let frame = feed.next().await;
        assert_eq!((frame.event.as_str(), &frame.json()["run_id"]), ("custom.n", &json!(own)));
    }
    assert_eq!(bob.no_stream(&stream_of(&run), None).await.status, 404);
    // Nobody has it through SQL either.
    let readers = "select count(*) from pg_roles
        where rolname like 'runreel%' and not rolsuper and has_table_privilege(oid, 'store.open_text', 'select')
          and rolname <> 'runreel_writer' and rolname <> current_user";
    assert_eq!(db.number(readers).await, 0);
}

#[tokio::test]
async fn a_deleted_run_and_an_ended_one_leave_no_text() {
    let (a, b) = two().await;
    let run = a.start_run().await;
    let mut connection = with_kept_text(&a, &run).await;
    a.complete(&run).await;
    until("the row to be removed", || async { a.db.number(SAVED).await == 0 }).await;
    execute(&mut connection, PUT_BACK.to_owned()).await;
    let place = b.inner.timeline.store().open_texts().sweep(SweepPlace::default()).await.unwrap();
    assert!(place.is_none() && a.db.number(SAVED).await == 0);
    execute(&mut connection, PUT_BACK.to_owned()).await;
    a.delete(&format!("/api/runs/{run}")).await.expect(204);
    assert_eq!(a.db.number(SAVED).await, 0);
}

#[tokio::test]
async fn a_database_that_lost_the_texts_has_them_again_with_the_next_token() {
    let (a, b) = two().await;
    let run = a.start_run().await;
    a.emit(&run, token("m", "before, ")).await;
    until("the text to be saved", || async { a.db.number(SAVED).await == 1 }).await;
    // As a crash does.
    execute(&mut a.db.connect().await, "truncate store.open_text".to_owned()).await;
    a.emit(&run, token("m", "after")).await;
    until("the text to be saved", || async { a.db.number(SAVED).await == 1 }).await;
    let mut late = b.stream(&stream_of(&run)).await;
    late.caught_up().await;
    assert_eq!(late.next().await.json()["text"], "before, after");
}
