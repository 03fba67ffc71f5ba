//! Feeds of many runs: a tree, a thread, everything somebody owns. Their ids are cursors that last.

use std::collections::{HashMap, HashSet};

use runreel::{
    domain::{cursor::FeedCursor, principal::OwnerId},
    store::feed::Scope,
};
use serde_json::json;

use crate::support::{
    api::{Api, stream_of},
    cluster::execute,
    runs::{new_run_id, numbered, parsed, token},
    server::{Server, setup},
    sse::{Frame, envelopes, names},
    until,
};

const EVERYTHING: &str = "/api/stream/runs";

fn tree_of(run: &str) -> String {
    format!("{}?tree=true", stream_of(run))
}

/// Per run 1, 2, 3 … as far as the frames tell of it.
fn assert_runs_in_order(frames: &[String]) -> HashMap<String, i64> {
    let mut last: HashMap<String, i64> = HashMap::new();
    for event in frames.iter().map(parsed) {
        let seen = last.entry(event["run_id"].as_str().unwrap().to_owned()).or_default();
        assert_eq!(event["seq"].as_i64(), Some(*seen + 1), "{event}");
        *seen += 1;
    }
    last
}

/// Coming back at any frame of a stream gives what came after it, all of it and nothing else.
async fn check_resume(api: &Api, path: &str, frames: &[Frame], each: usize) {
    let durable: Vec<&Frame> = frames.iter().filter(|frame| frame.is_durable()).collect();
    for (at, frame) in durable.iter().enumerate().step_by(each) {
        let id = frame.id.as_deref().unwrap();
        assert!(id.starts_with('p'), "{id}");
        let left: HashSet<String> = durable[at + 1..].iter().map(|frame| frame.data.clone()).collect();
        let ended = frames.last().is_some_and(|frame| frame.event == "stream.end");
        if left.is_empty() && ended {
            assert_eq!(api.no_stream(path, Some(id)).await.status, 204);
            continue;
        }
        let got = envelopes(&api.stream_after(path, Some(id)).await.until("stream.caught_up").await);
        assert_eq!(got.len(), left.len(), "after {id}");
        assert_eq!(got.into_iter().collect::<HashSet<_>>(), left, "after {id}");
    }
}

#[tokio::test]
async fn a_tree_shows_all_its_runs_also_later_ones_and_ends_with_the_last_of_them() {
    let server = Server::start().await;
    let (root, stranger) = (server.start_run().await, server.start_run().await);
    let child = server.child_of(&root).await;
    let mut live = server.stream(&tree_of(&root)).await;
    assert_eq!(live.caught_up().await, 4);
    let grandchild = server.child_of(&child).await;
    let late = server.child_of(&root).await;
    server.emit(&stranger, numbered(0)).await;
    server.emit(&grandchild, token("m", "tok")).await;
    server.emit(&grandchild, json!({ "type": "message.completed", "span_id": "m" })).await;
    server.complete(&child).await;
    server.complete(&root).await;
    server.complete(&late).await;
    server.emit(&grandchild, numbered(1)).await;
    server.complete(&grandchild).await;
    let frames = live.rest().await;
    let deltas: Vec<&Frame> = frames.iter().filter(|frame| frame.event == "message.delta").collect();
    assert_eq!((deltas.len(), deltas[0].json()["run_id"].as_str()), (1, Some(grandchild.as_str())));
    let end = frames.last().unwrap();
    assert_eq!((end.event.as_str(), end.json()), ("stream.end", json!({ "status": "completed", "last_seq": 3 })));
    let replayed = server.stream(&tree_of(&root)).await.rest().await;
    let seen = assert_runs_in_order(&envelopes(&replayed));
    let expected = [(root.clone(), 3), (child.clone(), 3), (late, 3), (grandchild.clone(), 5)];
    assert_eq!(seen, expected.into_iter().collect());
    assert_eq!(envelopes(&replayed)[4..], envelopes(&frames));
    check_resume(&server, &tree_of(&root), &replayed, 1).await;
    let below = server.stream(&tree_of(&child)).await.rest().await;
    let seen = assert_runs_in_order(&envelopes(&below));
    assert_eq!(seen, [(child, 3), (grandchild, 5)].into_iter().collect());
}

#[tokio::test]
async fn a_tree_whose_root_has_ended_goes_on_until_its_last_child_has() {
    let server = Server::start().await;
    let root = server.start_run().await;
    let child = server.child_of(&root).await;
    server.complete(&root).await;
    let mut early = server.stream(&tree_of(&root)).await;
    early.caught_up().await;
    let mut resumed = server.stream_after(&tree_of(&root), Some("p5")).await;
    assert_eq!(resumed.caught_up().await, 0);
    server.complete(&child).await;
    for stream in [&mut early, &mut resumed] {
        assert_eq!(names(&stream.rest().await), ["run.completed", "stream.end"]);
    }
    server.no_stream(&tree_of(&root), Some("p7")).await.refused(409, "cursor_ahead");
}

