//! How the index is filled and emptied.

use serde_json::{Value, json};

use super::{found, indexed};
use crate::support::{
    cluster::{Db, execute},
    runs::numbered,
    server::{Server, setup},
};

const DOCUMENTS: &str = "select count(*) from store.search_document";
/// The words of a run may be in several documents, until they are merged.
const INDEXED_RUNS: &str = "select count(distinct run_id) from store.search_document";

#[tokio::test]
async fn a_deleted_run_leaves_the_index_with_its_deletion() {
    let server = Server::start().await;
    let (gone, kept) = (server.ended_run(3).await, server.ended_run(3).await);
    indexed(&server.db).await;
    assert_eq!(server.db.number(INDEXED_RUNS).await, 2);
    server.delete(&format!("/api/runs/{gone}")).await.expect(204);
    assert_eq!(server.db.number(INDEXED_RUNS).await, 1);
    assert_eq!(found(&server, &gone).await, Vec::<String>::new());
    assert_eq!(found(&server, &kept).await, [kept]);
}

#[tokio::test]
async fn a_deletion_waits_for_an_indexer_that_may_have_read_the_run() {
    let server = Server::start().await;
    let run = server.ended_run(1).await;
    indexed(&server.db).await;
    // An indexer that has read the run's events and not committed their words yet.
    let mut indexer = server.db.connect().await;
    let words = format!(
        "begin; select from store.search_progress for update;
         insert into store.search_document select run_id, 99, owner_id, 'late' from store.run where run_id = '{run}'"
    );
    execute(&mut indexer, words).await;
    let path = format!("/api/runs/{run}");
    let (deleted, ()) = tokio::join!(server.delete(&path), async {
        let waiting = "select count(*) from pg_stat_activity where datname = current_database()
                       and wait_event_type = 'Lock' and query ilike '%delete from store.run%'";
        server.db.until_number("the deletion", waiting, 1).await;
        execute(&mut indexer, "commit".to_owned()).await;
    });
    assert_eq!(deleted.status, 204);
    assert_eq!(server.db.number(DOCUMENTS).await, 0);
}

#[tokio::test]
async fn the_log_of_an_earlier_release_is_indexed_from_its_beginning() {
    let db = Db::new().await;
    let server = setup().on(&db).start().await;
    let run = server.start_run().await;
    for round in 0..5 {
        server.emit_many(&run, round * 1_000, 1_000).await;
    }
    server.emit(&run, json!({ "type": "log.info", "payload": "needle" })).await;
    let gone = server.ended_run(2_100).await;
    server.delete(&format!("/api/runs/{gone}")).await.expect(204);
    server.stop().await;
    execute(&mut db.connect().await, "delete from store.search_document; delete from store.search_progress".to_owned())
        .await;
    let server = setup().on(&db).start().await;
    indexed(&db).await;
    assert_eq!(found(&server, "needle").await, [run]);
    let state = server.get("/api/runs?q=needle").await.expect(200)["searched"].clone();
    assert_eq!(state["lag_ms"], 0, "{state}");
}

#[tokio::test]
async fn an_index_that_was_never_complete_does_not_say_up_to_when() {
    let db = Db::new().await;
    let server = setup().on(&db).start().await;
    server.start_run().await;
    server.stop().await;
    let mut holder = db.connect().await;
    let begin = "update store.search_progress set position = 0, seen_position = null, seen_at = null, up_to = null";
    execute(&mut holder, begin.to_owned()).await;
    execute(&mut holder, "begin; select from store.search_progress for update".to_owned()).await;
    let server = setup().on(&db).start().await;
    let list = server.get("/api/runs?q=absent").await.expect(200);
    assert_eq!(list["searched"], json!({ "up_to": null, "lag_ms": null }));
    execute(&mut holder, "rollback".to_owned()).await;
    indexed(&db).await;
    assert_eq!(server.get("/api/runs?q=absent").await.expect(200)["searched"]["lag_ms"], 0);
}

#[tokio::test]
async fn two_servers_index_one_log_together_and_leave_nothing_out() {
    let db = Db::new().await;
    let (a, b) = (setup().on(&db).start().await, setup().on(&db).start().await);
    let runs = [a.start_run().await, b.start_run().await, a.start_run().await];
    for round in 0..12 {
        let server = if round % 2 == 0 { &a } else { &b };
        for (nth, run) in runs.iter().enumerate() {
            let events: Vec<Value> = (0..50)
                .map(|n| json!({ "type": "custom.n", "payload": { "text": format!("word{nth}x{}", round * 50 + n) } }))
                .collect();
            server.emit(run, json!(events)).await;
        }
    }
    indexed(&db).await;
    for (nth, run) in runs.iter().enumerate() {
        for n in [0, 1, 49, 50, 299, 301, 598, 599] {
            assert_eq!(found(&b, &format!("word{nth}x{n}")).await, std::slice::from_ref(run), "{n}");
        }
    }
    let words = "select count(distinct word) from store.search_document
                 cross join lateral unnest(tsvector_to_array(words)) as word where word like '%:word%'";
    assert_eq!(db.number(words).await, 3 * 600);
    // Small documents were merged: a run of 600 events has a few, not one for each time it was looked at.
    assert!(db.number(DOCUMENTS).await <= 3 * 8);
}

#[tokio::test]
async fn a_month_that_is_dropped_takes_its_words_along() {
    let server = Server::start().await;
    let run = server.start_run().await;
    server.emit(&run, numbered(1)).await;
    server.complete(&run).await;
    indexed(&server.db).await;
    // What retention does to the runs of a month: one statement deletes all of them.
    let mut retention = server.db.connect().await;
    let owner = server.run(&run).await["owner_id"].as_str().unwrap().to_owned();
    let delete = format!(
        "set role runreel_retention; select set_config('runreel.owner', '{owner}', false); delete from store.run"
    );
    execute(&mut retention, delete).await;
    assert_eq!(server.db.number(DOCUMENTS).await, 0);
}
