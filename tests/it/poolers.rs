//! A pooler between server and database: one that lends a connection for a session does no harm, any other is refused.

use serde_json::json;

use crate::support::{
    api::stream_of,
    cluster::Db,
    pgbouncer::PgBouncer,
    process::{program, run},
    runs::{numbered, seqs},
    server::setup,
    sse::envelopes,
};

#[tokio::test]
async fn a_pooler_that_lends_connections_for_a_session_changes_nothing() {
    let db = Db::new().await;
    let pooler = PgBouncer::before(&db, "pool_mode = session\ndefault_pool_size = 40").await;
    let a = setup().on(&db).through(pooler.url.clone()).jwt().start().await;
    let b = setup().on(&db).through(pooler.url.clone()).jwt().start().await;
    let (ann, bob) = (a.as_subject("ann"), b.as_subject("bob"));
    let run = ann.create(json!({ "title": "of ann" })).await;
    bob.create(json!({ "title": "of bob" })).await;
    let mut reader = b.as_subject("ann").stream(&stream_of(&run)).await;
    reader.caught_up().await;
    for n in 0..20 {
        ann.emit(&run, numbered(n)).await;
    }
    ann.complete(&run).await;
    assert_eq!(envelopes(&reader.rest().await), ann.events(&run).await[2..]);
    assert_eq!(seqs(&ann.events(&run).await), (1..=23).collect::<Vec<_>>());
    bob.get(&format!("/api/runs/{run}")).await.refused(404, "not_found");
    // Connections have the roles and bounds they are opened with.
    let query = "select current_user::text, current_setting('jit'), (select string_agg(title, ',') from runs)";
    for (principal, title) in [(&ann, "of ann"), (&bob, "of bob")] {
        let rows = principal.post("/api/sql", json!({ "query": query })).await.expect(200)["rows"].clone();
        assert_eq!(rows, json!([["runreel_scoped", "off", title]]));
    }
}

#[tokio::test]
async fn a_pooler_that_lends_connections_for_less_than_a_session_is_refused() {
    let db = Db::new().await;
    for mode in ["transaction", "statement"] {
        let pooler = PgBouncer::before(&db, &format!("pool_mode = {mode}")).await;
        for words in [&["serve", "--listen", "127.0.0.1:0"][..], &["doctor"]] {
            let mut command = program(words);
            command.arg("--data-dir").arg(db.data.path()).env("DATABASE_URL", &pooler.url);
            let said = run(command, "").await;
            assert_eq!(said.code, Some(1), "{mode}: {said:?}");
            let advice = "set pool_mode = session";
            assert!(said.stdout.contains(advice) || said.stderr.contains(advice), "{mode}: {said:?}");
        }
    }
}
