//! Deleting a run: only an ended one, for everybody, for good.

use serde_json::json;

use crate::support::{
    api::{Api, stream_of},
    cluster::{Db, execute},
    runs::{assert_contiguous, new_run_id, numbered},
    server::{Server, setup},
    shared::shared,
};

/// Deletions that wait for a lock, each on a connection of its own.
const WAITING: &str = "select count(*) from pg_stat_activity
    where datname = current_database() and wait_event_type = 'Lock' and query ilike '%delete from store.run%'";

async fn delete(server: &Api, run: &str) -> u16 {
    server.delete(&format!("/api/runs/{run}")).await.status
}

#[tokio::test]
async fn only_an_ended_run_can_be_deleted_and_then_it_is_gone() {
    let server = Server::start().await;
    let run = server.start_run().await;
    for kind in ["run.waiting", "run.resumed"] {
        server.delete(&format!("/api/runs/{run}")).await.refused(409, "run_not_ended");
        server.emit(&run, json!({ "type": kind })).await;
    }
    server.complete(&run).await;
    assert_eq!(delete(&server, &run).await, 204);
    assert_eq!(delete(&server, &run).await, 404);
    server.get(&format!("/api/runs/{run}")).await.refused(404, "not_found");
    server.get(&format!("/api/runs/{run}/events")).await.refused(404, "not_found");
    server.get(&format!("/api/runs/{run}/timeline")).await.refused(404, "not_found");
    server.no_stream(&stream_of(&run), None).await.refused(404, "not_found");
    server.try_emit(&run, numbered(1)).await.refused(404, "not_found");
    assert_eq!(server.db.number("select count(*) from store.run_event").await, 0);
    server.start_run().await;
}

#[tokio::test]
async fn a_run_deleted_at_one_server_is_gone_at_the_other() {
    let db = Db::new().await;
    let (a, b) = (setup().on(&db).start().await, setup().on(&db).start().await);
    let run = a.start_run().await;
    b.emit(&run, numbered(0)).await;
    b.complete(&run).await;
    assert_eq!(b.events(&run).await.len(), 4);
    assert_eq!(delete(&a, &run).await, 204);
    b.get(&format!("/api/runs/{run}")).await.refused(404, "not_found");
    b.get(&format!("/api/runs/{run}/events")).await.refused(404, "not_found");
    b.no_stream(&stream_of(&run), None).await.refused(404, "not_found");
    b.try_emit(&run, numbered(1)).await.refused(404, "not_found");
    b.start_run().await;
    b.try_emit(&run, numbered(1)).await.refused(404, "not_found");
}

#[tokio::test]
async fn the_id_of_a_deleted_run_can_be_used_again() {
    let db = Db::new().await;
    let (a, b) = (setup().on(&db).start().await, setup().on(&db).start().await);
    for (deleting, creating) in [(&a, &a), (&a, &b)] {
        let body = json!({ "run_id": new_run_id(), "title": "first" });
        let run = creating.create(body.clone()).await;
        creating.complete(&run).await;
        assert_eq!(delete(deleting, &run).await, 204);
        creating.post("/api/runs", json!({ "run_id": run, "title": "second" })).await.expect(201);
        assert_contiguous(&creating.events(&run).await, 2);
        creating.emit(&run, numbered(1)).await;
        assert_contiguous(&deleting.events(&run).await, 3);
    }
}

#[tokio::test]
async fn a_child_outlives_its_deleted_parent() {
    let server = shared().await;
    let parent = server.start_run().await;
    let child = server.child_of(&parent).await;
    let mut tree = server.stream(&format!("{}?tree=true", stream_of(&parent))).await;
    tree.caught_up().await;
    server.complete(&parent).await;
    assert_eq!(delete(&server, &parent).await, 204);
    server.emit(&child, numbered(1)).await;
    server.complete(&child).await;
    assert_eq!(tree.rest().await.last().unwrap().event, "stream.end");
    assert_contiguous(&server.events(&child).await, 4);
    assert_eq!(delete(&server, &child).await, 204);
}

#[tokio::test]
async fn what_feeds_look_into_goes_with_the_last_events_in_it() {
    let server = Server::start().await;
    let (long, other) = (server.ended_run(1_100).await, server.ended_run(10).await);
    let pieces = "select count(*) from store.owner_piece";
    assert_eq!(server.db.number(pieces).await, 3);
    assert_eq!(delete(&server, &long).await, 204);
    assert_eq!(server.db.number(pieces).await, 1, "the one that is being written stays");
    assert_eq!(delete(&server, &other).await, 204);
    let next = server.start_run().await;
    assert_eq!(server.stream("/api/stream/runs").await.durable(2).await.len(), 2);
    assert_eq!(server.events(&next).await.len(), 2);
}

#[tokio::test]
async fn deletions_wait_for_each_other_and_those_in_vain_for_none() {
    let server = Server::start().await;
    let mut runs = Vec::new();
    for _ in 0..6 {
        let run = server.start_run().await;
        server.complete(&run).await;
        runs.push(run);
    }
    // Whoever deletes holds the row, and with it the only place of its principal.
    let mut holder = server.db.connect().await;
    execute(&mut holder, format!("begin; select from store.run where run_id = '{}' for update", runs[0])).await;
    let (stuck, others) = tokio::join!(delete(&server, &runs[0]), async {
        server.db.until_number("the deletion", WAITING, 1).await;
        let live = server.start_run().await;
        let in_vain = (delete(&server, &new_run_id()).await, delete(&server, &live).await);
        let refused = server.delete(&format!("/api/runs/{}", runs[1])).await;
        execute(&mut holder, "rollback".to_owned()).await;
        (in_vain, refused)
    });
    let (in_vain, refused) = others;
    refused.refused(429, "busy");
    assert_eq!((stuck, in_vain), (204, (404, 409)));
    let gone = futures::future::join_all(runs[1..].iter().map(|run| delete(&server, run))).await;
    assert_eq!(gone, [204; 5]);
}
