//! Two servers on one database: each sees what the other commits, and neither needs the other.

use serde_json::{Value, json};

use crate::support::{
    api::stream_of,
    cluster::Db,
    runs::{assert_contiguous, numbered, parsed, seqs, token},
    server::{Server, setup},
    sse::{envelopes, names},
    until,
};

async fn two() -> (Server, Server) {
    let db = Db::new().await;
    (setup().on(&db).start().await, setup().on(&db).start().await)
}

#[tokio::test]
async fn a_reader_at_one_server_follows_a_run_that_is_written_at_the_other() {
    let (a, b) = two().await;
    let run = a.start_run().await;
    let mut reader = b.stream(&stream_of(&run)).await;
    let mut feed = b.stream("/api/stream/runs").await;
    assert_eq!((reader.caught_up().await, feed.caught_up().await), (2, 2));
    for n in 0..50 {
        a.emit(&run, numbered(n)).await;
    }
    a.emit_many(&run, 50, 1_000).await;
    a.complete(&run).await;
    let frames = reader.rest().await;
    assert_eq!(seqs(&envelopes(&frames)), (3..=1_053).collect::<Vec<_>>());
    assert_eq!(envelopes(&frames), a.events(&run).await[2..]);
    assert_eq!(envelopes(&feed.durable(1_051).await), envelopes(&frames));
    assert_eq!(frames.last().unwrap().event, "stream.end");
}

#[tokio::test]
async fn both_servers_write_into_one_run_without_a_hole_or_an_error() {
    let (a, b) = two().await;
    let run = a.start_run().await;
    let (mut at_a, mut at_b) = (a.stream(&stream_of(&run)).await, b.stream(&stream_of(&run)).await);
    let writer = async |server: &Server, writer: usize| {
        for n in 0..25 {
            let event = |n: usize| json!({ "type": "custom.n", "payload": { "w": writer, "n": n } });
            let body = if writer.is_multiple_of(3) { json!([event(2 * n), event(2 * n + 1)]) } else { event(n) };
            server.emit(&run, body).await;
        }
    };
    let writers = (0..12).map(|n| writer(if n % 2 == 0 { &a } else { &b }, n));
    futures::future::join_all(writers).await;
    b.complete(&run).await;
    let total = 2 + 4 * 50 + 8 * 25 + 1;
    let events = a.events(&run).await;
    assert_contiguous(&events, total);
    for writer in 0..12 {
        let own = events.iter().map(parsed).filter(|event| event["payload"]["w"] == writer);
        let numbers: Vec<i64> = own.map(|event| event["payload"]["n"].as_i64().unwrap()).collect();
        assert!(numbers.is_sorted_by(|a, b| a < b), "{writer}: {numbers:?}");
    }
    for stream in [&mut at_a, &mut at_b] {
        let frames = stream.rest().await;
        assert_eq!(envelopes(&frames), events);
        assert_eq!(frames.last().unwrap().event, "stream.end");
    }
}

#[tokio::test]
async fn one_event_id_is_one_event_whichever_server_it_comes_to() {
    let (a, b) = two().await;
    let run = a.start_run().await;
    let event = json!({ "type": "log.info", "event_id": "only" });
    let sends = (0..60).map(|n| if n % 2 == 0 { a.emit(&run, event.clone()) } else { b.emit(&run, event.clone()) });
    let acks = futures::future::join_all(sends).await;
    assert!(acks.iter().all(|ack| ack["first_seq"] == 3));
    assert_eq!(acks.iter().filter(|ack| ack["events"][0]["duplicate"] == false).count(), 1);
    assert_contiguous(&b.events(&run).await, 3);
}

#[tokio::test]
async fn one_run_id_is_one_run_whichever_server_it_is_created_at() {
    let (a, b) = two().await;
    for _ in 0..5 {
        let body = json!({ "run_id": crate::support::runs::new_run_id(), "title": "one" });
        let creations = (0..8)
            .map(|n| if n % 2 == 0 { a.post("/api/runs", body.clone()) } else { b.post("/api/runs", body.clone()) });
        let replies = futures::future::join_all(creations).await;
        let mut statuses: Vec<u16> = replies.iter().map(|reply| reply.status).collect();
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 200, 200, 200, 200, 200, 200, 201]);
        assert_contiguous(&a.events(body["run_id"].as_str().unwrap()).await, 2);
    }
}

#[tokio::test]
async fn a_server_knows_at_once_what_the_other_did_to_a_run() {
    let (a, b) = two().await;
    let run = a.start_run().await;
    b.emit(&run, numbered(0)).await;
    a.emit(&run, json!({ "type": "run.waiting" })).await;
    b.try_emit(&run, json!({ "type": "run.completed" })).await.refused(409, "invalid_transition");
    b.emit(&run, json!({ "type": "run.resumed" })).await;
    a.emit(&run, numbered(1)).await;
    b.complete(&run).await;
    a.try_emit(&run, numbered(2)).await.refused(409, "run_ended");
    a.try_emit(&run, token("m", "late")).await.refused(409, "run_ended");
    assert_contiguous(&a.events(&run).await, 7);
}

