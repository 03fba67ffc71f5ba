//! The stream of one run: the past, then the present, each event once, in order, and an end.

use serde_json::{Value, json};

use crate::support::{
    api::stream_of,
    cluster::execute,
    runs::{assert_contiguous, numbered, seqs},
    server::{Server, setup},
    shared::shared,
    sse::{Item, envelopes, names},
    until,
};

#[tokio::test]
async fn a_stream_opens_with_the_documented_head_and_lines() {
    let server = shared().await;
    let run = server.ended_run(1).await;
    let mut stream = server.stream(&stream_of(&run)).await;
    let headers = stream.response.headers();
    for (name, value) in [
        ("content-type", "text/event-stream"),
        ("cache-control", "no-cache, no-transform"),
        ("x-accel-buffering", "no"),
        ("x-content-type-options", "nosniff"),
    ] {
        assert_eq!(headers[name], value, "{name}");
    }
    assert!(!headers.contains_key("content-encoding"));
    assert_eq!(stream.item().await, Some(Item::Retry(1000)));
    let frames = stream.rest().await;
    let expected = ["run.created", "run.started", "custom.n", "run.completed", "stream.caught_up", "stream.end"];
    assert_eq!(names(&frames), expected);
    let text = String::from_utf8(stream.bytes).unwrap();
    assert!(text.starts_with("retry: 1000\n\nevent: run.created\ndata: {\"run_id\":"), "{text}");
    assert!(text.ends_with("\n\nevent: stream.end\ndata: {\"status\":\"completed\",\"last_seq\":4}\n\n"), "{text}");
    assert_eq!(frames[4].json()["last_seq"], 4);
}

#[tokio::test]
async fn readers_that_join_at_any_time_get_every_event_once_and_in_order() {
    let server = shared().await;
    let run = server.start_run().await;
    let writer = async {
        for round in 0..40 {
            let batch: Vec<Value> = (0..25).map(|n| numbered(round * 25 + n)).collect();
            server.emit(&run, json!(batch)).await;
        }
        server.complete(&run).await;
    };
    let reader = async |wanted: i64| {
        until("the run to be this far", || async { server.run(&run).await["last_seq"].as_i64() >= Some(wanted) }).await;
        let frames = server.stream(&stream_of(&run)).await.rest().await;
        assert_contiguous(&envelopes(&frames), 1_003);
        let last = frames.last().unwrap();
        assert_eq!((last.event.as_str(), last.json()["last_seq"].as_i64()), ("stream.end", Some(1_003)));
        assert!(frames.iter().filter(|frame| frame.event == "stream.caught_up").count() == 1);
        for frame in frames.iter().filter(|frame| frame.is_durable()) {
            assert_eq!(frame.id, Some(frame.json()["seq"].to_string()));
        }
    };
    tokio::join!(writer, futures::future::join_all([0, 0, 50, 150, 300, 450, 700, 900, 1_003].map(reader)));
}

#[tokio::test]
async fn a_reader_goes_on_after_any_event_it_has_seen() {
    let server = shared().await;
    let run = server.ended_run(5).await;
    for after in 0..8i64 {
        let frames = server.stream_after(&stream_of(&run), Some(&after.to_string())).await.rest().await;
        assert_eq!(seqs(&envelopes(&frames)), (after + 1..=8).collect::<Vec<_>>());
        assert_eq!(frames.last().unwrap().event, "stream.end");
    }
}

#[tokio::test]
async fn last_event_id_wins_over_after_and_an_empty_one_says_nothing() {
    let server = shared().await;
    let run = server.ended_run(5).await;
    let first = async |query: &str, header: Option<&str>| {
        let mut stream = server.stream_after(&format!("{}{query}", stream_of(&run)), header).await;
        stream.next().await.id.unwrap().parse::<i64>().unwrap()
    };
    assert_eq!(first("", None).await, 1);
    assert_eq!(first("?after=5", None).await, 6);
    assert_eq!(first("?after=5", Some("2")).await, 3);
    assert_eq!(first("?after=2", Some("5")).await, 6);
    assert_eq!(first("?after=5", Some("")).await, 6);
    assert_eq!(first("?after=", Some("")).await, 1);
    assert_eq!(first("?after=0", None).await, 1);
    assert_eq!(first("?tail=2", None).await, 7);
    assert_eq!(first("?tail=1000", None).await, 1);
    assert_eq!(first("?tail=2", Some("3")).await, 4);
}