#[tokio::test]
async fn a_thread_can_be_followed_before_it_exists_and_shows_its_later_runs() {
    let server = Server::start().await;
    let path = "/api/stream/threads/user:42@home";
    let mut live = server.stream(path).await;
    assert_eq!(live.caught_up().await, 0);
    let first = server.create(json!({ "thread_id": "user:42@home" })).await;
    let other = server.create(json!({ "thread_id": "user:42@homer" })).await;
    let inherits = server.child_of(&first).await;
    server.complete(&first).await;
    server.emit(&other, numbered(1)).await;
    let second = server.create(json!({ "thread_id": "user:42@home" })).await;
    let frames = live.durable(7).await;
    let seen = assert_runs_in_order(&envelopes(&frames));
    assert_eq!(seen, [(first, 3), (inherits, 2), (second, 2)].into_iter().collect());
    let mut again = server.stream(path).await;
    let replayed = again.until("stream.caught_up").await;
    assert_eq!(envelopes(&replayed), envelopes(&frames));
    check_resume(&server, path, &replayed, 1).await;
    assert_eq!(server.stream(&format!("{path}?tail=3")).await.caught_up().await, 3);
    for bad in ["a%2Fb", "a%20b", "%00", &"x".repeat(256)] {
        let reply = server.no_stream(&format!("/api/stream/threads/{bad}"), None).await;
        assert!(matches!(reply.status, 400 | 404), "{bad}: {}", reply.status);
    }
}

#[tokio::test]
async fn a_feed_refuses_cursors_that_are_malformed_or_ahead() {
    let server = Server::start().await;
    server.start_run().await;
    for path in [EVERYTHING, "/api/stream/threads/t"] {
        for bad in [
            "1",
            "p",
            "p-1",
            "p01",
            "p1-",
            "q1",
            "p1.2",
            "P1",
            "p9223372036854775808",
            &format!("p{}", "1-".repeat(16) + "1"),
        ] {
            server.no_stream(path, Some(bad)).await.refused(400, "invalid_cursor");
        }
        for ahead in ["p3", "p9223372036854775807", "p2-1", "p0-5"] {
            server.no_stream(path, Some(ahead)).await.refused(409, "cursor_ahead");
        }
        server.stream_after(path, Some("p2")).await.caught_up().await;
        server.stream_after(path, Some("p2-0")).await.caught_up().await;
    }
}

#[tokio::test]
async fn with_two_lanes_a_feed_loses_and_doubles_nothing() {
    let server = setup().flags(&["--lanes", "2"]).start().await;
    assert_eq!(server.db.number("select count(*) from store.lane").await, 2);
    let mut live = server.stream(EVERYTHING).await;
    live.caught_up().await;
    let producer = async |number: usize| {
        // Every other one in the other lane, which follows from the last bit of its id.
        let lane = |id: &String| u8::from_str_radix(&id[id.len() - 1..], 16).unwrap() % 2;
        let id = std::iter::repeat_with(new_run_id).find(|id| usize::from(lane(id)) == number % 2);
        let run = server.create(json!({ "run_id": id })).await;
        for n in 0..10 {
            server.emit(&run, json!([numbered(2 * n), numbered(2 * n + 1)])).await;
        }
        server.complete(&run).await;
        run
    };
    let joiner = async |after: i64| {
        server
            .db
            .until_number("the feed to be this far", "select (sum(position) > 60)::int::bigint from store.lane", 1)
            .await;
        let mut stream = server.stream_after(EVERYTHING, (after > 0).then_some("p0-0")).await;
        envelopes(&stream.durable(12 * 23).await)
    };
    let (runs, late_readers) = tokio::join!(
        futures::future::join_all((0..12).map(producer)),
        futures::future::join_all([0, 1, 0].map(joiner))
    );
    let frames = live.durable(12 * 23).await;
    let all: HashSet<String> = envelopes(&frames).into_iter().collect();
    let expected: HashMap<String, i64> = runs.into_iter().map(|run| (run, 23)).collect();
    assert_eq!(assert_runs_in_order(&envelopes(&frames)), expected);
    for joined in late_readers {
        assert_eq!(assert_runs_in_order(&joined), expected);
        assert_eq!(joined.into_iter().collect::<HashSet<_>>(), all);
    }
    check_resume(&server, EVERYTHING, &frames, 7).await;
    let other = server.db.number("select count(*) from store.run where lane = 1").await;
    assert_eq!(other, 6, "half of the runs are in the other lane");
}