#[tokio::test]
async fn what_one_server_made_possible_the_other_does_not_refuse() {
    let (a, b) = two().await;
    let status = async |run: &str| a.run(run).await["status"].as_str().unwrap().to_owned();
    let event = |word: &str| json!({ "type": format!("run.{word}") });

    let queued = b.create(json!({ "start": false })).await;
    a.emit(&queued, event("started")).await;
    b.emit(&queued, event("completed")).await;
    assert_eq!(status(&queued).await, "completed");

    for (rest, end) in [("waiting", "completed"), ("interrupted", "waiting")] {
        let run = b.start_run().await;
        b.emit(&run, event(rest)).await;
        a.emit(&run, event("resumed")).await;
        b.emit(&run, event(end)).await;
        assert_eq!(status(&run).await, end);
    }

    let asked = b.start_run().await;
    a.emit(&asked, json!([{ "type": "interrupt.requested", "span_id": "i" }, event("interrupted")])).await;
    b.post(&format!("/api/runs/{asked}/resume"), json!({ "interrupt_id": "i", "decision": "approve" }))
        .await
        .expect(202);
    assert_eq!(status(&asked).await, "running");
    // What is not possible at either of them stays refused.
    b.try_emit(&asked, event("resumed")).await.refused(409, "invalid_transition");
}

#[tokio::test]
async fn a_reader_moves_between_servers_that_come_and_go() {
    let (a, b) = two().await;
    let run = a.start_run().await;
    let mut seen = Vec::new();
    let mut reader = b.stream(&stream_of(&run)).await;
    a.emit_many(&run, 0, 100).await;
    seen.extend(reader.durable(60).await);
    let db = std::sync::Arc::clone(&b.db);
    let (writing, ()) = tokio::join!(a.emit_many(&run, 100, 500), b.stop());
    let () = writing;
    let rest = reader.rest().await;
    assert_eq!(rest.last().unwrap().event, "stream.draining");
    seen.extend(rest.into_iter().filter(super::support::sse::Frame::is_durable));
    let b = setup().on(&db).start().await;
    let last = seen.last().unwrap().id.clone().unwrap();
    let mut reader = b.stream_after(&stream_of(&run), Some(&last)).await;
    a.emit_many(&run, 600, 100).await;
    b.complete(&run).await;
    seen.extend(reader.rest().await.into_iter().filter(super::support::sse::Frame::is_durable));
    assert_contiguous(&envelopes(&seen), 703);
}

#[tokio::test]
async fn a_lost_wake_up_costs_a_moment_and_never_an_event() {
    let (a, b) = two().await;
    let run = a.start_run().await;
    let mut reader = b.stream(&stream_of(&run)).await;
    reader.caught_up().await;
    for n in 0..5 {
        const DEAF: &str = "select count(pg_terminate_backend(pid)) from pg_stat_activity
            where datname = current_database() and query ilike '%listen%' and pid <> pg_backend_pid()";
        until("somebody to listen, and be cut off", || async { a.db.number(DEAF).await >= 1 }).await;
        a.emit(&run, numbered(n)).await;
        assert_eq!(reader.durable(1).await[0].json()["payload"]["n"], n);
    }
}

#[tokio::test]
async fn the_end_of_a_message_reaches_the_server_that_held_its_text() {
    let (a, b) = two().await;
    let run = a.start_run().await;
    a.emit(&run, token("m", "so far")).await;
    b.emit(&run, json!({ "type": "message.completed", "span_id": "m", "payload": { "text": "so far" } })).await;
    until("the text to be closed", || async {
        let mut stream = a.stream(&stream_of(&run)).await;
        stream.caught_up().await;
        a.emit(&run, numbered(0)).await;
        stream.next().await.event != "message.snapshot"
    })
    .await;
}

#[tokio::test]
async fn a_tree_never_ends_before_the_last_event_of_its_last_run() {
    let (a, b) = two().await;
    for round in 0..40u64 {
        let root = a.start_run().await;
        let child = a.child_of(&root).await;
        a.complete(&root).await;
        let end = async {
            tokio::time::sleep(std::time::Duration::from_micros(round * 150)).await;
            a.emit(&child, json!([numbered(1), { "type": "run.completed" }])).await;
        };
        let read = async { b.stream(&format!("{}?tree=true", stream_of(&root))).await.rest().await };
        let (frames, ()) = tokio::join!(read, end);
        assert_eq!(envelopes(&frames).len(), 7, "{:?}", names(&frames));
        assert_eq!(frames.last().unwrap().event, "stream.end");
    }
}

#[tokio::test]
async fn a_server_without_traffic_of_its_own_still_lists_what_the_other_did() {
    let (a, b) = two().await;
    let run = a.ended_run(3).await;
    let list = b.get("/api/runs").await.expect(200);
    assert_eq!((&list["runs"][0]["run_id"], &list["runs"][0]["last_seq"]), (&json!(run), &json!(6)));
    let owners: Vec<Value> = vec![a.run(&run).await["owner_id"].clone(), list["runs"][0]["owner_id"].clone()];
    assert_eq!(owners[0], owners[1], "the servers of a database agree on the pepper");
}

#[tokio::test]
async fn a_run_that_the_other_server_ended_takes_no_more_deltas() {
    let (a, b) = two().await;
    let run = a.start_run().await;
    a.emit(&run, token("m", "one")).await;
    b.complete(&run).await;
    until("the end to be known", || async { a.try_emit(&run, token("m", "two")).await.status == 409 }).await;
}