#[tokio::test]
async fn a_reader_who_has_seen_the_end_is_told_to_stop() {
    let server = shared().await;
    let run = server.ended_run(0).await;
    assert_eq!(server.no_stream(&stream_of(&run), Some("3")).await.status, 204);
    assert_eq!(server.no_stream(&format!("{}?after=3", stream_of(&run)), None).await.status, 204);
    let mut none_of_it = server.stream(&format!("{}?tail=0", stream_of(&run))).await;
    assert_eq!(names(&none_of_it.rest().await), ["stream.caught_up", "stream.end"]);
    let live = server.start_run().await;
    let mut waits = server.stream_after(&stream_of(&live), Some("2")).await;
    assert_eq!(waits.caught_up().await, 0);
    server.complete(&live).await;
    assert_eq!(names(&waits.rest().await), ["run.completed", "stream.end"]);
}

#[tokio::test]
async fn a_bad_or_future_cursor_gets_a_typed_answer() {
    let server = shared().await;
    let run = server.ended_run(3).await;
    for bad in ["-1", "+1", "01", "1.0", "1e3", "0x1", "abc", "p1", "9223372036854775808", "1,2", "1 2", "%00", "٣"] {
        let path = format!("{}?after={bad}", stream_of(&run));
        server.no_stream(&path, None).await.refused(400, "invalid_cursor");
        server.get(&format!("/api/runs/{run}/events?after={bad}")).await.refused(400, "invalid_cursor");
    }
    for bad in ["p1", "x", "1 2", "1;2"] {
        server.no_stream(&stream_of(&run), Some(bad)).await.refused(400, "invalid_cursor");
    }
    for ahead in ["7", "9223372036854775807"] {
        server.no_stream(&stream_of(&run), Some(ahead)).await.refused(409, "cursor_ahead");
        server.get(&format!("/api/runs/{run}/events?after={ahead}")).await.refused(409, "cursor_ahead");
    }
    for bad in ["tail=-1", "tail=1001", "tail=x", "tokens=maybe", "types=Tool.*", "types=a;b", "tail=1&tail=2"] {
        server.no_stream(&format!("{}?{bad}", stream_of(&run)), None).await.refused(400, "invalid_request");
    }
}

#[tokio::test]
async fn the_ndjson_of_events_refuses_a_cursor_ahead_of_the_log_too() {
    let server = shared().await;
    let run = server.ended_run(3).await;
    let ndjson = async |after: &str| {
        let request = server.request(reqwest::Method::GET, &format!("/api/runs/{run}/events?after={after}"));
        server.send(request.header("accept", "application/x-ndjson")).await
    };
    assert_eq!(ndjson("4").await.text.lines().count(), 2);
    assert_eq!(ndjson("6").await.text, "");
    ndjson("7").await.refused(409, "cursor_ahead");
    ndjson("x").await.refused(400, "invalid_cursor");
}

#[tokio::test]
async fn a_page_ends_where_the_next_one_begins() {
    let server = shared().await;
    let run = server.ended_run(20).await;
    let page = async |query: &str| server.get(&format!("/api/runs/{run}/events?{query}")).await.expect(200);
    let first = page("limit=10").await;
    assert_eq!((first["events"].as_array().unwrap().len(), &first["next_after"]), (10, &json!(10)));
    assert_eq!((&first["last_seq"], &first["has_more"]), (&json!(23), &json!(true)));
    let last = page("after=20").await;
    assert_eq!((last["events"].as_array().unwrap().len(), &last["has_more"]), (3, &json!(false)));
    let none = page("after=23").await;
    assert_eq!((none["events"].as_array().unwrap().len(), &none["next_after"]), (0, &json!(23)));
    let filtered = page("types=run.*&limit=5").await;
    assert_eq!((filtered["events"].as_array().unwrap().len(), &filtered["next_after"]), (2, &json!(5)));
    for bad in ["limit=0", "limit=1001", "limit=x", "types=%00", "after=1&after=2"] {
        assert_eq!(server.get(&format!("/api/runs/{run}/events?{bad}")).await.status, 400, "{bad}");
    }
}

