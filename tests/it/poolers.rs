//! A pooler between server and database: one that lends a connection for a session does no harm, any other is refused.

use std::process::Stdio;

use serde_json::json;
use tokio::process::Command;

use crate::support::{
    api::stream_of,
    cluster::Db,
    pgbouncer::PgBouncer,
    process::{program, run as run_program},
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
    for (principal, title) in [(&ann, "of ann"), (&bob, "of bob")] {
        let rows =
            principal.post("/api/sql", json!({ "query": "select title from runs" })).await.expect(200)["rows"].clone();
        assert_eq!(rows, json!([[title]]));
    }
    // Connections have the roles and bounds they are opened with, but psql cannot set its own.
    let sql = |words: &[&str]| {
        let mut command = program(&["sql", "--format", "csv"]);
        command.args(words).arg("--data-dir").arg(db.data.path()).env("DATABASE_URL", &pooler.url);
        run_program(command, "")
    };
    let said = sql(&["select current_user, current_setting('jit'), (select count(*) from runs)"]).await;
    assert_eq!(said.stdout.lines().last(), Some("runreel_reader,off,2"), "{said:?}");
    let psql = format!("{} sql --data-dir {}", env!("CARGO_BIN_EXE_runreel"), db.data.path().display());
    let mut terminal = Command::new("script");
    terminal.args(["-qec", &psql, "/dev/null"]).env("DATABASE_URL", &pooler.url).env("NO_COLOR", "1");
    terminal.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let said = run_program(terminal, "").await;
    assert!(said.code == Some(1) && said.stdout.contains("give the URL of Postgres itself"), "{said:?}");
}

#[tokio::test]
async fn a_pooler_that_lends_connections_for_less_than_a_session_is_refused() {
    let db = Db::new().await;
    for mode in ["transaction", "statement"] {
        let pooler = PgBouncer::before(&db, &format!("pool_mode = {mode}")).await;
        for words in [&["serve", "--listen", "127.0.0.1:0"][..], &["doctor"], &["sql", "select 1"]] {
            let mut command = program(words);
            command.arg("--data-dir").arg(db.data.path()).env("DATABASE_URL", &pooler.url);
            let said = run_program(command, "").await;
            assert_eq!(said.code, Some(1), "{mode}: {said:?}");
            let advice = "set pool_mode = session";
            assert!(said.stdout.contains(advice) || said.stderr.contains(advice), "{mode}: {said:?}");
        }
    }
}
