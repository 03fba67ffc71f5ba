//! One owner writes more than the index of words takes in, and others wait behind.

use runreel::store::{Settings, Store};
use serde_json::json;

use crate::{
    search::{found, indexed},
    support::{
        cluster::{Db, execute},
        server::setup,
    },
};

/// How many documents of the index a run has.
async fn documents(db: &Db, run: &str) -> i64 {
    sqlx::query_scalar("select count(*) from store.search_document where run_id = $1::uuid")
        .bind(run)
        .fetch_one(&mut db.connect().await)
        .await
        .unwrap()
}

#[tokio::test]
async fn what_others_say_is_indexed_before_the_rest_of_one_who_says_very_much() {
    let db = Db::new().await;
    let server = setup().jwt().on(&db).start().await;
    let mut holder = db.connect().await;
    execute(&mut holder, "begin; select from store.search_progress for update".to_owned()).await;
    let (ann, bob) = (server.as_subject("ann"), server.as_subject("bob"));
    let much = ann.start_run().await;
    for round in 0..20 {
        let events: Vec<_> = (0..5)
            .map(|n| {
                let words: Vec<String> =
                    (0..1_900).map(|word| format!("w{}x{word}y{}", round * 5 + n, "z".repeat(20))).collect();
                json!({ "type": "custom.much", "payload": { "text": words.join(" ") } })
            })
            .collect();
        ann.emit(&much, json!(events)).await;
    }
    let little = bob.start_run().await;
    bob.emit(&little, json!({ "type": "custom.little", "payload": { "text": "needle" } })).await;
    server.stop().await;
    execute(&mut holder, "rollback".to_owned()).await;

    let settings = Settings::few(db.options());
    let store = Store::connect(settings).await.unwrap();
    let mut indexing = store.indexing().await.unwrap();
    let now = chrono::DateTime::UNIX_EPOCH;
    let first = indexing.step(0, now).await.unwrap();
    assert_eq!(documents(&db, &little).await, 0);
    let second = indexing.step(0, now).await.unwrap();
    assert!(first.position <= second.position && second.position < second.head, "{first:?} {second:?}");
    assert!(documents(&db, &little).await > 0);
    indexing.close().await;
    store.close().await;

    // A server goes on where this stopped, and everything is found in the end.
    let server = setup().jwt().on(&db).start().await;
    indexed(&db).await;
    let last = format!("w99x1899y{}", "z".repeat(20));
    assert_eq!(found(&server.as_subject("ann"), &last).await, [much]);
    assert_eq!(found(&server.as_subject("bob"), "needle").await, [little]);
}

#[tokio::test]
async fn an_owner_whose_events_wait_is_told_up_to_when_everything_is_searched() {
    let db = Db::new().await;
    let server = setup().jwt().on(&db).start().await;
    let (ann, bob) = (server.as_subject("ann"), server.as_subject("bob"));
    let run = ann.start_run().await;
    bob.start_run().await;
    indexed(&db).await;
    let owner = ann.run(&run).await["owner_id"].as_str().unwrap().to_owned();
    server.stop().await;
    let mut holder = db.connect().await;
    execute(&mut holder, "begin; select from store.search_progress for update".to_owned()).await;
    let deferred = format!("insert into store.search_deferred values (0, '{owner}', 0, 0, '2026-01-01 00:00:00Z')");
    execute(&mut db.connect().await, deferred).await;
    let server = setup().jwt().on(&db).start().await;
    let (ann, bob) = (server.as_subject("ann"), server.as_subject("bob"));
    let searched =
        async |api: &crate::support::api::Api| api.get("/api/runs?q=absent").await.expect(200)["searched"].clone();
    assert_eq!(searched(&ann).await["up_to"], "2026-01-01T00:00:00.000000Z");
    assert_eq!(searched(&bob).await["lag_ms"], 0);
    execute(&mut holder, "rollback".to_owned()).await;
    indexed(&db).await;
    assert_eq!(searched(&ann).await["lag_ms"], 0);
}