#[tokio::test]
async fn a_filter_keeps_the_true_seqs_and_the_end() {
    let server = shared().await;
    let run = server.start_run().await;
    let path = format!("{}?types=tool.*,custom.x", stream_of(&run));
    let mut live = server.stream(&path).await;
    assert_eq!(live.caught_up().await, 0);
    for kind in ["log.info", "tool.started", "toolbox.x", "tool.completed", "custom.x", "custom.y"] {
        server.emit(&run, json!({ "type": kind, "span_id": "s" })).await;
    }
    server.complete(&run).await;
    let (live, replayed) = (live.rest().await, server.stream(&path).await.rest().await);
    assert_eq!(names(&live), ["tool.started", "tool.completed", "custom.x", "stream.end"]);
    assert_eq!(seqs(&envelopes(&live)), [4, 6, 7]);
    assert_eq!(envelopes(&live), envelopes(&replayed));
    assert_eq!(live.last(), replayed.last());
    let after_all = server.stream_after(&path, Some("7")).await.rest().await;
    assert_eq!(names(&after_all), ["stream.caught_up", "stream.end"]);
}

#[tokio::test]
async fn a_gap_is_told_when_retention_removed_what_was_asked_for() {
    let server = Server::start().await;
    let run = server.ended_run(10).await;
    let mut connection = server.db.connect().await;
    let owner = server.run(&run).await["owner_id"].as_str().unwrap().to_owned();
    sqlx::raw_sql("set role runreel_retention").execute(&mut connection).await.unwrap();
    sqlx::query("select set_config('runreel.owner', $1, false)").bind(owner).execute(&mut connection).await.unwrap();
    let removed = sqlx::query("delete from store.run_event where run_id = $1::uuid and seq <= 5").bind(&run);
    assert_eq!(removed.execute(&mut connection).await.unwrap().rows_affected(), 5);
    for (after, requested) in [(None, 0), (Some("3"), 3)] {
        let frames = server.stream_after(&stream_of(&run), after).await.rest().await;
        assert_eq!(frames[0].event, "stream.gap");
        assert_eq!(frames[0].json(), json!({ "requested_after": requested, "first_seq": 6 }));
        assert_eq!(seqs(&envelopes(&frames)), (6..=13).collect::<Vec<_>>());
    }
    let frames = server.stream_after(&stream_of(&run), Some("5")).await.rest().await;
    assert_eq!((frames[0].event.as_str(), frames[0].id.as_deref()), ("custom.n", Some("6")));
}

#[tokio::test]
async fn a_server_that_drains_says_so_and_closes() {
    let server = Server::start().await;
    let (run, quiet) = (server.start_run().await, server.start_run().await);
    let mut streams = Vec::new();
    for path in [stream_of(&run), stream_of(&quiet), "/api/stream/runs".to_owned(), "/api/stream/threads/t".to_owned()]
    {
        let mut stream = server.stream(&path).await;
        stream.caught_up().await;
        streams.push(stream);
    }
    server.begin_stop();
    let mut waits = std::collections::BTreeSet::new();
    for stream in &mut streams {
        let frames = stream.rest().await;
        assert_eq!(names(&frames), ["stream.draining"]);
        let told = frames[0].json();
        assert_eq!(told["reason"], "draining");
        assert!((500..3_000).contains(&told["retry_ms"].as_u64().unwrap()), "{told}");
        let retry = format!("retry: {}\n", told["retry_ms"]);
        assert!(String::from_utf8_lossy(&stream.bytes).contains(&retry), "EventSource hears the same");
        waits.insert(told["retry_ms"].as_u64().unwrap());
        assert_eq!(frames[0].id, None);
    }
    assert!(waits.len() > 1, "they do not all come back at once");
    let db = std::sync::Arc::clone(&server.db);
    server.stop().await;
    let again = setup().on(&db).start().await;
    assert_contiguous(&again.events(&run).await, 2);
    again.emit(&run, numbered(1)).await;
    again.complete(&run).await;
    let frames = again.stream_after(&stream_of(&run), Some("2")).await.rest().await;
    assert_eq!(names(&frames), ["custom.n", "run.completed", "stream.caught_up", "stream.end"]);
}