#[tokio::test]
async fn an_open_foreign_transaction_neither_loses_nor_hides_events() {
    let server = Server::start().await;
    let run = server.start_run().await;
    let mut live = server.stream(EVERYTHING).await;
    live.caught_up().await;
    let mut foreign = server.db.connect().await;
    execute(&mut foreign, "begin; select pg_current_xact_id(); lock table store.removed".to_owned()).await;
    server.emit_many(&run, 0, 3).await;
    live.durable(3).await;
    assert_eq!(server.events(&run).await.len(), 5);
    // One that holds the lane: emits wait for it, and nothing is shown that could still change.
    execute(&mut foreign, "rollback; begin; update store.lane set position = position".to_owned()).await;
    let emit = server.emit(&run, numbered(3));
    let release = async {
        const WAITS: &str =
            "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
        server.db.until_number("the lane to wait", WAITS, 1).await;
        assert_eq!(server.stream_after(EVERYTHING, Some("p5")).await.caught_up().await, 0);
        execute(&mut foreign, "rollback".to_owned()).await;
    };
    let (ack, ()) = tokio::join!(emit, release);
    assert_eq!(ack["last_seq"], 6);
    let frame = live.durable(1).await.remove(0);
    assert_eq!((frame.id.as_deref(), &frame.json()["seq"]), (Some("p6"), &json!(6)));
}

#[tokio::test]
async fn nobody_sees_anothers_events_in_any_feed() {
    let server = setup().jwt().start().await;
    let (alice, bob) = (server.as_subject("alice"), server.as_subject("bob"));
    let mut feeds = [alice.stream(EVERYTHING).await, alice.stream("/api/stream/threads/shared").await];
    for feed in &mut feeds {
        feed.caught_up().await;
    }
    let theirs = bob.create(json!({ "thread_id": "shared" })).await;
    bob.emit(&theirs, json!([numbered(1), token("m", "secret")])).await;
    let own = alice.create(json!({ "thread_id": "shared" })).await;
    bob.complete(&theirs).await;
    alice.complete(&own).await;
    for feed in &mut feeds {
        let frames = [feed.next().await, feed.next().await, feed.next().await];
        assert_eq!(assert_runs_in_order(&envelopes(&frames)), [(own.clone(), 3)].into_iter().collect());
    }
    let mut replay = bob.stream("/api/stream/threads/shared").await;
    let seen = assert_runs_in_order(&envelopes(&replay.until("stream.caught_up").await));
    assert_eq!(seen, [(theirs.clone(), 4)].into_iter().collect());
    alice.no_stream(&tree_of(&theirs), None).await.refused(404, "not_found");
}

#[tokio::test]
async fn a_list_and_the_feed_from_its_cursor_miss_nothing() {
    let server = Server::start().await;
    server.ended_run(2).await;
    let list = server.get("/api/runs").await.expect(200);
    let mut feed = server.stream(&format!("{EVERYTHING}?after={}", list["stream_cursor"].as_str().unwrap())).await;
    assert_eq!(feed.caught_up().await, 0);
    let run = server.start_run().await;
    assert_eq!(feed.next().await.json()["run_id"], run.as_str());
}

#[tokio::test]
async fn a_feed_says_that_retention_has_been_there() {
    let server = Server::start().await;
    let (first, second) = (server.ended_run(3).await, server.ended_run(1).await);
    assert_eq!(server.delete(&format!("/api/runs/{first}")).await.status, 204);
    let mut behind = server.stream_after(EVERYTHING, Some("p2")).await;
    let frames = behind.until("stream.caught_up").await;
    assert_eq!(frames[0].event, "stream.gap", "{:?}", names(&frames));
    assert_eq!(frames[0].json()["requested_after"], "p2");
    assert_eq!(assert_runs_in_order(&envelopes(&frames)), [(second, 4)].into_iter().collect());
    let mut beyond = server.stream_after(EVERYTHING, Some("p6")).await;
    assert_eq!(names(&beyond.until("stream.caught_up").await).len(), 5);
    until("the run to be gone", || async { server.get(&format!("/api/runs/{first}")).await.status == 404 }).await;
}

#[tokio::test]
async fn a_page_looks_into_so_many_pieces_of_the_log_and_not_more() {
    let server = Server::start().await;
    let run = server.start_run().await;
    server.emit_many(&run, 0, 10).await;
    let owner = OwnerId::trusted(server.run(&run).await["owner_id"].as_str().unwrap());
    // Pieces in which nothing is left, as far as the log goes.
    let empty = "insert into store.owner_piece (owner_id, lane, piece)
                 select owner_id, lane, n from store.run, generate_series(1, 999) n on conflict do nothing;
                 update store.lane set position = 1000 * 512 - 1";
    execute(&mut server.db.connect().await, empty.to_owned()).await;
    let store = server.inner.timeline.store();
    let (mut place, mut pages, mut events) = (FeedCursor::start(), 0, 0);
    loop {
        let page = store.feeds().page(&owner, &Scope::Everything, &place, 1_000).await.unwrap();
        (pages, events) = (pages + 1, events + page.events.len());
        assert!(page.tail.at(0) - place.at(0) < 60_000, "{} to {}", place, page.tail);
        place = page.tail;
        if page.complete {
            break;
        }
    }
    assert_eq!((pages, events), (11, 12));
    for (count, before) in [(0, 511_999), (5, 7), (1_000, 0)] {
        let cursor = store.feeds().before_tail(&owner, &Scope::Everything, count).await.unwrap();
        assert_eq!(cursor.at(0), before, "the last {count}");
    }
}
