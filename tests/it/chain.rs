//! The log proves that it was not edited: every edit of its tables is found, and named where it was made.

mod edits;
mod kept;
mod seals;

use std::{path::Path, sync::Arc};

use serde_json::Value;

use crate::support::{
    api::Api,
    cluster::{Db, execute},
    process::{program, run},
    server::Setup,
};

/// What the program says about everything: its exit code, the faults and the summary. It has the data directory of no
/// server.
pub(crate) async fn verify_all(db: &Db, words: &[&str]) -> (Option<i32>, Vec<Value>, Value) {
    verify_beside(db, db.artifacts.path(), words).await
}

/// The same with the data directory of a server.
pub(super) async fn verify_beside(db: &Db, data_dir: &Path, words: &[&str]) -> (Option<i32>, Vec<Value>, Value) {
    let (url, data_dir) = (db.url(), data_dir.to_str().unwrap());
    let args = [&["verify", "--all", "--json", "--database-url", &url, "--data-dir", data_dir], words].concat();
    let said = run(program(&args), "").await;
    let mut lines: Vec<Value> = said.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let summary = lines.pop().unwrap_or_else(|| panic!("{}", said.stderr));
    (said.code, lines, summary)
}

/// A run of eight events that has ended: with a span at seq 3 and a key at seq 4.
pub(super) async fn eight(api: &Api) -> String {
    let run = api.start_run().await;
    let event = |n: i64| serde_json::json!({ "type": "log.info", "payload": { "n": n } });
    let mut events: Vec<Value> = (3..8).map(event).collect();
    events[0]["span_id"] = "s".into();
    events[1]["event_id"] = "key".into();
    api.emit(&run, Value::Array(events)).await;
    api.complete(&run).await;
    run
}

pub(super) async fn verified(api: &Api, run: &str) -> Value {
    api.get(&format!("/api/runs/{run}/verify")).await.expect(200)
}

/// Edits the tables as somebody would who owns them.
pub(super) async fn as_superuser(db: &Db, text: &str) {
    let mut connection = db.connect().await;
    let free = "alter table store.run_event disable trigger all; ";
    execute(&mut connection, format!("{free}{text}")).await;
}

/// A server that seals every second, and waits until so many runs are sealed.
pub(super) fn sealing(setup: Setup) -> Setup {
    setup.flags(&["--seal-every", "1"])
}

pub(super) async fn until_sealed(db: &Arc<Db>, runs: i64) {
    db.until_number(
        "runs to be sealed",
        "select count(distinct run_id) from store.sealed_run s join store.run r using (run_id) where r.link = s.link",
        runs,
    )
    .await;
}