#[tokio::test]
async fn a_reader_behind_a_small_bus_still_gets_everything() {
    let server = setup().flags(&["--bus-frames", "16"]).start().await;
    let run = server.start_run().await;
    let mut slow = server.stream(&stream_of(&run)).await;
    slow.caught_up().await;
    server.emit_many(&run, 0, 5_000).await;
    server.complete(&run).await;
    let frames = slow.rest().await;
    assert_eq!(seqs(&envelopes(&frames)), (3..=5_003).collect::<Vec<_>>());
    assert!(frames.iter().all(|frame| frame.event != "stream.caught_up"), "it is said once");
    assert_eq!(frames.last().unwrap().event, "stream.end");
}

#[tokio::test]
async fn idle_streams_hold_no_database_connection() {
    const BUSY: &str = "select count(*) from pg_stat_activity where datname = current_database()
        and pid <> pg_backend_pid() and state <> 'idle'";
    const MORE: &str = "select greatest(count(*) - 10, 0) from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid()";
    let server = Server::start().await;
    let run = server.start_run().await;
    let mut streams = Vec::new();
    for n in 0..50 {
        let path = if n % 2 == 0 { stream_of(&run) } else { "/api/stream/runs".to_owned() };
        let mut stream = server.stream(&path).await;
        stream.caught_up().await;
        streams.push(stream);
    }
    server.db.until_number("every connection to be idle", BUSY, 0).await;
    // The reading pool (3), upkeep (3), the lane, the indexer, and those that notify and listen. What the start needed goes.
    server.db.until_number("no other connection", MORE, 0).await;
    server.emit(&run, numbered(1)).await;
    for stream in &mut streams {
        assert_eq!(stream.next().await.event, "custom.n");
    }
    assert_eq!(server.db.number(MORE).await, 0);
    drop(streams);
    until("the topics to go", || async { server.inner.timeline.bus().topics_count() == 0 }).await;
}

#[tokio::test]
async fn a_deleted_run_ends_the_stream_of_a_reader_that_is_still_in_its_past() {
    let server = shared().await;
    let run = server.start_run().await;
    let payload = "x".repeat(60_000);
    for _ in 0..8 {
        let batch = vec![json!({ "type": "custom.big", "payload": payload }); 50];
        server.emit(&run, json!(batch)).await;
    }
    server.complete(&run).await;
    // More than the sockets between take: the follower is in the middle of it.
    let mut stream = server.stream(&stream_of(&run)).await;
    assert_eq!(server.delete(&format!("/api/runs/{run}")).await.status, 204);
    let frames = stream.rest().await;
    let got = envelopes(&frames).len() as i64;
    assert!(got < 403, "the reader was to be in the past when the run went");
    assert_contiguous(&envelopes(&frames), got);
    assert!(frames.iter().all(super::support::sse::Frame::is_durable), "neither caught up nor ended");
    server.no_stream(&stream_of(&run), Some(&got.to_string())).await.refused(404, "not_found");
}

#[tokio::test]
async fn a_run_that_is_deleted_in_the_middle_of_a_page_ends_its_stream() {
    const WAITING: &str = "select count(*) from pg_stat_activity where datname = current_database() \
        and wait_event_type = 'Lock' and query like '%from store.run_event%'";
    let server = Server::start().await;
    let run = server.start_run().await;
    server.emit_many(&run, 0, 50).await;
    server.complete(&run).await;
    // The page has read the run's head and waits for its events; then both go.
    let mut retention = server.db.connect().await;
    execute(&mut retention, "begin; lock table store.run_event in access exclusive mode".to_owned()).await;
    let mut stream = server.stream(&stream_of(&run)).await;
    server.db.until_number("the page to wait for the events", WAITING, 1).await;
    let delete = ["run_event", "run"].map(|table| format!("delete from store.{table} where run_id = '{run}'; "));
    let owner = format!("select set_config('runreel.owner', owner_id, true) from store.run where run_id = '{run}'");
    execute(&mut retention, format!("{owner}; set local role runreel_retention; {} commit", delete.concat())).await;
    assert_eq!(stream.frame().await, None, "a stream of a run that is gone does not stay open");
    server.no_stream(&stream_of(&run), None).await.refused(404, "not_found");
}
